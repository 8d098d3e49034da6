"""The engine that trains every system: contract with the recipes, loop, precision, memory, checkpoints, processes."""
