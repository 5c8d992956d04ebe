import pytest

from coaltree.records import RecordsError, load_config
from coaltree.records.config import DEFAULT_BASELINES, PAPER, PAPERS_BASELINES, paper_settings
from coaltree.records.evaluation import _settings, methods, sees_codes

MINIMAL = '[data]\npath = "events"\n[cohort]\nthresholds = ["2009-01-01", "2010-01-01"]\n'


def write(folder, text):
    file = folder / "study.toml"
    file.write_text(text)
    return file


def test_defaults_and_relative_paths(tmp_path):
    text = MINIMAL + 'lookback_days = 30\nhorizon_closed = "right"\n[cost]\nsource = "prices"\nprices = "p.csv"\n'
    config = load_config(write(tmp_path, text))
    assert config.data.path == str(tmp_path / "events")
    assert config.cost.prices == str(tmp_path / "p.csv")
    assert config.cohort.lookback == (-30, -1)
    assert config.cohort.horizon == (1, 365)
    assert config.validation.n_folds == 10
    assert config.quick().validation.n_folds == 3
    assert set(config.quick().model.baselines) <= set(config.model.baselines)


def test_the_length_of_chains_is_part_of_a_name(tmp_path):
    longer = load_config(write(tmp_path, MINIMAL + "[model]\nn_iter = 2000"))
    assert _settings(load_config(write(tmp_path, MINIMAL)).model) != _settings(longer.model)


def test_dates_may_be_dates_and_thresholds_a_file(tmp_path):
    text = '[data]\npath = "e"\n[cohort]\nthresholds = [2009-01-01, "mine.csv"]\ndata_end = 2010-12-31\n'
    config = load_config(write(tmp_path, text))
    assert config.thresholds == ("2009-01-01", tmp_path / "mine.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MINIMAL + "lookback_day = 30", r"\[cohort\]: 'lookback_day' is not known. Did you mean 'lookback_days'"),
        (MINIMAL + "[modle]\nn_iter = 10", "Did you mean 'model'"),
        (MINIMAL + "[model]\nn_iters = 10", "Did you mean 'n_iter'"),
        (MINIMAL + '[model]\nn_iter = "many"', "n_iter must be a whole number, got 'many'"),
        (MINIMAL + "[model]\nn_iter = true", "n_iter must be a whole number"),
        (MINIMAL + '[model]\nbaselines = ["rigde"]', "Did you mean 'ridge'"),
        (MINIMAL + "[model]\nn_iter = 100\nburn_in = 100", "burn_in must be below n_iter"),
        (MINIMAL + '[cost]\nsource = "price"', "Did you mean 'prices'"),
        (MINIMAL + '[cost]\nsource = "prices"', "prices must name a table"),
        (MINIMAL + 'lookback_closed = "both"', "leak into features"),
        (MINIMAL + "[validation]\nn_folds = 1", "n_folds must be at least 2"),
        ('[data]\npath = "e"', "needs thresholds"),
        ('[data]\npath = "e"\n[cohort]\nthresholds = ["tomorrow"]', "must be a date"),
        ('[cohort]\nthresholds = ["2009-01-01"]', "needs path"),
        ("data = 3\n[cohort]\nthresholds = ['2009-01-01']", "data must be a table"),
        ("seed = -1\n" + MINIMAL, "seed must be a whole number"),
        ("title = 'x", "not valid TOML"),
    ],
)
def test_mistakes_are_named_with_a_suggestion(tmp_path, text, message):
    with pytest.raises(RecordsError, match=message):
        load_config(write(tmp_path, text))


def test_a_missing_config(tmp_path):
    with pytest.raises(RecordsError, match="does not exist"):
        load_config(tmp_path / "no.toml")
    with pytest.raises(RecordsError, match="is a folder"):
        load_config(tmp_path)


def test_all_codes_by_default(tmp_path):
    config = load_config(write(tmp_path, MINIMAL))
    assert config.has_singles
    assert config.model.baselines == list(DEFAULT_BASELINES)
    assert methods(config)[-2:] == ("ridge_all", "ridge_factors")
    narrow = load_config(write(tmp_path, MINIMAL + '[model]\nbaselines = ["lasso", "boosting"]'))
    assert [sees_codes(name, narrow) for name in methods(narrow)] == [True, False, True, True, False]
    alone = load_config(write(tmp_path, MINIMAL + '[model]\nfeatures = "factors"'))
    assert methods(alone) == ("coalescent_probit", *PAPERS_BASELINES)
    none = load_config(write(tmp_path, MINIMAL + '[features]\ntransformer = "none"'))
    assert not none.has_singles


def test_the_papers_choices_by_one_setting(tmp_path):
    config = load_config(write(tmp_path, 'settings = "paper"\n' + MINIMAL))
    for section, choices in PAPER.items():
        assert {key: getattr(getattr(config, section), key) for key in choices} == choices
    assert (config.features.transformer, config.features.n_factors) == ("nmf", 25)
    assert methods(config) == ("coalescent_probit", *PAPERS_BASELINES)
    default = load_config(write(tmp_path, MINIMAL))
    assert paper_settings(default) == config
    # Each of them is a departure of the default, or stated because another choice would be one.
    same = {(section, key) for section, choices in PAPER.items() for key, value in choices.items()
            if getattr(getattr(default, section), key) == value}  # fmt: skip
    assert same == {("cohort", "death"), ("features", "transformer"), ("model", "outcomes")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('settings = "papers"\n' + MINIMAL, "settings.*paper"),
        (
            'settings = "paper"\n' + MINIMAL + '[outcomes]\ncensoring = "weights"',
            "censoring = 'absent'.*Remove censoring",
        ),
        (MINIMAL + '[model]\nfeatures = "codes"', "features"),
        (MINIMAL + '[model]\ncovariance = "full"', 'set features = "factors"'),
        (MINIMAL + '[model]\noutcomes = "time"\n[outcomes]\ncensoring = "drop"', "days at risk"),
        (MINIMAL + "[features]\nmin_subjects = 8", "min_subjects must be at least 11 where single codes"),
    ],
)
def test_choices_that_clash_are_refused(tmp_path, text, message):
    with pytest.raises(RecordsError, match=message):
        load_config(write(tmp_path, text))
