"""Whether a source still deserves, at a host, the weight that was learned for its signals.

Weights are learned per page over many crawls; a source that turns bad must lose its say sooner.
Per (host, source) a two-state filter follows whether signals mean what they did: at each crawl
that checks some of its signals, trust t is updated by Bayes' rule between "weight κ" and "weight 0".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from service.domain import Floats

TURN = 0.002  # chance per check that a good source has turned bad
MEND = 0.05  # chance per check that a bad one has mended
NEW = 0.96  # trust in a source not yet checked: where the two chances balance
BOLD = 2.0  # most, in logarithms, that one crawl can say


def check(trust: ArrayLike, other_depth: ArrayLike, signalled_depth: ArrayLike, changed: ArrayLike) -> Floats:
    """Trust after one crawl that checked signals of the source.

    `signalled_depth` is κn of the source by the page's estimate, `other_depth` the rest of the
    page's depth, ατ and other sources. Where κn is 0 the crawl checked nothing: trust stays.
    """
    before, rest, claimed = (np.asarray(a, dtype=np.float64) for a in (trust, other_depth, signalled_depth))
    rest = np.maximum(rest, np.finfo(np.float64).tiny)
    if_changed = np.log(np.expm1(-rest - claimed) / np.expm1(-rest))
    ratio = np.clip(np.where(changed, if_changed, -claimed), -BOLD, BOLD)
    good = before * np.exp(ratio)
    after = good / (good + 1.0 - before)
    return np.where(claimed > 0, after * (1.0 - TURN) + (1.0 - after) * MEND, before)


def discredited(signal_weight: ArrayLike, trust: ArrayLike) -> Floats:
    """κ of a source trusted with probability t: its precision is t(1 − e^(−κ))."""
    precision = -np.expm1(-np.asarray(signal_weight, dtype=np.float64))
    return np.asarray(-np.log1p(-np.asarray(trust) * precision))
