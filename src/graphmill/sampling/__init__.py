"""What samplers share: keyed random numbers, negatives, and ranges. Vectorised, without loops over rows."""
