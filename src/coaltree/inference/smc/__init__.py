"""Sequential Monte Carlo over trees, at a given covariance and leaf noise."""
