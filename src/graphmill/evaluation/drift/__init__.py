"""Measures how far one embedding has moved from another, and judges it relative to the effect of another seed."""
