"""The model behind the simulated cohort: outcomes whose coefficients grew on a known tree.

Subject i has non-negative intensities λ_ik of K groups of codes, which change from year to year. The regressors of a
year are x_ik = (√λ_ik − mean_k) / sd_k, outcome j of the next year happens if μ_j + x_i β_j + e > 0 with e ~ N(0, 1),
and the β_j are the leaves of a tree drawn from Kingman's coalescent. Future cost rises with x_i z for the value z of
one internal node.

The codes are written out explicitly. What each means for the outcomes is stated here independently of the definitions
in outcomes.toml, so that labels built from the definitions can be checked against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from coaltree._arrays import Floats, Ints
from coaltree.model.coalescent import sample_tree
from coaltree.model.diffusion import sample_data, sample_nodes
from coaltree.tree import Tree

# Codes that define each of the 21 outcomes, in the order of outcomes.toml. Some define two at once.
OUTCOME_CODES: dict[str, tuple[str, ...]] = {
    "death": ("MEDS_DEATH",),
    "acute_mi": ("ICD9//410.01", "ICD9//410.71", "ICD9//410.91", "ICD10//I21.4"),
    "amputation": ("ICD9PROC//84.12", "ICD9PROC//84.15", "ICD9PROC//84.17"),
    "aneurysm": ("ICD9//441.4", "ICD9//442.2", "ICD10//I71.4"),
    "angioplasty": ("ICD9PROC//00.66", "ICD9PROC//36.05", "ICD9PROC//36.06", "ICD9PROC//36.07"),
    "arterial_catheterisation": ("ICD9PROC//38.91",),
    "atrial_fibrillation": ("ICD9//427.31", "ICD10//I48.91"),
    "bipolar": ("ICD9//296.01", "ICD9//296.44", "ICD9//296.80", "ICD10//F31.9"),
    "cardiac_catheterisation": ("ICD9PROC//37.21", "ICD9PROC//37.22", "ICD9PROC//37.23", "ICD9PROC//88.56"),
    "skin_ulcer": ("ICD9//707.03", "ICD9//707.15", "ICD10//L97.509"),
    "copd": ("ICD9//491.21", "ICD9//492.8", "ICD9//494.0", "ICD9//496", "ICD10//J44.9"),
    "coronary_disease": ("ICD9//413.9", "ICD9//414.01", "ICD9//429.2", "ICD10//I25.10"),
    "depression": ("ICD9//296.20", "ICD9//300.4", "ICD9//311", "ICD10//F32.9"),
    "heart_failure": ("ICD9//428.0", "ICD9//398.91", "ICD9//402.01", "ICD9//404.11", "ICD9//404.93", "ICD10//I50.9"),
    "kidney_disease": ("ICD9//250.40", "ICD9//403.90", "ICD9//585.3", "ICD9//593.9", "ICD10//N18.3"),
    "neurological": ("ICD9//250.60", "ICD9//354.0", "ICD9//357.2", "ICD10//G56.00"),
    "obesity": ("ICD9//278.01", "ICD9//V85.30", "ICD9//V85.41", "ICD10//E66.9"),
    "ophthalmic": ("ICD9//250.50", "ICD9//362.01", "ICD9//362.83", "ICD9//379.23", "ICD10//H35.00"),
    "arthritis": ("ICD9//714.0", "ICD9//715.96", "ICD9//716.9", "ICD10//M06.9"),
    "stroke": ("ICD9//431", "ICD9//433.11", "ICD9//434.91", "ICD9//436", "ICD10//I63.9"),
    "unstable_angina": ("ICD9//411.1", "ICD10//I20.0"),
}
ALSO: dict[str, tuple[str, ...]] = {
    "ICD9//411.1": ("coronary_disease",),
    "ICD10//I20.0": ("coronary_disease",),
    "ICD9//404.11": ("kidney_disease",),
    "ICD9//404.93": ("kidney_disease",),
}

DIABETES = ("ICD9//250.00", "ICD9//250.02", "ICD10//E11.9")
COMPLICATIONS = ("ICD9//250.40", "ICD9//250.50", "ICD9//250.60")  # outcomes that are also diabetes
# Near misses: none of them is an outcome or diabetes.
DECOYS = (
    "ICD9//412",  # old myocardial infarction
    "ICD9//V45.81",  # status post bypass
    "ICD9//V49.75",  # status post amputation
    "ICD9//372.2",  # undotted like the procedure 37.22
    "ICD9//841.2",  # a sprain, undotted like a procedure 84.1
    "ICD9//402.10",  # without heart failure
    "ICD9//433.10",  # without infarction
    "ICD9//427.32",
    "ICD9//296.90",
    "ICD9//251.0",
    "ICD9PROC//41.01",  # undotted like an infarction 410.1
    "ICD9PROC//43.11",  # undotted like a stroke 431.1
    "HCPCS//41000",
)

BILLING = (
    *(f"HCPCS//{code}" for code in (99211, 99212, 99213, 99214, 99215, 99221, 99222, 99223, 99231, 99232, 99233)),
    *(f"HCPCS//{code}" for code in (99281, 99282, 99283, 99284, 99285, 99291, 36415, 71020, 80053, 83036, 85025)),
    *(f"HCPCS//{code}" for code in (93000, 93306, 93015, 93971, 33533, 27447, 27130, 90935, 70450, 74177, 43239)),
    *(f"HCPCS//{code}" for code in ("G0108", "J1815", "A4253")),
)
UNPRICED = ("HCPCS//G0108", "HCPCS//J1815", "HCPCS//A4253")

# ICD9 categories that no outcome touches.
_QUIET = (
    *range(1, 140),
    *range(140, 240),
    *range(240, 249),
    277,
    *range(252, 277),
    *range(280, 290),
    *range(320, 337),
    *range(380, 390),
    *range(451, 460),
    *range(460, 489),
    *range(500, 580),
    *range(600, 630),
    *range(680, 700),
    *range(720, 740),
    *range(780, 830),
)


def ordinary_codes(n: int, rng: np.random.Generator) -> list[str]:
    """Return `n` different codes in the shapes of ICD9 diagnoses (60 %), NDC drugs and LOINC laboratory tests."""
    diagnoses = [f"ICD9//{category:03d}.{digit}" for category in _QUIET for digit in range(10)]
    n_drugs = n_tests = n // 5
    chosen = [diagnoses[i] for i in rng.choice(len(diagnoses), n - n_drugs - n_tests, replace=False)]
    drugs = [f"NDC//{number:011d}" for number in rng.choice(10**9, n_drugs, replace=False) * 7 + 10**9]
    tests = [f"LOINC//{number}-{number % 10}" for number in rng.choice(90000, n_tests, replace=False) + 1000]
    mixed = chosen + drugs + tests
    return [mixed[i] for i in rng.permutation(n)]


def spellings(code: str) -> tuple[str, str, str]:
    """Return three dialects of a code: unchanged, undotted, and with the vocabulary's other name."""
    vocabulary, _, body = code.partition("//")
    if vocabulary not in ("ICD9", "ICD9PROC", "ICD10"):
        return code, code, code
    other = {"ICD9": "ICD9CM", "ICD9PROC": "ICD-9-PROC", "ICD10": "ICD10CM"}[vocabulary]
    bare = body.replace(".", "")
    return code, f"{vocabulary}//{bare}", f"{other}//{bare}"


YEARS = (2008, 2009, 2010)  # a year's intensities drive its codes and the next year's outcomes
N_REFERENCE = 20_000  # subjects that fix means, standard deviations and intercepts, whatever the size of the cohort
SIGNAL = 1.0  # standard deviation of x β over outcomes
RAREST, COMMONEST = 25 / 19_000, 1_600 / 19_000
GAMMA_SHAPE = 0.35  # few groups of codes are active in one subject
CARRY_OVER = 0.75  # probability that a subject's intensity of a group stays the same for the next year
GROUP_CODES = 40
HABITS = 0.2  # of another hospital: on log intensities and on intercepts
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
    """λ of n subjects for every year, (3, n, K), on average 1/K per group before drift."""
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
    """Return the model of another hospital: the same outcomes and groups of codes, coded differently.

    In every group half of the codes change places, so that other codes are the frequent ones; the frequencies of
    groups and outcomes also differ.
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
