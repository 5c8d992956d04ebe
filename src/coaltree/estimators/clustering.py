"""`CoalescentClustering`: the scikit-learn interface to trees, covariance and leaf noise learned from a table."""

from __future__ import annotations

import math
import os
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from coaltree import sizes
from coaltree._arrays import Floats, Ints
from coaltree._compile import compiling_aloud
from coaltree.errors import InputError
from coaltree.estimators import files, inputs, mixed
from coaltree.estimators.distances import EUCLIDEAN, is_precomputed
from coaltree.estimators.learn import learn_posterior, left_out
from coaltree.frame import as_frame
from coaltree.inference.greedy.build import greedy_tree
from coaltree.inference.smc.sampling import leaf_names, sample_posterior
from coaltree.model.diffusion import whiten
from coaltree.places.locate import Given
from coaltree.places.predict import Attachment
from coaltree.posterior.hierarchy import Hierarchy, make_hierarchy
from coaltree.posterior.left_out import LeaveOneOut
from coaltree.posterior.partition import cluster_probability, score_clusters
from coaltree.posterior.splits import Apart
from coaltree.validation import check_count


class CoalescentClustering(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    ClusterMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Hierarchical clustering with uncertainty: draws of trees under Kingman's coalescent with Brownian motion.

    Markov chains learn tree, covariance and noise together, for tables of two to hundreds of thousands of rows.

    Parameters
    ----------
    n_clusters : int, optional
        Number of flat clusters, not counting outliers. Default: chosen by the posterior (`cluster_scores_`).
    covariance : {"spherical", "diagonal", "shrunk", "wishart", "factors", "auto"}, array (d, d), kernel or family
        The form of the covariance Φ of the diffusion. All but a given array are learned. "shrunk" is a full matrix
        shrunk towards "spherical" by as much as the data ask for. A scikit-learn kernel is a function of the
        `coordinates` of the columns. "auto" takes the form that predicts left-out rows best (`compare_`), for density,
        imputation and new rows. Default: "shrunk" where the rows are enough to learn it (50 or more, 4 per column,
        no missing entries, more than 10 distinct values in every column; `coaltree.inference.effort`), else
        "spherical"; "diagonal" for a table with binary, ordinal or categorical columns, which have a scale each as
        well. Greedy trees and metrics other than "euclidean" are spherical, as are tables with `effective_columns`.
    coordinates : array-like (d, p), optional
        Where the columns lie, for a kernel.
    method : {"auto", "greedy"}
        "auto" samples trees. "greedy" builds one, without supports.
    leaf_noise : "learn", "robust", "auto", float or array-like (n,)
        Variance of each row around its true value, in units of Φ. "robust": heavy-tailed, separate for each row, so
        that outliers do not distort the tree (`surprise_`); "auto" compares "learn" and "robust" (`compare_`).
    distance_threshold : float, optional
        Cut the tree at this merge time instead; no row is then an outlier.
    metric : {"euclidean", "cosine", "correlation", "precomputed", "precomputed_squared"}
        "cosine" compares rows by their directions, whatever their lengths, and "correlation" each less its mean:
        rows are scaled to length 1, and `completed_`, `covariance_` and densities refer to these. "precomputed": X
        holds Euclidean distances, as an (n, n) matrix or the condensed vector of scipy's pdist, and Φ is spherical;
        "precomputed_squared": their squares.
    n_jobs : int, optional
        Threads; −1 for all cores. The result does not depend on it.
    random_state : int, Generator, …
        Seed.
    verbose : int
        Show progress if positive.
    checkpoint : path, optional
        File from which learning resumes after an interruption, to the identical result.
    n_dimensions : int, optional
        With precomputed distances, the dimension they were measured in. Default: their rank.
    neighbors : int, optional
        With ``method="greedy"`` and no missing entries: consider only this many nearest neighbours of every cluster,
        so that memory grows as n rather than n². The tree is then an approximation; 16 is a good start.
    n_draws : int, optional
        Trees in the posterior, from all chains together.
    warmup : int, optional
        Iterations of each chain that are dropped.
    n_chains : int, optional
        Number of chains, each with its own starting point. If neither draws nor warm-up are given, chains end as soon
        as they have converged; how long they may be depends on the number of rows (`coaltree.inference.effort`).
    columns : "auto", dict or path of a TOML file, optional
        Types of the columns. "auto" guesses from types and values; {name: kind} overrides it, with kinds "continuous",
        "skewed", "rounded", "count", "binary", "ordinal", "categorical", and "ignore". Default: "auto" for a DataFrame,
        as ``coaltree cluster`` takes a file; an array is numbers.
    effective_columns : "auto", "all" or float
        How many independent columns the table counts for under a spherical or diagonal covariance, which ignores that
        columns vary together. "auto" estimates it (`effective_columns_`), "all" counts every column.
    scale : {"auto", "standard", "none"}
        "standard" brings numbers to standard deviation 1, "none" keeps their units. "auto" does the first with the
        columns of a DataFrame, unless they are components of one reduction (PC1, PC2, …), and the second with those,
        with an array, of which a warning tells if scales are unequal, and with a `covariance` that is given as a
        matrix or kernel. See `coaltree.model.guess`; `column_notes_` says what was done.

    Attributes
    ----------
    tree_ : Tree
        One tree built from all draws: Ward's linkage of the mean merge times (`coaltree.posterior.hierarchy`); its
        leaves are named by the index of a DataFrame with string labels.
    posterior_ : TreePosterior
        All trees.
    covariance_ : array (d, d)
        Posterior median of Φ; `leaf_noise_` is likewise a median. Both belong to `tree_`.
    compact_covariance_ : array (d, d) or (d,)
        The same; only the variances if it is diagonal.
    leaf_noise_ : array (n,)
    draws_ : Draws
        The trees of `posterior_` with all that goes with each (`coaltree.posterior.draws`): `covariances`, (M, d, d),
        only the variances, (M, d), if diagonal; `leaf_noises`, (M, n); `new_noises` (M,), of a new row. (1, …) if all
        are equal.
    compare_ : dict of Compared or None
        With "auto": leave-one-out density of each model compared, the best first, as in ArviZ's `compare`.
    surprise_ : array (n,) or None
        With robust noise: the probability of a row that fits as badly as this one. Small for outliers.
    effective_columns_ : float
        How many independent columns the table counted for.
    incomplete_ : array (n,) of bool
        Rows with missing entries.
    trace_ : dict of arrays (n_chains, iterations, …)
        Every iteration of learning, including the first `warmup_`.
    warmup_ : int
    convergence_ : Convergence or None
        Split R-hat, effective sample sizes, agreement of clade supports between chains; its `warnings` say in plain
        words whether the run was too short. None for a greedy tree.
    finished_ : bool
        False if Ctrl-C ended the fit early.
    log_evidence_ : float
        Log evidence of the table at `covariance_` and `leaf_noise_`, by sequential Monte Carlo on first access.
        NaN if entries are missing, and for more than 2 000 rows.
    labels_ : array (n,)
        Cluster of each row, 0 …; −1 for an outlier, as in scikit-learn's HDBSCAN.
    n_clusters_ : int
        Number of clusters, not counting outliers.
    expected_overlap_ : array of `n_clusters_`
        How far each cluster is certain, on first access: the mean over draws of its largest Jaccard index with a clade
        (`TreePosterior.expected_overlap`). NaN for a greedy tree.
    probabilities_ : array (n,)
        Posterior probability that the row is nearer to its cluster than to any other; for an outlier, that it is one.
    outlier_probability_ : array (n,)
        Posterior probability that each row stays apart until most others have merged.
    cluster_scores_ : dict of float
        If the number of clusters was chosen: posterior expected silhouette of the cut into k, by k. One cluster has the
        score that the others must reach. For a greedy tree: the excess over a cloud without clusters.
    n_clusters_alternatives_ : tuple of int
        If it was chosen: other numbers that score about as high. `cut` gives their labels; cuts are nested, so clusters
        of a smaller number are groups of those that are shown.
    n_clusters_overlap_ : dict of arrays (k,)
        If it was chosen, on first access: the expected overlap of each cluster of `cut(k)`, by k, for the number chosen
        and its alternatives.
    n_clusters_probability_ : dict of float
        If it was chosen: the share of draws that, taken alone, would choose k clusters, by k.
    cut_order_ : array
        Merges of `tree_` in the order in which clusters are split; see `cut`.
    children_, distances_, linkage_, n_leaves_
        The tree as in scikit-learn's AgglomerativeClustering and as a scipy linkage matrix.
    completed_ : array (n, d)
        The table with missing entries filled in, in the scale it was clustered in, to which `covariance_` refers; for a
        mixed one its latent coordinates.
    columns_, column_notes_
        How the columns of a table were interpreted, as `Columns` or None, and in words; for an array of numbers
        the notes say which columns are constant, copies of others or tied.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import coaltree as ct
    >>> from coaltree.estimators.clustering import CoalescentClustering
    >>> X = ct.sample_data(ct.sample_tree(12, random_state=1), 5, random_state=2)
    >>> model = CoalescentClustering(3, n_draws=40, warmup=50, random_state=0).fit(X)
    >>> model.tree_.n_leaves, len(set(model.labels_.tolist())), model.predict(X[:2]).shape
    (12, 3, (2,))
    """

    def __init__(
        self,
        n_clusters: int | None = None,
        covariance: Any = None,
        *,
        coordinates: Any = None,
        method: str = "auto",
        leaf_noise: Any = "learn",
        distance_threshold: float | None = None,
        metric: str = "euclidean",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        n_dimensions: int | None = None,
        neighbors: int | None = None,
        n_draws: int | None = None,
        warmup: int | None = None,
        n_chains: int | None = None,
        columns: Any = None,
        effective_columns: Any = "auto",
        scale: str = "auto",
    ) -> None:
        self.n_clusters = n_clusters
        self.covariance = covariance
        self.coordinates = coordinates
        self.method = method
        self.leaf_noise = leaf_noise
        self.distance_threshold = distance_threshold
        self.metric = metric
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.n_dimensions = n_dimensions
        self.neighbors = neighbors
        self.n_draws = n_draws
        self.warmup = warmup
        self.n_chains = n_chains
        self.columns = columns
        self.effective_columns = effective_columns
        self.scale = scale

    def fit(self, X: Any, y: Any = None) -> CoalescentClustering:
        """Learn covariance and leaf noise, sample trees, cut the reported one.

        Parameters
        ----------
        X : array-like or DataFrame (n, d)
            One row per leaf; distances, (n, n) or condensed, if they are precomputed.
        y : ignored
        """
        guessed = mixed.understand(self, X)
        names = leaf_names(X) if guessed is None else as_frame(X).ids
        rows = inputs.check_table(self, X) if guessed is None else mixed.check(self, X, guessed)
        self.has_missing_ = bool(np.isnan(rows).any())
        self.__dict__.pop("_log_evidence", None)
        if self.n_clusters is not None and self.distance_threshold is not None:
            raise InputError("Give n_clusters or distance_threshold, not both: each cuts the tree.")
        if self.n_clusters is not None and check_count(self.n_clusters, "n_clusters", at_least=1) > len(rows):
            raise InputError(f"n_clusters must be at most the number of rows, {len(rows)}, got {self.n_clusters}.")
        with compiling_aloud(self.verbose > 0):
            learned = learn_posterior(
                rows,
                "spherical" if self.covariance is None and self.metric != EUCLIDEAN else self.covariance,
                coordinates=self.coordinates,
                leaf_noise=self.leaf_noise,
                n_draws=self.n_draws,
                warmup=self.warmup,
                n_chains=self.n_chains,
                method=self.method,
                n_jobs=self.n_jobs,
                random_state=self.random_state,
                names=names,
                progress=bool(self.verbose),
                checkpoint=self.checkpoint,
                neighbors=self.neighbors,
                columns=guessed,
                effective_columns=self.effective_columns,
            )
        self.mixed_ = learned.mixed
        self.columns_ = self.mixed_ and self.mixed_.columns
        self.effective_columns_ = learned.effective_columns
        counted = learned.effective_columns
        self.column_notes_ = (
            inputs.notes_on(self, rows, counted)
            if guessed is None
            else (
                *guessed.notes,
                *inputs.note_on_counting(guessed.columns.d, counted),
                *([] if guessed.columns.is_latent else inputs.note_on_far(self, learned.completed)),
            )
        )
        self.posterior_, self.completed_, self.trace_ = learned.posterior, learned.completed, learned.trace
        self.compact_covariance_, self.leaf_noise_ = learned.middle.compact(), learned.leaf_noise
        self.draws_, self.surprise_ = learned.draws, learned.surprise
        self.compare_, self.incomplete_ = learned.compared, np.asarray((learned.completed_sd > 0.0).any(axis=1))
        self.warmup_, self.convergence_, self.finished_ = learned.warmup, learned.convergence, learned.finished
        hierarchy = make_hierarchy(self.posterior_)
        self.tree_, self.cut_order_, self.outlier_probability_ = hierarchy
        return self._describe()._cut(hierarchy)

    @property
    def covariance_(self) -> Floats:
        """Posterior median of Φ, (d, d)."""
        if not hasattr(self, "compact_covariance_"):
            raise AttributeError("covariance_ is available once the model is fitted.")
        return self.compact_covariance_ if self.compact_covariance_.ndim == 2 else np.diag(self.compact_covariance_)

    @property
    def log_evidence_(self) -> float:
        """Log evidence at `covariance_` and `leaf_noise_`, estimated on first access."""
        if not hasattr(self, "posterior_"):
            raise AttributeError("log_evidence_ is available once the model is fitted.")
        if not hasattr(self, "_log_evidence"):
            self._log_evidence = self.posterior_.log_evidence
            known = not self.has_missing_ and not (self.mixed_ and self.mixed_.is_latent)
            if known and len(self.completed_) <= sizes.ROWS_FOR_EVIDENCE and math.isnan(self._log_evidence):
                how: dict[str, Any] = {"leaf_noise": self.leaf_noise_, "n_particles": 100, "n_jobs": self.n_jobs}
                sampled = sample_posterior(self.completed_, self.compact_covariance_, **how)
                self._log_evidence = sampled.log_evidence
        return self._log_evidence

    @property
    def expected_overlap_(self) -> Floats:
        """Expected overlap of each cluster, `n_clusters_` of them."""
        if not hasattr(self, "labels_"):
            raise AttributeError("expected_overlap_ is available once the model is fitted.")
        return self._overlap_of(self.labels_)

    @property
    def n_clusters_overlap_(self) -> dict[int, Floats]:
        """Expected overlap of each cluster of the cut into k, (k,), by k."""
        if not hasattr(self, "n_clusters_alternatives_"):
            raise AttributeError("n_clusters_overlap_ is available once a fit has chosen the number of clusters.")
        return {k: self._overlap_of(self.cut(k)) for k in sorted((self.n_clusters_, *self.n_clusters_alternatives_))}

    def _overlap_of(self, labels: Ints) -> Floats:
        if len(self.posterior_) == 1:
            return np.full(int(labels.max()) + 1, np.nan)
        return self.posterior_.expected_overlap(labels)

    def _describe(self) -> CoalescentClustering:
        """Set the attributes that follow from the tree and the posterior alone."""
        self.children_, self.distances_ = self.tree_.children, self.tree_.times
        self.linkage_, self.n_leaves_ = self.tree_.to_linkage(), self.tree_.n_leaves
        return self

    def _cut(self, hierarchy: Hierarchy) -> CoalescentClustering:
        for name in ("cluster_scores_", "n_clusters_probability_", "n_clusters_alternatives_"):
            self.__dict__.pop(name, None)  # of an earlier fit, which chose the number
        if self.distance_threshold is not None:
            self.labels_ = self.tree_.cut(time=self.distance_threshold)
        elif self.n_clusters is not None:
            self.labels_ = hierarchy.cut(self.n_clusters)
        else:
            # The times of a single tree carry no uncertainty: use distances between rows instead.
            alone = whiten(self.completed_, self.compact_covariance_).rows if len(self.posterior_) == 1 else None
            scores = score_clusters(self.posterior_, hierarchy, alone, partial(greedy_tree, rule="peak"))
            self.cluster_scores_, self.n_clusters_probability_ = scores.as_dict(), scores.posterior()
            self.n_clusters_alternatives_ = scores.alternatives
            self.labels_ = hierarchy.cut(scores.chosen)
        self.n_clusters_ = self._n_features_out = int(self.labels_.max()) + 1
        self.probabilities_ = cluster_probability(self.posterior_, self.labels_, self.outlier_probability_)
        return self

    def leave_one_out(self) -> LeaveOneOut:
        """Log density of each row given the others, with Pareto k̂: from the draws, without another fit.

        For a table of numbers, complete rows only; for a mixed one, all rows, numbers in their own units. With many
        rows, a subset.
        """
        check_is_fitted(self)
        power = self.effective_columns_ / self.completed_.shape[1]
        seen = np.where(np.reshape(self.incomplete_, (-1, 1)), np.nan, self.completed_)
        return left_out(self.mixed_, self.posterior_, self.draws_, self.completed_, seen, power)

    def cut(self, n_clusters: int) -> Ints:
        """Labels (n,) of the partition into another number of clusters, −1 for outliers, without refitting."""
        check_is_fitted(self)
        return Hierarchy(self.tree_, self.cut_order_, self.outlier_probability_).cut(n_clusters)

    # ---- new points

    def score_samples(self, X: Any) -> Floats:
        """Log predictive density of each row, (B,), averaged over trees; NaN entries are integrated out."""
        return mixed.new_rows(self, X).log_density()

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density, for model selection by cross-validation."""
        return float(self.score_samples(X).mean())

    def predict(self, X: Any) -> Ints:
        """Most probable cluster of each row as a new point, (B,); rows may have NaN."""
        labels: Ints = self.predict_proba(X).argmax(axis=1)
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """Posterior probability of each cluster for each row, (B, K), averaged over trees and places in them."""
        return mixed.new_rows(self, X).label_probabilities(self.labels_)

    def transform(self, X: Any) -> Floats:
        """Return `predict_proba(X)`: soft assignments as features for the next step of a Pipeline."""
        return self.predict_proba(X)

    def attach(self, X: Any, n_places: int = 5) -> Attachment:
        """Where each row joins `tree_`: the likeliest edges (by the node below), probabilities, mean times, (B, K)."""
        new, n_places = mixed.new_rows(self, X), check_count(n_places, "n_places", at_least=1)
        return new.attach(self.tree_, Given(self.compact_covariance_, self.leaf_noise_), n_places)

    def impute(self, X: Any = None, probabilities: bool = False) -> Any:
        """Table with every NaN replaced by its posterior mean; without X, the fitted table.

        A DataFrame is returned as one, with its index and columns; so is a mixed table, gaps filled by the likeliest
        level. With `probabilities`, also {column: DataFrame with the probability of each level for every gap}.
        """
        check_is_fitted(self)
        if self.mixed_ is not None:
            found = mixed.imputed(self, X)
            return found if probabilities else found[0]
        if probabilities:
            raise InputError("probabilities are for levels, and this table has only numbers. Leave the argument out.")
        if X is None:
            return self.completed_.copy()
        if is_precomputed(self.metric):
            raise InputError("impute needs a table, and this model was fitted to distances.")
        completed = mixed.number_rows(self, X).filled()
        return type(X)(completed, index=X.index, columns=X.columns) if hasattr(X, "iloc") else completed

    def splits(self, n_columns: int = 3) -> Apart:
        """For every merge of `tree_`, the columns in which its two sides differ most, by how much and how certainly."""
        check_is_fitted(self)
        return mixed.splits(self, check_count(n_columns, "n_columns", at_least=1))

    # ---- files and tags

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to an .npz file, without pickle; see `load`."""
        check_is_fitted(self)
        files.write_clustering(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CoalescentClustering:
        """Read what `save` wrote.

        A kernel or family given as `covariance` is not stored: the loaded model has the learned matrix instead.
        """
        model = cls()
        files.read_clustering(path, model)
        return model._describe()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.metric == EUCLIDEAN
        tags.input_tags.pairwise = is_precomputed(self.metric)
        return tags
