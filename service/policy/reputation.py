"""Whether a source still deserves, at a host, the weight that was learned for its signals, and whether a
host's own dates of change can be believed.

Weights are learned per page over many crawls; a source that turns bad must lose its say sooner.
Per (host, source) a two-state filter follows whether signals mean what they did: at each crawl
that checks some of its signals, trust t is updated by Bayes' rule between "weight κ" and "weight 0".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from service.domain import Floats

TURN = 0.002  # chance per check that a good source has turned bad
MEND = 0.05  # chance per check that a bad one has mended
NEW = 0.96  # trust in a source not yet checked: where the two chances balance
BOLD = 2.0  # most, in logarithms, that one crawl can say
LEAST_DEPTH = 1e-300  # keeps the ratio finite where nothing but a signal explains a change

UNDATED = 0.5  # credibility of a host's dates before any was checked
CREDIBLE = 0.8  # from here on its dates are used: four that fit in a row
FITS, MISFITS = 0.25, 0.25  # share of the way to 1, and of what is left, after a date that fits or does not
COARSE_S = 1.0  # dates are given in whole seconds
INSTANT_S, INSTANT = (
    2.0,
    1e-3,
)  # a date this near the fetch (s, share of the elapsed time) is the server's clock


def check(trust: float, other_depth: float, signalled_depth: float, changed: bool) -> float:
    """Trust after one crawl that checked signals of the source.

    `signalled_depth` is κn of the source by the page's estimate, `other_depth` the rest of the
    page's depth, ατ and other sources. Where κn is 0 the crawl checked nothing: trust stays.
    """
    if signalled_depth <= 0:
        return trust
    rest = max(other_depth, LEAST_DEPTH)
    told = math.log(math.expm1(-rest - signalled_depth) / math.expm1(-rest)) if changed else -signalled_depth
    good = trust * math.exp(min(max(told, -BOLD), BOLD))
    after = good / (good + 1.0 - trust)
    return after * (1.0 - TURN) + (1.0 - after) * MEND


def discredited(signal_weight: ArrayLike, trust: ArrayLike) -> Floats:
    """κ of a source trusted with probability t: its precision is t(1 − e^(−κ))."""
    precision = -np.expm1(-np.asarray(signal_weight, dtype=np.float64))
    return np.asarray(-np.log1p(-np.asarray(trust) * precision))


def date_fits(elapsed_s: float, since_s: float, changed: bool) -> bool:
    """Whether the date of the last change, `since_s` before the fetch, agrees with what the fetch found.

    A changed page was changed after the crawl before, an unchanged one before it; a page "changed" at
    the very moment it is fetched was only rendered then.
    """
    if since_s < max(INSTANT_S, INSTANT * elapsed_s):
        return False
    return since_s < elapsed_s + COARSE_S if changed else since_s > elapsed_s - COARSE_S


def credibility_after(credibility: float, fits: bool) -> float:
    """How far a host's dates are believed after one was checked."""
    return credibility + FITS * (1.0 - credibility) if fits else credibility * MISFITS
