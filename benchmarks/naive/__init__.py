"""Plain implementations of the published systems, written from their equations: rivals that cannot be installed."""
