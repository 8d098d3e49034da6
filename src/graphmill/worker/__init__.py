"""``python -m graphmill.worker``, the old entry point, which calls :mod:`graphmill.runs`."""
