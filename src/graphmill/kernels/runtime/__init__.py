"""What all compiled kernels stand on (README.md says how): compiling and its cache, threads, vectors, register blocks."""
