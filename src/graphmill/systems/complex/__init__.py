"""ComplEx and DistMult: vectors of nodes and relations whose trilinear products score links."""
