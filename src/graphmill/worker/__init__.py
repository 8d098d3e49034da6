"""``python -m graphmill.worker`` as it has always been called; what it does is in :mod:`graphmill.runs`."""
