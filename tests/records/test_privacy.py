"""What a study writes may be passed on: no identifier, no time of an event, no number of patients from 1 to 10."""

import csv
import io
import os
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from coaltree.cli import app
from coaltree.records.privacy import FEWEST, attrition_table, score_digits, shown_count, shown_labels, shown_parts
from coaltree.records.simulate import simulate_cohort
from coaltree.regression.comparison import Comparison
from coaltree.report.records import draw_figures
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


def numbers(cell):
    return int(cell) if re.fullmatch(r"-?\d+", cell) else None


def test_small_numbers_are_hidden(study):
    out = study[0]
    counted = re.compile("events|had it|censored|removed|left|labels|^n$")
    tables = {file.stem: list(csv.DictReader(io.StringIO(file.read_text()))) for file in out.glob("*.csv")}
    hidden = 0
    for name, rows in tables.items():
        for row in rows:
            for column, cell in row.items():
                if counted.search(column):
                    value = numbers(cell)
                    assert value is None or not 0 < value < FEWEST, (name, row)
                    hidden += cell == f"<{FEWEST}"
    assert hidden > 0  # the study has such numbers
    page = (out / "report.html").read_text()
    for cells in re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL):
        assert not re.search(r"had it before|censored", cells) or "<th" in cells


def test_small_numbers_cannot_be_subtracted(study):
    """Subjects, labels and the reasons for missing ones: no hidden number is the difference of shown ones."""
    out = study[0]
    tables = {file.stem: list(csv.DictReader(io.StringIO(file.read_text()))) for file in out.glob("*.csv")}
    for part, threshold, steps in (
        ("cross-validation", "2009-01-01", "attrition-1"),
        ("temporal", "2010-01-01", "attrition-2"),
    ):
        total = int(tables[steps][-1]["left"])
        labels = {row["outcome"]: row["n"] for row in tables[f"scores-{part}"]}
        for row in tables["outcomes"]:
            n = numbers(labels[row["outcome"]])
            why = [numbers(row[f"{reason} {threshold}"]) for reason in ("had it before", "censored")]
            assert n is None or None not in why, row
            assert n is None or not 0 < total - n < FEWEST, row
        for before, after in zip(tables[steps], tables[steps][1:], strict=False):
            assert int(before["left"]) - int(after["left"]) == int(after["removed"])


def test_small_numbers_are_hidden_in_pictures():
    Y = np.zeros((60, 2))
    Y[:4, 0], Y[:20, 1] = 1.0, 1.0
    p = np.random.default_rng(seed(6)).random((1, *Y.shape))
    comparison = Comparison(("ridge",), ("rare", "common"), Y, np.zeros(60, int), p, p, np.ones((1, 1)), 20)
    study = SimpleNamespace(
        cross_validation=comparison,
        temporal=None,
        tree=None,
        curves=None,
        review=None,
        config=SimpleNamespace(validation=SimpleNamespace(level=0.9)),
    )
    figure = draw_figures(study)["auc-cross-validation"]
    figure.canvas.draw()  # labels are made anew when drawn
    # The place of a dot would tell the area, and the area the number of events.
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["common  (20)"]


def test_rules_of_what_is_shown():
    assert [shown_count(n) for n in (0, 1, 10, 11)] == [0, "<11", "<11", 11]
    assert shown_labels(372, 400, hidden=False) == 372
    assert shown_labels(372, 400, hidden=True) == "370+"
    assert shown_labels(395, 400, hidden=False) == "390+"
    assert shown_labels(7, 400, hidden=False) == "<11"
    merged = attrition_table([("all", 500), ("a", 495), ("b", 480), ("c", 479)])
    assert all(row["removed"] == 0 or row["removed"] >= FEWEST for row in merged)
    assert merged[-1]["left"] == 479


# ---- the attack: what can be solved for from everything that is published


def read_tables(folder):
    return {file.stem: list(csv.DictReader(io.StringIO(file.read_text()))) for file in folder.glob("*.csv")}


def as_range(cell):
    """Lowest and highest number that a printed one can stand for."""
    if cell == f"<{FEWEST}":
        return 1, FEWEST - 1
    if cell.endswith("+"):
        return int(cell[:-1]), int(cell[:-1]) + 9
    return int(cell), int(cell)


def digits_of(text):
    return len(text.partition(".")[2])


def possible_events(row, total):
    """All pairs (m, n) that agree with a row of scores: AUROC × m (n − m) is half a whole number."""
    low_n, high_n = as_range(row["n"])
    low_m, high_m = as_range(row["events"])
    found = set()
    area = float(row["auroc"]) if row["auroc"] not in ("", "nan") else float("nan")
    half = 0.5 * 10.0 ** -digits_of(row["auroc"]) + 1e-9
    for n in range(low_n, min(high_n, total) + 1):
        for m in range(low_m, min(high_m, n - 1) + 1):
            steps = 2 * m * (n - m)
            if np.isnan(area) or np.floor((area + half) * steps) >= np.ceil((area - half) * steps):
                found.add((m, n))
    return found


def attack(folder):
    """Numbers of patients from 1 to 10 that the published files give away, as texts."""
    tables = read_tables(folder)
    solved = []
    for part, threshold, steps in (
        ("cross-validation", "2009-01-01", "attrition-1"),
        ("temporal", "2010-01-01", "attrition-2"),
    ):
        total = int(tables[steps][-1]["left"])
        for row in tables[f"scores-{part}"]:
            pairs = possible_events(row, total)
            events, labels = ({pair[i] for pair in pairs} for i in (0, 1))
            for what, found in (("events", events), ("without", {total - n for n in labels})):
                if len(found) == 1 and 0 < min(found) < FEWEST:
                    solved.append(f"{part}, {row['outcome']}: {what}")
        # The other outcomes subtracted from means and pooled tables.
        scores = [row for row in tables[f"scores-{part}"] if row["method"] == "coalescent_probit"]
        hidden = [row for row in scores if row["auroc"] in ("", "nan")]
        known = [row for row in scores if row["auroc"] not in ("", "nan")]
        mean = next(r for r in tables[f"summary-{part}"] if r["method"] == "coalescent_probit")["auroc"]
        if len(hidden) == 1 and abs(float(mean) - np.mean([float(r["auroc"]) for r in known])) > 2e-3:
            solved.append(f"{part}: the mean holds the withheld area")
        pooled = [r for r in tables[f"calibration-{part}"] if r["method"] == "coalescent_probit"]
        counted = [as_range(r["events"]) for r in pooled]
        if all(low == high for low, high in counted):
            rest = sum(low for low, _ in counted) - sum(as_range(r["events"])[0] for r in known)
            if len(hidden) and 0 < rest < FEWEST:
                solved.append(f"{part}: pooled events minus those shown")
        for r in pooled:  # a rate and its numerator tell the denominator
            low, high = as_range(r["labels"])
            if low == high and low % 10:
                solved.append(f"{part}: exact labels of a group")
        for name in ("differences", "auc"):
            for r in tables.get(f"{name}-{part}", []) if name == "differences" else tables["auc"]:
                if r["outcome"] in {h["outcome"] for h in hidden}:
                    cells = [v for k, v in r.items() if k == "difference" or (k.endswith(part) and "events" not in k)]
                    solved += [f"{part}: {name} of {r['outcome']}" for v in cells if v not in ("", "nan")]
        del threshold
    for column in tables["table-one"][0]:
        if column == "characteristic":
            continue
        total = int(tables["table-one"][0][column].replace(",", ""))
        for members in (
            ("women", "men", "sex not known"),
            tuple(
                r["characteristic"]
                for r in tables["table-one"]
                if r["characteristic"].startswith("age ") and "years" not in r["characteristic"]
            ),
        ):
            cells = [
                r[column].partition(" ")[0].replace(",", "")
                for r in tables["table-one"]
                if r["characteristic"] in members
            ]
            ranges = [as_range(cell) for cell in cells]
            for i, (low, high) in enumerate(ranges):
                rest = [r for k, r in enumerate(ranges) if k != i]
                least, most = total - sum(h for _, h in rest), total - sum(lo for lo, _ in rest)
                least, most = max(least, low), min(most, high)
                if least == most and 0 < least < FEWEST:
                    solved.append(f"table one, {members[i]} of {column}")
    return solved


def test_the_attack_finds_nothing(study):
    assert attack(study[0]) == []


def test_the_attack_works(study, tmp_path):
    """Negative control: with the digits of an area, its events are solved for; so are rounded numbers made exact."""
    folder = tmp_path / "published"
    shutil.copytree(study[0], folder)
    file = folder / "scores-temporal.csv"
    rows = list(csv.DictReader(io.StringIO(file.read_text())))
    n, m = 340, 4
    rows[0] |= {"n": str(n), "events": "<11", "auroc": repr(977 / (m * (n - m)))}
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    assert any("events" in line for line in attack(folder))


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
    assert shown_parts([500, 24, 3]) == ["500+", "20+", "<11"]


# ---- temporary folders


def test_temporary_folders_are_private_and_swept(tmp_path, monkeypatch):
    import subprocess
    import sys

    from coaltree.records import scratch

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    script = (
        "import os, signal\nfrom coaltree.records.engine import connect\n"
        "from coaltree.records.scratch import make_scratch\n"
        "connect()\nfolder = make_scratch()\n(folder / 'rows').write_text('patients')\n"
        "print(oct(folder.stat().st_mode & 0o777), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert done.stdout.strip() == "0o700"
    left = [folder.name for folder in tmp_path.iterdir()]
    assert len(left) == 2  # the killed run's own, and that of its engine
    monkeypatch.setattr(scratch.tempfile, "gettempdir", lambda: str(tmp_path))
    mine = scratch.make_scratch()
    assert [folder.name for folder in tmp_path.iterdir()] == [mine.name]
    with scratch.scratch() as other:
        assert other.stat().st_mode & 0o777 == 0o700
        assert mine.exists()  # of a process that lives
    assert not other.exists()


def test_imports_are_private(tmp_path):
    from coaltree.records.sources import import_csv

    (tmp_path / "x.csv").write_text("subject,date,code\n1,2009-01-01,A\n")
    out = import_csv(tmp_path / "x.csv", tmp_path / "out")
    assert out.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "x.csv"]
