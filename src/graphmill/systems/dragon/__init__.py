"""DRAGON: a user-item graph, a frozen item-item graph from features, and a user-user graph from shared items."""
