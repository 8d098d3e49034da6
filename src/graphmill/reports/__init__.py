"""Describes a run from its files: card, page, Croissant, health report."""
