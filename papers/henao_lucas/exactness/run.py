"""What the paper could not show: samplers against the exact posterior, evidence at equal time, the literal weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from tests.reference.exact import Exact, exact_posterior

import coaltree as ct
from coaltree.inference.effort import choose_sampler
from papers.henao_lucas.artificial import simulate
from papers.henao_lucas.exactness import literal
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary, generator, mean_and_error
from papers.henao_lucas.figures import BLACK, LABELS, MARKS, ORANGE, VERMILION, legend_below, panels, plain_logarithmic

METHODS = ("postpost", "mpost1", "smc1", "mpost2", "tpost", "insertion")
LITERAL = {"literal1": "mpost1", "literal2": "mpost2"}
LITERAL_LABELS = {"literal1": "MPost1, literal weights", "literal2": "MPost2, literal weights"}
N_LEAVES, N_BATCHES, BATCH = 4, 20, 1000
# Among some hundred statistics of 20 batches a distance of six standard errors is a matter of one in a thousand runs.
FARTHEST = 6.0
RARE = 0.05
# Particles, by method: up to the time that 100 of insertion take. Methods of n³ integrals have fewer at larger n.
LADDERS = dict.fromkeys(METHODS, (10, 30, 100)) | dict.fromkeys(("smc1", "mpost2"), (10, 30, 100, 300))
LADDERS["tpost"] = (10, 30, 100, 300, 1000)
SLOW_LADDERS = {64: (3, 10, 30), 128: (3, 10)}
N_SETS, N_SEEDS = 2, 4


def tasks(options: Options) -> Sequence[Key]:
    """Small data sets by method; n, d, method and particles; n = d = 32 by literal weights."""
    quick = options.quick
    cases = [(d, k) for d in ((2, 16) if quick else (2, 4, 16)) for k in range(1 if quick else 3)]
    exact: list[Key] = [("exact", d, k, method) for d, k in cases for method in (*METHODS, *LITERAL)]
    evidence: list[Key] = []
    for n in (8, 32) if quick else (8, 16, 32, 64, 128):
        for d in (4,) if quick else (4, 64):
            for method in METHODS:
                slow = SLOW_LADDERS if method in ("postpost", "mpost1") else {}
                ladder = (10, 100) if quick else slow.get(n, LADDERS[method])
                evidence += [("evidence", n, d, method, size) for size in ladder]
    replicates = options.replicates or (3 if quick else 20)
    large: list[Key] = [("large", method, k) for k in range(replicates) for method in LITERAL]
    return exact + evidence + large


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Run one of the three kinds of task."""
    kinds: dict[Any, Callable[..., Row]] = {"exact": compare_exact, "evidence": climb, "large": compare_large}
    return kinds[key[0]](*key[1:], rng)


@cache
def small_case(d: int, k: int) -> tuple[np.ndarray, Exact]:
    """Four leaves from the model, and their exact posterior."""
    rng = generator("small", d, k)
    X = ct.sample_data(ct.sample_tree(N_LEAVES, random_state=rng), d, random_state=rng)
    return X, exact_posterior(X)


def compare_exact(d: int, k: int, method: str, rng: np.random.Generator) -> Row:
    """Probabilities of first merges, mean log times and evidence from 20 batches, beside the exact ones."""
    X, exact = small_case(d, k)
    statistics, log_z = [], []
    i, j = np.triu_indices(N_LEAVES, 1)
    for _ in range(N_BATCHES):
        if method in LITERAL:
            post: Any = literal.sample(X, None, LITERAL[method], BATCH, rng)
        else:
            post = ct.sample_posterior(X, method=method, n_particles=BATCH, random_state=rng)
        pairs = np.sort(post.children[:, 0], axis=1)
        first = (pairs[:, :1] == i) & (pairs[:, 1:] == j)
        statistics.append(np.concatenate([post.weights @ first, post.weights @ np.log(post.times)]))
        log_z.append(post.log_evidence)
    # Batches count by their evidence: then they are one large run, and their spread gives its error.
    weight = np.exp(np.array(log_z) - max(log_z))
    log_evidence = max(log_z) + float(np.log(weight.mean()))
    evidence_error = float(weight.std(ddof=1) / weight.mean() / np.sqrt(N_BATCHES))
    weight /= weight.sum()
    mean = weight @ np.array(statistics)
    error = np.sqrt(weight**2 @ (np.array(statistics) - mean) ** 2 * N_BATCHES / (N_BATCHES - 1))
    truth = np.concatenate([list(exact.first_pair.values()), exact.mean_log_times])
    off = np.append(mean - truth, log_evidence - exact.log_evidence)
    # What is hardly ever proposed has no usable standard error: rare pairs count by their absolute error only.
    z = off / (np.append(error, evidence_error) + 1e-4)
    n_pairs = len(exact.first_pair)
    common = np.append(truth[:n_pairs] > RARE, np.ones(len(off) - n_pairs, dtype=bool))
    return {
        "first": mean[:n_pairs].tolist(),
        "first_exact": truth[:n_pairs].tolist(),
        "variation": 0.5 * float(np.abs(off[:n_pairs]).sum()),
        "log_times": off[n_pairs:-1].tolist(),
        "log_evidence": float(off[-1]),
        "farthest": float(np.abs(z[common]).max()),
        "missed": float(truth[:n_pairs][mean[:n_pairs] == 0.0].sum()),
    }


@cache
def compile_for(n: int, d: int, method: str) -> None:
    """Compile what a method needs at a size, once a process."""
    ct.sample_posterior(np.random.default_rng(0).normal(size=(n, d)), method=method, n_particles=2)


def climb(n: int, d: int, method: str, n_particles: int, rng: np.random.Generator) -> Row:
    """Log evidence and CPU seconds, data set by data set and seed by seed."""
    compile_for(n, d, method)
    log_evidence, seconds = [], []
    for k in range(N_SETS):
        data_rng = generator("ladder", n, d, k)
        X = ct.sample_data(ct.sample_tree(n, random_state=data_rng), d, random_state=data_rng)
        for _ in range(N_SEEDS):
            began = time.process_time()
            post = ct.sample_posterior(X, method=method, n_particles=n_particles, random_state=rng)
            seconds.append(time.process_time() - began)
            log_evidence.append(post.log_evidence)
    return {"log_evidence": log_evidence, "cpu": seconds}


def compare_large(method: str, replicate: int, rng: np.random.Generator) -> Row:
    """Merge-time errors at n = d = 32 by literal weights and by proper ones, by the same code."""
    data = simulate(32, 32, replicate)
    row = {}
    for name, proper in (("literal", False), ("proper", True)):
        post = literal.sample(data.X, data.phi, LITERAL[method], 100, rng, proper)
        row[f"{name}_mse"] = ct.metrics.merge_time_errors(data.tree, post.times, weights=post.weights).mse
        row[f"{name}_log_evidence"] = post.log_evidence
    return row


def summarise(rows: dict[Key, Row]) -> Summary:
    """Worst and mean errors by method; evidence at equal time and at equal particles; the cost of literal weights."""
    exact: Summary = {}
    for method in (*METHODS, *LITERAL):
        found = [row for key, row in rows.items() if key[0] == "exact" and key[3] == method]
        exact[method] = {
            "cases": len(found),
            "farthest": max(row["farthest"] for row in found),
            "variation": float(np.mean([row["variation"] for row in found])),
            "worst_variation": max(row["variation"] for row in found),
            "worst_first": max(np.abs(np.subtract(row["first"], row["first_exact"])).max() for row in found),
            "missed": max(row["missed"] for row in found),
            "log_times": float(np.abs([row["log_times"] for row in found]).max()),
            "log_evidence": float(np.mean([row["log_evidence"] for row in found])),
            "worst_log_evidence": float(np.abs([row["log_evidence"] for row in found]).max()),
        }
    large: Summary = {}
    for method in LITERAL:
        found = [row for key, row in rows.items() if key[:2] == ("large", method)]
        large[method] = {
            "literal_mse": mean_and_error([row["literal_mse"] for row in found]),
            "proper_mse": mean_and_error([row["proper_mse"] for row in found]),
            "log_evidence": mean_and_error([row["literal_log_evidence"] - row["proper_log_evidence"] for row in found]),
        }
    return {"exact": exact, "equal_time": equal_time(rows), "large": large}


def equal_time(rows: dict[Key, Row]) -> Summary:
    """Log evidence less that of what `auto` takes, in the time that takes with 100 particles; means and errors.

    Between the steps of a ladder log evidence is interpolated in log time; outside it the nearest step counts.
    """
    ladders: dict[tuple[Any, Any], dict[Any, list[tuple[float, np.ndarray]]]] = {}
    for key, row in rows.items():
        if key[0] == "evidence":
            _, n, d, method, _ = key
            step = (float(np.mean(row["cpu"])), np.array(row["log_evidence"]))
            ladders.setdefault((n, d), {}).setdefault(method, []).append(step)
    found: Summary = {}
    for (n, d), ladder in ladders.items():
        reference, _ = choose_sampler("auto", n, d, 0.5)
        if len(ladder) < len(METHODS) or ("evidence", n, d, reference, 100) not in rows:
            continue  # not done yet
        budget = float(np.mean(rows["evidence", n, d, reference, 100]["cpu"]))

        def at(method: str, budget: float = budget, ladder: Any = ladder) -> np.ndarray:
            clock = np.log([seconds for seconds, _ in ladder[method]])
            values = np.array([value for _, value in ladder[method]])
            return np.array([np.interp(np.log(budget), clock, column) for column in values.T])

        best = at(reference)
        particles = np.array(rows["evidence", n, d, reference, 100]["log_evidence"])
        found[f"{n}, {d}"] = {
            "auto": reference,
            "cpu": budget,
            "log_evidence": float(best.mean()),
            **{method: mean_and_error(at(method) - best) for method in METHODS},
            "equal_particles": {
                method: mean_and_error(np.array(rows["evidence", n, d, method, 100]["log_evidence"]) - particles)
                for method in METHODS
                if ("evidence", n, d, method, 100) in rows
            },
        }
    return found


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """Every sampler is exact, the literal weights are not, and `auto` has the highest evidence in equal time."""
    found = [
        Claim(
            f"n = 4, {LABELS[method]}: largest distance from the exact posterior, in standard errors",
            summary["exact"][method]["farthest"],
            FARTHEST,
            at_least=False,
        )
        for method in METHODS
    ]
    for method in METHODS:
        found.append(
            Claim(
                f"n = 4, {LABELS[method]}: total variation between sampled and exact first merges, mean",
                summary["exact"][method]["variation"],
                0.02,
                at_least=False,
            )
        )
    for method, words in LITERAL_LABELS.items():
        found.append(
            Claim(
                f"n = 4, {words}: largest distance, in standard errors (a check that can fail)",
                summary["exact"][method]["farthest"],
                FARTHEST,
            )
        )
        large = summary["large"][method]
        found.append(
            Claim(
                f"n = d = 32, {words}: merge-time MSE over that of the proper weights",
                large["literal_mse"][0] / large["proper_mse"][0],
                2.0,
            )
        )
    for size, values in summary["equal_time"].items():
        rivals = {method: values[method] for method in METHODS if method != values["auto"]}
        chosen = LABELS[values["auto"]]
        best = max(rivals, key=lambda method: rivals[method][0])
        found.append(
            Claim(
                f"n, d = {size}: log evidence of {chosen} above the best other ({LABELS[best]}), equal time",
                -rivals[best][0],
                0.0,
                tolerance=rivals[best][2],
                timed=True,
            )
        )
        for method in ("mpost1", "mpost2"):
            if method not in values["equal_particles"]:
                continue
            mean, _, error = values["equal_particles"][method]
            found.append(
                Claim(
                    f"n, d = {size}: log evidence of {chosen} above {LABELS[method]}, 100 particles each",
                    -mean,
                    0.0,
                    tolerance=error,
                )
            )
    return found


def show(summary: Summary, expected: Summary) -> Iterator[str]:
    """The three tables."""
    cases = summary["exact"]["tpost"]["cases"]
    yield f"Four leaves, {cases} data sets, {N_BATCHES} × {BATCH} particles, against quadrature:"
    yield ""
    yield (
        "| sampler | largest distance, standard errors | first-merge probability, worst error | total variation, mean "
        "| never proposed, at most | E log t, worst error | log evidence, mean error | worst |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for method, v in summary["exact"].items():
        yield (
            f"| {LABELS.get(method) or LITERAL_LABELS[method]} | {v['farthest']:.1f} | {v['worst_first']:.4f} "
            f"| {v['variation']:.4f} | {v['missed']:.4f} | {v['log_times']:.4f} | {v['log_evidence']:+.4f} "
            f"| {v['worst_log_evidence']:.4f} |"
        )
    yield ""
    yield "n = d = 32, 100 particles, the same code with both weights:"
    yield ""
    yield "| sampler | merge-time MSE, literal weights | proper weights | log evidence, literal − proper |"
    yield "|---|---|---|---|"
    for method, v in summary["large"].items():
        cells = [f"{v[name][0]:.3g} ± {v[name][2]:.2g}" for name in ("literal_mse", "proper_mse", "log_evidence")]
        yield f"| {LABELS[LITERAL[method]]} | {' | '.join(cells)} |"
    yield ""
    yield "Log evidence in the CPU time that the method of `auto` takes with 100 particles, less that method's:"
    yield ""
    yield "| n, d | CPU s | auto | " + " | ".join(LABELS[m] for m in METHODS) + " |"
    yield "|---" * (3 + len(METHODS)) + "|"
    for size, v in summary["equal_time"].items():
        cells = [f"{v['log_evidence']:.1f}" if m == v["auto"] else f"{v[m][0]:+.1f} ± {v[m][2]:.1f}" for m in METHODS]
        yield f"| {size} | {v['cpu']:.3f} | {LABELS[v['auto']]} | {' | '.join(cells)} |"


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """First merges against the exact probabilities; log evidence against time."""
    return {"first_merges": draw_first(rows), "evidence": draw_evidence(rows)}


def draw_first(rows: dict[Key, Row]) -> Figure:
    """Probabilities of first merges, proper weights left, literal right."""
    figure, axes = panels(2, height=3.2)
    shown = {
        0: {method: (LABELS[method], MARKS[method]) for method in METHODS},
        1: {
            "literal1": (LITERAL_LABELS["literal1"], {"color": ORANGE, "marker": "^"}),
            "literal2": (LITERAL_LABELS["literal2"], {"color": VERMILION, "marker": "v"}),
        },
    }
    for column, methods in shown.items():
        axes[column].plot([0, 1], [0, 1], color=BLACK, linewidth=0.8)
        for method, (label, look) in methods.items():
            found = [row for key, row in rows.items() if key[0] == "exact" and key[3] == method]
            x = np.concatenate([row["first_exact"] for row in found])
            y = np.concatenate([row["first"] for row in found])
            axes[column].plot(x, y, **{**look, "linestyle": "none"}, markerfacecolor="none", label=label)
        axes[column].set(xlabel="exact probability of a first merge", ylabel="sampled", aspect="equal")
        axes[column].legend(fontsize=7, loc="upper left")
    axes[0].set_title("proper weights")
    axes[1].set_title("the paper's weights, literally")
    return figure


def draw_evidence(rows: dict[Key, Row]) -> Figure:
    """Log evidence below the best against CPU seconds, by n and d."""
    sizes = list(dict.fromkeys(key[1:3] for key in rows if key[0] == "evidence"))
    shown = [size for size in sizes if size[0] >= 32]
    n_columns = min(3, len(shown)) if len(shown) != 4 else 2
    figure, axes = panels(n_columns, -(-len(shown) // n_columns))
    for axis in axes[len(shown) :]:
        axis.remove()
    for axis, size in zip(axes, shown, strict=False):
        found = {key[3:]: row for key, row in rows.items() if key[:3] == ("evidence", *size)}
        top = np.max([row["log_evidence"] for row in found.values()], axis=0)
        for method in METHODS:
            steps = [row for key, row in found.items() if key[0] == method]
            below = [np.subtract(row["log_evidence"], top) for row in steps]
            axis.errorbar(
                [np.mean(row["cpu"]) for row in steps],
                [each.mean() for each in below],
                [each.std(ddof=1) / np.sqrt(len(each)) for each in below],
                **MARKS[method],
                label=LABELS[method],
                capsize=2,
                elinewidth=0.9,
            )
        plain_logarithmic(axis, "x", (1.0, 3.0))
        axis.set(xlabel="CPU seconds", ylabel="log evidence − best", title=f"n = {size[0]}, d = {size[1]}")
    legend_below(figure, axes[0], len(METHODS))
    return figure


EXPERIMENT = Experiment("exactness", tasks, run, summarise, claims, show, figures)
