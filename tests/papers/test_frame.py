"""The frame of the papers' experiments: runs resume, claims can fail, pages keep their words, bad input is one line."""

import json
from argparse import Namespace

import numpy as np
import pytest
from papers.henao_lucas import __main__ as command
from papers.henao_lucas.experiment import MARKS, Claim, Experiment, data_file, generator, mean_and_error, perform

OPTIONS = Namespace(quick=True, replicates=None, data=None, jobs=1)


class Toy:
    """An experiment of six tasks that can be stopped after some of them."""

    def __init__(self, folder, monkeypatch, stop_after=None, data=()):
        self.calls, self.stop_after = [], stop_after
        monkeypatch.setattr(Experiment, "folder", property(lambda experiment: folder))
        folder.mkdir(exist_ok=True)
        (folder / "expected.json").write_text('{"mean": 0.5}')
        self.experiment = Experiment(
            "toy",
            tasks=lambda options: [("a", k) for k in range(6)],
            run=self.run,
            summarise=lambda rows: {"x": mean_and_error([row["x"] for row in rows.values()])},
            claims=lambda summary, expected: [
                Claim("near a half", summary["x"][0], expected["mean"], tolerance=4 * summary["x"][2])
            ],
            table=lambda summary, expected: iter([f"| {summary['x'][0]!r} |"]),
            data=data,
        )

    def run(self, key, options, rng):
        if self.stop_after is not None and len(self.calls) >= self.stop_after:
            raise KeyboardInterrupt
        self.calls.append(key)
        return {"x": rng.random(), "seconds": 1.0, "pair": (1, 2)}


def without_date(results):
    return {name: value for name, value in results.items() if name != "date"}


def test_a_stopped_run_goes_on_to_the_same_results(tmp_path, monkeypatch):
    whole = perform(Toy(tmp_path / "toy", monkeypatch).experiment, OPTIONS, tmp_path / "whole")
    stopped = Toy(tmp_path / "toy", monkeypatch, stop_after=4)
    with pytest.raises(KeyboardInterrupt):
        perform(stopped.experiment, OPTIONS, tmp_path / "parts")
    assert len(stopped.calls) == 4
    again = Toy(tmp_path / "toy", monkeypatch)
    resumed = perform(again.experiment, OPTIONS, tmp_path / "parts")
    assert again.calls == [("a", 4), ("a", 5)]
    assert without_date(resumed) == without_date(whole)
    for name in ("rows.jsonl", "README.md"):
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_report_tells_what_is_done_and_runs_nothing(tmp_path, monkeypatch):
    stopped = Toy(tmp_path / "toy", monkeypatch, stop_after=4)
    with pytest.raises(KeyboardInterrupt):
        perform(stopped.experiment, OPTIONS, tmp_path / "out")
    before = (tmp_path / "out" / "rows.jsonl").read_bytes()
    toy = Toy(tmp_path / "toy", monkeypatch)
    results = perform(toy.experiment, Namespace(**{**vars(OPTIONS), "report": True}), tmp_path / "out")
    assert not toy.calls
    assert (results["tasks"], results["all_tasks"]) == (4, 6)
    assert "so far 4 of 6 tasks" in (tmp_path / "out" / "README.md").read_text()
    assert (tmp_path / "out" / "rows.jsonl").read_bytes() == before


@pytest.mark.parametrize("kept", [0.0, 0.02, 0.4, 0.7, 0.99])
def test_half_a_line_is_done_again(tmp_path, monkeypatch, kept):
    """A file cut anywhere, in the header or in a row, by a run that was killed."""
    whole = perform(Toy(tmp_path / "toy", monkeypatch).experiment, OPTIONS, tmp_path / "out")
    rows = tmp_path / "out" / "rows.jsonl"
    text = rows.read_text()
    rows.write_text(text[: int(kept * len(text))])
    resumed = perform(Toy(tmp_path / "toy", monkeypatch).experiment, OPTIONS, tmp_path / "out")
    assert without_date(resumed) == without_date(whole)
    assert rows.read_text() == text


def test_rows_of_another_run_are_refused_in_one_line(tmp_path, monkeypatch, capsys):
    toy = Toy(tmp_path / "toy", monkeypatch)
    monkeypatch.setattr(command, "load", lambda name: toy.experiment)
    arguments = ["structure", "--out", str(tmp_path / "out")]
    assert command.main([*arguments, "--quick"]) == 0
    capsys.readouterr()
    assert command.main(arguments) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "rows.jsonl is of another run" in message
    assert "--out" in message


def test_missing_data_is_one_line(tmp_path, monkeypatch, capsys):
    toy = Toy(tmp_path / "toy", monkeypatch, data=(("toy.npz", "twelve toys, from the toy shop"),))
    monkeypatch.setattr(command, "load", lambda name: toy.experiment)
    for given in ([], ["--data", str(tmp_path / "nowhere")]):
        assert command.main(["usps", "--quick", "--out", str(tmp_path / "out"), *given]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        for word in ("toy.npz", "twelve toys, from the toy shop", "--data FOLDER"):
            assert word in line
    assert not toy.calls
    (tmp_path / "toy.npz").touch()
    assert data_file(Namespace(data=tmp_path), "toy.npz", "toys").exists()


def test_stopping_says_how_to_go_on(tmp_path, monkeypatch, capsys):
    toy = Toy(tmp_path / "toy", monkeypatch, stop_after=2)
    monkeypatch.setattr(command, "load", lambda name: toy.experiment)
    assert command.main(["structure", "--quick", "--out", str(tmp_path)]) == 130
    assert "goes on where it was" in capsys.readouterr().err


def test_a_claim_that_fails_is_told_and_kept(tmp_path, monkeypatch, capsys):
    toy = Toy(tmp_path / "toy", monkeypatch)
    monkeypatch.setattr(command, "load", lambda name: toy.experiment)
    (tmp_path / "toy" / "expected.json").write_text('{"mean": 5.0}')
    assert command.main(["structure", "--quick", "--out", str(tmp_path)]) == 1
    assert "NO structure: near a half" in capsys.readouterr().out
    results = json.loads((tmp_path / "structure" / "results.json").read_text())
    assert [claim["holds"] for claim in results["claims"]] == [False]
    assert "**no**" in (tmp_path / "structure" / "README.md").read_text()


@pytest.mark.parametrize(
    ("value", "at_least", "tolerance", "holds"),
    [(1.0, True, 0.0, True), (0.9, True, 0.0, False), (0.9, True, 0.2, True), (1.1, False, 0.0, False)],
)
def test_claims(value, at_least, tolerance, holds):
    assert Claim("one", value, 1.0, at_least, tolerance).holds is holds


def test_nan_is_no_claim():
    assert not Claim("nothing", float("nan"), 1.0, tolerance=100.0).holds


def test_the_page_keeps_its_words(tmp_path, monkeypatch):
    toy = Toy(tmp_path / "toy", monkeypatch)
    words = f"# Toy\n\nBefore.\n\n{MARKS[0]}\nyesterday\n{MARKS[1]}\n\nAfter.\n"
    (tmp_path / "toy" / "README.md").write_text(words)
    perform(toy.experiment, OPTIONS, tmp_path / "toy")
    page = (tmp_path / "toy" / "README.md").read_text()
    assert page.startswith("# Toy\n\nBefore.\n")
    assert page.endswith("\n\nAfter.\n")
    assert "yesterday" not in page
    assert "near a half" in page


def test_a_key_is_a_seed():
    draws = {key: generator(*key).random() for key in [("a", 1), ("a", 2), ("b", 1), ("a", 1.5)]}
    assert len(set(draws.values())) == 4
    assert draws["a", 1] == generator("a", 1).random()
    mean, spread, error = mean_and_error([1.0, 2.0, 3.0])
    assert (mean, spread) == (2.0, 1.0)
    assert error == pytest.approx(np.sqrt(1 / 3))
