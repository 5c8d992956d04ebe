"""The moves of a chain: coefficients, places in the tree, widths, and the rest given the coefficients."""
