"""Matrix factorisation: a vector for each user and each item, by a sampled softmax or by BPR (Rendle et al. 2009)."""
