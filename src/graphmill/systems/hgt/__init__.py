"""HGT: vectors of a typed graph's nodes by attention over typed neighbours (Hu et al. 2020), which score links."""
