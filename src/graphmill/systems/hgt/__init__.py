"""The HGT recipe: typed graphs to node embeddings by link prediction and contrastive terms."""
