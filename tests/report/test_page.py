"""Pages: whole, escaped, closed to the network, and readable by machines and people."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure

from coaltree.report.blocks import bullets, code, facts, figure, note, shown, table, text, widget
from coaltree.report.page import Page, embedded_json, packed

NASTY = "</script><img src=x onerror=\"document.title='broken'\"> & 'quoted' \"twice\"\nnext line"
PROBE = 'coaltree.widget("probe", (root, data) => { root.querySelector("p").textContent = data.label; });'


class Reader(HTMLParser):
    """Tags with their attributes, and the text outside scripts and styles."""

    def __init__(self, markup):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "link", "img", "input", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def drawing(n_points=10):
    fig = Figure(figsize=(4, 3))
    fig.add_subplot().scatter(*np.random.default_rng(0).normal(size=(2, n_points)), s=np.arange(n_points))
    return fig


@pytest.fixture
def page():
    page = Page(NASTY, subtitle=NASTY)
    page.section("One", text(NASTY), note(NASTY, kind="warning"), bullets([NASTY]), code(NASTY), facts({NASTY: NASTY}))
    rows = [{NASTY: NASTY, "value": 2.5}, {NASTY: "b", "value": np.nan}, {NASTY: "c", "value": 10}]
    page.section("One", table(rows, caption=NASTY), figure(drawing(), alt=NASTY, caption=NASTY))
    page.section("Two", *(widget("<p></p>", {"label": NASTY}, PROBE, name="probe") for _ in range(2)))
    return page


def test_well_formed_and_escaped(page):
    reader = Reader(page.render())
    assert reader.open == []
    assert {attributes["src"][:11] for attributes in reader.all("img")} == {"data:image/"}
    assert not [key for _, attributes in reader.tags for key in attributes if key.startswith("on")]
    # Title twice, subtitle; text, note, list, code; fact and its name; header, cell, caption; caption of the figure.
    assert "".join(reader.words).count(NASTY) == 3 + 4 + 2 + 3 + 1
    assert [attributes["alt"] for attributes in reader.all("img")] == [NASTY]


def test_sections_have_anchors_of_their_own_and_the_contents_lead_to_them(page):
    reader = Reader(page.render())
    anchors = [attributes["id"] for attributes in reader.all("section")]
    assert anchors == ["one", "one-2", "two"]
    links = [attributes["href"] for attributes in reader.all("a")]
    assert links == ["#content", *(f"#{anchor}" for anchor in anchors)]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert len(reader.all(landmark)) == 1


def test_policy_admits_the_pages_own_scripts_and_nothing_else(page):
    markup = page.render()
    policy = next(
        attributes["content"]
        for attributes in Reader(markup).all("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    scripts = re.findall(r"<script>(.*?)</script>", markup, flags=re.DOTALL)
    assert len(scripts) == 2  # the page's own, and the probe's once for two widgets
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"].split() == [f"'sha256-{digest}'" for digest in hashes]
    assert not re.search(r"https?://", re.sub(r"data:image/[^\"]*", "", markup))


def test_json_survives_and_cannot_end_its_element():
    value = {"label": NASTY, "list": [1, 2.5, None, "\u2028 é"]}
    assert json.loads(embedded_json(value)) == value
    assert not set("<>&") & set(embedded_json(value))
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(np.nan)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint16", "int32", "float32", "float64"])
def test_packed_arrays_read_back(dtype):
    array = np.arange(12, dtype=dtype).reshape(3, 4).T
    stored = packed(array)
    bytes_ = base64.b64decode(stored["data"])
    assert np.array_equal(np.frombuffer(bytes_, dtype=f"<{stored['dtype']}").reshape(stored["shape"]), array)


def test_packed_refuses_what_the_page_cannot_read():
    with pytest.raises(TypeError, match="int64"):
        packed(np.arange(3))


def test_small_figures_are_drawings_large_ones_pixels_and_both_repeat():
    for n_points, kind in ((10, "svg+xml"), (1500, "png")):
        first, second = (figure(drawing(n_points), alt="points").html for _ in range(2))
        assert f"data:image/{kind};base64," in first
        assert first == second


def test_values_as_shown():
    assert [shown(value) for value in (None, np.nan, True, 3, np.int64(12345), 0.123456, 123456.7, [1, "a"])] == [
        "–",
        "–",
        "yes",
        "3",
        "12,345",
        "0.1235",
        "123,457",
        "1, a",
    ]
    assert shown(0.256, ".0%") == "26%"


def test_lone_surrogates_do_not_stop_the_page(tmp_path):
    page = Page("\udc80")
    page.section("a", widget("<p></p>", {"label": "\udc80"}, PROBE, name="probe"))
    page.write(tmp_path / "page.html")
    assert "<title>?</title>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_unknown_kind_of_note():
    with pytest.raises(ValueError, match="kind must be"):
        note("a", kind="loud")


def test_in_the_browser(page, open_page, tmp_path):
    page.write(tmp_path / "page.html")
    window = open_page(tmp_path / "page.html")
    assert window.title == " ".join(NASTY.split())
    probes = window.find_elements("css selector", "[data-widget=probe] p")
    assert [probe.get_property("textContent") for probe in probes] == [NASTY, NASTY]
    assert len(window.find_elements("tag name", "img")) == 1
    names = "return [...document.querySelectorAll('tbody tr')].map(row => row.cells[1].textContent)"
    header = window.find_elements("css selector", "th")[1]
    header.find_element("tag name", "button").click()
    assert window.execute_script(names) == ["2.5", "10", "–"]
    assert header.get_attribute("aria-sort") == "ascending"
    header.find_element("tag name", "button").click()
    assert window.execute_script(names) == ["10", "2.5", "–"]


def test_foreign_script_does_not_run(page, browser, tmp_path):
    """The negative control of escaping: markup that got into the page unescaped is stopped by the policy."""
    path = tmp_path / "page.html"
    injected = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script></body>"
    path.write_text(page.render().replace("</body>", injected), encoding="utf-8")
    browser.get(path.as_uri())
    assert browser.title != "broken"
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
