r"""One chain: Gibbs sampling over coefficients, tree, Φ, leaf noise, scale and the width of the common level.

An iteration draws (μ, β) given the rest (`moves.coefficients`), then leaf noise with the coefficients following
(`moves.hyperparameters`), then, for some outcomes, place in the tree and coefficients together (`moves.regraft`), then
widths with Φ and the coefficients (`moves.widths`), then the rest given β (`moves.hyperparameters`). During burn-in the
number of steps per trajectory adapts to its acceptance and the pilot moves to where the chain is; afterwards both are
fixed.

With many features (`WideChain`) nothing larger than K × K is ever formed. An iteration draws (μ, β) by a Hamiltonian
trajectory in the coordinates of `moves.preconditioner`; then proposes leaf noise, the width σ of differences and, with
more than some thirty features, the widths of all faint ones, each with all coefficients following, q held fixed; then
moves some outcomes in the tree with their coefficients, and the effects of single features; then, given β, draws tree,
σ, s₀ and τ from β_jk/λ_k; then the tail parameter ν, with λ integrated out, and λ itself; then rescales all widths
against σ and τ, which leaves β unchanged.
"""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import numpy as np

from coaltree._arrays import Bools, Floats
from coaltree.inference.learning import chain
from coaltree.model.covariance import PooledWishart
from coaltree.model.family import log_inverse_gamma
from coaltree.model.noise import SMALLEST_NOISE
from coaltree.regression.likelihood import Likelihood, penalised_mode
from coaltree.regression.moves import coefficients
from coaltree.regression.moves.coefficients import Gaussian, Pilot, Point, evaluate
from coaltree.regression.moves.hyperparameters import draw_hyper, log_joint, move_noise
from coaltree.regression.moves.preconditioner import (
    FEW_FEATURES,
    LARGEST_BLOCK,
    Frame,
    WidePilot,
    make_basis,
    make_wide_pilot,
)
from coaltree.regression.moves.regraft import move_leaf, regraft_scaled
from coaltree.regression.moves.widths import (
    draw_widths,
    move_common,
    move_effects,
    move_widths,
    rescale_widths,
)
from coaltree.regression.prior import Hyper, Prior, outcome_precision, precision

HMC, ALBERT_CHIB = "hmc", "albert-chib"
METHODS = (HMC, ALBERT_CHIB)

# Adaptation, in burn-in only: acceptance is checked once per window.
WINDOW = 20
MOST_STEPS = 32
# Up to this many coefficients, draws are kept in double precision.
MOST_DOUBLE = 5000
PILOT_AT = (0.25, 0.6)  # fractions of burn-in
# For many features: Newton-like steps to a first mode, initial degrees of freedom, standard deviations of proposals on
# the log scale (one picked at random).
N_START, FIRST_DF, STEPS = 30, 4.0, (0.1, 0.3, 1.0)

TRACES = ("log_likelihood", "log_joint", "spread", "leaf_noise", "last_time", "log_det", "acceptance", "n_steps")


class Settings(NamedTuple):
    """How a chain runs."""

    burn_in: int
    method: str = HMC
    thin: int = 1  # iterations per kept draw


class Moving(NamedTuple):
    """Everything that changes from one iteration to the next."""

    point: Point
    hyper: Hyper
    n_done: int
    pilot: Any  # Pilot; WidePilot for a wide prior
    n_steps: int
    accepted: float  # sum of acceptance probabilities in this window
    theta_sum: Floats  # (P, K+1), since the pilot moved
    n_summed: int


class Chain:
    """A chain and what it has drawn so far; `advance` extends it."""

    first_steps = 3  # of a trajectory
    acceptance = (0.75, 0.93)  # aimed at in burn-in: below, trajectories get more steps, above, fewer
    leaf_moves = 0.1  # share of the outcomes regrafted with their coefficients at each iteration
    # Sweeps of the tree per iteration. With 21 outcomes and 2 000 rows one sweep takes a few percent of an iteration.
    # Clades mix better with two to eight than with one; differences among these are within noise
    # (`benchmarks.probit --sweeps 1 2 4 8`).
    n_sweeps = 4

    def __init__(self, likelihood: Likelihood, prior: Prior, settings: Settings, rng: np.random.Generator) -> None:
        self.likelihood, self.prior, self.settings, self.rng = likelihood, prior, settings, rng
        self._normal_curvature: Floats | None = None
        self.outcomes = [likelihood.of_outcome(j) for j in range(likelihood.n_outcomes)]
        self.n_leaf_moves = max(1, round(self.leaf_moves * likelihood.n_outcomes))
        self.moving: Moving | None = None
        self.draws: dict[str, list[Any]] = {name: [] for name in ("theta", "children", "times", "leaf_noise", "spread")}
        self.trace: dict[str, list[float]] = {name: [] for name in TRACES}
        self.precision_sum: Floats = np.zeros((likelihood.n_features,) * (1 if prior.wide else 2))

    @property
    def n_done(self) -> int:
        """Iterations so far."""
        return self.moving.n_done if self.moving else 0

    def without_draws(self) -> Chain:
        """Return a copy that continues from here without the kept draws: small enough to send to a worker."""
        light = copy.copy(self)
        light.rng, light.precision_sum = copy.deepcopy(self.rng), self.precision_sum.copy()
        light.draws = {name: [] for name in self.draws}
        light.trace = {name: [] for name in self.trace}
        return light

    def follow(self, other: Chain) -> None:
        """Take over the state that a copy without draws has reached, and the draws it has kept."""
        self.rng.bit_generator.state = other.rng.bit_generator.state
        self.moving, self.precision_sum = other.moving, other.precision_sum
        for own, new in ((self.draws, other.draws), (self.trace, other.trace)):
            for name, values in new.items():
                own[name].extend(values)

    def progress(self) -> dict[str, str]:
        """Report how often trajectories are accepted."""
        return {"acceptance": f"{self.trace['acceptance'][-1]:.2f}"} if self.trace["acceptance"] else {}

    def start(self) -> Moving:
        """Start at a draw from the Laplace approximation under independent N(0, 1) coefficients."""
        likelihood, prior = self.likelihood, self.prior
        n_outcomes, n_features = likelihood.n_outcomes, likelihood.n_features
        independent = np.append(prior.intercept_sd**-2.0, np.ones(n_features))
        mode = penalised_mode(likelihood, independent)
        pilot = self.make_pilot(mode)
        diagonal = np.zeros((n_outcomes, n_features + 1, n_outcomes, n_features + 1))
        np.einsum("jkjk->jk", diagonal)[:] = independent
        gaussian = coefficients.approximate(diagonal, pilot)
        theta = gaussian.colour(self.rng.standard_normal(mode.size)).reshape(mode.shape)
        beta = np.ascontiguousarray(theta[:, 1:])
        unknowns = chain.first_guess(beta, prior.family) if n_outcomes > 1 else None
        spread = float(np.sqrt(np.mean(beta.mean(axis=0) ** 2)))
        return Moving(
            evaluate(likelihood, theta),
            Hyper(unknowns, max(spread, 1e-3)),
            n_done=0,
            pilot=pilot,
            n_steps=self.first_steps,
            accepted=0.0,
            theta_sum=np.zeros_like(theta),
            n_summed=0,
        )

    def make_pilot(self, theta: Floats) -> Pilot:
        """Expand the likelihood around θ."""
        return coefficients.make_pilot(self.likelihood, theta)

    def advance(self) -> None:
        """Make one iteration and keep its draw."""
        now = self.moving or self.start()
        point, hyper, acceptance = self.draw(now)
        n_steps = now.n_steps
        now = now._replace(point=point, hyper=hyper, n_done=now.n_done + 1)
        if self.settings.method == HMC and now.n_done <= self.settings.burn_in:
            now = self.adapt(now, acceptance)
        self.keep(now, acceptance, n_steps)
        self.moving = now

    def draw(self, now: Moving) -> tuple[Point, Hyper, float]:
        """Draw coefficients, then everything else; also return the acceptance probability of the trajectory."""
        likelihood, hyper, acceptance = self.likelihood, now.hyper, 1.0
        prior_precision = precision(hyper, self.prior, likelihood.n_outcomes, likelihood.n_features)
        if self.settings.method == ALBERT_CHIB:
            if self._normal_curvature is None:
                self._normal_curvature = coefficients.normal_curvature(likelihood)
            point = coefficients.albert_chib(now.point, likelihood, self._normal_curvature, prior_precision, self.rng)
        else:
            gaussian = coefficients.approximate(prior_precision, now.pilot)
            point, acceptance = coefficients.hamiltonian(
                now.point, likelihood, now.pilot, gaussian, now.n_steps, self.rng
            )
            if hyper.unknowns is not None:
                hyper, point = self.move_both(hyper, point, gaussian, now.pilot)
        return point, draw_hyper(hyper, point.theta, self.prior, self.n_sweeps, self.rng), acceptance

    def log_joint(self, now: Moving) -> float:
        """log p(β, t, π | Φ, s₀)."""
        return log_joint(now.hyper, now.point.theta)

    def log_det(self, hyper: Hyper) -> float:
        """log|Φ|."""
        assert hyper.unknowns is not None
        return hyper.unknowns.covariance.log_det

    def precision_of(self, hyper: Hyper) -> Floats:
        """Φ⁻¹."""
        assert hyper.unknowns is not None
        half = hyper.unknowns.covariance.whiten(np.eye(len(self.precision_sum)))
        return np.asarray(half @ half.T)

    def move_both(self, hyper: Hyper, point: Point, gaussian: Gaussian, pilot: Pilot) -> tuple[Hyper, Point]:
        """Move hyperparameters and coefficients jointly, where alternating draws would mix slowly."""
        likelihood, prior, rng = self.likelihood, self.prior, self.rng
        hyper, point, _, _ = move_noise(hyper, point, gaussian, likelihood, pilot, prior, rng)
        for j in rng.permutation(likelihood.n_outcomes)[: self.n_leaf_moves]:
            hyper, point, _ = move_leaf(hyper, point, j, self.outcomes[j], pilot, prior, rng)
        if isinstance(prior.family, PooledWishart):
            for move in (move_common, move_widths):
                hyper, point, _ = move(hyper, point, likelihood, pilot, prior.family, rng)
        return hyper, point

    def adapt(self, now: Moving, acceptance: float) -> Moving:
        """Set the number of steps by the acceptance of the last window, and move the pilot."""
        accepted, n_steps = now.accepted + acceptance, now.n_steps
        if now.n_done % WINDOW == 0:
            rate = accepted / WINDOW
            lowest, highest = self.acceptance
            if rate < lowest:
                n_steps = min(max(n_steps + 1, round(1.5 * n_steps)), MOST_STEPS)
            elif rate > highest:
                n_steps = max(n_steps - 1, 1)
            accepted = 0.0
        theta_sum, n_summed, pilot = now.theta_sum + now.point.theta, now.n_summed + 1, now.pilot
        if now.n_done in [round(part * self.settings.burn_in) for part in PILOT_AT]:
            # The later half would be enough; the mean of all of it is close enough for an expansion point.
            pilot = self.make_pilot(theta_sum / n_summed)
            theta_sum, n_summed = np.zeros_like(theta_sum), 0
        return now._replace(n_steps=n_steps, accepted=accepted, pilot=pilot, theta_sum=theta_sum, n_summed=n_summed)

    def keep(self, now: Moving, acceptance: float, n_steps: int) -> None:
        """Append to the trace and, after burn-in, to the draws."""
        hyper, unknowns = now.hyper, now.hyper.unknowns
        row = {
            "log_likelihood": now.point.log_likelihood,
            "log_joint": self.log_joint(now),
            "spread": hyper.spread,
            "leaf_noise": np.nan if unknowns is None else float(unknowns.leaf_noise[0]),
            "last_time": np.nan if unknowns is None else float(unknowns.tree.times[-1]),
            "log_det": np.nan if unknowns is None else self.log_det(hyper),
            "acceptance": acceptance,
            "n_steps": float(n_steps),
        }
        for name, value in row.items():
            self.trace[name].append(value)
        after = now.n_done - self.settings.burn_in
        if after <= 0 or after % self.settings.thin:
            return
        # With many coefficients, single precision halves the memory.
        large = now.point.theta.size > MOST_DOUBLE
        self.draws["theta"].append(now.point.theta.astype(np.float32 if large else np.float64))
        widths = hyper.widths if unknowns is None and hyper.widths is not None else 1.0
        self.draws["spread"].append(hyper.spread * widths)
        if unknowns is not None:
            self.draws["children"].append(unknowns.tree.children)
            self.draws["times"].append(unknowns.tree.times)
            self.draws["leaf_noise"].append(float(unknowns.leaf_noise[0]))
            self.precision_sum += self.precision_of(hyper)


# ---- many features


def log_prior(theta: Floats, A: Floats, frame: Frame, intercept: float) -> float:
    """log p(μ, β | tree, σ, s₀, τ, λ), up to terms in λ alone; `frame` belongs to A."""
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

    first_steps, leaf_moves, n_sweeps = 4, 0.3, 2

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.intercept = self.prior.intercept_sd**-2.0
        few = self.likelihood.n_features <= FEW_FEATURES
        self.n_effect_moves = 1 if few else 6
        # Chance of a move of all faint features together; the more features, the longer it takes.
        self.width_moves = 0.0 if few else min(1.0, LARGEST_BLOCK / self.likelihood.n_features)
        if few:  # steps are a small part of an iteration, so few trajectories need be wasted
            self.acceptance = (0.9, 0.98)

    def make_pilot(self, theta: Floats) -> WidePilot:  # type: ignore[override]
        """Expand the likelihood around θ."""
        return make_wide_pilot(self.likelihood, theta)

    def start(self) -> Moving:
        """Start at a draw around the mode under independent coefficients, whose sum over features has variance 1."""
        likelihood = self.likelihood
        n_outcomes, n_features = likelihood.n_outcomes, likelihood.n_features
        widths, A = np.ones(n_features), np.eye(n_outcomes) * n_features
        theta = np.zeros((n_outcomes, n_features + 1))

        def height(point: Point) -> Floats:
            square = self.intercept * point.theta[:, 0] ** 2 + n_features * (point.theta[:, 1:] ** 2).sum(axis=1)
            return np.asarray(point.values - 0.5 * square)

        point, step = evaluate(likelihood, theta), np.ones(n_outcomes)
        for number in range(N_START):
            if number % 10 == 0:
                pilot = self.make_pilot(point.theta)
                frame = Frame(pilot, make_basis(pilot, widths), widths, A, self.intercept)
            slope = frame.pull(point.gradient + prior_gradient(point.theta, A, widths, self.intercept))
            move = frame.colour(slope - frame.mean)
            new = evaluate(likelihood, point.theta + step[:, None] * move)
            better = height(new) >= height(point)
            gain = float(np.max(height(new) - height(point)))
            point = Point(*(_where(better, a, b) for a, b in zip(new, point, strict=True)))
            step = np.where(better, np.minimum(1.0, 1.5 * step), 0.5 * step)
            if better.all() and gain < 0.01:
                break
        pilot = self.make_pilot(point.theta)
        frame = Frame(pilot, make_basis(pilot, widths), widths, A, self.intercept)
        theta = point.theta + frame.colour(frame.draw(self.rng)) - frame.colour(np.zeros_like(theta))
        beta = np.ascontiguousarray(theta[:, 1:])
        unknowns = chain.first_guess(beta, self.prior.family) if n_outcomes > 1 else None
        spread = max(float(np.sqrt(np.mean(beta.mean(axis=0) ** 2))), 1e-3)
        return Moving(
            evaluate(likelihood, theta),
            Hyper(unknowns, spread, widths, FIRST_DF),
            n_done=0,
            pilot=pilot,
            n_steps=self.first_steps,
            accepted=0.0,
            theta_sum=np.zeros_like(theta),
            n_summed=0,
        )

    def draw(self, now: Moving) -> tuple[Point, Hyper, float]:
        """Draw coefficients, then everything else."""
        hyper = now.hyper
        assert hyper.widths is not None
        A = outcome_precision(hyper, self.likelihood.n_outcomes)
        basis = make_basis(now.pilot, hyper.widths)
        frame = Frame(now.pilot, basis, hyper.widths, A, self.intercept)
        point, acceptance = self.trajectory(now.point, frame, A, now.n_steps)
        if hyper.unknowns is not None:
            for name in ("leaf_noise", "covariance"):
                hyper, point, frame, A = self.follow_hyper(name, hyper, point, frame, A)
        if self.rng.random() < self.width_moves:
            hyper, point, frame = self.follow_widths(hyper, point, frame, A)
        if hyper.unknowns is not None:
            for j in self.rng.permutation(self.likelihood.n_outcomes)[: self.n_leaf_moves]:
                hyper, point, _ = regraft_scaled(hyper, point, j, self.outcomes[j], frame, self.rng)
        for _ in range(self.n_effect_moves):
            hyper, point, _ = move_effects(hyper, point, self.likelihood, now.pilot, self.intercept, self.rng)
        assert hyper.widths is not None
        scaled = np.column_stack([point.theta[:, 0], point.theta[:, 1:] / hyper.widths])
        hyper = draw_hyper(hyper, scaled, self.prior, self.n_sweeps, self.rng)
        hyper = draw_widths(hyper, point.theta[:, 1:], self.rng)
        return point, rescale_widths(hyper, self.prior, self.rng), acceptance

    def trajectory(self, start: Point, frame: Frame, A: Floats, n_steps: int) -> tuple[Point, float]:
        """A Hamiltonian trajectory of about a quarter turn: rotations by the frame, kicks by the remainder."""
        rng, likelihood, widths = self.rng, self.likelihood, frame.widths

        def force(gradient: Floats, theta: Floats, q: Floats) -> Floats:
            return frame.pull(gradient + prior_gradient(theta, A, widths, self.intercept)) + q

        def energy(p: Floats, point: Point) -> float:
            return 0.5 * float(np.sum(p**2)) - point.log_likelihood - log_prior(point.theta, A, frame, self.intercept)

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
        r"""Propose s₀ or σ² with the coefficients following: q = M^½(θ − m) is held fixed.

        (h, θ) → (h′, m′ + M′^−½ M^½ (θ − m)) has Jacobian |M|^½/|M′|^½, which enters the acceptance ratio with the
        joint density.
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

    def follow_widths(self, hyper: Hyper, point: Point, frame: Frame, A: Floats) -> tuple[Hyper, Point, Frame]:
        r"""Widen or narrow all features about which the labels say little, the coefficients following.

        λ_k → e^u λ_k for the features that are faint at the pilot, and θ as in `follow_hyper`. Changing σ instead would
        move the prior of the other features too, whose effects are known, so that only small steps would be accepted.
        """
        rng, widths = self.rng, hyper.widths
        assert widths is not None
        faint = frame.pilot.faint(self.likelihood.cases.sum())
        u, log_u = STEPS[int(rng.integers(len(STEPS)))] * rng.standard_normal(), -rng.exponential()
        if not faint.any():
            return hyper, point, frame
        new_widths = np.where(faint, math.exp(u) * widths, widths)
        new_frame = Frame(frame.pilot, make_basis(frame.pilot, new_widths), new_widths, A, self.intercept)
        q = frame.whiten(point.theta)
        q[:, 1:] = new_frame.basis.rotate(frame.basis.rotate_back(q[:, 1:]))
        new = evaluate(self.likelihood, new_frame.colour(q))
        half = 0.5 * hyper.df
        # The widths' factors in the prior of the coefficients and in the Jacobian cancel.
        gain = log_inverse_gamma(new_widths[faint] ** 2, half, half) - log_inverse_gamma(widths[faint] ** 2, half, half)
        gain += 2.0 * u * int(faint.sum()) + frame.log_det_root - new_frame.log_det_root
        gain += new.log_likelihood + log_prior(new.theta, A, new_frame, self.intercept)
        gain -= point.log_likelihood + log_prior(point.theta, A, frame, self.intercept)
        if not log_u < gain:
            return hyper, point, frame
        return hyper._replace(widths=new_widths), new, new_frame

    def log_joint(self, now: Moving) -> float:
        """log p(β/λ, t, π | Φ, s₀)."""
        theta, widths = now.point.theta, now.hyper.widths
        assert widths is not None
        return log_joint(now.hyper, np.column_stack([theta[:, 0], theta[:, 1:] / widths]))

    def log_det(self, hyper: Hyper) -> float:
        """log|Φ|, the widths of the features included."""
        assert hyper.unknowns is not None
        assert hyper.widths is not None
        return hyper.unknowns.covariance.log_det + 2.0 * float(np.log(hyper.widths).sum())

    def precision_of(self, hyper: Hyper) -> Floats:
        """Diagonal of Φ⁻¹, (K,)."""
        assert hyper.unknowns is not None
        assert hyper.widths is not None
        return hyper.widths**-2.0 / float(hyper.unknowns.covariance.values["variance"])


def _where(chosen: Bools, new: Floats, old: Floats) -> Floats:
    """Rows of `new` where chosen, of `old` elsewhere."""
    return np.where(chosen if new.ndim == 1 else chosen[:, None], new, old)
