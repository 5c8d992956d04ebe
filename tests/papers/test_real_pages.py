"""What is committed of the experiments on real data hangs together: claims, page and figures follow from results."""

import json

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
    figures = sorted(experiment.folder.glob("*.png"))
    assert figures
    for figure in figures:
        assert f"]({figure.name})" in page
        assert figure.with_suffix(".svg").exists()
