"""Medical records: dated codes → cohort, features, outcomes and costs → a study.

>>> from coaltree import records
>>> folder = records.simulate_cohort("cohort", n_subjects=1000)  # doctest: +SKIP
>>> events = records.open_events(folder)  # doctest: +SKIP
>>> outcomes = records.load_outcomes()
>>> len(outcomes.names)
21
>>> cohort = records.build_cohort(events, "2009-01-01", inclusion=outcomes.inclusion)  # doctest: +SKIP
>>> labels = records.build_labels(events, cohort, outcomes)  # doctest: +SKIP
>>> X = records.CodeFactors(n_factors=10).fit_transform(records.count_codes(events, cohort))  # doctest: +SKIP
"""

from coaltree.records.bundle import TravellingModel, apply_model
from coaltree.records.cohort import Cohort, CohortRule, build_cohort
from coaltree.records.config import StudyConfig, load_config
from coaltree.records.cost import cost_curves, future_costs, load_prices, mean_cumulative, node_separation
from coaltree.records.engine import Events, connect, open_events, open_table
from coaltree.records.errors import RecordsError
from coaltree.records.factors import CodeFactors
from coaltree.records.features import Counts, count_codes
from coaltree.records.labels import Labels, build_labels, write_labels
from coaltree.records.omop import import_omop
from coaltree.records.outcomes import OutcomeSet, load_outcomes
from coaltree.records.simulate import simulate_cohort
from coaltree.records.sources import import_csv, import_meds, import_synpuf
from coaltree.records.study import StudyResult, run_study

__all__ = [
    "CodeFactors",
    "Cohort",
    "CohortRule",
    "Counts",
    "Events",
    "Labels",
    "OutcomeSet",
    "RecordsError",
    "StudyConfig",
    "StudyResult",
    "TravellingModel",
    "apply_model",
    "build_cohort",
    "build_labels",
    "connect",
    "cost_curves",
    "count_codes",
    "future_costs",
    "import_csv",
    "import_meds",
    "import_omop",
    "import_synpuf",
    "load_config",
    "load_outcomes",
    "load_prices",
    "mean_cumulative",
    "node_separation",
    "open_events",
    "open_table",
    "run_study",
    "simulate_cohort",
    "write_labels",
]
