"""Recommenders from interactions: BPR-MF, KGAT, MMGCN, DRAGON, and what all of them share."""
