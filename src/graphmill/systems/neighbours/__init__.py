"""Links by similar neighbourhoods in closed form: spectral vectors, and kNN."""
