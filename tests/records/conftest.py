import numpy as np
import pytest

pytest.importorskip("ibis", reason="the extra `records` is not installed")
pytest.importorskip("meds", reason="the extra `records` is not installed")

from coaltree.records import open_events, simulate_cohort
from tests.seeds import seed

N_SUBJECTS = 400


@pytest.fixture(scope="session")
def cohort_folder(tmp_path_factory):
    """A small simulated cohort; tests read it only."""
    return simulate_cohort(
        tmp_path_factory.mktemp("records") / "cohort", N_SUBJECTS, seed(1), n_factors=5, events_per_year=30.0
    )


@pytest.fixture(scope="session")
def events(cohort_folder):
    return open_events(cohort_folder)


@pytest.fixture(scope="session")
def truth(cohort_folder):
    """Arrays of the only shard and of the model."""
    found = {}
    for file in sorted((cohort_folder / "truth").glob("*.npz")):
        with np.load(file) as arrays:
            found |= {key: arrays[key] for key in arrays.files}
    return found


@pytest.fixture(scope="session")
def rows(cohort_folder):
    """The raw rows of the cohort, for plain loops."""
    import pyarrow.parquet as pq

    table = pq.read_table(cohort_folder / "data")
    return list(zip(*(table[name].to_pylist() for name in ("subject_id", "time", "code", "cost")), strict=True))
