"""Summaries of weighted trees: the ensemble, its consensus, predictions, diagnostics."""
