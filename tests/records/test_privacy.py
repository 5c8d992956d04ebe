"""What a study writes may be passed on: no identifier, no time of an event, no number of patients from 1 to 10."""

import itertools
import os
import re
from collections import defaultdict
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.records import bundle, privacy, review, widths
from coaltree.records import study as study_module
from coaltree.records.config import PROBIT, load_config
from coaltree.records.cost import Costs, cost_curves, node_separation
from coaltree.records.factors import CodeFactors
from coaltree.records.features import Counts
from coaltree.records.privacy import FEWEST, attrition_table, attrition_tables, score_digits, shown_count, shown_parts
from coaltree.records.published import PUBLISHED
from coaltree.records.simulate import simulate_cohort
from coaltree.records.study import run_study
from coaltree.regression.comparison import Comparison
from coaltree.report.records import draw_figures
from tests.records.attack import attack, attack_curves, attack_model, attack_payers, attack_units, read_tables
from tests.records.test_study import CONFIG
from tests.seeds import seed

FIRST_ID = 870_000_000_000_000
STEP = 104_729  # identifiers that occur nowhere by chance


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A finished study of subjects with conspicuous identifiers: its folder, the identifiers, the times of events."""
    folder = tmp_path_factory.mktemp("privacy")
    cohort = simulate_cohort(folder / "cohort", 400, seed(5), n_factors=4, events_per_year=20.0)
    ids, times = set(), set()
    for file in (cohort / "data").glob("*.parquet"):
        table = pq.read_table(file)
        conspicuous = pc.add(pc.multiply(table["subject_id"], STEP), FIRST_ID)
        table = table.set_column(0, "subject_id", pa.chunked_array(conspicuous).cast(pa.int64()))
        ids |= set(table["subject_id"].to_pylist())
        times |= {time for time in table["time"].to_pylist() if time is not None}
        pq.write_table(table, file)
    with np.load(cohort / "truth" / "shard-0000.npz") as shard, np.load(cohort / "truth" / "model.npz") as model:
        order = np.argsort(-np.nansum(shard["labels_0"], axis=0))
        keys = [str(model["names"][j]) for j in order[:7]]
    config = folder / "study.toml"
    text = CONFIG.format(path=cohort, keys=str(keys).replace("'", '"')).replace("min_events = 5", "min_events = 2")
    text = text.replace("[model]", "age = true\nsex = true\n[model]")
    config.write_text(text.replace("n_iter = 40", "n_iter = 12").replace("burn_in = 10", "burn_in = 4"))
    out = folder / "results"
    result = CliRunner().invoke(app, ["records", "study", str(config), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out, ids, times, result.output


def spellings(time):
    """Ways in which the instant of an event could be written."""
    micro = int(np.datetime64(time, "us").astype(np.int64))
    yield from (time.isoformat(), time.isoformat(" "), str(micro), str(micro // 1000), str(micro // 1_000_000))


def test_no_identifier_and_no_time_is_written(study):
    out, ids, times, printed = study
    files = [file for file in out.rglob("*") if file.is_file()]
    assert {"report.html", "summary.json", "auc.csv", "cost.png"} <= {file.name for file in files}
    written = b"\n".join([file.read_bytes() for file in files] + [printed.encode()])
    digits = {int(found) for found in re.findall(rb"\d{6,}", written)}
    assert not digits & ids
    midnights = {time for time in times if time.time() == time.min.time()}  # thresholds are midnights, and are shown
    wanted = {text.encode() for time in times - midnights for text in spellings(time)}
    assert len(wanted) > 10_000
    found = set(re.findall(rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?|\d{9,}", written))
    assert not found & wanted
    days = {time.date().isoformat().encode() for time in times}
    shown = set(re.findall(rb"\d{4}-\d\d-\d\d", written))
    assert shown & days <= {b"2009-01-01", b"2010-01-01"}


def test_the_search_would_find_them(study):
    """Rows are in the private folder, and every file of the results is of a kind that can be searched."""
    out, ids = study[:2]
    labels = pq.read_table(out.with_name("results-private") / "labels" / "2009-01-01")
    assert set(labels["subject_id"].to_pylist()) <= ids
    for file in out.rglob("*"):
        assert file.suffix in (".html", ".csv", ".png", ".nwk", ".json", ".toml", ".npz"), (
            f"{file} is of no kind that is searched"
        )
        binary = file.read_bytes()
        if file.suffix == ".npz":  # its arrays are compressed
            with np.load(file) as arrays:
                binary = b"".join(arrays[name].tobytes() for name in arrays.files)
        assert not any(identifier.to_bytes(8, "little") in binary for identifier in ids)


def test_nothing_private_is_left_in_the_folder(study):
    out = study[0]
    assert not [file for file in out.rglob("*") if file.is_dir()]
    private = out.with_name("results-private")
    assert private.is_dir()
    assert os.name != "posix" or private.stat().st_mode & 0o077 == 0


def test_small_numbers_are_hidden(study):
    """The study has such numbers, in every table."""
    tables = read_tables(study[0])
    for name in ("outcomes", "scores-temporal", "auc", "table-one"):
        assert any(f"<{FEWEST}" in row.values() for row in tables[name]), name
    assert any("withheld" in row.values() for row in tables["subgroups"])


def test_small_numbers_are_hidden_in_pictures():
    Y = np.zeros((60, 2))
    Y[:4, 0], Y[:20, 1] = 1.0, 1.0
    p = np.random.default_rng(seed(6)).random((1, *Y.shape))
    comparison = Comparison(("ridge",), ("rare", "common"), Y, np.zeros(60, int), p, p, np.ones((1, 1)), 20)
    study = SimpleNamespace(
        cross_validation=comparison,
        temporal=None,
        comparisons=lambda: {"cross-validation": comparison},
        tree=None,
        curves=None,
        review=None,
        config=SimpleNamespace(validation=SimpleNamespace(level=0.9), has_singles=False),
    )
    figure = draw_figures(study)["auc-cross-validation"]
    figure.canvas.draw()  # labels are made anew when drawn
    # The place of a dot would tell the area, and the area the number of events.
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["common  (20)"]


def test_rules_of_what_is_shown():
    assert [shown_count(n) for n in (0, 1, 10, 11)] == [0, "<11", "<11", 11]
    merged = attrition_table([("all", 500), ("a", 495), ("b", 480), ("c", 479)])
    assert all(row["removed"] == 0 or row["removed"] >= FEWEST for row in merged)
    assert merged[-1]["left"] == 479


# ---- the attack: what can be solved for from everything that is published


@pytest.fixture(scope="module")
def applied(study):
    """The study's model applied to another hospital: the published folder."""
    out = study[0]
    other = out.parent / "other"
    simulate_cohort(other, 400, seed(5), n_factors=4, events_per_year=20.0, hospital=1)
    arguments = ["records", "apply", str(out), str(other), "--out", str(out.parent / "applied")]
    result = CliRunner().invoke(app, [*arguments, "--threshold", "2009-01-01"])
    assert result.exit_code == 0, result.output
    return out.parent / "applied"


def test_every_published_file_is_attacked(study, applied):
    """Files that the attack does not read: ranks, merge times and supports, from which no number of patients follows.

    Of nodes.csv the gaps in cost are those of at least 11 payers on either side. Pictures draw what tables hold.
    """
    known = {
        "attrition", "attrition-1", "attrition-2", "outcomes", "auc", "scores", "summary", "calibration", "differences",
        "table-one", "subgroups", "cost", "report.html", "model.npz", "config.toml", "drivers", "factors",
        "summary.json",
    }  # fmt: skip
    harmless = {"nodes", "node-models", "tree.nwk"}
    for folder in (study[0], applied):
        assert {file.name for file in folder.iterdir()} <= PUBLISHED
    for name in PUBLISHED:
        stem = re.sub("-(cross-validation|temporal|external)$", "", name.removesuffix(".csv"))
        assert stem in known | harmless or name.endswith(".png"), name


def test_the_attack_finds_nothing(study, applied):
    assert attack(study[0]) == []
    assert attack(applied) == []
    assert read_tables(applied)["subgroups"]
    assert read_tables(study[0])["subgroups"]


def published(study, folder, config=None):
    """The same study written again, from its kept fits, or another one of the same data."""
    from coaltree.report.records import write_report
    from coaltree.results.records import _write_parts

    result = run_study(load_config(config or study[0].parent / "study.toml"), study[0].with_name("results-private"))
    folder.mkdir()
    _write_parts(folder, result.tables(), {})
    result.model.save(folder / "model.npz")
    write_report(result, {}, folder / "report.html")
    return result


@pytest.mark.parametrize(
    ("rule", "broken", "caught"),
    [
        ("is_small", lambda n: False, ["attrition", "table one", "subgroups", "events of a group", "report.html"]),
        ("shown_parts", lambda parts: [privacy.shown_count(n) for n in parts], ["part", "subgroups"]),
        ("shown_events", lambda y: int(np.nansum(y)), ["events"]),
        ("score_digits", lambda m, others: 12 if m and others else None, ["events"]),
        ("beside_earlier", lambda first, second: second, ["two thresholds"]),
    ],
)
def test_a_broken_rule_is_caught(study, tmp_path, monkeypatch, rule, broken, caught):
    """Negative controls: without any one of the rules, the attack finds what it was to hide."""
    for module in (privacy, review, study_module):
        if hasattr(module, rule):
            monkeypatch.setattr(module, rule, broken)
    plain = tmp_path / "study.toml"  # digits of areas tell numbers of labels that all count alike
    text = (study[0].parent / "study.toml").read_text()
    plain.write_text(text.replace("[outcomes]", '[outcomes]\ncensoring = "drop"'))
    published(study, tmp_path / "out", plain if rule == "score_digits" else None)
    found = attack(tmp_path / "out")
    assert [what for what in caught if not any(what in line for line in found)] == [], found


def test_parts_of_a_total_leave_many_values():
    """Tables of two to four parts: whoever knows the rule and the total has eight values or more to choose from."""
    for n_parts, largest in ((2, 80), (3, 50), (4, 30)):
        for total in range(FEWEST, largest):
            alike = defaultdict(list)
            for first in itertools.product(range(total + 1), repeat=n_parts - 1):
                if sum(first) <= total:
                    parts = (*first, total - sum(first))
                    alike[tuple(map(str, shown_parts(parts)))].append(parts)
            for tables, size in itertools.product(alike.values(), (1, 2)):
                for places in itertools.combinations(range(n_parts), size):
                    values = {sum(parts[i] for i in places) for parts in tables}
                    assert len(values) >= 8 or not any(0 < n < FEWEST for n in values)


def test_labels_without_an_event_are_hidden_too():
    y = np.r_[np.ones(95), np.zeros(5), np.full(50, np.nan)]
    assert privacy.shown_events(y) == "11+"
    found = privacy.label_numbers(y, np.isnan(y) & (np.arange(150) < 104))
    assert found == ("94+", "11+", "<11", 46)


def test_curves_have_no_small_steps(study):
    result = run_study(load_config(study[0].parent / "study.toml"), study[0].with_name("results-private"))
    events = {row["outcome"]: row["events 2010-01-01"] for row in result.outcomes}
    assert attack_curves(result.review.curves, events) == []
    rng = np.random.default_rng(seed(8))
    y = (rng.random(3000) < 0.1).astype(float)
    p = np.clip(0.1 + 0.1 * (y - 0.1) + 0.1 * rng.standard_normal(3000), 0.001, 0.999)
    comparison = Comparison(
        (PROBIT,), ("x",), y[:, None], np.zeros(3000, int), p[None, :, None], p[None, :, None], np.ones((1, 1)), 20
    )
    curves = review.outcome_curves(comparison, PROBIT, 0.9, 0)
    assert attack_curves(curves, {"x": int(y.sum())}) == []
    # The curve is coarse, and right: its area is nearly that of all points.
    area = np.trapezoid(curves[0].roc.y, curves[0].roc.x)
    assert abs(area - comparison.auroc[0, 0]) < 0.01
    assert curves[0].benefit.y[0] == pytest.approx(y.mean(), abs=1e-3)
    assert len(curves[0].roc.x) > 15


def test_small_steps_of_curves_would_be_found(monkeypatch):
    rng = np.random.default_rng(seed(8))
    y, p = (rng.random(900) < 0.2).astype(float), rng.random(900)
    comparison = Comparison(
        (PROBIT,), ("x",), y[:, None], np.zeros(900, int), p[None, :, None], p[None, :, None], np.ones((1, 1)), 20
    )
    monkeypatch.setattr(review, "FEWEST", 2)
    assert attack_curves(review.outcome_curves(comparison, PROBIT, 0.9, 0), {"x": int(y.sum())})


def test_a_model_of_single_codes_tells_no_numbers(monkeypatch, tmp_path):
    """Without factors the mean of a column would tell who lacks a code; scores stay the same."""
    rng = np.random.default_rng(seed(9))
    n = 395
    X = (rng.random((n, 3)) < 0.5).astype(np.int64)
    X[:, 0] = np.arange(n) >= 5  # all but five have it
    female = np.where(np.arange(n) < 7, 0.0, 1.0)
    counts = Counts(sparse.csr_matrix(X), ("a", "b", "c"), female[:, None], ("female",))
    exact, hidden = CodeFactors(3, 11, "none"), CodeFactors(3, 11, "none")
    before = exact.fit_transform(counts)
    hidden.fit_transform(counts)
    factor, shift = hidden.hide_means()
    coef = rng.standard_normal((2, 4))
    new = coef / factor
    np.testing.assert_allclose(hidden.transform(counts) @ new.T - new @ shift, before @ coef.T, atol=1e-12)
    for model, solved in ((exact, True), (hidden, False)):
        np.savez(tmp_path / "model.npz", **{f"factors_{key}": value for key, value in model.state().items()})
        assert bool(attack_model(tmp_path / "model.npz", n)) == solved
    assert hidden.extra_mean_.tolist() == [0.5]


def factored(transformer, n_factors, X):
    """Two equal models of counts, of which the second hides its means, and by what."""
    counts = Counts(sparse.csr_matrix(X), tuple("abcde"[: X.shape[1]]))
    exact, hidden = (CodeFactors(n_factors, 11, transformer) for _ in range(2))
    exact.fit_transform(counts)
    hidden.fit_transform(counts)
    return counts, exact, hidden, *hidden.hide_means()


@pytest.mark.parametrize(("transformer", "n_factors"), [("svd", 4), ("nmf", 2), ("svd", 2)])
def test_a_model_of_factors_tells_no_numbers(tmp_path, transformer, n_factors):
    """As many singular vectors as codes would tell who has which two codes; scores stay the same."""
    rng = np.random.default_rng(seed(10))
    n = 395
    X = (rng.random((n, 4)) < 0.5).astype(np.int64)
    X[:, 0], X[:, 1] = np.arange(n) < 30, np.arange(n) >= 23  # seven have both
    counts, exact, hidden, factor, shift = factored(transformer, n_factors, X)
    coef = rng.standard_normal((2, n_factors))
    new = coef / factor
    np.testing.assert_allclose(
        hidden.transform(counts) @ new.T - new @ shift, exact.transform(counts) @ coef.T, atol=1e-9
    )
    for model, solved in ((exact, n_factors == 4), (hidden, False)):
        np.savez(tmp_path / "model.npz", **{f"factors_{key}": value for key, value in model.state().items()})
        assert bool(attack_model(tmp_path / "model.npz", n)) == solved


def test_topics_tell_no_numbers(tmp_path, monkeypatch):
    """Components of topics add up to columns: whole numbers where nobody has a code twice."""
    rng = np.random.default_rng(seed(10))
    n = 395
    X = (rng.random((n, 5)) < 0.5).astype(np.int64)
    X[:, 0] = np.arange(n) >= 5  # all but five have it
    X[:3, 1] = 2  # three have it twice
    rounded = factored("lda", 2, X)[2]
    assert rounded.codes_ == tuple("bcde")
    monkeypatch.setattr("coaltree.records.factors.significant", float)
    exact = factored("lda", 2, X)[2]
    for model, solved in ((exact, True), (rounded, False)):
        np.savez(tmp_path / "model.npz", **{f"factors_{key}": value for key, value in model.state().items()})
        assert bool(attack_model(tmp_path / "model.npz", n)) == solved


def test_drivers_are_in_the_units_of_the_model():
    """In standard deviations they would tell, beside the model, how many have a code."""
    rng = np.random.default_rng(seed(11))
    n, names = 395, ("x", "y")
    X = (rng.random((n, 3)) < 0.5).astype(np.int64)
    X[:, 0] = np.arange(n) >= 5
    factor, hidden = (factored("none", 1, X)[i] for i in (3, 2))
    coef = rng.standard_normal((2, 3))
    arrays = bundle._model_arrays(
        {"coef": coef, "intercept": np.zeros(2), "coef_draws": coef[None], "intercept_draws": np.zeros((1, 2))},
        factor,
        np.zeros(3),
    )
    for used, solved in ((coef, True), (arrays["coef"], False)):
        rows = review.driver_rows(names, "abc", used, used[None], 0.9)
        assert bool(attack_units(rows, names, "abc", arrays["coef"], hidden.scale_, n)) == solved


def test_a_study_of_single_codes_is_attacked_too(study, tmp_path):
    text = (study[0].parent / "study.toml").read_text()
    text = text.replace("n_factors = 4", 'transformer = "none"').replace("min_subjects = 11", "min_subjects = 60")
    config = study[0].parent / "single.toml"
    config.write_text(text)
    result = published(study, tmp_path / "out", config)
    assert attack(tmp_path / "out") == []
    names, model = (result.model.outcomes.names, result.model.info["regressors"]), result.model.arrays
    assert_units_of_the_model(read_tables(tmp_path / "out")["drivers"], *names, model)


def assert_units_of_the_model(drivers, outcomes, regressors, model):
    """Coefficients and intervals are those that the published model gives."""
    assert drivers
    for row in drivers:
        j, k = outcomes.index(row["outcome"]), regressors.index(row["regressor"])
        ends = np.quantile(model["coef_draws"][:, j, k], [0.025, 0.975])
        found = [float(row[name]) for name in ("coefficient", "low", "high")]
        np.testing.assert_allclose(found, [model["coef"][j, k], *ends], atol=1e-4)


@pytest.mark.slow
@pytest.mark.ci
def test_single_codes_beside_factors_are_attacked_too(study, tmp_path, monkeypatch):
    monkeypatch.setattr(widths, "WIDTHS", (1.0,))
    config = study[0].parent / "beside.toml"
    config.write_text((study[0].parent / "study.toml").read_text().replace("seed = 3", "seed = 4"))
    result = published(study, tmp_path / "out", config)
    singles = result.model.factors.single_codes_
    assert len(singles) > 20
    assert attack(tmp_path / "out") == []
    names = result.model.outcomes.names, result.model.info["regressors"]
    assert_units_of_the_model(read_tables(tmp_path / "out")["drivers"], *names, result.model.arrays)
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"{len(singles)} single codes stand beside them" in page


def test_a_single_code_in_standard_deviations_would_tell_who_has_it():
    n, coef = 395, np.array([[0.5, 0.7]])
    deviation = np.sqrt(6 / n * (1 - 6 / n))  # six subjects with one record
    for printed, solved in ((coef[0, 1], False), (coef[0, 1] * deviation, True)):
        rows = [{"outcome": "x", "regressor": "b", "coefficient": round(float(printed), 4)}]
        assert bool(attack_units(rows, ("x",), "ab", coef, np.ones(1), n)) == solved


def test_single_codes_are_those_of_many_and_lacked_by_many():
    n = 100
    matrix = np.zeros((n, 5), dtype=np.int64)
    for column, number in enumerate((50, 12, 8, 95, n)):  # had by; 95: five lack it
        matrix[:number, column] = 1
    matrix[:, 0] += np.arange(n) % 3
    counts = Counts(sparse.csr_matrix(matrix), tuple("abcde"))
    model = CodeFactors(2, 11, "nmf", 0, singles=True)
    table = model.fit_transform(counts)
    assert model.single_codes_ == ("a", "b", "e")
    assert table.shape == (n, model.n_regressors) == (n, 5)
    np.testing.assert_allclose(table[:, 2:].toarray(), np.sqrt(matrix[:, [0, 1, 4]]))
    again = CodeFactors.from_state(model.state())
    np.testing.assert_allclose(again.transform(counts).toarray(), model.transform(counts).toarray())
    # Nothing is kept of a single code but its name.
    assert {name for name, part in model.state().items() if len(np.atleast_1d(part)) == 3} <= {"singles", "settings"}


def test_thresholds_are_not_told_apart_by_few():
    """Of 400 subjects 380 live at the first threshold and 377 at the second: three died in between."""
    first, second = attrition_tables(
        [[("all", 400), ("live", 380), ("code", 300)], [("all", 400), ("live", 377), ("code", 290)]]
    )
    assert [row["left"] for row in first] == [400, 380, 300]
    assert [row["left"] for row in second] == [400, 290]


def test_cost_is_of_enough_subjects():
    """Days by which fewer than eleven of a quarter have cost anything are not shown."""
    daily = np.zeros((80, 30))
    daily[np.arange(80), np.arange(80) // 4] = 100.0  # in each quarter of twenty one subject more every day
    costs = Costs(sparse.csr_matrix(daily), np.full(80, 30), np.zeros(80, bool), {})
    curves = cost_curves(costs, np.arange(80) % 4, n_resamples=20)
    assert np.isnan(curves.mean[:, :10]).all()
    assert not np.isnan(curves.mean[:, 10:]).any()
    # Each day one more pays, which the difference of two days tells; not so if points are of 11 each.
    assert attack_payers(curves.mean[0], 20, 100.0)
    apart = cost_curves(costs, np.arange(80) % 4, n_resamples=20, step=5)
    assert not any(attack_payers(mean, 20, 100.0) for mean in apart.mean)
    assert (~np.isnan(apart.mean)).sum(axis=1).tolist() == [1, 1, 1, 1]
    many = Costs(sparse.vstack([costs.daily] * 5).tocsr(), np.full(400, 30), np.zeros(400, bool), {})
    apart = cost_curves(many, np.arange(400) % 4, n_resamples=20, step=5)
    assert (~np.isnan(apart.mean)).sum(axis=1).tolist() == [4, 4, 4, 4]  # days 5, 10, 15 and the last
    assert not any(attack_payers(mean, 100, 100.0) for mean in apart.mean)


def test_gaps_are_of_enough_payers():
    daily = np.zeros((80, 30))
    daily[60:75, 0] = 100.0
    costs = Costs(sparse.csr_matrix(daily), np.full(80, 30), np.zeros(80, bool), {})
    risk = np.column_stack([np.arange(80.0), np.roll(np.arange(80.0), 40)])
    assert np.isnan(node_separation(costs, risk, n_resamples=5).gap).all()  # nobody pays in one of the quarters
    daily[:15, 0] = 100.0
    costs = Costs(sparse.csr_matrix(daily), np.full(80, 30), np.zeros(80, bool), {})
    assert node_separation(costs, risk, n_resamples=5).gap[0] == 0.0


def drawn(figure):
    """Coordinates of every line, dot and bar of a figure."""
    found = []
    for ax in figure.axes:
        found += [line.get_xydata() for line in ax.lines if line.get_transform().contains_branch(ax.transData)]
        for part in ax.collections:
            found += [np.asarray(part.get_offsets()), *(path.vertices for path in part.get_paths())]
    return np.concatenate([np.asarray(part).reshape(-1, 2) for part in found])


def test_pictures_hold_what_tables_hold(study):
    """A vector drawing in the page has all digits of what it draws."""
    result = run_study(load_config(study[0].parent / "study.toml"), study[0].with_name("results-private"))
    tables, figures = read_tables(study[0]), draw_figures(result)
    for name in ("cross-validation", "temporal"):
        if f"auc-{name}" not in figures:
            continue
        shown = {float(r[key] or 0) for r in tables[f"scores-{name}"] for key in ("auroc", "auroc_low", "auroc_high")}
        dots = [part.get_offsets()[:, 0] for part in figures[f"auc-{name}"].axes[0].collections]
        bars = [p.vertices[:, 0] for part in figures[f"auc-{name}"].axes[0].collections[::2] for p in part.get_paths()]
        assert {round(float(x), 9) for x in np.concatenate([*dots[1::2], *bars])} <= shown
        rows = tables[f"calibration-{name}"]
        rates = {round(float(r[key] or 0), 9) for r in rows for key in ("predicted", "observed", "low", "high")}
        points = drawn(figures[f"calibration-{name}"])
        points = {round(float(x), 9) for x in points[points[:, 0] != points[:, 1]].ravel()}  # but for the diagonal
        assert {x for x in points if 0.0 < x < 1.0} <= rates
    costs = {float(r[key] or 0) for r in tables["cost"] for key in ("mean_cost", "low", "high")}
    days = {float(r["day"]) for r in tables["cost"]}
    points = drawn(figures["cost"])
    assert set(points[:, 1]) <= costs | {0.0}
    assert set(points[:, 0]) <= days | {0.0}
    assert len(set(points[:, 1])) > 4


def test_digits_of_scores():
    assert score_digits(10, 1000) is None
    assert score_digits(1000, 10) is None
    assert score_digits(11, 11) == 1  # 242 steps: two digits would leave two or three
    assert score_digits(11, 100) == 2
    assert score_digits(50, 1000) == 3
    for m, others in ((11, 40), (30, 300), (500, 10_000)):
        digits = score_digits(m, others)
        steps = 2 * m * others
        assert 10.0**-digits * steps >= 10
    assert shown_parts([500, 20, 30]) == [500, 20, 30]
    assert shown_parts([500, 24, 3]) == ["493+", 24, "<11"]
    assert shown_parts([12, 3]) == ["withheld", "withheld"]


# ---- temporary folders


def test_temporary_folders_are_private_and_swept(tmp_path, monkeypatch):
    import subprocess
    import sys

    from coaltree.records import engine

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import os, signal\nfrom coaltree.records.engine import connect\n"
        "from coaltree.records.engine import make_scratch\n"
        "connect()\nfolder = make_scratch()\n(folder / 'rows').write_text('patients')\n"
        "print(oct(folder.stat().st_mode & 0o777), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert done.stdout.strip() == "0o700"
    left = [folder.name for folder in tmp_path.iterdir()]
    assert len(left) == 2  # the killed run's own, and that of its engine
    monkeypatch.setattr(engine.tempfile, "gettempdir", lambda: str(tmp_path))
    mine = engine.make_scratch()
    assert [folder.name for folder in tmp_path.iterdir()] == [mine.name]
    with engine.scratch() as other:
        assert other.stat().st_mode & 0o777 == 0o700
        assert mine.exists()  # of a process that lives
    assert not other.exists()


def test_imports_are_private(tmp_path):
    from coaltree.records.sources import import_csv

    (tmp_path / "x.csv").write_text("subject,date,code\n1,2009-01-01,A\n")
    out = import_csv(tmp_path / "x.csv", tmp_path / "out")
    assert out.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.csv"]
