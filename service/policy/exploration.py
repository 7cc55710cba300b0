"""Which of the believable models to rank by, so that no page starves on a wrong belief.

A page believed to change too often for its importance is never crawled, so the belief is never
corrected. Ranking by a change rate somewhat below the estimate gives pages that are little known
the benefit of the doubt, at no cost to those that are known.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from service.policy.estimate import Estimate

OPTIMISM = 0.25  # standard errors of log Δ by which a page is ranked below its estimate
WILDEST = 2.0  # bound on a draw, in logarithms


def optimistic(estimate: Estimate, sigmas: float = OPTIMISM) -> Estimate:
    """The estimate with α and κ lowered by e^(−sigmas × standard error of log Δ)."""
    factor = np.exp(-sigmas * estimate.change_log_error)
    return replace(
        estimate,
        silent_rate=estimate.silent_rate * factor,
        signal_weight=estimate.signal_weight * factor[:, None],
    )


def thompson(estimate: Estimate, rng: np.random.Generator) -> Estimate:
    """A draw of (α, κ_k) from the posterior, normal in logarithms."""
    root = np.linalg.cholesky(estimate.covariance)
    normal = rng.standard_normal(root.shape[:2])
    draw = np.exp(np.clip(np.einsum("pde,pe->pd", root, normal), -WILDEST, WILDEST))
    return replace(
        estimate,
        silent_rate=estimate.silent_rate * draw[:, 0],
        signal_weight=estimate.signal_weight * draw[:, 1:],
    )
