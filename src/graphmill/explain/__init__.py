"""Explains predicted links by the edges and paths of the graph that contribute to the score."""
