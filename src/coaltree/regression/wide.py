r"""One chain for many features: as `chain`, but nothing larger than K × K is ever formed.

An iteration draws (μ, β) by a Hamiltonian trajectory in the coordinates of `frame`; then proposes leaf noise and the
width σ of differences, each with all coefficients following, q held (`follow`); then, given β, tree, σ, s₀ and τ from
β_jk/λ_k as `hyper` does; then how heavy the tails are, ν, with λ integrated out, and λ itself; then all widths at once
against σ and τ, which leaves β alone.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from coaltree._arrays import Bools, Floats
from coaltree.inference import learn
from coaltree.inference.heavy import SMALLEST_NOISE
from coaltree.model.family import log_inverse_gamma, sample_inverse_gamma
from coaltree.model.pooled import log_half_t
from coaltree.model.slice import slice_step
from coaltree.regression.chain import Chain, Moving
from coaltree.regression.coefficients import Point, evaluate
from coaltree.regression.frame import Frame, WidePilot, blocks_of, make_basis, make_wide_pilot
from coaltree.regression.hyper import draw_hyper, log_joint
from coaltree.regression.prior import DFS, Hyper, Prior, outcome_precision
from coaltree.regression.together import move_effects, move_place

FIRST_STEPS = 4
N_SWEEPS = 4
FIRST_DF = 4.0
# Newton-like steps to a first mode.
N_START = 30
# Standard deviation of proposals in logs, one of them at random.
STEPS = (0.1, 0.3, 1.0)
# Outcomes that are hung anew at each iteration, as a fraction of all; and groups of features whose widths are drawn.
LEAF_MOVES, N_EFFECT_MOVES = 0.2, 2


def log_prior(theta: Floats, A: Floats, frame: Frame, intercept: float) -> float:
    """log p(μ, β | tree, σ, s₀, τ, λ), up to what only λ says; `frame` belongs to A."""
    scaled = theta[:, 1:] / frame.widths
    fit = float(np.sum((A @ scaled) * scaled)) + intercept * float(theta[:, 0] @ theta[:, 0])
    return 0.5 * (float(scaled.shape[1]) * frame.log_det_outcomes - float(fit))


def prior_gradient(theta: Floats, A: Floats, widths: Floats, intercept: float) -> Floats:
    """Its gradient, (P, K+1)."""
    out = np.empty_like(theta)
    out[:, 0] = -intercept * theta[:, 0]
    out[:, 1:] = -(A @ theta[:, 1:]) / widths**2
    return out


class WideChain(Chain):
    """A chain over a wide prior."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.grams = [(part, self.likelihood.gram(part)) for part in blocks_of(self.likelihood.n_features)]
        self.intercept = self.prior.intercept_sd**-2.0
        self.n_leaf_moves = max(1, round(LEAF_MOVES * self.likelihood.n_outcomes))

    def make_pilot(self, theta: Floats) -> WidePilot:  # type: ignore[override]
        """Look at the likelihood around θ."""
        return make_wide_pilot(self.likelihood, self.grams, theta)

    def start(self) -> Moving:
        """Begin at a draw around the mode under independent coefficients, whose sum over features has variance 1."""
        likelihood = self.likelihood
        n_outcomes, n_features = likelihood.n_outcomes, likelihood.n_features
        widths, A = np.ones(n_features), np.eye(n_outcomes) * n_features
        basis, theta = make_basis(self.grams, widths), np.zeros((n_outcomes, n_features + 1))

        def height(point: Point) -> Floats:
            square = self.intercept * point.theta[:, 0] ** 2 + n_features * (point.theta[:, 1:] ** 2).sum(axis=1)
            return np.asarray(point.values - 0.5 * square)

        point, step = evaluate(likelihood, theta), np.ones(n_outcomes)
        for number in range(N_START):
            if number % 10 == 0:
                frame = Frame(self.make_pilot(point.theta), basis, widths, A, self.intercept)
            slope = frame.pull(point.gradient + prior_gradient(point.theta, A, widths, self.intercept))
            move = frame.colour(slope - frame.mean)
            new = evaluate(likelihood, point.theta + step[:, None] * move)
            better = height(new) >= height(point)
            gain = float(np.max(height(new) - height(point)))
            point = Point(*(_where(better, a, b) for a, b in zip(new, point, strict=True)))
            step = np.where(better, np.minimum(1.0, 1.5 * step), 0.5 * step)
            if better.all() and gain < 0.01:
                break
        frame = Frame(self.make_pilot(point.theta), basis, widths, A, self.intercept)
        theta = point.theta + frame.colour(frame.draw(self.rng)) - frame.colour(np.zeros_like(theta))
        beta = np.ascontiguousarray(theta[:, 1:])
        unknowns = learn.first_guess(beta, self.prior.family, None) if n_outcomes > 1 else None
        spread = max(float(np.sqrt(np.mean(beta.mean(axis=0) ** 2))), 1e-3)
        return Moving(
            evaluate(likelihood, theta),
            Hyper(unknowns, spread, widths, FIRST_DF),
            n_done=0,
            pilot=self.make_pilot(point.theta),
            n_steps=FIRST_STEPS,
            accepted=0.0,
            theta_sum=np.zeros_like(theta),
            n_summed=0,
        )

    def draw(self, now: Moving) -> tuple[Point, Hyper, float]:
        """Coefficients, then everything else."""
        hyper = now.hyper
        assert hyper.widths is not None
        A = outcome_precision(hyper, self.likelihood.n_outcomes)
        basis = make_basis(self.grams, hyper.widths)
        frame = Frame(now.pilot, basis, hyper.widths, A, self.intercept)
        point, acceptance = self.trajectory(now.point, frame, A, now.n_steps)
        if hyper.unknowns is not None:
            for name in ("leaf_noise", "covariance"):
                hyper, point, frame, A = self.follow_hyper(name, hyper, point, frame, A)
            for j in self.rng.permutation(self.likelihood.n_outcomes)[: self.n_leaf_moves]:
                hyper, point, _ = move_place(hyper, point, j, self.outcomes[j], frame, self.rng)
        for _ in range(N_EFFECT_MOVES):
            hyper, point, _ = move_effects(
                hyper, point, self.likelihood, now.pilot, self.grams, self.intercept, self.rng
            )
        assert hyper.widths is not None
        scaled = np.column_stack([point.theta[:, 0], point.theta[:, 1:] / hyper.widths])
        hyper = draw_hyper(hyper, scaled, self.prior, N_SWEEPS, self.rng)
        hyper = draw_widths(hyper, point.theta[:, 1:], self.rng)
        return point, rescale_widths(hyper, self.prior, self.rng), acceptance

    def trajectory(self, start: Point, frame: Frame, A: Floats, n_steps: int) -> tuple[Point, float]:
        """A Hamiltonian trajectory of about a quarter turn: rotations by the frame, kicks by what it leaves out."""
        rng, likelihood, widths = self.rng, self.likelihood, frame.widths

        def force(gradient: Floats, theta: Floats, q: Floats) -> Floats:
            return frame.pull(gradient + prior_gradient(theta, A, widths, self.intercept)) + q

        def energy(p: Floats, point: Point) -> float:
            scaled = point.theta[:, 1:] / widths
            prior: float = float(np.sum((A @ scaled) * scaled)) + self.intercept * float(np.sum(point.theta[:, 0] ** 2))
            return 0.5 * (float(np.sum(p**2)) + prior) - point.log_likelihood

        angle = 0.5 * math.pi * (0.8 + 0.4 * rng.random()) / n_steps
        cosine, sine = math.cos(angle), math.sin(angle)
        q, p = frame.whiten(start.theta), frame.draw(rng)
        log_u = -rng.exponential()
        before = energy(p, start)
        p = p + 0.5 * angle * force(start.gradient, start.theta, q)
        for _ in range(n_steps - 1):
            q, p = cosine * q + sine * p, cosine * p - sine * q
            theta = frame.colour(q)
            p = p + angle * force(likelihood.gradient(theta), theta, q)
        q, p = cosine * q + sine * p, cosine * p - sine * q
        end = evaluate(likelihood, frame.colour(q))
        p = p + 0.5 * angle * force(end.gradient, end.theta, q)
        gain = before - energy(p, end)
        if not math.isfinite(gain):
            return start, 0.0
        return end if log_u < gain else start, math.exp(min(gain, 0.0))

    def follow_hyper(
        self, name: str, hyper: Hyper, point: Point, frame: Frame, A: Floats
    ) -> tuple[Hyper, Point, Frame, Floats]:
        r"""Propose s₀ or σ² with the coefficients following: q = M^½(θ − m) is held.

        (h, θ) → (h′, m′ + M′^−½ M^½ (θ − m)) has Jacobian |M|^½/|M′|^½, and is accepted by it and by the joint density.
        """
        rng, now = self.rng, hyper.unknowns
        assert now is not None
        log_factor = STEPS[int(rng.integers(len(STEPS)))] * rng.standard_normal()
        log_u, family = -rng.exponential(), self.prior.family
        if name == "leaf_noise":
            noise = math.exp(log_factor) * now.leaf_noise
            if not noise[0] > SMALLEST_NOISE:
                return hyper, point, frame, A
            gain = log_factor + float(now.leaf_noise[0] - noise[0])
            new_hyper = hyper._replace(unknowns=now._replace(leaf_noise=noise))
        else:
            covariance, gain = family.rescale(now.covariance, math.exp(log_factor))
            new_hyper = hyper._replace(unknowns=now._replace(covariance=covariance))
        new_A = outcome_precision(new_hyper, len(point.theta))
        new_frame = frame.with_outcomes(new_A)
        new = evaluate(self.likelihood, new_frame.colour(frame.whiten(point.theta)))
        gain += new.log_likelihood + log_prior(new.theta, new_A, new_frame, self.intercept)
        gain -= point.log_likelihood + log_prior(point.theta, A, frame, self.intercept)
        gain += frame.log_det_root - new_frame.log_det_root
        if not log_u < gain:
            return hyper, point, frame, A
        return new_hyper, new, new_frame, new_A

    def log_joint(self, now: Moving) -> float:
        """log p(β/λ, t, π | Φ, s₀)."""
        theta, widths = now.point.theta, now.hyper.widths
        assert widths is not None
        return log_joint(now.hyper, np.column_stack([theta[:, 0], theta[:, 1:] / widths]))

    def log_det(self, hyper: Hyper) -> float:
        """log|Φ| with the widths of features in it."""
        assert hyper.unknowns is not None
        assert hyper.widths is not None
        return hyper.unknowns.covariance.log_det + 2.0 * float(np.log(hyper.widths).sum())

    def precision_of(self, hyper: Hyper) -> Floats:
        """Diagonal of Φ⁻¹, (K,)."""
        assert hyper.unknowns is not None
        assert hyper.widths is not None
        return hyper.widths**-2.0 / float(hyper.unknowns.covariance.values["variance"])


def _where(chosen: Bools, new: Floats, old: Floats) -> Floats:
    """Rows of `new` where chosen."""
    return np.where(chosen if new.ndim == 1 else chosen[:, None], new, old)


def draw_widths(hyper: Hyper, beta: Floats, rng: np.random.Generator) -> Hyper:
    r"""ν given β with λ integrated out, then λ given both: the effects of a feature are a multivariate t.

    With r_k = β_·kᵀ A β_·k:  p(β | ν) ∝ Π_k Γ((ν+P)/2)/Γ(ν/2) ν^(ν/2) (ν + r_k)^(−(ν+P)/2),
    λ_k² | ν, β ~ IG((ν + P)/2, (ν + r_k)/2).
    """
    n_outcomes, n_features = beta.shape
    square = np.einsum("jk,jk->k", outcome_precision(hyper, n_outcomes) @ beta, beta)
    square = np.maximum(square, 0.0)
    half = 0.5 * (DFS + n_outcomes)
    log_p = n_features * (gammaln(half) - gammaln(0.5 * DFS) + 0.5 * DFS * np.log(DFS))
    log_p -= half * np.log(DFS[:, None] + square).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    df = float(rng.choice(DFS, p=p / p.sum()))
    variances = sample_inverse_gamma(np.full(n_features, 0.5 * (df + n_outcomes)), 0.5 * (df + square), rng)
    return hyper._replace(widths=np.sqrt(variances), df=df)


def rescale_widths(hyper: Hyper, prior: Prior, rng: np.random.Generator) -> Hyper:
    """(λ, σ, τ) → (cλ, σ/c, τ/c), which leaves the prior of β as it is: a slice in log c."""
    assert hyper.widths is not None
    widths, now = hyper.widths, hyper.unknowns

    def log_density(log_c: float) -> float:
        c = math.exp(log_c)
        value = log_inverse_gamma((c * widths) ** 2, 0.5 * hyper.df, 0.5 * hyper.df) + 2.0 * len(widths) * log_c
        value += log_half_t(hyper.spread / c, prior.spread_scale) - log_c
        return value if now is None else value + prior.family.log_rescale(now.covariance, c * c)

    log_c, _ = slice_step(log_density, 0.0, log_density(0.0), rng, width=0.5, lower=-40.0, upper=40.0)
    c = math.exp(log_c)
    if now is not None:
        now = now._replace(covariance=prior.family.rescale(now.covariance, c * c)[0])
    return Hyper(now, hyper.spread / c, c * widths, hyper.df)
