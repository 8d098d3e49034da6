"""Measures how far one embedding has moved from another, and names what happened."""
