"""The report of a clustering: what is in the file, and what happens in a browser."""

import base64
import io
import json
import re
import time
from dataclasses import replace
from html import escape

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.keys import Keys

from coaltree.plots.layout import ladderised_order
from coaltree.posterior.convergence import Convergence
from coaltree.posterior.hierarchy import make_hierarchy
from coaltree.report import tree_data
from coaltree.report.clustering import ClusteringResult, clustering_page
from tests.reference.posteriors import jittered_posterior, noisy_posterior

N, D, CHOSEN = 40, 3, 4
NASTY = ["</script><script>document.title='broken'</script>", "<b>bold</b> & 'x'", '"><img src=x onerror=alert(1)>']


def make_result(n=N, d=D, n_clusters=CHOSEN, n_trees=12):
    rng = np.random.default_rng(0)
    names = tuple(NASTY[: n - 1] + [f"row {i}" for i in range(n - min(len(NASTY), n - 1))])
    posterior = noisy_posterior(rng, n, n_trees, names=names)
    X = rng.normal(size=(n, d)) * 10.0 ** np.arange(d)
    X[0, 0] = np.nan
    return ClusteringResult(
        title=NASTY[1],
        tree=posterior.mcc_tree(),
        posterior=posterior,
        X=X,
        features=tuple((NASTY + [f"column {j}" for j in range(d)])[:d]),
        n_clusters=n_clusters,
        chosen_by="It was asked for.",
        trace={
            "variance": rng.normal(size=(2, 30)),
            "sd": rng.normal(size=(2, 30, 2)),
            "big": rng.normal(size=(2, 30, 5, 5)),
        },
        warmup=5,
        parameters={"seed": 3, NASTY[0]: NASTY[2]},
        command=f"coaltree cluster '{NASTY[0]}'",
        scores={2: 0.5, 3: 0.7, CHOSEN: 0.9},
        notes=(NASTY[2],),
    )


@pytest.fixture(scope="module")
def result():
    return make_result()


@pytest.fixture(scope="module")
def path(result, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    clustering_page(result).write(path)
    return path


@pytest.fixture
def window(open_page, path):
    window = open_page(path)
    pointer = ActionBuilder(window)
    pointer.pointer_action.move_to_location(2, 2)  # where it points at nothing
    pointer.perform()
    return window


def widget_data(path, name):
    markup = path.read_text(encoding="utf-8")
    found = re.search(rf'data-widget="{name}"><script type="application/json">(.*?)</script>', markup, flags=re.DOTALL)
    return json.loads(found[1])


def unpacked(value):
    return np.frombuffer(base64.b64decode(value["data"]), dtype=f"<{value['dtype']}").reshape(value["shape"])


# ---- the file


def test_data_of_the_tree(result, path):
    data = widget_data(path, "clustering")
    tree, posterior = result.tree, result.posterior
    assert data["names"] == list(tree.leaf_names)
    np.testing.assert_array_equal(unpacked(data["children"]), tree.children)
    unit = data["unit"]
    np.testing.assert_allclose(unit * unpacked(data["times"]), tree.times, rtol=1e-6)
    np.testing.assert_allclose(unpacked(data["overlap"]) / 65534, posterior.expected_overlap(tree), atol=1e-5)
    np.testing.assert_allclose(unpacked(data["exact"]) / 65534, posterior.clade_support(tree), atol=1e-5)
    intervals = posterior.time_intervals(tree, 0.9)
    stored = unit * np.stack([unpacked(data["low"]), unpacked(data["high"])], 1)
    np.testing.assert_allclose(stored, intervals, rtol=1e-6)
    heat = data["heat"]
    codes = unpacked(heat["codes"])
    values = np.where(codes < 0, np.nan, np.array(heat["low"]) + np.array(heat["step"]) * codes)
    np.testing.assert_allclose(values, result.X, atol=1e-4 * np.nanmax(np.ptp(np.nan_to_num(result.X), axis=0)))
    assert np.isnan(values[0, 0])


def test_data_of_the_matrix(result, path):
    stored = unpacked(widget_data(path, "together")["values"]) / 255
    order = ladderised_order(result.tree)[::-1]
    expected = result.posterior.coclustering(result.n_clusters)[np.ix_(order, order)]
    np.testing.assert_allclose(stored, expected, atol=0.5 / 255 + 1e-12)


def test_diagnostics_tell_of_the_chains(result, path):
    markup = path.read_text(encoding="utf-8")
    for word in ("Henao", "Daumé", "Görür", "effective draws", "slowest of 25 entries", "sd 2"):
        assert word in markup
    assert "There are no chains to be compared." in markup
    agreed = Convergence(
        {"log_joint": 1.004}, {"log_joint": 400.0}, {"log_joint": 390.0}, 0.02, 0.99, 200.0, n_chains=2, n_draws=300
    )
    trusted = clustering_page(replace(result, convergence=agreed)).render()
    assert '<div class="note good"' in trusted
    assert escape(agreed.verdict) in trusted
    told = Convergence(
        {"log_joint": 1.234}, {"log_joint": 12.0}, {"log_joint": 9.0}, 0.321, 0.876, 17.0, n_chains=2, n_draws=6
    )
    doubtful = clustering_page(replace(result, warnings=told.warnings, convergence=told)).render()
    assert "Not converged: the chains do not agree on the log joint (R-hat 1.23, should be below 1.05)" in doubtful
    assert "clade supports differ by 0.32 between chains" in doubtful
    assert doubtful.count(escape(told.verdict)) == 2  # at the top, and with the numbers
    for number in ("1.234", "0.321", "0.876"):
        assert number in doubtful


def test_many_values_are_thinned_and_said_so(monkeypatch):
    monkeypatch.setattr(tree_data, "_MOST_VALUES", 100)
    wide = replace(make_result(n=8), X=np.zeros((8, 30)), features=tuple(map(str, range(30))), trace={})
    data = tree_data.heat_data(wide.X, wide.features)
    assert len(data["columns"]) == 12
    assert data["columns"][0] == "0"
    assert data["columns"][-1] == "29"
    assert "12 of the 30 columns" in clustering_page(wide).render()


@pytest.mark.parametrize("n", [2, 5])
def test_small_tables(n, tmp_path, open_page):
    clustering_page(make_result(n=n, n_clusters=2)).write(tmp_path / "small.html")
    window = open_page(tmp_path / "small.html")
    assert len(rows_of(window)) == 2
    move_slider(window, n)
    assert len(rows_of(window)) == n


# ---- in the browser


def rows_of(window):
    rows = "[...document.querySelectorAll('table.clusters tbody tr')]"
    return window.execute_script(f"return {rows}.map((row) => [row.dataset.cluster, row.cells[1].textContent])")


def set_control(window, selector, value, event):
    window.execute_script(
        "const [selector, value, event] = arguments, control = document.querySelector(selector);"
        "control.value = value; control.dispatchEvent(new Event(event))",
        selector,
        value,
        event,
    )


def move_slider(window, k):
    set_control(window, "#cut-slider", k, "input")


def pixels(window, selector="canvas.tree"):
    """What a canvas shows once the frame that was asked for is drawn."""
    window.execute_async_script("const d = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => d()))")
    url = window.execute_script("return document.querySelector(arguments[0]).toDataURL()", selector)
    image = Image.open(io.BytesIO(base64.b64decode(url.split(",")[1]))).convert("RGBA")
    return np.asarray(image, dtype=np.float64) * (np.asarray(image)[..., 3:] / 255)


def same(a, b):
    """Whether two pictures differ by no more than the rounding of soft edges."""
    return a.shape == b.shape and np.abs(a - b).max() < 16


def labels_in_page(window):
    return window.execute_script("return [...clustering.shared.cut.labels]")


def key(window, *keys):
    canvas = window.find_element("css selector", "canvas.tree")
    window.execute_script("arguments[0].focus()", canvas)
    canvas.send_keys(*keys)


def detail(window):
    return window.find_element("css selector", ".widget[data-widget=clustering] .detail").text


def test_rows_are_in_the_order_of_the_drawing(window, result):
    shown = window.execute_script("return [...clustering.shared.model.order]")
    assert shown == ladderised_order(result.tree)[::-1].tolist()
    assert window.execute_script("return [...clustering.shared.layout.tips]") == shown


def test_slider_changes_the_clusters(window, result):
    assert len(rows_of(window)) == CHOSEN
    before = pixels(window)
    for k in (1, 2, 7, N):
        move_slider(window, k)
        expected = result.tree.cut(n_clusters=k)
        assert labels_in_page(window) == expected.tolist()
        sizes = {str(c): str(count) for c, count in enumerate(np.bincount(expected))}
        assert dict(rows_of(window)) == sizes
        assert window.find_element("css selector", "#cut-number").get_property("value") == str(k)
        assert window.find_element("css selector", ".summary").text.startswith(f"{k} cluster")
    assert not same(pixels(window), before)
    window.execute_script("document.querySelector('button.chosen').click()")
    assert len(rows_of(window)) == CHOSEN
    assert same(pixels(window), before)


def test_cuts_are_those_of_the_hierarchy(tmp_path, open_page):
    X = np.random.default_rng(1).uniform(-1.5, 1.5, size=(80, 3))
    X[40:, 0] += 10.0
    X[:2] = [[90.0, 0.0, 0.0], [0.0, 0.0, -200.0]]
    posterior = jittered_posterior(X, 1.0)
    found = make_hierarchy(posterior)
    result = replace(
        make_result(n=4),
        tree=found.tree,
        posterior=posterior,
        X=X,
        n_clusters=2,
        labels=found.cut(2),
        cut_order=found.order,
    )
    clustering_page(result).write(tmp_path / "outliers.html")
    window = open_page(tmp_path / "outliers.html")
    assert "Rows in grey are outliers" in (tmp_path / "outliers.html").read_text(encoding="utf-8")
    for k in (2, 1, 5, 30, 78):
        set_control(window, "#cut-number", k, "change")
        assert labels_in_page(window) == found.cut(k).tolist()
        assert "2 outliers" in window.find_element("css selector", ".summary").text
        counts = {int(number): int(count) for number, count in rows_of(window)}
        expected = np.bincount(found.cut(k) + 1)[1:]
        assert all(expected[number] == count for number, count in counts.items())
    # The control: the last merges in time make other clusters.
    assert found.cut(5).tolist() != found.tree.cut(n_clusters=5).tolist()
    # Two outliers take a place at the top of the tree, and no more clusters are to be had than other rows.
    set_control(window, "#cut-number", 80, "change")
    assert window.find_element("css selector", "#cut-number").get_property("value") == "78"


def test_slider_by_keyboard(window):
    slider = window.find_element("css selector", "#cut-slider")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert len(rows_of(window)) == CHOSEN + 2
    slider.send_keys(Keys.HOME)
    assert len(rows_of(window)) == 1


def test_exact_number_is_held_within_bounds(window):
    number = window.find_element("css selector", "#cut-number")
    for typed, k in (("9", 9), ("9999", N), ("0", 1), ("", 1)):
        number.send_keys(Keys.CONTROL, "a", Keys.NULL, Keys.BACKSPACE, typed, Keys.TAB)
        assert len(rows_of(window)) == k


def test_tree_by_keyboard(window, result):
    tree, overlap = result.tree, result.posterior.expected_overlap(result.tree)
    root = 2 * N - 2
    key(window, Keys.ARROW_LEFT)
    assert detail(window).startswith(f"Branch of {N} rows")
    first = pixels(window)
    key(window, Keys.ARROW_RIGHT)
    node = window.execute_script("return Number(document.querySelector('.detail').dataset.node)")
    assert node in tree.children[-1]
    if node >= N:
        assert f"Branch of {tree.sizes()[node - N]} rows" in detail(window)
        assert f"Expected overlap {100 * overlap[node - N]:.0f}%" in detail(window)
        for leaf in tree.leaves(node)[:5]:
            assert tree.leaf_names[leaf] in detail(window)
    key(window, Keys.ARROW_DOWN)
    other = window.execute_script("return Number(document.querySelector('.detail').dataset.node)")
    assert other != node
    assert not set(tree.leaves(other)) & set(tree.leaves(node))
    key(window, Keys.ENTER)
    assert not same(pixels(window), first)
    key(window, Keys.ESCAPE, Keys.ARROW_LEFT)
    for _ in range(N):
        key(window, Keys.ARROW_LEFT)
    assert window.execute_script("return Number(document.querySelector('.detail').dataset.node)") == root
    assert same(pixels(window), first)


def test_every_branch_is_reached_by_keyboard(window):
    """From the root, Right and Down alone visit every leaf."""
    visited = window.execute_script(
        """
        const canvas = document.querySelector('canvas.tree'), panel = document.querySelector('.detail');
        const press = (name) => canvas.dispatchEvent(new KeyboardEvent('keydown', {key: name}));
        const node = () => Number(panel.dataset.node), n = clustering.shared.model.n, seen = new Set();
        press('ArrowLeft');
        for (let i = 0; i < 10 * n; i++) {
          while (node() >= n) press('ArrowRight');
          seen.add(node());
          const before = node();
          press('ArrowDown');
          if (node() === before) break;
        }
        return seen.size;
        """
    )
    assert visited == N


def test_pointer_zoom_and_scales(window):
    canvas = window.find_element("css selector", "canvas.tree")
    whole = pixels(window)
    window.execute_script("document.querySelector('button.zoom-in').click()")
    assert not same(pixels(window), whole)
    window.execute_script("document.querySelector('button.whole').click()")
    assert same(pixels(window), whole)
    for scale in ("sqrt", "log"):
        set_control(window, "#time-scale", scale, "change")
        assert not same(pixels(window), whole)
    window.execute_script(
        "const b = arguments[0].getBoundingClientRect(); arguments[0].dispatchEvent(new PointerEvent('pointermove',"
        " {clientX: b.left + 20, clientY: b.top + b.height / 2, bubbles: true}))",
        canvas,
    )
    assert detail(window).startswith(f"Branch of {N} rows")


def test_find_a_row(window):
    window.find_element("css selector", "#find").send_keys("ROW 17")
    assert detail(window).startswith("row 17")


def test_show_a_cluster(window):
    before = pixels(window)
    window.execute_script("document.querySelector('table.clusters tbody tr button').click()")
    cluster, size = rows_of(window)[0]
    assert f"Branch of {size} rows" in detail(window)
    assert f"In cluster {cluster}." in detail(window)
    assert not same(pixels(window), before)


def test_matrix_follows_the_cut_and_the_keys(window, result):
    before = pixels(window, "canvas.matrix")
    move_slider(window, 2)
    assert not same(pixels(window, "canvas.matrix"), before)
    matrix = window.find_element("css selector", "canvas.matrix")
    window.execute_script("arguments[0].focus()", matrix)
    matrix.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    order = ladderised_order(result.tree)[::-1]
    share = result.posterior.coclustering(CHOSEN)[order[0], order[1]]
    told = window.find_element("css selector", ".widget[data-widget=together] .detail").text
    assert abs(float(told.split()[0]) - share) < 0.01
    assert result.tree.leaf_names[order[0]] in told


def test_labels_are_inert(window):
    """Nothing that a label holds becomes markup or runs, wherever labels are shown."""
    move_slider(window, N)
    key(window, Keys.ARROW_LEFT)
    time.sleep(0.1)
    assert window.title == NASTY[1]
    assert window.execute_script("return document.querySelectorAll('main img[src=x], main b').length") == 0
    shown = window.find_element("css selector", "table.clusters").text
    assert all(name[:39] in shown for name in NASTY)
    assert NASTY[0] in detail(window)


def too_wide(window):
    """Tables that must be scrolled sideways."""
    tables = "[...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    return window.execute_script(f"return {tables}.map((e) => e.getAttribute('aria-label'))")


def test_wide_screen_shows_tables_whole(window):
    assert too_wide(window) == []


def test_clusters_are_described_in_words(result, tmp_path, open_page):
    labels = result.tree.cut(n_clusters=CHOSEN)
    X = np.stack([10.0 * (labels == 0), labels == 1], axis=1).astype(float)
    evidence = [
        {"n_clusters": 3, "score": 0.7, "share_of_draws": 0.2, "cluster_sizes": [30, 6, 4], "groups": "0 + 2 are one"},
        {"n_clusters": 4, "score": 0.9, "share_of_draws": 0.6, "cluster_sizes": [20, 10, 6, 4], "groups": "chosen"},
    ]
    overlaps = [{"expected_overlap": [0.9, 0.83, 0.7], "mean_expected_overlap": 0.87}]
    told = tuple(each | overlap for each, overlap in zip(evidence, 2 * overlaps, strict=True))
    levels = ((), ("red", "blue"))
    changed = replace(result, X=X, features=("size", "colour"), levels=levels, labels=labels, evidence=told)
    clustering_page(changed).write(tmp_path / "words.html")
    window = open_page(tmp_path / "words.html")
    rows = "[...document.querySelectorAll('table.clusters tbody tr')]"
    words = dict(
        window.execute_script(f"return {rows}.map((r) => [r.dataset.cluster, r.querySelector('.words').innerText])")
    )
    assert "high size (+" in words["0"]
    share = f"{np.mean(labels == 1):.0%}"
    assert f"colour 100% blue (of all rows {share})" in words["1"]
    shown = window.find_element("css selector", "main").text
    assert "0 + 2 are one" in shown
    assert too_wide(window) == []
    heights = "return [...document.querySelectorAll('table.clusters thead th')].map((e) => e.scrollHeight)"
    assert max(window.execute_script(heights)) < 60  # no header is broken inside a word
    assert "87%" in shown


def test_narrow_screen_does_not_scroll_sideways(window):
    window.set_window_size(420, 900)
    try:
        pixels(window)  # a frame after the change
        assert window.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert too_wide(window) == []
    finally:
        window.set_window_size(1400, 1000)


def test_every_control_has_a_name(window):
    unnamed = window.execute_script(
        """
        return [...document.querySelectorAll('button, input, select, canvas, img')].filter((e) =>
          !(e.labels && e.labels.length) && !e.getAttribute('aria-label') && !e.textContent.trim() && !e.alt
        ).map((e) => e.outerHTML.slice(0, 80));
        """
    )
    assert unnamed == []


# ---- large tables


def check_large(n, d, path, open_page):
    clustering_page(make_result(n=n, d=d, n_clusters=7, n_trees=2)).write(path)
    assert path.stat().st_size < 8_000_000
    window = open_page(path)
    assert len(rows_of(window)) == 7
    before = pixels(window)
    move_slider(window, 20)
    assert len(rows_of(window)) == 20
    assert not same(pixels(window), before)
    key(window, Keys.ARROW_LEFT, Keys.ARROW_RIGHT)
    assert "Branch of" in detail(window) or "In cluster" in detail(window)
    set_control(window, "#cut-number", n, "change")
    assert len(rows_of(window)) == 200  # the largest ones
    assert f"200 largest of {n} clusters" in window.find_element("css selector", "table.clusters caption").text


def test_a_thousand_rows(tmp_path, open_page):
    check_large(1000, 20, tmp_path / "page.html", open_page)


@pytest.mark.slow
def test_five_thousand_rows(tmp_path, open_page):
    check_large(5000, 50, tmp_path / "page.html", open_page)
