"""The methods of a records study in full, in words."""

from __future__ import annotations

from coaltree._version import __version__
from coaltree.records.censoring import MOST, MOST_GROUPS
from coaltree.records.cohort import CohortRule
from coaltree.records.config import FACTORS_ALONE, NARROW, PROBIT, RIDGE_ALL, FeatureConfig, StudyConfig
from coaltree.records.evaluation import methods
from coaltree.records.factors import TRANSFORMERS
from coaltree.records.features import ALL_TIME
from coaltree.records.privacy import FEWEST
from coaltree.records.study import StudyResult
from coaltree.records.widths import WIDTHS
from coaltree.regression.baselines import ROW_WEIGHTED

NAMES = {
    PROBIT: "coalescent probit",
    "ml_probit": "maximum likelihood (probit)",
    "ml_logit": "maximum likelihood (logit)",
    "ridge": "ridge",
    "lasso": "lasso",
    "elastic_net": "elastic net",
    "random_forest": "random forest",
    RIDGE_ALL: "ridge of all outcomes",
    FACTORS_ALONE: "ridge of all outcomes, factors alone",
}


def method_name(method: str, study: StudyConfig) -> str:
    """Return the name by which readers know a method, and that it has factors alone where others have codes."""
    if method == PROBIT and study.model.outcomes == "time":
        return "coalescent regression of days at risk"
    alone = study.has_singles and method in NARROW
    return NAMES.get(method, method) + (", factors alone" if alone else "")


def window_text(rule: CohortRule) -> str:
    """Return the two windows in words."""
    first, last = rule.lookback
    begin, end = rule.horizon
    return (
        f"Features are counted from day {first} to day {last}, and outcomes and costs from day {begin} to day {end}, "
        "both ends included, where day 0 is the calendar day of the threshold."
    )


def methods_text(result: StudyResult) -> list[str]:
    """Return the methods in full, as paragraphs."""
    study, rule = result.config, result.config.cohort
    prior = {
        "mask": "If an outcome had happened before the horizon, its label is undefined and not used.",
        "remove": "Subjects who had had any of the outcomes before the horizon are removed.",
        "keep": "Outcomes count whether or not they had happened before.",
    }[rule.prior_outcome]
    inclusion = result.facts["inclusion"] if study.outcomes.inclusion else None
    within = "at any time" if rule.inclusion_days is None else f"within {rule.inclusion_days} days"
    cohort = [
        f"Thresholds: {', '.join(result.facts['thresholds'])}. {window_text(rule)}",
        "Subjects must be born by day 0 and under observation on it: within one period from OBSERVATION_START to "
        "OBSERVATION_END, periods that touch being one. In data without any OBSERVATION_START subjects are taken to be "
        + {"always": "always observed until they leave. ", "first_event": "observed from their first event on. "}[
            rule.without_periods
        ]
        + "Observation ends with that period, with death, or with the data, whichever is first; events after that day "
        "are ignored, events on it count. "
        + (
            "The data end with the last event; dates after the day of the study, and the last events of at most one "
            "subject in a hundred if they come more than a year after everybody else's, do not count as such, unless "
            "most subjects have events after the day of the study alone: such dates have been shifted. "
            if rule.data_end is None
            else f"The data end on {rule.data_end}. "
        )
        + f"Minimum history: {rule.min_history_days} days. Minimum follow-up: {rule.min_follow_up_days} days, or until "
        "death.",
        (
            f"Subjects must have one of these codes {within} before the threshold: {inclusion}."
            if inclusion
            else "No codes were required for inclusion."
        ),
    ]
    labels = (
        "An outcome has happened (1) if one of its codes is dated in the horizon; otherwise the label is undefined if "
        f"observation ended before the horizon did, and else 0. {prior} Outcomes with fewer than "
        f"{study.outcomes.min_events} events among training subjects are left out."
    )
    leaving = (
        "Labels were given; subjects without one are left out, whatever the reason."
        if study.outcomes.labels is not None
        else f"{leaving_text(rule, study.outcomes.censoring)}{_row_weighted(study)}"
    )
    excluded = f", without codes that begin with {', '.join(study.features.exclude)}" if study.features.exclude else ""
    features = (
        f"Codes were counted by subject in one spelling{excluded}{_windows(study.features)}. Columns with at least "
        f"{study.features.min_subjects} training subjects were used ({result.facts['n_codes']} columns); the square "
        f"roots of their counts were {_reduction(study.features)} and standardised.{_beside(study.features)}"
        f"{_singles(result)} In every fold factors were fitted to the training subjects alone and applied to the "
        "others."
    )
    baselines = ", ".join(method_name(name, study) for name in methods(study)[1:])
    kind = {
        "binary": "a probit regression of the labels",
        "time": "a Poisson regression of events and the days at risk of each outcome, with a rate that is constant "
        "over the horizon; who left counts for the days observed, and who died without the outcome for as long as "
        "others like them are observed. Its risks are those of an event in a whole horizon",
    }[study.model.outcomes]
    model = (
        f"The coalescent regression is {kind}. It ran {study.model.n_chains} chain(s) of {study.model.n_iter} "
        f"iterations, the first {study.model.burn_in} dropped (final fit: R-hat {result.facts['r_hat']:.3f}, effective "
        f"sample size {result.facts['bulk_ess']:.0f}). Baselines: {baselines or 'none'}."
    )
    validation = (
        f"{study.validation.n_folds}-fold cross-validation on the "
        f"{'training cohort' if result.temporal is None else 'first threshold'}, folds stratified over all outcomes; "
        + (
            "validation by fitting to the whole first cohort and predicting the subjects that the data set holds out. "
            if result.facts.get("held_out")
            else "temporal validation by fitting to the whole first cohort and predicting the second, whose subjects "
            "may overlap with the first and whose horizons begin after the first's have ended. "
            if result.temporal is not None and study.validation.overlap == "refuse"
            else "temporal validation by fitting to the whole first cohort and predicting the second, whose subjects "
            "and horizons may overlap with the first's. "
            if result.temporal is not None
            else "no temporal validation. "
        )
        + "Areas under the ROC curve are of the linear predictor, within folds; outcomes of one class have none. "
        f"Intervals ({study.validation.level:.0%}) and differences are from {study.validation.n_resamples} bootstrap "
        "resamples of subjects, the same for all methods."
    )
    paragraphs = [*cohort, labels, leaving, features, model, validation]
    if result.separation is not None:
        source = {
            "prices": "the price of each billed code; codes without a price cost nothing",
            "observed": "the payments that events carry",
        }[study.cost.source]
        criterion = {
            "rank": "Spearman's correlation of risk with cost over the horizon, subjects who left weighted out by the "
            "inverse probability of staying; of the nodes within one standard error of the highest, the one with most "
            "outcomes",
            "gap": "the difference in mean cost between the quarters with the highest and the lowest risk",
        }[study.cost.criterion]
        paragraphs.append(
            f"Cost is {source}. The node of the tree was chosen in the training cohort by {criterion}. Mean cumulative "
            "cost of quarters of risk weights each day's cost by the inverse of the Kaplan–Meier probability, within "
            "the quarter, of still being observed (Bang and Tsiatis, with partitions of one day); death ends cost "
            f"without censoring. Bands are {study.cost.level:.0%} pointwise intervals of {study.cost.n_resamples} "
            "bootstrap resamples."
        )
    paragraphs.append(
        f"Numbers of subjects from 1 to {FEWEST - 1} are not shown, numbers that would give them away are bounded "
        f"(370+) or withheld, rules that remove so few are merged, and scores of outcomes with fewer than {FEWEST} "
        f"events are withheld. Seed {study.seed}; coaltree {__version__}."
    )
    return paragraphs


def leaving_text(rule: CohortRule, censoring: str) -> str:
    """Return how subjects count who died or left before their label was known."""
    death = {
        "censor": "Death before the end of the horizon leaves the labels of other outcomes that had not happened "
        "undefined, as leaving does: risks are those in a world without death.",
        "negative": "Death is a competing risk: who died in the horizon without an outcome did not have it (0), and "
        "risks are those of having it before death.",
    }[rule.death]
    if censoring == "absent":
        return (
            f"{death} Subjects who left before their label was known count as if the outcome had not happened: what is "
            "not recorded is taken as absent, so risks are understated where many left."
        )
    if censoring == "drop":
        return (
            f"{death} Subjects who left before their label was known are left out. Those who had the event before they "
            "left are not, so risks are overstated, and calibration, which has the same labels, cannot show it."
        )
    return (
        f"{death} For subjects who left before their label was known others stand in: every known label counts 1/G, "
        "where G is the Kaplan\N{EN DASH}Meier probability of still being observed on the day of the event, of death "
        f"or of the end of the horizon, among subjects with a similar chance of leaving (up to {MOST_GROUPS} groups, "
        "by a model of leaving given codes, other regressors and earlier outcomes). This assumes that leaving depends "
        "on these alone, not on what would have happened next to subjects alike. No label counts more than "
        f"{MOST:g} times, and the weights of an outcome are scaled to their effective number. Fits, baselines, areas, "
        "losses, calibration and decision curves have the same weights."
    )


def _row_weighted(study: StudyConfig) -> str:
    """Name the baselines that cannot use the weights of single labels."""
    found = [method_name(name, study) for name in study.model.baselines if name in ROW_WEIGHTED]
    if study.outcomes.censoring != "weights" or not found:
        return ""
    return (
        f" Except: {', '.join(found)}, in which a forest or a kernel for all outcomes together has one weight per "
        "subject, the mean over its labels; their risks are too high where many left."
    )


def _singles(result: StudyResult) -> str:
    """The single codes beside the factors."""
    if not result.config.has_singles:
        return ""
    n, width = result.facts["n_singles"], result.facts["width"]
    chosen = (
        f"{n} single codes stand beside them, of which each has a width of its own, {width:g} times that of factors to "
        "begin with"
        if n
        else "Single codes are left out, for they did not help to predict subjects held out"
    )
    return (
        f" {chosen} (chosen from {', '.join(f'{each:g}' for each in WIDTHS)} by the held-out log loss of a ridge "
        "regression of all outcomes, in every fold anew). Where single codes are used, a fold has one chain. Codes "
        f"that fewer than {FEWEST} subjects lack are not among them."
    )


def _windows(features: FeatureConfig) -> str:
    if features.windows is None:
        return ""
    named = ["all time" if days == ALL_TIME else f"{days} days" for days in features.windows]
    return f", in windows of {', '.join(named)} before the threshold"


def _reduction(features: FeatureConfig) -> str:
    if features.transformer == "none":
        return "used without factorisation"
    return f"reduced to {features.n_factors} factors by {TRANSFORMERS[features.transformer]}"


def _beside(features: FeatureConfig) -> str:
    """The regressors besides the factors."""
    parts = [
        text
        for wanted, text in (
            (features.age, "age on day 0"),
            (features.sex, "sex"),
            (features.measurements, "the last value and the yearly trend of numeric codes"),
        )
        if wanted
    ]
    found = f" Beside them stand {', '.join(parts)}, standardised, missing values at the mean." if parts else ""
    if features.days_since:
        found += " For each code 1 / (1 + days since it was last recorded / 30) is a column, too."
    return found
