"""HGT's attention: ``projected`` is what a layer calls; see docs/explanation/hgt_kernel.md for what each module holds."""
