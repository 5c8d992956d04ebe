"""The report of many rows: a page of bounded size, a tree of closed clades, and how they are opened."""

import time
from dataclasses import replace

import numpy as np
import pytest
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys

import coaltree as ct
from coaltree import TreePosterior
from coaltree.plots.collapse import collapse
from coaltree.report import tree_data
from coaltree.report.clustering import ClusteringResult, clustering_page
from tests.reference.posteriors import make_posterior, shaken_posterior
from tests.reference.trees import caterpillar
from tests.report.test_clustering import detail, key, move_slider, pixels, rows_of, same, set_control, unpacked

N, D, K = 20_000, 16, 7
MOST_TIPS = 60
LIMIT = 8_000_000


def make_result(tree, n_trees=20, d=D, **changes):
    rng = np.random.default_rng(0)
    posterior = shaken_posterior(rng, tree, n_trees) if n_trees > 1 else make_posterior([tree], [1.0])
    X = rng.normal(size=(tree.n_leaves, d)).cumsum(axis=0)[np.argsort(tree.leaf_order())]  # alike in the same clade
    X[rng.random(X.shape) < 0.01] = np.nan
    arguments = {
        "title": "many rows",
        "tree": posterior[0],
        "posterior": posterior,
        "X": X,
        "features": tuple(f"column {j}" for j in range(d)),
        "n_clusters": K,
        "chosen_by": "It was asked for.",
        "trace": {},
        "warmup": 0,
        "parameters": {},
        "command": "coaltree cluster many.csv",
    }
    return ClusteringResult(**(arguments | changes))


def named(tree):
    """Names that are no run of numbers, so that each takes its room."""
    return ct.Tree(tree.children, tree.times, [f"patient {7 * i % tree.n_leaves:06d}" for i in range(tree.n_leaves)])


@pytest.fixture(scope="module")
def result():
    return make_result(named(ct.sample_tree(N, random_state=1)))


@pytest.fixture(scope="module")
def path(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TreePosterior, "coclustering", None)  # nothing may ask for all pairs
        patch.setattr(tree_data, "_MOST_FINE", 100_000)  # eight bits a value, as in the largest pages
        clustering_page(result).write(path)
    return path


@pytest.fixture
def window(open_page, path):
    return open_page(path)


def layout(window, what):
    return window.execute_script(f"const {{layout, model}} = clustering.shared; return {what}")


def tips(window):
    return layout(window, "[...layout.tips]")


def trail(window):
    return window.find_element("css selector", ".trail").text


def closed_tip(window):
    return layout(window, "layout.tips.find(layout.isClosed)")


def click_tip(window, tip):
    """Click into the triangle of a tip, on the label's side of it."""
    canvas = window.find_element("css selector", "canvas.tree")
    window.execute_script("arguments[0].scrollIntoView({block: 'start'})", canvas)
    x, y = window.execute_script("return clustering.shared.placeOf(arguments[0])", tip)
    frame = window.execute_script("const b = arguments[0].getBoundingClientRect(); return [b.left, b.top]", canvas)
    pointer = ActionBuilder(window)
    pointer.pointer_action.move_to_location(int(frame[0] + x), int(frame[1] + y)).click()
    pointer.perform()


# ---- the file


def test_size_and_time(result, path, open_page):
    assert path.stat().st_size < LIMIT / 3
    start = time.perf_counter()
    window = open_page(path)
    pixels(window)
    assert time.perf_counter() - start < 10.0
    assert (
        window.execute_script("return document.querySelector('.widget[data-widget=together]').dataset.ready") == "yes"
    )


def test_first_view_is_the_one_of_the_drawing(window, result):
    shown = tips(window)
    overlap = np.rint(65534 * result.overlap) / 65534  # as the page knows it
    assert sorted(shown) == sorted(collapse(result.tree, MOST_TIPS, overlap, K).tips.tolist())
    assert len(rows_of(window)) == K
    set_control(window, "#tips-shown", "240", "change")
    assert len(tips(window)) == 240
    move_slider(window, 2)
    assert sorted(tips(window)) == sorted(collapse(result.tree, 240, overlap, 2).tips.tolist())


def test_a_click_opens_a_clade_and_the_trail_leads_back(window, result):
    before, picture = tips(window), pixels(window)
    tip = closed_tip(window)
    click_tip(window, tip)
    opened = tips(window)
    leaves = sorted(leaf for node in opened for leaf in result.tree.leaves(node).tolist())
    assert leaves == result.tree.leaves(tip).tolist()
    assert len(opened) <= 300
    rows = len(leaves)
    assert f"{rows:,} rows" in trail(window)
    assert detail(window).startswith(f"Branch of {rows:,} rows")
    assert f"Expected overlap {100 * result.overlap[tip - N]:.0f}%" in detail(window)
    assert not same(pixels(window), picture)
    window.execute_script("document.querySelector('.trail button').click()")
    assert tips(window) == before
    assert layout(window, "layout.root") == 2 * N - 2


def focused(window):
    return window.execute_script("return Number(document.querySelector('.detail').dataset.node)")


def test_by_keyboard_down_to_a_row_and_back(window, result):
    """Right opens closed clades; Left and Escape go back the way that was come."""
    first = tips(window)
    path = []
    while not path or path[-1] >= N:
        key(window, Keys.ARROW_RIGHT)
        path.append(focused(window))
    assert detail(window).startswith(result.tree.leaf_names[path[-1]])
    assert (np.diff(path) <= 0).all()  # never back: opening keeps the focus on the clade
    deep = layout(window, "layout.root")
    assert deep < 2 * N - 2
    key(window, Keys.ESCAPE)
    assert layout(window, "layout.root") > deep
    key(window, Keys.HOME)
    assert tips(window) == first
    while not layout(window, f"layout.isClosed({focused(window)})"):
        key(window, Keys.ARROW_RIGHT)
    tip = focused(window)
    key(window, Keys.ENTER)
    assert layout(window, "layout.root") == focused(window) == tip
    key(window, Keys.ARROW_LEFT)
    assert layout(window, "layout.root") == 2 * N - 2
    assert focused(window) == tip


def test_find_a_row_and_show_a_cluster(window, result):
    window.find_element("css selector", "#find").send_keys("patient 012345")
    assert detail(window).startswith("patient 012345")
    assert layout(window, "layout.tips.length") <= 300
    window.execute_script("document.querySelector('table.clusters tbody tr button').click()")
    cluster, size = rows_of(window)[0]
    assert detail(window).startswith(f"Branch of {size} rows")
    assert f"In cluster {cluster}." in detail(window)
    assert trail(window).startswith(f"Whole tree, {N:,} rows › {size} rows")


def test_means_of_clades(window, result):
    """Eight bits a value are enough for means to a fiftieth of a standard deviation."""
    deviation = np.nanstd(result.X, axis=0)
    assert layout(window, "model.heat.coarse")
    for tip in [3, N + 5, *tips(window)[::7]]:  # a row and a pair, too: one row more or less would be seen there
        mean = f"model.heat.mean(model.first[{tip}], model.last[{tip}], j)"
        shown = layout(window, f"model.heat.columns.map((_, j) => {mean})")
        expected = np.nanmean(result.X[result.tree.leaves(tip)], axis=0)
        np.testing.assert_allclose(np.array(shown, dtype=float) / deviation, expected / deviation, atol=0.02)


def test_any_cut(window):
    start = time.perf_counter()
    set_control(window, "#cut-number", N, "change")
    assert time.perf_counter() - start < 5.0
    assert len(rows_of(window)) == 200
    assert len(tips(window)) == MOST_TIPS
    pixels(window)


def test_matrix_is_of_a_sample(window, path, result):
    markup = path.read_text(encoding="utf-8")
    assert f"of the {N:,} rows: of every cluster its share" in markup
    matrix = window.find_element("css selector", "canvas.matrix")
    window.execute_script("arguments[0].focus()", matrix)
    matrix.send_keys(Keys.ARROW_RIGHT)
    told = window.find_element("css selector", ".widget[data-widget=together] .detail").text
    assert told.startswith("1.00 patient")  # a row with itself


# ---- what the page is told


def test_warnings_come_first():
    small = make_result(ct.sample_tree(10, random_state=0), warnings=("It was stopped at 7 of 50 <sweeps>.",))
    markup = clustering_page(small).render()
    at = markup.index("It was stopped at 7 of 50 &lt;sweeps&gt;.")
    assert 'class="note warning"' in markup[at - 100 : at]
    assert markup.index("Read this first") < at < markup.index('id="the-tree"')
    assert 'class="note good"' not in markup
    assert "Read this first" not in clustering_page(replace(small, warnings=())).render()


@pytest.mark.parametrize("n", [30, 400])
def test_one_tree_has_no_supports(n, tmp_path, open_page):
    single = make_result(ct.sample_tree(n, random_state=0), n_trees=1)
    single = replace(single, posterior=replace(single.posterior, info={"method": "greedy"}))
    clustering_page(single).write(tmp_path / "page.html")
    assert "not known: one greedy tree" in (tmp_path / "page.html").read_text(encoding="utf-8")
    window = open_page(tmp_path / "page.html")
    pixels(window)
    key(window, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert "No expected overlap: there is one tree only." in detail(window)
    assert "No overlaps: there is one tree only." in window.find_element("css selector", ".legend").text
    cells = "[...document.querySelectorAll('table.clusters tbody tr')].map((row) => row.cells[2].textContent)"
    assert set(window.execute_script(f"return {cells}")) == {"–"}


def test_names():
    assert tree_data.name_data(("7", "8", "9"))["numbered"] == {"prefix": "", "start": 7}
    assert tree_data.name_data(("row 0", "row 1"))["numbered"] == {"prefix": "row ", "start": 0}
    for names in (("1", "3"), ("09", "10"), ("a", "b"), ("a1", "b2")):
        assert tree_data.name_data(names) == {"names": list(names), "shortened": False}


def test_long_names_are_shortened_and_said_so(monkeypatch):
    monkeypatch.setattr(tree_data, "_MOST_NAME_BYTES", 2_000)
    tree = ct.sample_tree(100, random_state=0)
    tree = ct.Tree(tree.children, tree.times, [f"{'very ' * 20}long {7 * i % 100}" for i in range(100)])
    data = tree_data.name_data(tree.leaf_names)
    assert data["shortened"]
    assert sum(len(name) + 3 for name in data["names"]) < 2_500  # an ellipsis is one letter and six bytes
    assert data["names"][3].endswith(" 21")
    assert "shortened here; labels.csv has them in full" in clustering_page(make_result(tree)).render()


def test_coarse_values(monkeypatch):
    monkeypatch.setattr(tree_data, "_MOST_FINE", 100)
    rng = np.random.default_rng(0)
    X = np.stack(
        [rng.normal(size=500), 1e6 + rng.standard_cauchy(500), np.full(500, 3.0), np.full(500, np.nan)], axis=1
    )
    X[7, 0] = np.nan
    heat = tree_data.heat_data(X, ("a", "b", "c", "d"))
    codes = unpacked(heat["codes"])
    assert codes.dtype == np.uint8
    values = np.array(heat["mean"]) + heat["deviation"] * np.sinh(np.array(heat["low"]) + heat["step"] * codes)
    values = np.where(codes == 255, np.nan, values)
    np.testing.assert_array_equal(np.isnan(values), np.isnan(X))
    assert np.nanmax(np.abs(values[:, 0] - X[:, 0])) < 0.05 * np.nanstd(X[:, 0])
    far = np.abs(X[:, 1] - X[:, 1].mean())
    assert (np.abs(values[:, 1] - X[:, 1]) < 0.03 * (far + X[:, 1].std())).all()
    np.testing.assert_allclose(values[:, 2], 3.0)


# ---- trees without balance, and the largest


def check_caterpillar(n, tmp_path, open_page):
    clustering_page(make_result(caterpillar(n), n_trees=3, d=4)).write(tmp_path / "page.html")
    window = open_page(tmp_path / "page.html")
    assert len(tips(window)) == MOST_TIPS
    for _ in range(3):
        tip = closed_tip(window)
        click_tip(window, tip)
        assert layout(window, "layout.root") == tip
    assert trail(window).count("›") == 3
    window.find_element("css selector", "#find").send_keys(str(n // 2))
    assert detail(window).startswith(str(n // 2))
    key(window, Keys.HOME)
    assert layout(window, "layout.root") == 2 * n - 2
    set_control(window, "#cut-number", n // 2, "change")
    pixels(window)


def test_caterpillar(tmp_path, open_page):
    check_caterpillar(5_000, tmp_path, open_page)


@pytest.mark.slow
def test_caterpillar_of_a_hundred_thousand_rows(tmp_path, open_page):
    check_caterpillar(100_000, tmp_path, open_page)


@pytest.mark.slow
def test_a_hundred_thousand_rows(tmp_path, open_page):
    result = make_result(named(ct.sample_tree(100_000, random_state=1)), n_trees=200)
    clustering_page(result).write(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < LIMIT
    start = time.perf_counter()
    window = open_page(tmp_path / "page.html")
    pixels(window)
    assert time.perf_counter() - start < 15.0
    assert len(tips(window)) == MOST_TIPS
    tip = closed_tip(window)
    click_tip(window, tip)
    assert layout(window, "layout.root") == tip
    key(window, Keys.HOME)
    start = time.perf_counter()
    move_slider(window, 25)
    assert time.perf_counter() - start < 2.0
    assert len(rows_of(window)) == 25
