"""Reads files into checked Arrow tables: one reader per format; rejects have file, line, column and reason.

It does not import torch.
"""
