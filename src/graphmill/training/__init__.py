"""The one engine that trains every system: contract, loop, precision, reduction, memory, checkpoints, processes."""
