"""What is promised to programs: the names and arguments that docs/api/public.md lists, and one class of errors."""

import importlib
import inspect
import re

import numpy as np
import pytest

import coaltree as ct
from tests import surface

# The model's own arguments have their order: a tree, the data, the covariance. So have inputs and what is written.
MORE = {
    "Tree": 3,
    "log_joint": 3,
    "refine": 3,
    "CoalescentProbit.fit": 3,  # scikit-learn's
    "CoalescentRegression.fit": 3,
    "results.apply": 3,
    "results.predict": 3,
    "results.regress": 3,
    "plots.plot_ari_curve": 3,  # matplotlib's `ax` after what is drawn
    "plots.plot_coclustering": 3,
    "plots.plot_heatmap": 3,
    "plots.plot_node_models": 3,
    "plots.plot_outcome_tree": 3,
    "plots.plot_traces": 3,
}


def test_the_page_lists_what_is_there():
    page = surface.PAGE.read_text(encoding="utf-8")
    assert page == surface.text(), (
        "The public surface has changed: run `python -m tests.surface` and say so in CHANGELOG."
    )


def test_the_page_tells_a_change(monkeypatch):
    page = surface.text()
    with monkeypatch.context() as changed:
        changed.setattr(ct, "__all__", [name for name in ct.__all__ if name != "refine"])
        assert surface.text() != page
    monkeypatch.setattr(ct, "log_prior", lambda tree, temperature=1.0: 0.0)
    assert surface.text() != page


def test_guides_use_what_is_promised():
    """README, pages, examples and figures import nothing else."""
    root = surface.PAGE.parents[2]
    texts = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("docs/figures/*.py"), *root.glob("examples/*.py")]
    allowed = {f"coaltree.{module}": set(names) for module, names in surface.GUIDES.items()}
    for module in ("coaltree", *(f"coaltree.{name}" for name in surface.MODULES)):
        allowed[module] = {*surface.promised(importlib.import_module(module)), *surface.MODULES}
    allowed["coaltree.model"] = {"gig"}
    for module, names in surface.GUIDES.items():
        assert all(hasattr(importlib.import_module(f"coaltree.{module}"), name) for name in names)
    found = 0
    for path in texts:
        for module, names in re.findall(r"from (coaltree[.\w]*) import (\([^)]*\)|[^#\n]*)", path.read_text("utf-8")):
            found += 1
            extra = set(re.findall(r"\w+", names)) - allowed.get(module, set())
            assert not extra, f"{path.name}: {module} promises no {', '.join(sorted(extra))}"
    assert found > 20


def test_arguments_are_named_beyond_the_first_two():
    found = {}
    for name, value, method in surface.functions():
        if inspect.isclass(value) and issubclass(value, tuple):
            continue  # a result, not made by its readers
        kinds = [each.kind for each in surface.parameters(value, method)]
        n_positional = kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if n_positional > 2:
            found[name] = n_positional
    assert found == MORE


def test_every_argument_has_a_type():
    for name, value, method in surface.functions():
        for each in surface.parameters(value, method):
            assert each.annotation is not each.empty, f"{name}: {each.name}"


X = np.random.default_rng(0).normal(size=(5, 2))
TREE = ct.sample_tree(5, random_state=0)


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: ct.sample_tree(1), ValueError),
        (lambda: ct.sample_tree("many"), TypeError),
        (lambda: ct.sample_data(TREE, -np.eye(2)), ValueError),
        (lambda: ct.log_joint(TREE, X, np.eye(3)), ValueError),
        (lambda: ct.log_joint(TREE, [["a", "b"]] * 5), TypeError),
        (lambda: ct.greedy_tree(X, rule="best"), ValueError),
        (lambda: ct.refine(TREE, X, max_sweeps=-1), ValueError),
        (lambda: ct.sample_posterior(X, n_particles=0), ValueError),
        (lambda: ct.learn_posterior(X, n_draws=0), ValueError),
        (lambda: ct.cluster("nowhere.csv"), ValueError),
        (lambda: ct.results.cluster("nowhere.csv", "out"), ValueError),
        (lambda: ct.results.regress("nowhere.csv", "nowhere.csv", "out"), ValueError),
        (lambda: ct.results.regress(X, X, "out", baselines="best"), ValueError),
        (lambda: ct.results.predict("nowhere.npz", X, "out.csv"), ValueError),
        (lambda: ct.results.study("nowhere.toml", "out"), ValueError),
    ],
)
def test_errors_have_one_base_class(call, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, ct.CoaltreeError)
    assert not list(tmp_path.iterdir())


def test_own_errors_have_one_base_class():
    for name in ("errors", "records.errors"):
        module = importlib.import_module(f"coaltree.{name}")
        errors = [value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, Exception)]
        assert all(issubclass(error, ct.CoaltreeError) for error in errors if error.__module__.startswith("coaltree."))
