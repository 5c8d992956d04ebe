"""The moves of a chain: coefficients, places in the tree, widths, and what is left given the coefficients."""
