"""Hyper-connections, compiled: ``connection`` is the entry, ``loops`` and ``maps`` its compiled parts."""
