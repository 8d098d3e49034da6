"""BPR-MF: matrix factorisation with a pairwise ranking loss (Rendle et al. 2009)."""
