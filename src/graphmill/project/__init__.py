"""``graphmill init``: a Dagster project of one's own, from templates.

Imports neither dagster nor torch.
"""
