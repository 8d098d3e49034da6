"""HGT's attention.

A layer calls ``projected``; docs/explanation/hgt_kernel.md describes the modules.
"""
