"""Bytes become checked Arrow tables: one reader a format, rejects with file, line, column and reason.

Imports no torch.
"""
