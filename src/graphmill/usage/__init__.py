"""What opens a finished run: links, explanations, new nodes, recommendations, influence, rankings; the Python ``Run``."""
