"""Counts in a time at risk, written for reading: the Poisson density by scipy, its slope by its definition."""

import numpy as np
from scipy import stats


def log_density(eta, counts, exposure):
    """Log probability of each count, of mean exposure × exp(η), less the terms that do not depend on η."""
    return stats.poisson.logpmf(counts, exposure * np.exp(eta)) - stats.poisson.logpmf(counts, exposure)


def values_and_slopes(eta, counts, exposure, weights):
    """Sum of weighted log densities per outcome, up to a constant, and the weighted slope of each in η."""
    values = (weights * (log_density(eta, counts, exposure) - exposure)).sum(axis=0)
    return values, weights * (counts - exposure * np.exp(eta))
