"""Future cost: from prices or payments, per day after the threshold, and which node of the outcome tree predicts it.

The mean cumulative cost of a group up to day t, when some subjects leave early, is estimated by weighting each day's
cost by the inverse probability of still being observed (Bang & Tsiatis 2000, with partitions of one day):

    M(t) = (1/n) Σ_{d ≤ t} Σ_i cost_i(d) / G(d),

where G(d) is the Kaplan–Meier estimate, within the group, of not having left before day d. Death is not censoring: the
dead are known to incur no further cost. Given the group, leaving must be independent of cost.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from coaltree._arrays import Bools, Floats, Ints
from coaltree.randomness import RandomState, as_generator
from coaltree.records.censoring import still_observed
from coaltree.records.codes import normalise, split
from coaltree.records.cohort import Cohort
from coaltree.records.engine import Events, fetch, fetch_large, memory_table
from coaltree.records.errors import RecordsError
from coaltree.records.importer import choose_columns
from coaltree.records.privacy import FEWEST, significant
from coaltree.validation import check_choice, check_count

CRITERIA = ("rank", "gap")
N_RESAMPLES = 500
LEVEL = 0.9
N_GROUPS = 4


@dataclass(frozen=True, eq=False)
class Costs:
    """Cost of every subject on every day of the horizon, and how long each was observed.

    Attributes
    ----------
    daily : CSR matrix (n, D)
        Cost; column 0 is the first day of the horizon.
    seen : ndarray (n,)
        Days observed, from 0 to D: subject i was under observation on columns 0 … seen_i − 1.
    died : ndarray (n,)
        Whether observation ended by death within the horizon, so that later costs are known to be 0.
    unpriced : dict
        Codes of the price table's vocabularies without a price, with their numbers of events in the data.
    """

    daily: Any
    seen: Ints
    died: Bools
    unpriced: dict[str, int]

    @property
    def total(self) -> Floats:
        """Cost over the observed part of the horizon, (n,)."""
        return np.asarray(self.daily.sum(axis=1)).ravel()

    def take(self, rows: npt.NDArray[Any]) -> Costs:
        """Costs of some subjects."""
        return Costs(self.daily[rows], self.seen[rows], self.died[rows], self.unpriced)


def load_prices(path: str | Path) -> dict[str, float]:
    """Read a price table: CSV with columns code (VOCABULARY//CODE, or a bare HCPCS code) and price."""
    prices: dict[str, float] = {}
    try:
        with Path(path).open(newline="", encoding="utf-8-sig") as stream:
            rows = csv.DictReader(stream)
            names = choose_columns(rows.fieldnames or [], ["code", "price"], [], f"the price table {path}")
            for line, row in enumerate(rows, start=2):
                code, text = (row[names["code"]] or "").strip(), (row[names["price"]] or "").strip()
                if not code:
                    raise RecordsError(f"{path}, row {line}: there is no code.")
                try:
                    price = float(text)
                except ValueError:
                    raise RecordsError(f"{path}, row {line}: the price {text!r} is not a number.") from None
                if not 0 <= price < float("inf"):
                    raise RecordsError(f"{path}, row {line}: the price {text} must be finite and not negative.")
                normal = normalise(code if "/" in code else f"HCPCS//{code}")
                if prices.setdefault(normal, price) != price:
                    raise RecordsError(f"{path}, row {line}: {normal} has two prices, {prices[normal]} and {price}.")
    except FileNotFoundError:
        raise RecordsError(f"the price table {path} does not exist.") from None
    except UnicodeDecodeError as error:
        raise RecordsError(f"the price table {path} is not text in UTF-8: {error}.") from error
    if not prices:
        raise RecordsError(f"the price table {path} has no rows.")
    return prices


def future_costs(events: Events, cohort: Cohort, prices: Mapping[str, float] | None = None) -> Costs:
    """Cost on every day of the horizon: events times the price of their code, or the payments recorded with events.

    Parameters
    ----------
    events : Events
        From `open_events`.
    cohort : Cohort
        From `build_cohort`.
    prices : mapping of code to price, optional
        From `load_prices`; without it the column `cost` of the events is used.

    Returns
    -------
    Costs
    """
    first, last = cohort.rule.horizon
    table = events.table.inner_join(cohort.window(first, last), "subject_id")
    table = table.filter(table.time >= table.begins, table.time < table.ends)
    unpriced: dict[str, int] = {}
    if prices is not None:
        known = {spelling: prices[code] for spelling, code in events.codes.items() if code in prices}
        if not known:
            raise RecordsError("no code of the data is in the price table; check its vocabulary, such as HCPCS//99213.")
        unpriced = _unpriced(events, prices)
        priced = memory_table({"code": list(known), "price": np.array(list(known.values()), dtype=np.float64)})
        table = table.inner_join(priced, "code")
        amount = table.price
    elif events.has_cost:
        table = table.filter(table.cost.notnull())
        amount = table.cost
    else:
        raise RecordsError("events carry no cost; give a price table (cost.prices in the config).")
    table = table.select(row=table.row, day=table.time.date(), amount=amount)
    found = fetch_large(events.connection, table.group_by("row", "day").agg(amount=table.amount.sum()))
    row = found["row"].astype(np.int64)
    day = found["day"].astype("datetime64[D]").astype(np.int64) - cohort.threshold[row] - first
    n_days = last - first + 1
    daily = sparse.csr_matrix((found["amount"].astype(np.float64), (row, day)), shape=(len(cohort), n_days))
    seen = np.clip(cohort.last_day - cohort.threshold - first + 1, 0, n_days)
    within = cohort.last_day <= cohort.threshold + last
    return Costs(daily, seen, cohort.died & within, unpriced)


def _unpriced(events: Events, prices: Mapping[str, float]) -> dict[str, int]:
    vocabularies = {split(code)[0] for code in prices}
    missing = {s: c for s, c in events.codes.items() if c not in prices and split(c)[0] in vocabularies}
    if not missing:
        return {}
    chosen = events.table.filter(events.table.code.isin(list(missing)))
    found = fetch(chosen.group_by("code").agg(n=chosen.count()))
    numbers: dict[str, int] = {}
    for spelling, n in zip(found["code"].tolist(), found["n"].tolist(), strict=True):
        numbers[missing[spelling]] = numbers.get(missing[spelling], 0) + int(n)
    return dict(sorted(numbers.items()))


# ---- means under censoring


def mean_cumulative(costs: Costs, weights: Floats | None = None) -> Floats:
    """M(t) for rows of weights (B, n), by default one row of ones: (B, D)."""
    n, n_days = costs.daily.shape
    weights = np.ones((1, n)) if weights is None else weights
    left = (costs.seen < n_days) & ~costs.died
    remaining = still_observed(costs.seen, left, n_days, weights)
    daily = np.asarray((costs.daily.T @ weights.T).T)
    mean = np.divide(daily, remaining, out=np.zeros_like(daily), where=remaining > 0)
    return np.cumsum(mean / weights.sum(axis=1, keepdims=True), axis=1)


@dataclass(frozen=True, eq=False)
class CostCurves:
    """Mean cumulative cost of groups of increasing risk, (G, D), with pointwise bootstrap bands.

    Days by which fewer than 11 subjects of a group have incurred any cost are NaN: with known prices, the mean would
    reveal how many. So are days between the points of curves with a `step`.
    """

    mean: Floats
    low: Floats
    high: Floats
    n: Ints  # subjects of each group
    level: float
    n_resamples: int


def cost_curves(
    costs: Costs,
    risk: npt.ArrayLike,
    n_groups: int = N_GROUPS,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    random_state: RandomState = 0,
    step: int = 1,
) -> CostCurves:
    """Split subjects into groups of equal size by risk, and compute the cumulative cost of each.

    Parameters
    ----------
    costs : Costs
        From `future_costs`.
    risk : array-like (n,)
        Risk of every subject.
    n_groups : int
        Number of groups.
    n_resamples, level : int, float
        Bootstrap resamples of subjects, and the level of the bands.
    random_state : int, Generator, …
        Seed.
    step : int
        Days between two points. Daily curves reveal the cost of single days, and with known prices who caused them. A
        longer step gives points that may be shown: they have three significant digits, and at least 11 subjects of the
        group incurred a cost between any two of them.

    Returns
    -------
    CostCurves
    """
    check_count(step, "step", at_least=1)
    n_groups = check_count(n_groups, "n_groups", at_least=2)
    risk = np.asarray(risk, dtype=np.float64)
    if len(risk) < 2 * n_groups:
        raise RecordsError(f"{len(risk)} subjects are too few for {n_groups} groups by risk.")
    rng = as_generator(random_state)
    order = np.argsort(risk, kind="stable")
    parts = np.array_split(order, n_groups)
    curves = []
    for rows in parts:
        group = costs.take(rows)
        resamples = rng.multinomial(len(rows), np.full(len(rows), 1 / len(rows)), n_resamples).astype(np.float64)
        drawn = mean_cumulative(group, resamples)
        low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
        curve = np.stack([mean_cumulative(group)[0], low, high])
        curves.append(_points(curve, group, step))
    mean, low, high = (np.stack([curve[k] for curve in curves]) for k in range(3))
    return CostCurves(mean, low, high, np.array([len(rows) for rows in parts]), level, n_resamples)


def _points(curve: Floats, costs: Costs, step: int) -> Floats:
    """Return a curve (3, D) with NaN on days that are not shown; the last days are chosen first."""
    n, n_days = costs.daily.shape
    rows, days = costs.daily.nonzero()
    first = np.full(n, n_days)
    np.minimum.at(first, rows, days)
    begin = int(np.sort(first)[FEWEST - 1]) if n >= FEWEST else n_days  # the day by which that many have a cost
    kept: list[int] = []
    for day in reversed([*range(step - 1, n_days - 1, step), n_days - 1]):
        since = rows[(days > day) & (days <= kept[-1])] if kept and step > 1 else rows
        if day >= begin and len(np.unique(since)) >= FEWEST:
            kept.append(day)
    found = np.full_like(curve, np.nan)
    found[:, kept] = curve[:, kept] if step == 1 else np.vectorize(significant, otypes=[float])(curve[:, kept])
    return found


# ---- the node that predicts cost


@dataclass(frozen=True, eq=False)
class NodeSeparation:
    """How well the risk of each node of a tree separates training cost.

    An outcome with few events has nearly the same model as its clade, so the two separate cost almost equally well and
    chance decides which comes first. Given the numbers of outcomes below the nodes, the chosen node is therefore not
    the very best but the largest clade whose rank correlation is within one standard error of the best, where the
    standard error is that of the difference between the two over bootstrap resamples.

    Attributes
    ----------
    rank_correlation : ndarray (n_nodes,)
        Spearman correlation of risk and cost over the horizon, weighted for subjects who left.
    gap : ndarray (n_nodes,)
        Mean cost of the quarter with the highest risk minus that of the quarter with the lowest; NaN if fewer than 11
        subjects of either incurred a cost.
    chosen : ndarray (n_nodes,)
        Share of bootstrap resamples in which the node has the highest rank correlation.
    shortfall_error : ndarray (n_nodes,)
        Standard error, over resamples, of the highest rank correlation minus the node's.
    low, high : ndarray (n_nodes,)
        Bootstrap interval of the rank correlation.
    best : int
        The chosen node.
    criterion : str
        The criterion by which it was chosen.
    """

    rank_correlation: Floats
    gap: Floats
    chosen: Floats
    shortfall_error: Floats
    low: Floats
    high: Floats
    best: int
    criterion: str


def node_separation(
    costs: Costs,
    risk: Floats,
    criterion: str = "rank",
    n_resamples: int = 200,
    random_state: RandomState = 0,
    sizes: npt.ArrayLike | None = None,
    level: float = LEVEL,
) -> NodeSeparation:
    """Compare the nodes of a tree by how well they separate cost.

    Parameters
    ----------
    costs : Costs
        From `future_costs`.
    risk : ndarray (n, n_nodes)
        Risk of every subject under the model of every node.
    criterion : {"rank", "gap"}
        Choose the node by rank correlation with cost, or by the gap between the highest and the lowest quarter.
    n_resamples : int
        Bootstrap resamples, to find how often each node is the best.
    random_state : int, Generator, …
        Seed.
    sizes : ndarray (n_nodes,), optional
        Numbers of outcomes below the nodes. With these and the criterion "rank", the largest clade within one standard
        error of the best is chosen; without them, the best.
    level : float
        Of the intervals of rank correlations.

    Returns
    -------
    NodeSeparation
    """
    check_choice(criterion, "criterion", CRITERIA)
    from scipy.stats import rankdata

    n, n_days = costs.daily.shape
    left = (costs.seen < n_days) & ~costs.died
    remaining = still_observed(costs.seen, left, n_days, np.ones((1, n)))[0]
    # A subject who did not leave is complete, and also represents those who left before its last day.
    weight = np.where(left, 0.0, 1.0 / np.maximum(remaining[np.maximum(costs.seen - 1, 0)], 1e-12))
    complete = weight > 0
    if complete.sum() < 2 * N_GROUPS:
        raise RecordsError(f"the cost of only {int(complete.sum())} training subjects is known over the horizon.")
    cost = rankdata(costs.total[complete])
    ranks = rankdata(risk[complete], axis=0)
    rng = as_generator(random_state)
    resamples = rng.multinomial(int(complete.sum()), np.full(len(cost), 1 / len(cost)), n_resamples)
    rows = np.vstack([np.ones(len(cost)), resamples]) * weight[complete]
    correlation = _correlations(ranks, cost, rows)
    winners = np.bincount(np.argmax(correlation[1:], axis=1), minlength=risk.shape[1])
    quarter = max(n // N_GROUPS, 1)
    gap, hidden = np.empty(risk.shape[1]), np.zeros(risk.shape[1], dtype=bool)
    for node in range(risk.shape[1]):
        order = np.argsort(risk[:, node], kind="stable")
        parts = [costs.take(part) for part in (order[:quarter], order[-quarter:])]
        low, high = (mean_cumulative(part)[0, -1] for part in parts)
        gap[node] = high - low
        hidden[node] = any(np.count_nonzero(part.total) < FEWEST for part in parts)
    best = int(np.argmax(correlation[0] if criterion == "rank" else gap))
    gap[hidden] = np.nan  # with known prices it would reveal how many
    shortfall = correlation[:, [best]] - correlation
    error: Floats = shortfall[1:].std(axis=0) if n_resamples > 1 else np.zeros(risk.shape[1])
    if criterion == "rank" and sizes is not None:
        alike = np.flatnonzero(shortfall[0] <= error)
        best = int(alike[np.lexsort((-correlation[0][alike], -np.asarray(sizes)[alike]))[0]])
    low, high = np.quantile(
        correlation[1:] if n_resamples else correlation, [0.5 - 0.5 * level, 0.5 + 0.5 * level], axis=0
    )
    return NodeSeparation(correlation[0], gap, winners / max(n_resamples, 1), error, low, high, best, criterion)


def _correlations(ranks: Floats, cost: Floats, weights: Floats) -> Floats:
    """Weighted correlations of every column of `ranks` with `cost`, for rows of weights (B, n): (B, n_nodes)."""
    total = weights.sum(axis=1, keepdims=True)
    mean_rank, mean_cost = weights @ ranks / total, weights @ cost[:, None] / total
    covariance = weights @ (ranks * cost[:, None]) / total - mean_rank * mean_cost
    spread = (weights @ ranks**2 / total - mean_rank**2) * (weights @ cost[:, None] ** 2 / total - mean_cost**2)
    scale = np.sqrt(np.maximum(spread, 0.0))
    found: Floats = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
    return found
