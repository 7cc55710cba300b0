"""When a page no longer changes as it did, its past must fade faster than by the half-life."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats

STEP = 4.0  # the change of rate looked for
BOLD = 1.5  # most one observation can say for it
CALM = 2.5  # drift that chance alone explains
EAGER = 2.5  # how fast what exceeds it forgets
SEASONED = 8.0  # crawls after which half of a surprise is laid to the page, half to a poor estimate
ROUNDS = 3  # of expectation-maximisation: enough to tell a fourfold change
SHALLOWEST, DEEPEST = 1e-6, 30.0


def heed_drift(
    evidence: NDArray[Any], elapsed_s: Floats, heard: Floats, changed: NDArray[np.bool_], keep: Floats
) -> tuple[Floats, Floats]:
    """(share of the past to keep, drift after it), given how the newest observation fits the past.

    Page's test in both directions: the log-likelihood ratio of changes `STEP` times as frequent, and
    as rare, as the page's own past says, adds up and falls back to 0 while the past explains what
    is seen. What exceeds `CALM` is spent on forgetting, e^(−EAGER·excess).
    """
    depth = expected_depth(evidence, elapsed_s, heard)
    crawls = evidence["crawls"].astype(np.float64)
    trust = (crawls / (crawls + SEASONED))[:, None]
    drift = evidence["drift"] + trust * np.clip(_log_ratios(depth, changed), -BOLD, BOLD)
    excess = np.maximum(np.max(drift, axis=1) - CALM, 0.0)
    return keep * np.exp(-EAGER * excess), np.clip(drift, 0.0, CALM)


def _log_ratios(depth: Floats, changed: NDArray[np.bool_]) -> Floats:
    """log P(z | factor·s) / P(z | s), a column for each direction."""
    factor = np.array([STEP, 1.0 / STEP])
    scaled = depth[:, None] * factor
    if_changed = np.log(np.expm1(-scaled) / np.expm1(-depth)[:, None])
    return np.asarray(np.where(changed[:, None], if_changed, depth[:, None] - scaled))


def expected_depth(evidence: NDArray[Any], elapsed_s: Floats, heard: Floats) -> Floats:
    """ατ + Σ κ_k n_k by the page's past alone, with half an event added to each parameter.

    A changed observation of depth s stands for s/(1 − e^(−s)) events, shared out by depth; a rate
    is events over exposure, iterated a few times.
    """
    weight = evidence["weight"].astype(np.float64)
    times = np.exp(evidence["log_elapsed"].astype(np.float64))
    past = np.concatenate([times[:, :, None], evidence["heard"].astype(np.float64)], axis=2)
    quiet = np.column_stack([evidence["quiet_s"], evidence["quiet_signals"]]).astype(np.float64)
    exposure = quiet + np.einsum("ps,psd->pd", weight, past)
    exposure += 0.5 * np.column_stack([elapsed_s, np.ones_like(heard)])
    theta = 0.5 * (1.0 + np.sum(weight, axis=1, keepdims=True)) / exposure
    for _ in range(ROUNDS):
        share = past * theta[:, None, :]
        events = weight / -np.expm1(-np.maximum(np.sum(share, axis=2), SHALLOWEST))
        theta = (0.5 + np.einsum("ps,psd->pd", events, share)) / exposure
    depth = elapsed_s * theta[:, 0] + np.sum(heard * theta[:, 1:], axis=1)
    return np.asarray(np.clip(depth, SHALLOWEST, DEEPEST))
