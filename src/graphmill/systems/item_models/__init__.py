"""Recommenders in closed form: popularity, item-kNN (Sarwar et al. 2001), EASE (Steck 2019), iALS (Hu et al. 2008)."""
