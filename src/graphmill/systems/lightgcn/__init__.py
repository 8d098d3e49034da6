"""LightGCN: vectors of users and items, propagated over the user-item graph (He et al., SIGIR 2020)."""
