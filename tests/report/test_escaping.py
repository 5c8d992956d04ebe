"""No label changes what a page is made of: nasty names leave the elements of the three reports as they are."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import coaltree as ct
from coaltree.regression.comparison import Comparison
from coaltree.regression.fit import fit_regression
from coaltree.report import blocks
from coaltree.report.clustering import ClusteringResult, clustering_page
from coaltree.report.page import Page
from coaltree.report.regression import OURS, RegressionResult, regression_page
from coaltree.rows import Rows
from tests.reference.posteriors import noisy_posterior

NASTY = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "<!-- <script>",
    "]]></style><svg onload=alert(1)>",
    "&lt;b&gt; &amp; &#60;",
    "$x^2$ and $\\undefined{",
    "a$b",
    "\\frac{1}{0}",
    "javascript:alert(1)",
    "\u202egnp.exe",
    "\ud800 lone",
    "  ",
)
PLAIN = tuple(f"label {i}" for i in range(len(NASTY)))


class Elements(HTMLParser):
    """The tags of a page with the names of their attributes, and everything a script holds that is not data."""

    def __init__(self, markup):
        super().__init__(convert_charrefs=True)
        self.found, self.scripts, self.inside = [], [], None
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attributes):
        assert not any(name.startswith("on") for name, _ in attributes)
        self.found.append((tag, tuple(sorted(name for name, _ in attributes))))
        self.inside = "code" if tag == "script" and ("type", "application/json") not in attributes else None

    def handle_endtag(self, tag):
        self.found.append((f"/{tag}", ()))
        self.inside = None

    def handle_comment(self, data):
        self.found.append(("comment", ()))

    def handle_data(self, data):
        if self.inside == "code":
            self.scripts.append(data)


def same_elements(one, two):
    first, second = Elements(one), Elements(two)
    assert first.found == second.found
    assert first.scripts == second.scripts


nasty = st.one_of(st.sampled_from(NASTY), st.text())


@given(nasty, nasty, nasty)
def test_blocks(a, b, c):
    def page(a, b, c):
        page = Page(a, subtitle=f"x{b}")
        page.section(
            "heading",
            blocks.text(a, b),
            blocks.note(c),
            blocks.bullets([a, b, c]),
            blocks.code(a),
            blocks.facts({"one": b, "two": c}),
            blocks.table([{"x": a, "y": b}, {"x": c, "y": 1}], f"caption {a}"),
            blocks.widget("<p>trusted</p>", {"names": [a, b, c], a: b}, "let x = 1;"),
        )
        return page.render()

    same_elements(page(a, b, c), page("1", "2", "3"))


def test_the_check_would_see_it():
    page = Page("x")
    page.section("y", blocks.Block("<p>label</p>"))
    broken = Page("x")
    broken.section("y", blocks.Block(f"<p>{NASTY[0]}</p>"))
    with pytest.raises(AssertionError):
        same_elements(broken.render(), page.render())


def clustering(labels):
    rng = np.random.default_rng(0)
    n = len(labels)
    posterior = noisy_posterior(rng, n, 6, names=labels)
    return clustering_page(
        ClusteringResult(
            title=labels[0],
            tree=posterior.mcc_tree(),
            posterior=posterior,
            X=rng.normal(size=(n, 3)),
            features=labels[:3],
            n_clusters=3,
            chosen_by=labels[1],
            trace={"variance": rng.normal(size=(2, 30))},
            warmup=5,
            parameters={labels[3]: labels[4]},
            command=labels[0],
            scores={2: 0.5, 3: 0.7},
            notes=(labels[5],),
        )
    ).render()


@pytest.fixture(scope="module")
def probit():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 3))
    Y = (X @ rng.normal(size=(3, 4)) + rng.normal(size=(80, 4)) > 0).astype(float)
    fit = fit_regression(X, Y, n_iter=12, burn_in=4, n_chains=2, random_state=0)
    return X, Y, fit


def comparison(Y, methods, outcomes):
    rng = np.random.default_rng(2)
    score = rng.normal(size=(len(methods), *Y.shape)) + Y
    probability = 1 / (1 + np.exp(-score))
    folds = np.arange(len(Y)) % 2
    return Comparison(methods, outcomes, Y, folds, probability, score, np.ones((len(methods), 2)), n_resamples=20)


def regression(labels, probit):
    X, Y, fit = probit
    outcomes, features = labels[:4], labels[4:7]
    tree = ct.Tree(fit.tree.children, fit.tree.times, outcomes)
    return regression_page(
        RegressionResult(
            title=labels[7],
            fit=replace(fit, tree=tree, posterior=replace(fit.posterior, names=outcomes), outcome_names=outcomes),
            scale=X.std(axis=0),
            features=features,
            outcomes=outcomes,
            n_rows=len(X),
            totals=Y.sum(axis=0),
            comparison=comparison(Y, (OURS, labels[8]), outcomes),
            parameters={labels[9]: labels[10]},
            command=labels[11],
            notes=(labels[0],),
        )
    ).render()


def study(labels, probit, folder):
    pytest.importorskip("ibis", reason="the extra `records` is not installed")
    from coaltree.records.config import load_config
    from coaltree.records.privacy import attrition_table
    from coaltree.records.study import StudyResult
    from coaltree.report.records import draw_figures, write_report

    _, Y, fit = probit
    outcomes = labels[:4]
    file = folder / "study.toml"
    file.write_text('[data]\npath = "."\n[cohort]\nthresholds = ["2009-01-01", "2010-01-01"]\n')
    found = comparison(Y, ("coalescent_probit", "ridge_all", "ridge_factors"), outcomes)
    thresholds = ("2009-01-01", "2010-01-01")
    columns = [f"{what} {when}" for when in thresholds for what in ("events", "had it before", "censored")]
    result = StudyResult(
        config=replace(load_config(file), title=labels[4]),
        attrition=tuple(attrition_table([(labels[5], 100), (labels[6], 80)]) for _ in thresholds),
        outcomes=Rows({"outcome": name, "codes": labels[7], **dict.fromkeys(columns, 20)} for name in outcomes),
        factors=Rows([{"factor": 1, "codes": labels[8]}]),
        cross_validation=found,
        temporal=found,
        tree=ct.Tree(fit.tree.children, fit.tree.times, outcomes),
        support=np.ones(3),
        separation=None,
        curves=None,
        facts={
            "n_subjects": [80, 80],
            "thresholds": list(thresholds),
            "n_codes": 5,
            "n_singles": 3,
            "width": 0.3,
            "left_out": [labels[9]],
            "r_hat": 1.0,
            "bulk_ess": 500.0,
            "converged": False,
            "verdict": f"Not converged: {labels[9]}",
            "unpriced": [],
            "imported": {"dataset_name": labels[10], "n_events": 7, "notes": [labels[11]]},
            "inclusion": labels[0],
        },
    )
    path = folder / "report.html"
    write_report(result, draw_figures(result), path)
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", ["clustering", "regression", "study"])
def test_reports(page, probit, tmp_path):
    make = {
        "clustering": clustering,
        "regression": lambda labels: regression(labels, probit),
        "study": lambda labels: study(labels, probit, tmp_path),
    }[page]
    same_elements(make(NASTY), make(PLAIN))
