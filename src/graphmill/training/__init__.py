"""The engine that trains every system: contract with the systems, loop, precision, memory, checkpoints, processes."""
