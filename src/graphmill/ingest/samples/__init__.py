"""Makers of synthetic inputs, seeded, in the formats that the readers take: one module a chain; ``catalog`` writes them."""
