"""See ``hyper_connections.cpu``."""
