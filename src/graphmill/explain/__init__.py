"""Explanations of predicted links: the edges and paths of the graph that carried a score."""
