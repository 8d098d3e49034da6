"""The basis of all compiled kernels (see README.md): compilation and its cache, threads, vectors, register blocks."""
