"""Looks at the machine and at what a training would need: doctor, estimates, comparisons of devices and settings."""
