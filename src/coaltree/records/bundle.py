"""A model that travels: all that is needed to score patients elsewhere, in one file without a row of a patient.

The file holds the definitions of outcomes and inclusion, the rules of cohort and windows, codes and factors, the draws
of coefficients, the tree, and versions. It is an archive of arrays and JSON, without pickle.
"""

from __future__ import annotations

import dataclasses
import datetime
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from coaltree._arrays import Floats
from coaltree._version import __version__
from coaltree.posterior import storage
from coaltree.records.config import FeatureConfig, IndexConfig, StudyConfig
from coaltree.records.errors import RecordsError
from coaltree.records.factors import CodeFactors
from coaltree.records.features import Counts, bare_code
from coaltree.records.outcomes import Definition, OutcomeSet, read_definition
from coaltree.records.rule import CohortRule
from coaltree.tree import Tree

KIND = "coaltree.RecordsModel"
FILE = "model.npz"
PROBIT = "coalescent_probit"
_FACTORS = "factors_"
_DATES = ("data_end", "begin", "end", "split")


@dataclass(frozen=True, eq=False)
class TravellingModel:
    """A fitted study model.

    Attributes
    ----------
    outcomes : OutcomeSet
        Definitions of the outcomes, in the order of the model, and of inclusion.
    rule : CohortRule
        Windows and conditions.
    features : FeatureConfig
        What is counted.
    index : IndexConfig, optional
        Codes of the index event, if thresholds were those.
    factors : CodeFactors
        From counts to regressors.
    arrays : dict
        coef (P, K) and intercept (P,), their draws, and the tree's children, times and support.
    info : dict
        Title, versions, facts about the training data, names of codes and regressors.
    """

    outcomes: OutcomeSet
    rule: CohortRule
    features: FeatureConfig
    index: IndexConfig | None
    factors: CodeFactors
    arrays: dict[str, npt.NDArray[Any]]
    info: dict[str, Any]

    @classmethod
    def from_study(
        cls,
        config: StudyConfig,
        outcomes: OutcomeSet,
        fits: dict[str, Any],
        names: dict[str, str],
        training: dict[str, Any],
    ) -> TravellingModel:
        """Gather what a finished study has fitted to its whole training cohort."""
        from coaltree.records.evaluation import feature_names

        state = {
            key.removeprefix("state_"): value for key, value in fits["features"].items() if key.startswith("state_")
        }
        used = {bare_code(str(label)) for label in (*state["codes"], *state["extra_names"])}
        info = {
            "title": config.title,
            "versions": {"coaltree": __version__, "numpy": np.__version__, "python": platform.python_version()},
            "training": training,
            "inclusion_used": config.outcomes.inclusion,
            "seed": config.seed,
            "names": {code: name for code, name in names.items() if code in used},
            "regressors": feature_names(fits["features"], names),
            "chains": {
                "n_iter": config.model.n_iter,
                "burn_in": config.model.burn_in,
                "n_chains": config.model.n_chains,
                "r_hat": float(fits[PROBIT]["r_hat"]),
            },
        }
        features = dataclasses.replace(config.features)
        rule = dataclasses.replace(config.cohort)
        arrays = _model_arrays(fits[PROBIT])
        return cls(outcomes, rule, features, config.index, CodeFactors.from_state(state), arrays, info)

    # ---- predictions

    def predict(self, counts: Counts) -> tuple[Floats, Floats]:
        """Probabilities and linear predictors of every outcome, (n, P) each."""
        X = self.factors.transform(counts)
        score = X @ self.arrays["coef"].T + self.arrays["intercept"]
        coef, intercept = self.arrays["coef_draws"], self.arrays["intercept_draws"]
        probability = np.zeros_like(score)
        for beta, mu in zip(coef, intercept, strict=True):
            probability += ndtr(X @ beta.T + mu)
        return probability / len(coef), score

    @property
    def tree(self) -> Tree | None:
        """The tree of the outcomes, None for one outcome."""
        if "children" not in self.arrays:
            return None
        return Tree(self.arrays["children"], self.arrays["times"], self.outcomes.names)

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes that the model knows, without windows."""
        labels = (*self.factors.codes_, *self.factors.extra_names_)
        return tuple(sorted({bare_code(label) for label in labels} - {"age", "female"}))

    # ---- the file

    def save(self, path: str | Path) -> None:
        """Write the model to one file."""
        arrays = {**self.arrays, **{_FACTORS + key: value for key, value in self.factors.state().items()}}
        settings = {
            "rule": _plain(self.rule),
            "features": _plain(self.features),
            "index": None if self.index is None else _plain(self.index),
            "outcomes": {outcome.key: outcome.as_table() for outcome in self.outcomes.outcomes},
            "origins": {outcome.key: outcome.origin for outcome in self.outcomes.outcomes if outcome.origin},
            "inclusion": None if self.outcomes.inclusion is None else self.outcomes.inclusion.as_table(),
        }
        storage.write(path, arrays, {"info": self.info, "settings": settings}, KIND)

    @classmethod
    def load(cls, path: str | Path) -> TravellingModel:
        """Read what `save` wrote."""
        if Path(path).is_dir():
            path = Path(path) / FILE
        try:
            content = storage.read(path, KIND)
            settings, info = content.pop("settings"), content.pop("info")
            state = {key.removeprefix(_FACTORS): content.pop(key) for key in list(content) if key.startswith(_FACTORS)}
            origins = settings["origins"]
            outcomes = tuple(
                Definition(key, table["name"], (), (), origins[key])
                if key in origins
                else read_definition(key, table, key)
                for key, table in settings["outcomes"].items()
            )
            inclusion = settings["inclusion"]
            return cls(
                OutcomeSet(
                    outcomes, None if inclusion is None else read_definition("inclusion", inclusion, "inclusion")
                ),
                CohortRule(**_dated(settings["rule"])),
                FeatureConfig(**settings["features"]),
                None if settings["index"] is None else IndexConfig(**_dated(settings["index"])),
                CodeFactors.from_state(state),
                content,
                info,
            )
        except FileNotFoundError:
            raise RecordsError(f"the model {path} does not exist; a study writes {FILE} beside its report.") from None
        except OSError as error:
            raise RecordsError(f"the model {path} cannot be read: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise RecordsError(f"{path} is not a model of a records study: {error}") from error


def _model_arrays(fit: dict[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
    """The one place that knows how the regression is kept: its posterior mean, its draws, its tree."""
    names = ("coef", "intercept", "coef_draws", "intercept_draws", "children", "times", "support")
    return {name: fit[name] for name in names if name in fit}


def _plain(settings: Any) -> dict[str, Any]:
    """Return settings as JSON has them."""
    return {
        key: value.isoformat() if isinstance(value, datetime.date) else value
        for key, value in dataclasses.asdict(settings).items()
    }


def _dated(settings: dict[str, Any]) -> dict[str, Any]:
    return {
        key: datetime.date.fromisoformat(value) if key in _DATES and value is not None else value
        for key, value in settings.items()
    }
