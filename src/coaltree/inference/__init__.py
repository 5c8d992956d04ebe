"""How trees are found: greedy agglomeration, sequential Monte Carlo, Markov chains, and new rows placed in them."""
