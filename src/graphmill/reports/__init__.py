"""Describes a run from its files: card, page, health report."""
