"""The policies an operator can choose: what each believes of pages, and the value it follows.

Those that only need the page itself are a `Valuation`. Those that need the rates of all pages of a shard
(`SOLVED`) get one from their worker, which solves for the rates; the value is then ρι (or pn).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from service.domain import Floats, Model, Policy
from service.policy import rates, variants
from service.policy.objectives import FRESHNESS, OBJECTIVES, Objective
from service.policy.ranking import storable
from service.policy.staleness import Pages

PLAIN = ("ncis", "greedy")  # those that can follow any objective
SIGNALLED = ("cis", "cis+")
TABLES = ("uniform", "change-rate", "importance")
SOLVED = ("lambdacrawl", "lds")
NAMES = (*PLAIN, *SIGNALLED, *TABLES, *SOLVED)
MOST_TERMS = 64
DAY_S = 86400.0
APPROX = re.compile(r"approx-([1-9]|[1-5]\d|6[0-4])")
OBSERVED = 0.99  # precision and recall from which every change counts as observed
UNTIMED_S = 1e9  # time that ages a page whose value counts signals only as much as one signal does


@dataclass(frozen=True, slots=True)
class Valuation:
    """How pages are valued."""

    believe: Callable[[Model], Model]  # pages as the policy sees them
    objective: Objective
    listens: bool  # whether a signal ages a page by what was learned of its source

    def credit_s(self, believed: Model) -> Floats:
        """Seconds one signal ages a page by; −1 where that is learned."""
        if self.listens:
            return np.full_like(believed.silent_rate, -1.0)
        silent, weight = np.asarray(believed.silent_rate), np.asarray(believed.signal_weight)
        return np.divide(weight, silent, out=np.zeros_like(silent), where=silent > 0)

    def depth(self, believed: Model, *, elapsed_s: Floats, effective_s: Floats, signals: Floats) -> Floats:
        """How deep pages are in the policy's eyes."""
        if self.listens:
            return np.asarray(believed.silent_rate * effective_s)
        return np.asarray(believed.silent_rate * elapsed_s + believed.signal_weight * signals)


def _as_it_is(model: Model) -> Model:
    return model


NCIS = Valuation(_as_it_is, FRESHNESS, listens=True)


def _level(depth: ArrayLike, model: Model) -> Floats:
    return np.asarray(np.broadcast_to(np.asarray(depth, dtype=np.float64), model.change_rate.shape))


RATE = Objective(  # V = s, with s = ρι
    name="rate",
    value=_level,
    slope=lambda depth, model: np.ones_like(_level(depth, model)),
    ceiling=lambda model: np.full_like(model.change_rate, np.inf),
    depth_at=_level,
    growth=lambda model: (np.zeros_like(model.change_rate), np.zeros_like(model.change_rate)),
)

_BELIEFS: dict[str, Callable[[Model], Model]] = {
    "ncis": _as_it_is,
    "greedy": variants.greedy,
    "cis": lambda model: storable(variants.cis(model)),
    "cis+": lambda model: storable(variants.cis_plus(model)),
    "uniform": lambda model: _paced(np.ones_like(model.change_rate)),
    "change-rate": lambda model: _paced(model.change_rate),
    "importance": lambda model: _paced(np.asarray(model.importance, dtype=np.float64)),
}


def _missing(model: Model) -> Model:
    """Pages each of whose signals stands for p = 1 − e^(−κ) missed changes; Δ stays what it is.

    Where missed changes are counted this beats the depth κ, by which a sure signal would count as endlessly
    many of them (measured by the experiment `harmonic-signals`).
    """
    missed = model.precision
    rate = np.divide(
        model.signal_rate * missed, -np.expm1(-missed), out=np.zeros_like(missed), where=missed > 0
    )
    return Model(model.importance, model.silent_rate, missed, rate)


def _paced(rate: Floats) -> Model:
    """Pages to be crawled at these rates, whatever is heard of them."""
    none = np.zeros_like(rate)
    return Model(np.ones_like(rate), rate, none, none)


def why_not(policy: str, objective: str) -> tuple[str, str] | None:
    """Which field of a choice is wrong, and why; None if it is not."""
    if policy not in NAMES and not APPROX.fullmatch(policy):
        return "policy", f"available: {', '.join(NAMES)}, approx-1 to approx-{MOST_TERMS}"
    if objective not in OBJECTIVES:
        return "objective", f"available: {', '.join(OBJECTIVES)}"
    if objective != FRESHNESS.name and policy not in PLAIN:
        return "objective", f"{objective} is for the policies {', '.join(PLAIN)}"
    return None


@cache
def _valuation(policy: str, objective: str) -> Valuation | None:
    if policy in SOLVED:
        return None
    if policy in TABLES:
        return Valuation(_BELIEFS[policy], RATE, listens=False)
    short = APPROX.fullmatch(policy)
    if short:
        return Valuation(_as_it_is, variants.truncated(int(short[1])), listens=True)
    if policy == "ncis" and objective != FRESHNESS.name:
        return Valuation(_missing, OBJECTIVES[objective], listens=False)
    return Valuation(_BELIEFS[policy], OBJECTIVES[objective], listens=policy == "ncis")


def valuation_of(policy: Policy) -> Valuation | None:
    """How the chosen policy values pages; None if that takes the rates of all of them."""
    return _valuation(policy.policy, policy.objective)


def solve(policy: str, model: Model, bandwidth: float) -> Model:
    """Pages as a policy of `SOLVED` paces them, with so many crawls per second for all of these.

    `lambdacrawl` has the least harmonic cost, and crawls pages whose every change is signalled by their
    signals, p of them on average; `lds` has the most freshness without signals.
    """
    observed = (model.precision >= OBSERVED) & (model.recall >= OBSERVED)
    if policy == "lds":
        observed = np.zeros_like(observed)
    pages = Pages(np.asarray(model.importance, dtype=np.float64), model.change_rate, observed)
    rate = (rates.binary_rates if policy == "lds" else rates.harmonic_rates)(pages, bandwidth)
    chance = np.divide(rate, pages.change_rate, out=np.zeros_like(rate), where=observed)
    silent = np.where(observed, chance / UNTIMED_S, rate)
    return Model(np.ones_like(rate), silent, chance, np.zeros_like(rate))


def solved(believed: Model) -> Valuation:
    """The valuation of pages whose rates were solved for, in their order."""
    return Valuation(lambda _: believed, RATE, listens=False)


# Of new pages until a sweep has solved for the rates or set the price: once a day.
PROVISIONAL = Valuation(lambda model: _paced(np.full_like(model.change_rate, 1 / DAY_S)), RATE, listens=False)
