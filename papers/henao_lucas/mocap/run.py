"""Motion capture: 102 series of a person breaking into a run, their tree, and three findings as numbers.

The series are the coordinates of 34 markers over 217 frames. Φ is a squared exponential over the frames plus noise,
learned with the tree. The paper's findings, each a statement that can fail:

    axes     among the Y and Z series those of each axis are a clade
    legs     leg markers merge later than the others of their axis, head markers earlier
    body     pairs of one body part merge before pairs of two (within an axis)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.stats import mannwhitneyu, spearmanr
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.metrics import robinson_foulds
from coaltree.model.gp import GaussianProcess
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary, data_file
from papers.henao_lucas.mocap.drawing import draw_heat_maps, draw_subtrees, subtree
from papers.henao_lucas.mocap.markers import AXES, FEET, LOWER_ARMS, NINE, body_part
from papers.henao_lucas.particle_gibbs import CHAIN, Learned, by_chain, by_particles

DATA = ("osu_run1.npz", "Y (217, 34, 3) and names, 'breaking into run' of the OSU ACCAD open motion data project")
METHODS = ("mpost2", "tpost", "smc1", "greedy", "mpost1", "postpost", CHAIN)
QUICK_METHODS = ("mpost2", "tpost", "smc1", "greedy", CHAIN)
LABELS = {"mpost2": "MPost2", "mpost1": "MPost1", "greedy": "MGreedy", "smc1": "SMC1", "postpost": "Post-Post"}
# The paper's own: 50 particles, 50 iterations. Post-Post, which took it 75 minutes, makes fewer here.
N_PARTICLES, N_ITER, BURN_IN = 50, 50, 10
SLOW_ITER, QUICK_PARTICLES, QUICK_ITER = 8, 8, 12
# Iterations of each of two chains, of which the first half is warm-up.
CHAIN_ITER, QUICK_CHAIN_ITER = 200, 40
FASTER = 5.0


def load(options: Options) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the series (102, 217) and their names, such as LANK:Z."""
    with np.load(data_file(options, *DATA)) as file:
        Y, names = file["Y"], [str(name) for name in file["names"]]
    series = np.ascontiguousarray(Y.reshape(len(Y), -1).T, dtype=np.float64)
    return series, tuple(f"{name}:{axis}" for name in names for axis in AXES)


def smooth_and_noise(d: int) -> GaussianProcess:
    """The paper's covariance over d frames; its ℓ is the square of this length scale."""
    frames = np.arange(d, dtype=np.float64)
    return GaussianProcess(RBF(10.0, (1.0, 200.0)) + WhiteKernel(1e-3, (1e-8, 1.0)), frames, jitter=1e-9)


def tasks(options: Options) -> Sequence[Key]:
    """One task a method; with --replicates so many seeds of each."""
    methods = QUICK_METHODS if options.quick else METHODS
    return [(method, k) for k in range(options.replicates or 1) for method in methods]


def learn(
    method: str,
    series: np.ndarray,
    n_particles: int,
    n_iter: int,
    rng: np.random.Generator,
    names: Sequence[str] | None = None,
) -> Learned:
    """Learn covariance and tree; leaf noise is learned by tpost and the chain and nothing in the others, as there."""
    family = smooth_and_noise(series.shape[1])
    if method == CHAIN:
        return by_chain(series, family, True, 2 * (n_iter - n_iter // 2), n_iter // 2, rng, names)
    burn_in = min(BURN_IN, n_iter // 2)
    if method == "greedy":
        return by_chain(series, family, False, n_iter - burn_in, burn_in, rng, names, "greedy")
    return by_particles(series, family, method == "tpost", method, n_particles, n_iter, burn_in, rng, names)


@cache
def compile_for(method: str) -> None:
    """Compile what a method needs, so that run times are those of a second call."""
    X = ct.sample_data(ct.sample_tree(100, random_state=0), 12, random_state=0)
    learn(method, X, 2, 2, np.random.default_rng(0))


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Learn covariance and tree by one method."""
    method = str(key[0])
    series, names = load(options)
    n_particles, n_iter = (QUICK_PARTICLES, QUICK_ITER) if options.quick else (N_PARTICLES, N_ITER)
    if method == "postpost":
        n_iter = SLOW_ITER
    if method == CHAIN:
        n_iter = QUICK_CHAIN_ITER if options.quick else CHAIN_ITER
    compile_for(method)
    began = time.process_time()
    learned = learn(method, series, n_particles, n_iter, rng, names)
    tree, log_joint = learned.posterior.best_tree(), learned.posterior.log_joint.max()
    if method == "greedy":
        tree = ct.greedy_tree(series, learned.covariance, rule="mean", names=names)
        log_joint = ct.log_joint(tree, series, learned.covariance)
    seconds = time.process_time() - began
    return {
        "seconds": seconds,
        "children": tree.children.tolist(),
        "times": tree.times.tolist(),
        "names": list(names),
        "n_iter": n_iter,
        "ess": learned.posterior.ess,
        "log_joint": float(log_joint),
        "leaf_noise": float(learned.leaf_noise[0]),
        **{name: float(np.median(values)) for name, values in learned.trace.items() if "__" in name},
        **findings(tree),
        "clades": drawn_clades(tree, series) if method == "mpost2" else [],
    }


def drawn_clades(tree: ct.Tree, series: np.ndarray) -> list[Row]:
    """Return the clades of Y or Z most like the upper body, the lower arms and the feet, with their series in mm."""
    markers, axes = (np.array(part) for part in zip(*(name.split(":") for name in tree.leaf_names), strict=True))
    order = tree.leaf_order()
    found = []
    for wanted in (NINE, LOWER_ARMS, FEET):
        clades = tree.clades()
        options = [closest_clade(clades, np.isin(markers, wanted) & (axes == axis)) for axis in ("Y", "Z")]
        members = clades[max(options)[1]]
        rows = order[members[order]]
        centred = series[rows] - series[rows].mean(axis=1, keepdims=True)
        found.append({"names": [tree.leaf_names[row] for row in rows], "values": centred.round().tolist()})
    return found


def findings(tree: ct.Tree) -> Row:
    """The paper's findings in numbers, of a tree whose leaves are named MARKER:AXIS."""
    markers, axes = zip(*(name.split(":") for name in tree.leaf_names), strict=True)
    part, axis = np.array([body_part(marker) for marker in markers]), np.array(axes)
    clades = tree.clades()
    first_merge = tree.times[tree.parents()[: tree.n_leaves] - tree.n_leaves]
    together = tree.cophenetic()
    found: Row = {f"clade_{a}": closest_clade(clades, axis == a)[0] for a in AXES}
    both = np.flatnonzero(axis != "X")  # the paper's figure shows these two
    two = subtree(tree, both).clades()
    found |= {f"apart_{a}": closest_clade(two, axis[both] == a)[0] for a in ("Y", "Z")}
    for name, chosen in (("leg", np.char.startswith(part, "Leg")), ("head", part == "Head")):
        found[name] = share_later(first_merge, chosen, axis)
    found["body"], found["body_shuffled"] = same_part_first(together, part, axis)
    nine = np.isin(markers, NINE)
    found["nine"] = max(closest_clade(clades, nine & (axis == a))[0] for a in AXES)
    return found


def closest_clade(clades: np.ndarray, wanted: np.ndarray) -> tuple[float, int]:
    """Overlap |A ∩ B| / |A ∪ B| of the clade most like a set of leaves, 1 if the set is a clade; and which it is."""
    overlap = (clades & wanted).sum(axis=1) / (clades | wanted).sum(axis=1)
    return float(overlap.max()), int(overlap.argmax())


def share_later(times: np.ndarray, chosen: np.ndarray, axis: np.ndarray) -> float:
    """How often a chosen marker merges later than another of its axis; ½ if there is nothing in it. Y and Z."""
    shares = [
        mannwhitneyu(times[chosen & (axis == a)], times[~chosen & (axis == a)]).statistic
        / ((chosen & (axis == a)).sum() * (~chosen & (axis == a)).sum())
        for a in ("Y", "Z")
    ]
    return float(np.mean(shares))


def same_part_first(
    together: np.ndarray, part: np.ndarray, axis: np.ndarray, n_shuffles: int = 200
) -> tuple[float, list[float]]:
    """How often a pair of one body part merges before a pair of two, within Y and Z; also with parts shuffled."""
    rng = np.random.default_rng(0)

    def share(parts: Sequence[np.ndarray]) -> float:
        each = []
        for a, labels in zip(("Y", "Z"), parts, strict=True):
            rows = axis == a
            upper = np.triu_indices(rows.sum(), 1)
            times, same = together[np.ix_(rows, rows)][upper], (labels[:, None] == labels)[upper]
            each.append(mannwhitneyu(times[~same], times[same]).statistic / (same.sum() * (~same).sum()))
        return float(np.mean(each))

    parts = [part[axis == a] for a in ("Y", "Z")]
    shuffled = [share([rng.permutation(labels) for labels in parts]) for _ in range(n_shuffles)]
    return share(parts), [float(np.mean(shuffled)), float(np.std(shuffled))]


def as_tree(row: Row) -> ct.Tree:
    """Return the tree of a row."""
    return ct.Tree(row["children"], row["times"], row["names"])


def summarise(rows: dict[Key, Row]) -> Summary:
    """Collect findings of every method, and how near its tree is to that of MPost2."""
    reference = as_tree(rows[("mpost2", 0)])
    upper = np.triu_indices(reference.n_leaves, 1)
    summary: Summary = {}
    for (method, seed), row in rows.items():
        if seed != 0:
            continue
        tree = as_tree(row)
        kept: dict[str, Any] = {k: v for k, v in row.items() if k not in ("children", "times", "names", "clades")}
        kept["shared_clades"] = 1 - robinson_foulds(reference, tree) / (2 * (reference.n_leaves - 2))
        kept["rank_correlation"] = float(spearmanr(reference.cophenetic()[upper], tree.cophenetic()[upper]).statistic)
        summary[str(method)] = kept
    return summary


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """The paper's three findings, the likeness of all methods' trees, and the run time."""
    ours = summary["mpost2"]
    mean, spread = ours["body_shuffled"]
    found = [
        Claim("axes: overlap of the Y series with a clade of the Y and Z series", ours["apart_Y"], 0.99),
        Claim("axes: overlap of the Z series with a clade of the Y and Z series", ours["apart_Z"], 0.99),
        Claim("axes: overlap of the Z series with a clade of all series", ours["clade_Z"], 0.99),
        Claim("legs: how often a leg marker merges later than another (½: no difference)", ours["leg"], 0.5),
        Claim("legs: how often a head marker merges later than another", ours["head"], 0.5, at_least=False),
        Claim(
            "body: how often a pair of one body part merges before a pair of two, above parts shuffled + 3 sd",
            ours["body"],
            mean + 3 * spread,
        ),
        Claim(
            "likeness: least rank correlation of merge times between MPost2 and another method",
            min(row["rank_correlation"] for row in summary.values()),
            0.8,
        ),
    ]
    if ours["n_iter"] == expected["iterations"]:
        seconds = ours["seconds"]
        found.append(
            Claim(
                "time of the paper's MPost2 over ours", 60 * expected["minutes"]["mpost2"] / seconds, FASTER, timed=True
            )
        )
    return found


def table(summary: Summary, expected: Summary) -> Iterator[str]:
    """Yield one row a method."""
    yield (
        "| method | CPU s | the paper's | log joint | Y / Z apart | X, Y, Z clade | legs later | heads later "
        "| one part first | nine markers | clades shared with MPost2 | rank correlation |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for method, row in summary.items():
        minutes = expected["minutes"].get(method)
        theirs = "–" if minutes is None else f"{minutes} min"
        fewer = "" if row["n_iter"] == expected["iterations"] else f" ({row['n_iter']} iterations)"
        yield (
            f"| {LABELS.get(method, method)} | {row['seconds']:.0f}{fewer} | {theirs} | {row['log_joint']:.0f} "
            f"| {row['apart_Y']:.2f} / {row['apart_Z']:.2f} | {row['clade_X']:.2f}, {row['clade_Y']:.2f}, "
            f"{row['clade_Z']:.2f} | {row['leg']:.2f} | {row['head']:.2f} | {row['body']:.2f} "
            f"| {row['nine']:.2f} | {row['shared_clades']:.2f} | {row['rank_correlation']:.3f} |"
        )


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Draw the subtrees of Y and Z, and heat maps of three clades, from the best tree of MPost2."""
    row = rows[("mpost2", 0)]
    return {"subtrees": draw_subtrees(as_tree(row), row["clades"]), "heat-maps": draw_heat_maps(row["clades"])}


EXPERIMENT = Experiment("mocap", tasks, run, summarise, claims, table, figures, (DATA,))
