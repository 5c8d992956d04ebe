"""The methods of a records study in words, and the card of its model."""

from __future__ import annotations

from coaltree._version import __version__
from coaltree.records.bundle import PROBIT, TravellingModel
from coaltree.records.cohort import CohortRule
from coaltree.records.config import FeatureConfig
from coaltree.records.factors import TRANSFORMERS
from coaltree.records.features import ALL_TIME
from coaltree.records.privacy import FEWEST
from coaltree.records.review import Review
from coaltree.records.study import StudyResult

NAMES = {
    PROBIT: "coalescent probit",
    "ml_probit": "maximum likelihood (probit)",
    "ml_logit": "maximum likelihood (logit)",
    "ridge": "ridge",
    "lasso": "lasso",
    "elastic_net": "elastic net",
    "random_forest": "random forest",
}


def method_name(method: str) -> str:
    """Return a method as readers know it."""
    return NAMES.get(method, method)


def window_text(rule: CohortRule) -> str:
    """Return the two windows in words."""
    first, last = rule.lookback
    begin, end = rule.horizon
    return (
        f"Features are counted from day {first} to day {last}, and outcomes and costs from day {begin} to day {end}, "
        "both ends included, where day 0 is the calendar day of the threshold."
    )


def methods_text(result: StudyResult) -> list[str]:
    """Return the methods in full, a paragraph each."""
    study, rule = result.config, result.config.cohort
    prior = {
        "mask": "If an outcome had happened before the horizon, its label is undefined and not used.",
        "remove": "Subjects who had had any of the outcomes before the horizon are removed.",
        "keep": "Outcomes count whether or not they had happened before.",
    }[rule.prior_outcome]
    death = {
        "censor": "Death before the end of the horizon leaves the labels of other outcomes that had not happened "
        "undefined.",
        "negative": "Outcomes that had not happened by a death in the horizon are labelled as not happened.",
    }[rule.death]
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
            "subject in a hundred if they come more than a year after everybody else's, do not count as such. "
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
        f"observation ended before the horizon did, and else 0. {prior} {death} Outcomes with fewer than "
        f"{study.outcomes.min_events} events among training subjects are left out."
    )
    excluded = f", without codes that begin with {', '.join(study.features.exclude)}" if study.features.exclude else ""
    features = (
        f"Codes were counted by subject in one spelling{excluded}{_windows(study.features)}. Columns with at least "
        f"{study.features.min_subjects} training subjects were used ({result.facts['n_codes']} columns); the square "
        f"roots of their counts were {_reduction(study.features)} and standardised.{_beside(study.features)} In every "
        "fold factors were fitted to the training subjects alone and applied to the others."
    )
    model = (
        f"The coalescent probit ran {study.model.n_chains} chain(s) of {study.model.n_iter} iterations, the first "
        f"{study.model.burn_in} dropped (final fit: R-hat {result.facts['r_hat']:.3f}, effective sample size "
        f"{result.facts['bulk_ess']:.0f}). Baselines: {', '.join(map(method_name, study.model.baselines)) or 'none'}."
    )
    validation = (
        f"{study.validation.n_folds}-fold cross-validation on the first threshold, folds stratified over all outcomes; "
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
    paragraphs = [*cohort, labels, features, model, validation]
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
    """What is regressed on beside the factors."""
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


# ---- the card

CARD_LIMITS = (
    "Not for decisions about single patients without a validation of its own where it is to be used: apply it to local "
    "records with `coaltree records apply` and look at calibration and at the subgroups that matter there.",
    "Codes that the training data did not have are not seen by the model, and outcomes are what their codes say: "
    "coding habits differ between places and change with time.",
)


def model_card(model: TravellingModel, review: Review | None = None) -> dict[str, object]:
    """Return what must be known of a model before it is used elsewhere."""
    training, rule = model.info["training"], model.rule
    shown_areas = [] if review is None else [row for row in review.subgroups if str(row["outcome"]).startswith("mean")]
    spread = [row["auroc"] for row in shown_areas]
    card: dict[str, object] = {
        "purpose": f"probabilities of {len(model.outcomes.names)} outcome(s) within {rule.horizon_days} days of a "
        "threshold, from codes recorded before it",
        "outcomes": ", ".join(model.outcomes.names),
        "trained on": f"{training['dataset']}, threshold {training['threshold']}, {training['subjects']:,} subjects",
        "eligible": "everybody under observation"
        if model.outcomes.inclusion is None or not model.info["inclusion_used"]
        else f"codes of {model.outcomes.inclusion.name}: {model.outcomes.inclusion.describe()}",
        "windows": window_text(rule),
        "regressors": f"{len(model.info['regressors'])} from {len(model.codes)} codes",
        "model": "Bayesian probit regression with a coalescent prior over outcomes; probabilities are means over "
        f"{len(model.arrays['coef_draws'])} posterior draws",
        "mean area in subgroups": f"{min(spread):.3f} to {max(spread):.3f}" if spread else None,
        "versions": ", ".join(f"{name} {version}" for name, version in model.info["versions"].items()),
        "file": "model.npz holds codes, factors, windows, definitions, coefficients and versions, and no row of a "
        "patient",
    }
    return {key: value for key, value in card.items() if value is not None}
