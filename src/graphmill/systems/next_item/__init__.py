"""Next items in closed form: a Markov chain, item-kNN over sessions, and the user's repeats."""
