"""What the benchmarks share, and the measurements that a benchmark runs in processes of their own."""
