"""Mixed tables: trees that are known, classes that are known, entries that were hidden; against peers.

python -m benchmarks.mixed simulated --seeds 12 --sizes 40
python -m benchmarks.mixed together --sizes 40 [--covariance wishart]
python -m benchmarks.mixed labelled --data FOLDER     # of .arff files
python -m benchmarks.mixed development --data FOLDER  # other tables, to choose on
python -m benchmarks.mixed hidden --data FOLDER
python -m benchmarks.mixed letter --data FOLDER
python -m benchmarks.mixed large                      # 20 000 × 30
python -m benchmarks.mixed large --rows 100000 --few --iterations 6

Peers are installed by `pip install kmodes prince fastcluster genieclust`.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import resource
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import coaltree as ct
from coaltree.estimators import clustering
from coaltree.frame import CATEGORY, NUMBER, Column, Frame
from coaltree.model.columns import UNIT
from coaltree.model.guess import guess_columns

SETS = ("heart.c", "credit.a", "zoo", "vote", "lymph", "autos", "colic", "soybean", "cmc")
# Tables to make choices on, at most MOST_ROWS of their rows; the nine above only show what came of these.
DEVELOPMENT = (
    "hepatitis",
    "heart.h",
    "heart.statlog",
    "labor",
    "primary.tumor",
    "dermatology",
    "breast.cancer",
    "tae",
    "flags",
    "solar.flare1",
    "backache",
    "credit.g",
    "anneal",
    "mushroom",
    "cylinder.bands",
    "eucalyptus",
    "kr.vs.kp",
    "postoperative.patient.data",
)
MOST_ROWS = 300
# One chain, short: for choices on the development tables, and for hidden entries.
SHORT = {"n_chains": 1, "warmup": 100, "n_draws": 100}
# Names of rows.
DROP = {"zoo": ("animal",)}


# ---- tables


def cells_of(line: str) -> list[str]:
    cells = next(csv.reader([line], quotechar="'", skipinitialspace=True))
    return [cell.strip().strip("'\"") for cell in cells]


def read_arff(path: Path) -> tuple[Frame, np.ndarray]:
    """Return the table without its class, which is the attribute of that name or the last, and the classes."""
    names, levels, rows = [], [], []
    with path.open(encoding="latin-1") as file:
        in_data = False
        for line in file:
            text = line.strip()
            if not text or text.startswith("%"):
                continue
            if in_data:
                rows.append(
                    [
                        cell.strip().strip("'\"")
                        for cell in next(csv.reader([text], quotechar="'", skipinitialspace=True))
                    ]
                )
            elif text.lower().startswith("@data"):
                in_data = True
            elif text.lower().startswith("@attribute"):
                rest = text[len("@attribute") :].strip()
                name, kind = (rest[1:].split("'", 1)) if rest[0] == "'" else rest.split(None, 1)
                names.append(name)
                kind = kind.strip()
                inside = (
                    next(csv.reader([kind[1 : kind.rindex("}")]], quotechar="'", skipinitialspace=True))
                    if kind[0] == "{"
                    else []
                )
                levels.append([level.strip().strip("'\"") for level in inside])
    columns = []
    where = next((j for j, name in enumerate(names) if name.lower() == "class"), len(names) - 1)
    for j, (name, own) in enumerate(zip(names, levels, strict=True)):
        cells = [row[j] for row in rows]
        if own:
            codes = np.array([np.nan if cell == "?" else float(own.index(cell)) for cell in cells])
            columns.append(Column(name, CATEGORY, codes, tuple(own)))
        else:
            columns.append(Column(name, NUMBER, np.array([np.nan if cell == "?" else float(cell) for cell in cells])))
    classes = columns.pop(where).values.astype(int)
    kept = [column for column in columns if column.name not in DROP.get(path.stem, ())]
    return Frame(tuple(kept), len(rows)), classes


def find(folder: Path, name: str) -> Path:
    return next(folder.rglob(f"{name}.arff"))


def simulate(n: int, seed: int, n_each: int = 1) -> tuple[ct.Tree, Frame, np.ndarray]:
    """A tree, a table of 30 n_each columns from the model, a third of them numbers, and its latent coordinates."""
    rng = np.random.default_rng(seed)
    tree = ct.sample_tree(n, random_state=rng)
    kinds = (["number"] * 8 + ["binary"] * 8 + ["ordinal"] * 8 + ["category"] * 3 + ["count"] * 3) * n_each
    columns, latent = [], []
    for j, kind in enumerate(kinds):
        name = f"{kind} {j}"
        while True:
            z = ct.sample_data(tree, 3 if kind == "category" else 1, leaf_noise=0.05, random_state=rng)
            z -= z.mean(axis=0)
            if kind == "number":
                columns.append(Column(name, NUMBER, 10.0 + 3.0 * z[:, 0]))
            elif kind == "binary":
                columns.append(Column(name, "boolean", (z[:, 0] > rng.normal(0, 0.5)).astype(float), ("no", "yes")))
            elif kind == "ordinal":
                cuts = np.quantile(z[:, 0], np.sort(rng.uniform(0.05, 0.95, 3)))
                columns.append(Column(name, NUMBER, 1.0 + np.searchsorted(cuts, z[:, 0])))
            elif kind == "count":
                columns.append(Column(name, NUMBER, np.floor(np.exp(1.0 + 0.8 * z[:, 0]))))
            else:
                columns.append(Column(name, CATEGORY, np.argmax(z, axis=1).astype(float), ("a", "b", "c")))
            if len(np.unique(columns[-1].values)) > (2 if kind in ("ordinal", "category") else 1):
                break
            columns.pop()
        latent.append(z)
    return tree, Frame(tuple(columns), n), np.hstack(latent)


def as_numbers(frame: Frame) -> np.ndarray:
    """Codes taken as measurements."""
    X = frame.matrix()
    return (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)


# ---- trees that are known


AS_THEY_ARE, AS_NUMBERS, KNOWN = "what they are", "numbers", "latents, Φ and noise known"
EDGES = (0.3, 0.5, 0.8, 0.9, 1.01)


def simulated(
    seeds: int, sizes: tuple[int, ...], covariance: str | None, ways: tuple[str, ...], together: bool = False
) -> None:
    """Supports of true clades, times, and how many of the clades are true, by their support."""
    bins = list(itertools.pairwise(EDGES))
    heads = ["n", "columns as", "support of true clades", "correlation of log times"]
    heads += [*(f"{low:.1f}–{min(high, 1.0):.1f}: true" for low, high in bins), "CPU s"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for n in sizes:
        for what in ways:
            supports, correlations, claimed, seconds = [], [], list[tuple[float, bool]](), 0.0
            for seed in range(seeds):
                tree, frame, latent = simulate_together(n, seed) if together else simulate(n, seed)
                started = time.process_time()
                if what == AS_THEY_ARE:
                    post = ct.learn_posterior(frame, covariance, columns="auto").posterior
                elif what == AS_NUMBERS:
                    post = ct.learn_posterior(as_numbers(frame)).posterior
                else:
                    post = ct.learn_posterior(latent, np.ones(latent.shape[1]), leaf_noise=0.05).posterior
                seconds += time.process_time() - started
                supports.append(post.clade_support(tree)[:-1].mean())
                pairs = np.triu_indices(n, 1)
                correlations.append(
                    np.corrcoef(np.log(tree.cophenetic()[pairs]), np.log(post.cophenetic()[pairs]))[0, 1]
                )
                found, share = clades_with_support(post)
                true = {row.tobytes() for row in tree.clades()}
                claimed += [(s, row.tobytes() in true) for row, s in zip(found, share, strict=True)]
            right = [[ok for s, ok in claimed if low <= s < high] for low, high in bins]
            told = [f"{np.mean(each):.2f} of {len(each)}" if each else "–" for each in right]
            means = f"{np.mean(supports):.2f} | {np.mean(correlations):.2f}"
            print(f"| {n} | {what} | {means} | {' | '.join(told)} | {seconds / seeds:.0f} |", flush=True)


def simulate_together(n: int, seed: int, correlation: float = 0.9) -> tuple[ct.Tree, Frame, np.ndarray]:
    """Eight groups of a number, a binary and an ordinal column that vary together."""
    rng = np.random.default_rng([seed, 7])
    tree = ct.sample_tree(n, random_state=rng)
    phi = np.kron(np.eye(8), (1.0 - correlation) * np.eye(3) + correlation)
    while True:
        Z = ct.sample_data(tree, phi, leaf_noise=0.05, random_state=rng)
        columns = []
        for j, z in enumerate(Z.T):
            if j % 3 == 0:
                columns.append(Column(f"number {j}", NUMBER, z))
            elif j % 3 == 1:
                values = (z > np.quantile(z, rng.uniform(0.2, 0.8))).astype(float)
                columns.append(Column(f"binary {j}", "boolean", values, ("no", "yes")))
            else:
                cuts = np.quantile(z, np.sort(rng.uniform(0.05, 0.95, 3)))
                columns.append(Column(f"ordinal {j}", NUMBER, 1.0 + np.searchsorted(cuts, z)))
        if all(len(np.unique(column.values)) > 1 + (j % 3 == 2) for j, column in enumerate(columns)):
            return tree, Frame(tuple(columns), n), Z


def clades_with_support(post: ct.TreePosterior) -> tuple[np.ndarray, np.ndarray]:
    """All clades of the posterior, (C, n), and their supports."""
    rows: dict[bytes, tuple[np.ndarray, float]] = {}
    for m in range(len(post)):
        for row in post[m].clades():
            if 1 < row.sum() < row.size:
                key = row.tobytes()
                rows[key] = (row, rows.get(key, (row, 0.0))[1] + float(post.weights[m]))
    return np.array([row for row, _ in rows.values()]), np.array([share for _, share in rows.values()])


# ---- classes that are known


def purity(found: np.ndarray, truth: np.ndarray) -> float:
    return sum(np.bincount(truth[found == k]).max() for k in np.unique(found)) / len(truth)


def gower(frame: Frame) -> np.ndarray:
    """Gower's distance, condensed to a square: means over the columns that both rows have."""
    total, weight = 0.0, 0.0
    for column in frame.columns:
        x = column.values
        gap = (
            (x[:, None] != x[None]).astype(float)
            if column.levels
            else np.abs(x[:, None] - x[None]) / max(np.nanmax(x) - np.nanmin(x), 1e-9)
        )
        known = ~np.isnan(x[:, None] + x[None])
        total = total + np.where(known, gap, 0.0)
        weight = weight + known
    return total / np.maximum(weight, 1)


def filled(frame: Frame) -> Frame:
    """Gaps by the mean or the commonest level, for peers that know no gaps."""
    columns = []
    for column in frame.columns:
        known = column.known
        if not len(known):
            continue
        value = np.bincount(known.astype(int)).argmax() if column.levels else known.mean()
        columns.append(column._replace(values=np.where(np.isnan(column.values), value, column.values)))
    return frame.keep(columns)


def mixture(frame: Frame, k: int, seed: int = 0, n_starts: int = 20, n_steps: int = 200) -> np.ndarray:
    """VarSelLCM's model by EM: in a component columns are independent, normal or of levels; gaps stay gaps.

    Half a row of each level is added to every component, and a standard deviation is at least a tenth of its column's:
    without that, components of rows with equal numbers are infinitely likely.
    """
    rng = np.random.default_rng(seed)
    levels = [column.values for column in frame.columns if column.levels]
    shown = [(x[:, None] == np.unique(x[~np.isnan(x)])).astype(float) for x in levels]
    numbers = np.array([(c.values - np.nanmean(c.values)) / np.nanstd(c.values) for c in frame.columns if not c.levels])
    X, known = np.nan_to_num(numbers.T.reshape(frame.n_rows, -1)), ~np.isnan(numbers.T.reshape(frame.n_rows, -1))
    best, found = -np.inf, np.zeros(frame.n_rows, dtype=int)
    for _ in range(n_starts):
        share = rng.dirichlet(np.ones(k), frame.n_rows)
        last = -np.inf
        for _ in range(n_steps):
            log_p = np.tile(np.log((share.sum(axis=0) + 1.0) / (frame.n_rows + k)), (frame.n_rows, 1))
            prior = 0.0
            for cells in shown:
                counts = share.T @ cells + 0.5
                log_shares = np.log(counts / counts.sum(axis=1, keepdims=True))
                log_p += cells @ log_shares.T
                prior += 0.5 * log_shares.sum()
            if X.shape[1]:
                weight = np.maximum(share.T @ known, 1e-9)
                mean = share.T @ X / weight
                variance = np.maximum(share.T @ X**2 / weight - mean**2, 0.01)
                gap = (X[:, None] - mean) ** 2 / variance + np.log(variance)
                log_p -= 0.5 * (gap * known[:, None]).sum(axis=2)
            total = np.logaddexp.reduce(log_p, axis=1)
            share = np.exp(log_p - total[:, None])
            value = float(total.sum() + prior)
            if value - last < 1e-6 * abs(value):
                break
            last = value
        if value > best:
            best, found = value, share.argmax(axis=1)
    return found


def peers(frame: Frame, k: int, seed: int = 0) -> dict[str, np.ndarray]:
    import pandas as pd
    import prince
    from kmodes.kmodes import KModes
    from kmodes.kprototypes import KPrototypes
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.cluster import KMeans

    found = {}
    distance = squareform(gower(frame), checks=False)
    for method in ("average", "complete"):
        found[f"Gower, {method}"] = fcluster(linkage(distance, method), k, "maxclust")
    full = filled(frame)
    levels = [j for j, column in enumerate(full.columns) if column.levels]
    table = full.matrix().astype(object)
    for j in range(table.shape[1]):
        values = full.columns[j].values
        table[:, j] = (
            values.astype(int).astype(str) if j in levels else (values - values.mean()) / max(values.std(), 1e-9)
        )
    numbers = len(levels) < table.shape[1]
    if numbers and levels:
        found["k-prototypes"] = KPrototypes(k, random_state=seed, n_init=3).fit_predict(table, categorical=levels)
    elif levels:
        found["k-prototypes"] = KModes(k, random_state=seed, n_init=3).fit_predict(table)
    else:
        found["k-prototypes"] = KMeans(k, random_state=seed, n_init=3).fit_predict(table.astype(float))
    data = pd.DataFrame(
        {c.name: table[:, j] if j in levels else table[:, j].astype(float) for j, c in enumerate(full.columns)}
    )
    n_components = min(10, len(data.columns))
    maker = prince.FAMD if numbers and levels else (prince.MCA if levels else prince.PCA)
    rows = maker(n_components=n_components, random_state=seed).fit(data).row_coordinates(data).to_numpy()
    found["FAMD, Ward"] = fcluster(linkage(rows, "ward"), k, "maxclust")
    found["mixture"] = mixture(frame, k, seed)
    return found


def labelled(folder: Path, names: tuple[str, ...], covariance: str | None, most: int | None = None, **how: Any) -> None:
    from sklearn.metrics import adjusted_rand_score

    methods = ["coaltree", "Gower, average", "Gower, complete", "k-prototypes", "FAMD, Ward", "mixture"]
    lines, scores = [], dict[str, list[tuple[float, float]]]()
    for name in names:
        frame, classes = read_arff(find(folder, name))
        if most is not None and frame.n_rows > most:
            rows = np.random.default_rng(0).permutation(frame.n_rows)[:most]
            frame, classes = frame.rows(rows), classes[rows]
        frame = frame.keep(column for column in frame.columns if len(np.unique(column.known)) > 1)
        k = len(np.unique(classes))
        started = time.process_time()
        model = ct.CoalescentClustering(covariance=covariance, n_clusters=k, columns="auto", random_state=0, **how).fit(
            frame
        )
        seconds = time.process_time() - started
        found = {"coaltree": model.labels_, **peers(frame, k)}
        row = []
        for method in methods:
            score = (adjusted_rand_score(classes, found[method]), purity(found[method], classes))
            scores.setdefault(method, []).append(score)
            row.append(f"{score[0]:.2f} / {score[1]:.2f}")
        lines.append(f"| {name} | {frame.n_rows} × {len(frame.columns)} | {k} | {' | '.join(row)} | {seconds:.0f} |")
        print(lines[-1], flush=True)
    means = [f"{np.mean([s[0] for s in scores[m]]):.3f} / {np.mean([s[1] for s in scores[m]]):.3f}" for m in methods]
    print(f"\n| set | size | classes | {' | '.join(methods)} | CPU s |\n|{'---|' * (len(methods) + 4)}")
    print("\n".join(lines))
    print(f"| mean | | | {' | '.join(means)} | |")


# ---- entries that were hidden


def hide(frame: Frame, share: float, rng: np.random.Generator) -> tuple[Frame, np.ndarray]:
    hidden = rng.random((frame.n_rows, len(frame.columns))) < share
    columns = []
    for j, column in enumerate(frame.columns):
        hidden[:, j] &= ~np.isnan(column.values)
        columns.append(column._replace(values=np.where(hidden[:, j], np.nan, column.values)))
    return frame.keep(columns), hidden


def error(frame: Frame, hidden: np.ndarray, filled_in: np.ndarray) -> float:
    """Mean over columns: of levels the share that is wrong, of numbers the RMSE in standard deviations."""
    total = []
    for j, column in enumerate(frame.columns):
        own = hidden[:, j]
        if not own.any():
            continue
        truth, guess = column.values[own], filled_in[own, j]
        if column.levels:
            total.append(np.mean(truth != guess))
        else:
            total.append(np.sqrt(np.mean((truth - guess) ** 2)) / max(column.known.std(), 1e-9))
    return float(np.mean(total))


def fill_by_peer(frame: Frame, method: str, seed: int) -> np.ndarray:
    """Levels as indicators, a peer on those, and the largest indicator as the level."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer

    X = frame.matrix()
    gaps = np.isnan(X)
    if method == "missForest-like":
        full = filled(frame).matrix()
        for _ in range(3):
            for j in np.argsort(gaps.sum(axis=0)):
                own = gaps[:, j]
                if not own.any():
                    continue
                forest = (RandomForestClassifier if frame.columns[j].levels else RandomForestRegressor)(
                    60, random_state=seed, n_jobs=1
                )
                others = np.delete(full, j, axis=1)
                full[own, j] = forest.fit(others[~own], full[~own, j]).predict(others[own])
        return full
    blocks, where = [], []
    for column in frame.columns:
        x = column.values
        if column.levels:
            block = (x[:, None] == np.arange(len(column.levels))).astype(float)
            block[np.isnan(x)] = np.nan
        else:
            block = ((x - np.nanmean(x)) / max(np.nanstd(x), 1e-9))[:, None]
        where.append(slice(sum(b.shape[1] for b in blocks), sum(b.shape[1] for b in blocks) + block.shape[1]))
        blocks.append(block)
    wide = np.hstack(blocks)
    imputer = (
        IterativeImputer(random_state=seed, max_iter=10) if method == "IterativeImputer" else KNNImputer(n_neighbors=5)
    )
    done = imputer.fit_transform(wide)
    out = X.copy()
    for j, column in enumerate(frame.columns):
        block = done[:, where[j]]
        value = (
            block.argmax(axis=1) if column.levels else block[:, 0] * max(np.nanstd(X[:, j]), 1e-9) + np.nanmean(X[:, j])
        )
        out[gaps[:, j], j] = value[gaps[:, j]]
    return out


def hidden_entries(folder: Path, names: tuple[str, ...], covariance: str | None, masks: int) -> None:
    """Errors by set, their means over masks and standard deviations."""
    methods = ["coaltree", "IterativeImputer", "KNNImputer", "missForest-like"]
    print(f"| set | {' | '.join(methods)} | first | CPU s |\n|{'---|' * (len(methods) + 3)}")
    for name in names:
        whole, _ = read_arff(find(folder, name))
        errors, started = [], time.process_time()
        for mask in range(masks):
            frame = whole.keep(column for column in whole.columns if len(np.unique(column.known)) > 1)
            holes, hidden = hide(frame, 0.2, np.random.default_rng(mask))
            usable = [j for j, column in enumerate(holes.columns) if len(np.unique(column.known)) > 1]
            frame, holes = (each.keep(each.columns[j] for j in usable) for each in (frame, holes))
            ways = [filled_by_tree(holes, covariance), *(fill_by_peer(holes, method, 0) for method in methods[1:])]
            errors.append([error(frame, hidden[:, usable], way) for way in ways])
        seconds = (time.process_time() - started) / masks
        firsts = int(np.sum(np.argmin(errors, axis=1) == 0))
        told = " | ".join(f"{np.mean(e):.3f} ± {np.std(e):.3f}" for e in np.transpose(errors))
        print(f"| {name} | {told} | {firsts} of {masks} | {seconds:.0f} |", flush=True)


def filled_by_tree(holes: Frame, covariance: str | None) -> np.ndarray:
    """The best guess by what it is scored by: the likeliest level, the mean of a number."""
    guessed = guess_columns(holes)
    model = ct.CoalescentClustering(covariance=covariance, n_clusters=2, columns=guessed, random_state=0, **SHORT).fit(
        holes
    )
    expected = model.mixed_.expect()
    out = holes.matrix()
    for k, each in expected.items():
        own = guessed.columns.models[k]
        j = holes.names.index(own.name)
        if own.numbers:
            out[np.isnan(out[:, j]), j] = each @ np.array(own.numbers)
        elif own.kind in UNIT:
            places = np.array([float(holes.columns[j].levels.index(level)) for level in own.levels])
            out[np.isnan(out[:, j]), j] = places[each.argmax(axis=1)]
        else:
            out[np.isnan(out[:, j]), j] = each[:, 0]
    return out


# ---- size


def peak() -> float:
    """Peak of memory so far, GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def letter(folder: Path, n: int) -> None:
    from fastcluster import linkage_vector
    from genieclust import Genie
    from scipy.cluster.hierarchy import fcluster
    from sklearn.metrics import adjusted_rand_score

    frame, classes = read_arff(find(folder, "letter"))
    rows = np.random.default_rng(0).permutation(frame.n_rows)[:n]
    frame, classes = frame.rows(rows), classes[rows]
    started = time.process_time()
    model = ct.CoalescentClustering(random_state=0, n_clusters=26, columns="auto").fit(frame)
    seconds = time.process_time() - started
    print("kinds", sorted({each.kind for each in model.columns_.models}))
    told = model.convergence_
    joint = model.trace_["log_joint"]
    agreement = (
        f"supports of the two chains: correlation {told.support_correlation:.3f}, rms {told.support_difference:.3f}"
    )
    print(f"{n} rows: {seconds:.0f} CPU s, {peak():.2f} GB; {agreement}", flush=True)
    print(
        "log joint, both chains, at tenths:", np.round(joint[:, :: max(joint.shape[1] // 10, 1)]).astype(int).tolist()
    )
    X = as_numbers(frame)
    ward = fcluster(linkage_vector(X, "ward"), 26, "maxclust")
    found = {"coaltree": model.labels_, "Ward": ward, "genieclust": Genie(n_clusters=26).fit_predict(X)}
    scores = (f"{name} {adjusted_rand_score(classes, labels):.3f}" for name, labels in found.items())
    print(f"ARI at 26: {', '.join(scores)}; {np.sum(model.labels_ < 0)} rows are outliers")


def large(n: int, n_iter: int | None, few: bool) -> None:
    """A fit by default, or with so many iterations of one chain; where its time goes."""
    _, frame, _ = simulate(n, 0)
    if few:  # ten columns, of all kinds
        frame = frame.keep(frame.columns[j] for j in (0, 1, 2, 8, 9, 16, 17, 24, 25, 27))
    how = {} if n_iter is None else {"n_chains": 1, "warmup": n_iter - 2, "n_draws": 2}
    spent = [0.0]
    learn = clustering.learn_posterior

    def timed(*given: Any, **named: Any) -> Any:
        started = time.process_time()
        learned = learn(*given, **named)
        spent[0] = time.process_time() - started
        return learned

    clustering.learn_posterior = timed
    started = time.process_time()
    model = ct.CoalescentClustering(random_state=0, columns="auto", n_clusters=10, **how).fit(frame)
    seconds = time.process_time() - started
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.npz")
    saved = time.process_time() - started - seconds
    print(f"{n} × {len(frame.columns)}: {seconds:.0f} CPU s, {peak():.2f} GB, {len(model.posterior_)} trees")
    print(f"learning {spent[0]:.0f}, summaries {seconds - spent[0]:.0f}, file {saved:.0f}")
    joint = model.trace_["log_joint"]
    print("log joint at tenths:", np.round(joint[:, :: max(joint.shape[1] // 10, 1)]).astype(int).tolist())
    told = model.convergence_
    if told is not None and joint.shape[0] > 1:
        print(f"supports of the two chains: {told.support_correlation:.3f}, rms {told.support_difference:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", choices=["simulated", "together", "labelled", "development", "hidden", "letter", "large"]
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--covariance")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=(40, 200))
    parser.add_argument("--ways", nargs="+", default=(AS_THEY_ARE, AS_NUMBERS, KNOWN))
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--iterations", type=int)
    parser.add_argument("--few", action="store_true", help="ten of the thirty columns")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.what == "simulated":
        simulated(arguments.seeds, tuple(arguments.sizes), arguments.covariance, tuple(arguments.ways))
    elif arguments.what == "together":
        simulated(arguments.seeds, tuple(arguments.sizes), arguments.covariance, (AS_THEY_ARE,), together=True)
    elif arguments.what == "labelled":
        labelled(arguments.data, tuple(arguments.sets), arguments.covariance)
    elif arguments.what == "development":
        labelled(arguments.data, DEVELOPMENT, arguments.covariance, MOST_ROWS, **SHORT)
    elif arguments.what == "hidden":
        hidden_entries(arguments.data, tuple(arguments.sets), arguments.covariance, arguments.seeds)
    elif arguments.what == "letter":
        letter(arguments.data, arguments.rows)
    else:
        large(arguments.rows, arguments.iterations, arguments.few)


if __name__ == "__main__":
    main()
