"""Summaries of weighted trees: clades, consensus, flat clusters, convergence."""
