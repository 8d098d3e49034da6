"""The DRAGON recipe: a user-item graph, a frozen item-item graph of features and a user-user graph of shared items."""
