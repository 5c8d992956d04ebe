"""The model behind the simulated cohort: outcomes whose coefficients grew on a known tree.

Subject i has non-negative intensities λ_ik of K groups of codes, which change from year to year. The regressors of a
year are x_ik = (√λ_ik − mean_k) / sd_k, outcome j of the next year happens if μ_j + x_i β_j + e > 0 with e ~ N(0, 1),
and the β_j are the leaves of a tree drawn from Kingman's coalescent. Future cost rises with x_i z for the value z of
one internal node.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.model.coalescent import sample_tree
from coaltree.model.diffusion import sample_data, sample_nodes
from coaltree.records.vocabulary import BILLING, OUTCOME_CODES, UNPRICED, ordinary_codes
from coaltree.tree import Tree

YEARS = (2008, 2009, 2010)  # a year's intensities drive its codes and the next year's outcomes
N_REFERENCE = 20_000  # subjects that fix means, standard deviations and intercepts, whatever the size of the cohort
SIGNAL = 1.0  # standard deviation of x β over outcomes
RAREST, COMMONEST = 25 / 19_000, 1_600 / 19_000
GAMMA_SHAPE = 0.35  # few groups of codes are active in one subject
CARRY_OVER = 0.75  # probability that a subject's intensity of a group stays the same for the next year
GROUP_CODES = 40
HABITS = 0.2  # of another hospital: on the log of intensities and on intercepts
COST_SLOPE = 0.9  # of the log of the expected number of bills on the node's standardised risk


@dataclass(frozen=True)
class CohortModel:
    """Everything that is fixed before the first subject is drawn."""

    tree: Tree  # P outcomes
    coef: Floats  # (P, K), β
    nodes: Floats  # (2P−1, K): β, then the values of the internal nodes
    intercept: Floats  # (2, P), μ for the outcomes of 2009 and 2010
    cost_node: int  # the internal node that cost follows
    codes: tuple[str, ...]  # ordinary codes
    group_code: Ints  # (K, GROUP_CODES), positions in `codes`
    code_weight: Floats  # (GROUP_CODES,), Zipf, adds up to 1
    drift: Floats  # (3, K), factor on the intensities of each year
    prices: dict[str, float]
    mean: Floats  # (K,) of √λ
    scale: Floats  # (K,)
    risk_scale: float  # standard deviation of x z at the node of cost
    events_per_year: float

    @property
    def n_factors(self) -> int:
        """K, the number of groups of codes."""
        return int(self.coef.shape[1])

    def regressors(self, intensity: Floats) -> Floats:
        """X of intensities λ, (n, K)."""
        return (np.sqrt(intensity) - self.mean) / self.scale

    def cost_risk(self, x: Floats) -> Floats:
        """Standardised risk of the node that cost follows, (n,)."""
        risk: Floats = x @ self.nodes[self.cost_node] / self.risk_scale
        return risk


def draw_intensities(rng: np.random.Generator, n: int, drift: Floats) -> Floats:
    """λ of n subjects for every year, (3, n, K), on average 1/K a group before drift."""
    n_factors = drift.shape[1]
    scale = 1.0 / (GAMMA_SHAPE * n_factors)
    activity = rng.lognormal(-0.08, 0.4, (n, 1))
    years = np.empty((len(YEARS), n, n_factors))
    group = rng.gamma(GAMMA_SHAPE, scale, (n, n_factors))
    for year in range(len(YEARS)):
        if year:
            kept = rng.random((n, n_factors)) < CARRY_OVER
            group = np.where(kept, group, rng.gamma(GAMMA_SHAPE, scale, (n, n_factors)))
        years[year] = activity * group * drift[year]
    return years


def draw_model(rng: np.random.Generator, n_factors: int, events_per_year: float) -> CohortModel:
    """Draw tree, coefficients, intercepts, codes and prices."""
    keys = tuple(OUTCOME_CODES)
    tree = sample_tree(len(keys), random_state=rng, names=keys)
    unit = SIGNAL**2 / (n_factors * tree.times[-1])
    covariance = unit * np.eye(n_factors)
    coef = sample_data(tree, covariance, random_state=rng)
    nodes = sample_nodes(tree, coef, covariance, random_state=rng)[0]
    nodes[: len(keys)] = coef

    drift = np.exp(np.cumsum(rng.normal(0.0, 0.1, (len(YEARS), n_factors)), axis=0))
    reference = draw_intensities(rng, N_REFERENCE, drift)
    roots = np.sqrt(reference[0])
    mean, scale = roots.mean(axis=0), roots.std(axis=0)
    x = (roots - mean) / scale
    rates = np.exp(rng.permutation(np.linspace(np.log(RAREST), np.log(COMMONEST), len(keys))))
    rates[0] = max(rates[0], 0.01)  # enough deaths to censor with
    first = np.array([_solve_intercept(x @ beta, rate) for beta, rate in zip(coef, rates, strict=True)])
    cost_node = _distinct_node(tree, x @ nodes.T)

    codes = ordinary_codes(n_factors * GROUP_CODES * 4 // 5, rng)
    group_code = np.stack([rng.choice(len(codes), GROUP_CODES, replace=False) for _ in range(n_factors)])
    weight = 1.0 / np.arange(1, GROUP_CODES + 1) ** 1.1
    prices = {code: round(float(rng.lognormal(5.0, 1.5)), 2) for code in BILLING if code not in UNPRICED}
    return CohortModel(
        tree=tree,
        coef=coef,
        nodes=nodes,
        intercept=np.stack([first, first + rng.normal(0.0, 0.05, len(keys))]),
        cost_node=cost_node,
        codes=tuple(codes),
        group_code=group_code,
        code_weight=weight / weight.sum(),
        drift=drift,
        prices=prices,
        mean=mean,
        scale=scale,
        risk_scale=float((x @ nodes[cost_node]).std()),
        events_per_year=events_per_year,
    )


def with_habits(model: CohortModel, rng: np.random.Generator) -> CohortModel:
    """Return the model of another hospital: the same outcomes and groups of codes, coded in another way.

    In every group half of the codes change places, so that other codes are the frequent ones; groups are more or less
    frequent, and outcomes too.
    """
    codes = model.group_code.copy()
    for row in codes:
        chosen = rng.choice(GROUP_CODES, GROUP_CODES // 2, replace=False)
        row[chosen] = row[rng.permutation(chosen)]
    return replace(
        model,
        group_code=codes,
        drift=model.drift * np.exp(rng.normal(0.0, HABITS, (1, model.n_factors))),
        intercept=model.intercept + rng.normal(0.0, HABITS, (1, model.intercept.shape[1])),
    )


def _solve_intercept(risk: Floats, rate: float) -> float:
    """Return μ for which the mean of Φ(μ + risk) is `rate`."""
    from scipy.optimize import brentq
    from scipy.stats import norm

    return float(brentq(lambda mu: float(norm.cdf(mu + risk).mean()) - rate, -30.0, 10.0))


def _distinct_node(tree: Tree, risk: Floats) -> int:
    """Return the internal node over 3 to 8 outcomes whose risk is least like that of any node but its neighbours."""
    n = tree.n_leaves
    likeness = np.abs(np.corrcoef(risk.T))
    parents = tree.parents()
    sizes = tree.sizes()
    candidates = [n + k for k in range(n - 2) if 3 <= sizes[k] <= 8] or [n + k for k in range(n - 2)]

    def rival(node: int) -> float:
        near = {node, int(parents[node]), *(int(child) for child in tree.children[node - n])}
        return max(float(likeness[node, other]) for other in range(2 * n - 1) if other not in near)

    return min(candidates, key=rival)
