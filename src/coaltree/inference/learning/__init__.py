"""Markov chains over the tree, the covariance and the noise together."""
