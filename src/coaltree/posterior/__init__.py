"""What is said of weighted trees: the ensemble, its consensus, predictions, diagnostics."""
