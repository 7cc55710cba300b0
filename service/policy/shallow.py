"""The crawl value just after a crawl, where the difference w − e^(−s)ψ cancels."""

from __future__ import annotations

import numpy as np
from scipy.special import gamma, gammainc

from service.domain import Floats

SHALLOW = 0.01  # depth below which the difference has lost more than three digits
TAIL = 1e-13  # relative weight of the terms left out
MOMENTS = 6  # s^6/7! < 1e-15 at s = SHALLOW
NEAR = 0.5  # (1+g)y below which the positive series converges in LADDER terms
ROUNDING = 2.0**-54  # a share of a sum that adds nothing to it
LADDER = 12  # 0.5^12·2/14! < 1e-13


def shallow_sum(depth: Floats, weight: Floats, ratio: Floats) -> Floats:
    """γV/μ = Σ_i q^i h_i(s − iκ) for s ≤ `SHALLOW`, every term free of cancellation."""
    total = np.zeros_like(depth)
    before = np.zeros_like(depth)  # no term before the first: its tail bound cannot hold
    page = np.flatnonzero(depth > 0)
    index = 0
    while page.size:
        left = depth[page] - index * weight[page]
        term = np.exp(-index * weight[page]) * shallow_term(index, left, ratio[page])
        total[page] += term
        done = term**2 <= TAIL * total[page] * (before[page] - term)
        before[page] = term
        index += 1
        page = page[~done & (depth[page] > index * weight[page])]
    return total


def shallow_term(index: int, left: Floats, ratio: Floats) -> Floats:
    """h_i(y) = ∫₀^y e^(−u) R_i(gu) du for 0 < y ≤ `SHALLOW`."""
    near = left * (1.0 + ratio) < NEAR
    term = np.empty_like(left)
    term[near] = _ladder(index, left[near], ratio[near])
    term[~near] = _moments(index, left[~near], ratio[~near])
    return term


def _ladder(index: int, left: Floats, ratio: Floats) -> Floats:
    """h_i = (1/(1+g)) Σ_{j>i} f^j R_j(x) with f = g/(1+g), x = (1+g)y: all positive, few when x is small.

    With R_j(x) = e^(−x) Σ_{k>j} x^k/k! the sum is e^(−x) Σ_{k>i+1} x^k/k! · (f^(i+1) + … + f^(k−1)).
    """
    share = ratio / (1.0 + ratio)
    scaled = (1.0 + ratio) * left
    power = scaled ** (index + 1.0) / gamma(index + 2.0)
    fade = share ** (index + 1.0)
    shares, total = np.zeros_like(left), np.zeros_like(left)
    for k in range(index + 2, index + 2 + LADDER):
        power *= scaled / k
        shares += fade
        fade *= share
        term = power * shares
        total += term
        if not (term > ROUNDING * total).any():
            break
    return total * np.exp(-scaled) / (1.0 + ratio)


def _moments(index: int, left: Floats, ratio: Floats) -> Floats:
    """h_i = Σ_k (−1)^k/k! ∫₀^y u^k R_i(gu) du.

    The integral is y^(k+1)/(k+1) · [R_i(x) − (i+1)…(i+k+1)/x^(k+1) · R_{i+k+1}(x)], x = gy.
    """
    scaled = ratio * left
    head = gammainc(index + 1.0, scaled)
    factor = np.ones_like(left)
    power = np.ones_like(left)
    total = np.zeros_like(left)
    for k in range(MOMENTS):
        factor *= (index + k + 1.0) / scaled
        power *= left / (k + 1.0)  # y^(k+1)/(k+1)!, sign below
        bracket = head - factor * gammainc(index + k + 2.0, scaled)
        total += (-1.0) ** k * power * bracket
    return total
