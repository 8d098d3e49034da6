"""HGT's attention; docs/explanation/hgt_kernel.md describes the modules."""
