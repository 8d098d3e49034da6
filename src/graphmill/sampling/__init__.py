"""What samplers share: keyed random numbers, negatives and ranges, vectorised.

A sampler of one system is in its folder.
"""
