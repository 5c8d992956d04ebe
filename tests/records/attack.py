"""An attack on published folders: which numbers of patients from 1 to 10 can be solved for?

The attacker has every file of a study or of an application, knows the rules of what is shown, and combines files: parts
are subtracted from totals, areas are multiplied by m (n − m), rates by their denominators, means by what they are the
mean of. A number is solved for if fewer than MANY values are left for it, all of them from 0 to 10.
"""

import csv
import io
import json
import re
import tomllib
from html.parser import HTMLParser

import numpy as np

from coaltree.records.bundle import TravellingModel

SMALLEST_SHOWN = 11
MANY = 5


def read_tables(folder):
    return {file.stem: list(csv.DictReader(io.StringIO(file.read_text()))) for file in sorted(folder.glob("*.csv"))}


class PageTables(HTMLParser):
    """Every table of a page, as rows of texts."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.cell = [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = ""

    def handle_data(self, data):
        if self.cell is not None:
            self.cell += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self.cell)
            self.cell = None


def as_range(cell, most):
    """Lowest and highest number that a printed one can stand for."""
    if isinstance(cell, tuple):
        return cell
    cell = cell.partition(" ")[0].replace(",", "")
    if cell == f"<{SMALLEST_SHOWN}":
        return 1, SMALLEST_SHOWN - 1
    if cell == "withheld":
        return 1, most
    if cell.endswith("+"):
        return int(cell[:-1]), most
    return int(cell), int(cell)


def told(values):
    """Whether so few values are left that a number from 1 to 10 is solved for."""
    found = set(values)
    assert found, "the numbers contradict each other"
    return len(found) < MANY and max(found) < SMALLEST_SHOWN and found != {0}


def narrowed(ranges, total):
    """Ranges of the parts of a total, each cut by what the others leave."""
    for _ in range(3):
        lows, highs = sum(low for low, _ in ranges), sum(high for _, high in ranges)
        ranges = [(max(low, total - highs + high), min(high, total - lows + low)) for low, high in ranges]
    return ranges


def solved_parts(cells, total, where):
    """Parts of a total that can be told, and the rest of every exact one."""
    ranges = narrowed([as_range(cell, total) for cell in cells], total)
    solved = [f"{where}: part {i}" for i, (low, high) in enumerate(ranges) if told(range(low, min(high, low + 99) + 1))]
    for i, (low, high) in enumerate(ranges):
        if low == high and told([total - low]):
            solved.append(f"{where}: all but part {i}")
    return solved


def digits_of(text):
    return len(text.partition(".")[2])


def agreeing(area, m, n):
    """Whether some whole number of halves of pairs gives a printed area with m events of n labels."""
    steps, half = 2 * m * (n - m), 0.5 * 10.0 ** -digits_of(area) + 1e-9
    return np.floor((float(area) + half) * steps) >= np.ceil((float(area) - half) * steps)


def solved_areas(areas, events, labels, total, where, least=0):
    """Events, labels without one and subjects without a label, from all areas of one outcome."""
    low_m, high_m = as_range(events, total)
    low_n, high_n = as_range(labels, total)
    pairs = {
        (m, n)
        for n in range(low_n, high_n + 1)
        for m in range(max(low_m, least), min(high_m, n) + 1)
        if all(agreeing(area, m, n) for area in areas)
    }
    if not pairs:  # areas of weighted labels are no shares of pairs
        return []
    parts = {"events": {m for m, _ in pairs}, "labels without": {n - m for m, n in pairs}}
    parts["without a label"] = {total - n for _, n in pairs}
    return [f"{where}: {what}" for what, values in parts.items() if told(values)]


def is_shown(text):
    return text not in ("", "nan", "\N{EN DASH}", None)


# ---- the files


def attack(folder):
    """What can be told from the files of a study or of an application."""
    tables = read_tables(folder)
    if "attrition" in tables:
        parts = [("external", "", "attrition")]
    else:
        dates = [name.removeprefix("labels ") for name in tables["outcomes"][0] if name.startswith("labels ")]
        parts = [("cross-validation", f" {dates[0]}", "attrition-1")]
        parts += [("temporal", f" {dates[-1]}", "attrition-2")] if len(dates) > 1 else []
    solved = attack_attrition([tables[steps] for _, _, steps in parts])
    least, masked = 0, True
    if (folder / "config.toml").exists():
        config = tomllib.loads((folder / "config.toml").read_text())
        least = config.get("outcomes", {}).get("min_events", 0)
        masked = config.get("settings") != "paper" and config.get("cohort", {}).get("prior_outcome") != "keep"
    for place, (part, date, steps) in enumerate(parts):
        total = int(tables[steps][-1]["left"])
        solved += attack_labels(tables, part, date, total, least if place == 0 else 0, masked)
        solved += attack_nested(tables, date)
        solved += attack_means(tables, part)
        solved += attack_calibration(tables, part)
    if (
        masked and len(parts) > 1 and "held out" not in parts[1][1] and "index" not in parts[1][1]
    ):  # else there are two groups of people
        solved += attack_thresholds(tables, *(date for _, date, _ in parts), int(tables["attrition-2"][-1]["left"]))
    solved += attack_table_one(tables["table-one"])
    solved += attack_subgroups(tables, parts[-1], int(tables[parts[-1][2]][-1]["left"]))
    solved += attack_cost(tables.get("cost", []))
    solved += attack_page((folder / "report.html").read_text())
    if (folder / "model.npz").exists():
        n = int(tables["attrition-1"][-1]["left"])
        solved += attack_model(folder / "model.npz", n)
        model = TravellingModel.load(folder / "model.npz")
        places = model.outcomes.names, model.info["regressors"]
        solved += attack_units(tables["drivers"], *places, model.arrays["coef"], model.factors.scale_, n)
        assert all(re.fullmatch(r"\d+%", share) for row in tables["factors"] for share in SHARE.findall(row["codes"]))
    if (folder / "summary.json").exists():
        solved += attack_summary(tables, json.loads((folder / "summary.json").read_text()))
    return solved


def attack_attrition(thresholds):
    solved = []
    for table in thresholds:
        solved += [f"attrition, {row['rule']}" for row in table if told([int(row["left"])])]
        lefts = [int(row["left"]) for row in table]
        solved += [f"attrition: {a} - {b}" for i, a in enumerate(lefts) for b in lefts[i + 1 :] if told([a - b])]
    if len(thresholds) > 1:  # those who died in between are all that tells two steps apart
        first = {row["rule"]: int(row["left"]) for row in thresholds[0]}
        for row in thresholds[1][:-1]:
            gap = abs(first.get(row["rule"], int(row["left"])) - int(row["left"]))
            solved += [f"attrition of two thresholds: {row['rule']}"] if told([gap]) else []
    return solved


def attack_labels(tables, part, date, total, least, masked=True):
    """Where prior outcomes are not masked, who had one has a label all the same."""
    solved = []
    for row in tables["outcomes"]:
        where = f"{part}, {row['outcome']}"
        cells = [row[f"{name}{date}"] for name in ("labels", "had it before", "censored")]
        for parts in [cells] if masked else [[cells[0], cells[2]], [cells[1], "0+"]]:
            solved += solved_parts(parts, total, where)
        low, high = as_range(row[f"events{date}"], total)
        solved += [f"{where}: all but events"] if told({total - n for n in range(low, high + 1)}) else []
        scores = [r for r in tables.get(f"scores-{part}", []) if r["outcome"] == row["outcome"]]
        areas = [r["auroc"] for r in scores if is_shown(r["auroc"])]
        events = row[f"events{date}"]
        assert {r["events"] for r in scores} <= {events}
        assert {r["n"] for r in scores} <= {cells[0]}
        solved += solved_areas(areas, events, cells[0], total, where, least)
    return solved


def attack_thresholds(tables, first, second, total):
    """Who had an outcome before the second threshold had it before the first or between the two, but for a few.

    So any one of the three numbers follows, to within a few, from the other two, and hides nothing if they are exact.
    """
    described = {r["characteristic"]: r for r in tables["table-one"]}
    solved = []

    def known(row, date):
        """What both files say of those who had an outcome before a threshold."""
        cells = row[f"had it before{date}"], described[f"{row['outcome']} before"][date.strip()]
        lows, highs = zip(*(as_range(cell, 10**6) for cell in cells), strict=True)
        return max(lows), min(highs)

    for row in tables["outcomes"]:
        before, events, later = known(row, first), as_range(row[f"events{first}"], 10**6), known(row, second)
        where = f"two thresholds, {row['outcome']}"
        for name, hidden, other in (("had it before", before, events), ("events", events, before)):
            left = later[1] - other[0] - (later[0] - other[1]) + 1
            solved += [f"{where}: {name}{first}"] if hidden[0] < hidden[1] and left < MANY and later[1] else []
        if (
            before[0] == before[1]
            and events[0] == events[1]
            and later[0] <= (both := before[0] + events[0]) <= later[1]
        ):
            cells = [row[f"labels{second}"], (both, both), row[f"censored{second}"]]
            solved += solved_parts(cells, total, f"{where}, {second}") if later[0] < later[1] else []
    return solved


NESTED = (("Unstable angina", "Coronary disease"),)


def attack_nested(tables, date, nested=NESTED):
    """Subjects with an outcome but not the part of it that is another, before a threshold and by its horizon's end."""
    rows, solved = {r["outcome"]: r for r in tables["outcomes"]}, []
    for part, whole in nested:
        if part not in rows or whole not in rows:
            continue
        low, high = 0, 0
        for what in ("had it before", "events"):  # an outcome happens before the threshold, or after it, or not
            parts, wholes = (as_range(rows[name][f"{what}{date}"], 10**6) for name in (part, whole))
            low, high = low + wholes[0] - parts[1], high + wholes[1] - parts[0]
            left = range(max(low, 0), max(high, -1) + 1)
            solved += [f"{part} and {whole}, {what}{date}"] if len(left) < MANY and told(left) else []
    return solved


def attack_means(tables, part):
    """Means must be of what is shown: else what is withheld can be subtracted."""
    solved = []
    for mean in tables.get(f"summary-{part}", []):
        rows = [r for r in tables[f"scores-{part}"] if r["method"] == mean["method"]]
        known = [float(r["auroc"]) for r in rows if is_shown(r["auroc"])]
        if len(known) < len(rows) and abs(float(mean["auroc"]) - np.mean(known)) > 1e-4:
            solved.append(f"{part}: the mean holds a withheld area")
        hidden = {r["outcome"] for r in rows if not is_shown(r["auroc"])}
        for r in tables.get(f"differences-{part}", []):
            solved += [f"{part}: difference of {r['outcome']}"] if r["outcome"] in hidden else []
        for r in tables["auc"]:
            if r["outcome"] in hidden:
                cells = [v for k, v in r.items() if k.endswith(part) and not k.startswith("events")]
                solved += [f"{part}: area of {r['outcome']}" for v in cells if is_shown(v)]
    return solved


def attack_calibration(tables, part):
    """Groups have nearly equal sizes, so that pooled labels tell the labels of each."""
    solved = []
    rows = tables.get(f"calibration-{part}", [])
    for method in sorted({r["method"] for r in rows}):
        groups = [r for r in rows if r["method"] == method]
        shown = [r for r in tables[f"scores-{part}"] if r["method"] == method and is_shown(r["auroc"])]
        labels = [as_range(r["n"], 10**6) for r in shown]
        events = [as_range(r["events"], 10**6)[0] for r in groups]
        rest = sum(events) - sum(as_range(r["events"], 10**6)[0] for r in shown)
        solved += [f"{part}, {method}: pooled events minus those shown"] if told([abs(rest)]) else []
        size = sum(low for low, _ in labels) / len(groups)
        exact = all(low == high for low, high in labels)
        for r, n in zip(groups, events, strict=True):
            solved += [f"{part}, {method}: events of a group"] if told([n]) else []
            low = int(r["labels"].removesuffix("+"))
            assert low % 10 == 0, "labels of a group are rounded"
            if n and is_shown(r["observed"]):  # the rate is of the rounded labels, times a factor of three decimals
                factor = 1000 * float(r["observed"]) * max(low, n) / n
                assert abs(factor - round(factor)) < 1e-6
            around = {round(size) + k for k in (-1, 0, 1)} if exact else set(range(low, low + 10))
            solved += [f"{part}, {method}: labels without the event"] if told({k - n for k in around}) else []
    return solved


SEXES = ("women", "men", "sex not known")


def attack_table_one(rows):
    solved = []
    ages = [r["characteristic"] for r in rows if re.match(r"age (?!in years)", r["characteristic"])]
    for column in [name for name in rows[0] if name != "characteristic"]:
        found = {r["characteristic"]: r[column] for r in rows}
        total = int(found["subjects"].replace(",", ""))
        for members in (SEXES, ages):
            solved += solved_parts([found[name] for name in members], total, f"table one, {column}, {members[0]}")
        for name, cell in found.items():
            if name.endswith(" before"):
                solved += solved_parts([cell, "0+"], total, f"table one, {column}, {name}")
    return solved


def attack_subgroups(tables, part, total):
    solved = []
    rows = [r for r in tables.get("subgroups", []) if not r["outcome"].startswith("mean")]
    events = {r["outcome"]: r[f"events{part[1]}"] for r in tables["outcomes"]}
    columns = [name for name in tables["table-one"][0] if name != "characteristic"]
    described = {r["characteristic"]: r[columns[-1]] for r in tables["table-one"]}
    for outcome in dict.fromkeys(r["outcome"] for r in rows):
        for is_age in (False, True):
            groups = [r for r in rows if r["outcome"] == outcome and r["group"].startswith("age") == is_age]
            where = f"subgroups, {outcome}, {'ages' if is_age else 'sexes'}"
            nowhere = 0, as_range(described["age not known" if is_age else "sex not known"], total)[1]  # in no group
            low, high = as_range(events[outcome], total)
            if low == high:
                solved += solved_parts([*(r["events"] for r in groups), nowhere], low, where)
            solved += solved_parts([*(r["subjects"] for r in groups), nowhere], total, where)
            for r in groups:
                # Both files say how many there are.
                sizes = as_range(r["subjects"], total), as_range(described[r["group"]], total)
                size = max(a for a, _ in sizes), min(b for _, b in sizes)
                n = as_range(r["events"], total)
                fewest = max(size[0] - n[1], 0)
                left = range(fewest, min(size[1] - n[0], fewest + 99) + 1)
                solved += [f"{where}: subjects of {r['group']} without the event"] if told(left) else []
                if is_shown(r["auroc"]):
                    assert n[0] >= SMALLEST_SHOWN
                    labels = f"{SMALLEST_SHOWN}+"
                    solved += solved_areas([r["auroc"]], r["events"], labels, size[1], f"{where}, {r['group']}")
    for r in tables.get("subgroups", []):
        if r["outcome"].startswith("mean"):
            known = [float(q["auroc"]) for q in rows if q["group"] == r["group"] and is_shown(q["auroc"])]
            if abs(float(r["auroc"]) - np.mean(known)) > 6e-4:
                solved.append(f"subgroups: the mean of {r['group']} holds more digits than its areas")
    return solved


def attack_cost(rows):
    cells = [r[name] for r in rows for name in ("mean_cost", "low", "high") if is_shown(r[name])]
    return [f"cost {cell}" for cell in cells if float(f"{float(cell):.2e}") != float(cell)]


def attack_model(file, n):
    """Sums over subjects are numbers of patients if columns are of 0 and 1, or of 0, 1 and the square root of 2.

    They are found in means of columns; in the components of topics, which add up to the columns; and, with as many
    singular vectors as codes, in the products of columns.
    """
    with np.load(file) as arrays:
        kind = str(arrays["factors_transformer"])
        sums = {name: np.atleast_1d(arrays[name]) * n for name in arrays.files if "mean" in name}
        components, mean, scale = (arrays[f"factors_{name}"] for name in ("components", "mean", "scale"))
        if kind == "lda":
            sums["components"] = components.sum(axis=0) - 1.0  # the prior of K topics is 1 / K each
        if kind == "svd" and len(components) == components.shape[1]:
            sums["means of codes"] = n * mean @ components
            sums["products"] = (components.T * n * (scale**2 + mean**2)) @ components
    solved = []
    for name, values in sums.items():
        for value in np.ravel(values):
            for twice in range(SMALLEST_SHOWN):  # subjects with two
                near = round(float(value - twice * np.sqrt(2.0)))
                whole = abs(value - twice * np.sqrt(2.0) - near) < 1e-6 and 0 <= near <= n
                if whole and (told([near]) or told([n - near - twice]) or told([twice])):
                    solved.append(f"model.npz, {name}: {near} and {twice} of {n}")
    return solved


def attack_units(rows, outcomes, regressors, coef, scale, n):
    """A coefficient printed in other units than the model's tells a standard deviation, and that who has a code."""
    solved = []
    for row in rows:
        j, k = list(outcomes).index(row["outcome"]), list(regressors).index(row["regressor"])
        half = 0.5 * 10.0 ** -digits_of(str(row["coefficient"]))
        ratios = sorted((float(row["coefficient"]) + end) / coef[j, k] for end in (-half, half))
        if ratios[0] <= 1.0 <= ratios[1]:
            continue
        unit = scale[k] if k < len(scale) else 1.0  # single codes beside factors have the units of their counts
        m = np.arange(n + 1)
        spread = np.sqrt(m / n * (1 - m / n))
        fewer = np.minimum(m, n - m)[(spread >= ratios[0] * unit) & (spread <= ratios[1] * unit)]
        solved += [f"drivers, {row['regressor']}: with or without the code"] if len(fewer) and told(fewer) else []
    return solved


SHARE = re.compile(r"\(([^()]*)\)(?:,|$)")


def attack_summary(tables, summary):
    """The summary may hold no mean that a table does not hold, with as many digits."""
    solved = []
    parts = summary["auroc"] if "summary-external" not in tables else {"external": summary["auroc"]}
    for part, means in parts.items():
        shown = {r["method"]: float(r["auroc"]) for r in tables.get(f"summary-{part.replace('_', '-')}", [])}
        solved += [f"summary.json, {part}, {name}" for name, value in means.items() if value != shown[name]]
    return solved


def attack_payers(means, n, price):
    """Subjects with a cost between two points of a curve, if each costs the same once; from three digits."""
    known = np.flatnonzero(~np.isnan(means))
    solved, before = [], (0.0, 0.0)
    for day in known:
        half = 0.5 * 10.0 ** (np.floor(np.log10(means[day])) - 2) + 1e-9
        now = (means[day] - half) * n / price, (means[day] + half) * n / price
        values = range(int(np.ceil(now[0] - before[1])), int(np.floor(now[1] - before[0])) + 1)
        solved += [f"cost until day {day}"] if len(values) and told(values) else []
        before = now
    return solved


COUNTED = re.compile("events|had it|censored|removed|left|labels|subjects|^n$")


def attack_page(text):
    solved = []
    for table in PageTables(text).tables:
        head, *rows = table
        for row in rows:
            cells = dict(zip(head, row, strict=True))
            if "median" in row[0]:  # of codes or days, not of patients
                continue
            for name, cell in cells.items():
                number = re.fullmatch(r"[\d,]+", cell.partition(" ")[0])
                if COUNTED.search(name) and number and told([int(number[0].replace(",", ""))]):
                    solved.append(f"report.html, {name}: {cells}")
    return solved


def attack_curves(curves, outcomes):
    """Subjects between two points of a curve: shares of a known number of events are whole numbers of them."""
    solved = []
    for found in curves:
        m = int(outcomes[found.outcome])
        true = np.diff(np.append(0.0, found.precision.x) * m)
        k = found.precision.x * m
        false = np.diff(np.append(0.0, k / found.precision.y - k))
        for what, cells in (("with", true), ("without", false[:-1])):
            solved += [f"{found.outcome}: {n:.1f} {what} the event" for n in cells if 0.5 < n < SMALLEST_SHOWN - 0.5]
    return solved
