"""Many binary outcomes over a learned tree: the probit, its baselines and their comparison."""
