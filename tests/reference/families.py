"""Families of outcomes, written for reading: densities by scipy, slopes by their definition."""

import numpy as np
from scipy import stats


def log_density(eta, counts, exposure):
    """Log probability of each count, of mean exposure × exp(η), less the terms that do not depend on η."""
    return stats.poisson.logpmf(counts, exposure * np.exp(eta)) - stats.poisson.logpmf(counts, exposure)


def values_and_slopes_of_counts(eta, counts, exposure, weights):
    """Sum of weighted log densities per outcome, up to a constant, and the weighted slope of each in η."""
    values = (weights * (log_density(eta, counts, exposure) - exposure)).sum(axis=0)
    return values, weights * (counts - exposure * np.exp(eta))


def values_and_slopes_of_measurements(eta, labels, weights):
    """Sum of weighted log densities of unit variance per outcome, up to a constant, and slopes; NaN is no label."""
    known = ~np.isnan(labels)
    density = np.where(known, stats.norm.logpdf(labels, eta) - stats.norm.logpdf(0.0), 0.0)
    return (weights * density).sum(axis=0), np.where(known, weights * (labels - eta), 0.0)
