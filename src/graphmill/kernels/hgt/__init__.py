"""HGT's attention: a layer calls ``projected``; docs/explanation/hgt_kernel.md describes the modules."""
