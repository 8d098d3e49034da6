"""LightGCN: vectors of users and items, smoothed over the user-item graph (He et al., SIGIR 2020)."""
