"""KGAT: a recommender on the collaborative knowledge graph, with two phases per epoch."""
