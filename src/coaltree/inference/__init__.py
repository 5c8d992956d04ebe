"""How trees are found: particles, proposals, sequential Monte Carlo, greedy agglomeration."""
