"""Embedding and prediction writers behind one protocol, and the manifest."""
