"""What all compiled kernels stand on: compiling and its cache, threads, vectors, blocks of registers. README.md says how."""
