"""What is committed of the experiments on real data hangs together: claims, page and figures follow from results."""

import json
import re

import pytest
from papers.henao_lucas.__main__ import load
from papers.henao_lucas.experiment import MARKS

REAL = ("usps", "mocap", "records")


@pytest.mark.parametrize("name", REAL)
def test_claims_and_page_follow_from_the_results(name):
    if name == "records":
        pytest.importorskip("ibis")
    experiment = load(name)
    results = json.loads((experiment.folder / "results.json").read_text())
    summary, expected = results["summary"], experiment.expected()
    assert not results["quick"]
    found = experiment.claims(summary, expected)
    assert [(claim["statement"], claim["holds"]) for claim in results["claims"]] == [
        (claim.statement, claim.holds) for claim in found
    ]
    page = (experiment.folder / "README.md").read_text()
    between = page.split(MARKS[0])[1].split(MARKS[1])[0]
    for line in experiment.table(summary, expected):
        assert line in between
    assert "WORDS" not in page


@pytest.mark.parametrize("name", REAL)
def test_figures_of_a_page_are_those_of_its_folder(name):
    if name == "records":
        pytest.importorskip("ibis")
    folder = load(name).folder
    shown = set(re.findall(r"\]\((\S+\.png)\)", (folder / "README.md").read_text()))
    assert shown
    there = {figure.name for figure in folder.glob("*.png")}
    if not there and not (folder.parents[2] / ".git").exists():
        pytest.skip("a source distribution leaves out figures of the papers")
    assert shown == there
    assert all((folder / figure).with_suffix(".svg").exists() for figure in shown)
