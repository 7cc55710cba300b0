"""What pages of a host, and hosts of a source, have in common: the priors of `estimate`.

Empirical Bayes on logarithms. Each page sends up what its own evidence says, its prior taken out
again, as a row of sums; rows of a host are added, so a page's row can be replaced and a host's
sums recomputed without touching another host. A host's silent rate follows a line in the pages'
counted signal rate,

    log α_i = level + slope · (log γ_i − centre) ± spread,

since pages of a host that share precision and recall have α/γ in common (slope 1), while slope 0
is a rate in common. Signal weights go page → (host, source) → sender → source → everything the same
way without a slope. How far pages differ is learned too, so hosts of unlike pages pool little.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.domain import Floats
from service.policy.estimate import Estimate, Prior

# Columns of the rows that are summed over pages: of a host, and of a (host, source).
PAGES, TEMPO, WEIGHT, WEIGHT_TEMPO, WEIGHT_TEMPO2, LEVEL, LEVEL_TEMPO, DEVIATION, KNOWN = range(9)
SIGNALS, WATCHED, SOURCE_WEIGHT, SOURCE_LEVEL, SOURCE_DEVIATION, SOURCE_KNOWN = range(6)


@dataclass(frozen=True, slots=True)
class Defaults:
    """Beliefs about everything, before anything was seen; spreads are variances of logarithms."""

    silent_rate: float = 0.5 / 86400.0
    silent_spread: float = 1.0  # between hosts
    page_spread: float = 0.25  # between pages of a host, at first
    page_doubt: float = 4.0  # how many pages that first guess is worth
    slope: float = 1.0
    slope_spread: float = 0.25
    weight: float = 0.7  # κ: a precision of one half
    source_spread: float = 1.0  # of log κ between sources
    host_spread: float = 0.5  # of log κ between hosts of a source
    signal_rate: float = 1.0 / 86400.0
    signal_shape: float = 1.0  # pages of a host differ by this much in how often they are signalled


@dataclass(frozen=True, slots=True)
class HostBelief:
    """What is believed of the pages of each host."""

    centre: Floats  # mean log γ of its pages
    level: Floats  # log α of a page there
    slope: Floats
    spread: Floats  # variance of log α around the line
    level_variance: Floats  # what is not known of the level
    slope_variance: Floats


@dataclass(frozen=True, slots=True)
class SourceBelief:
    """What is believed of each source at each host: a row per host, a column per source."""

    level: Floats  # log κ
    variance: Floats  # what is not known of it
    spread: Floats  # variance of log κ between pages
    signal_rate: Floats  # γ of a typical page


def host_rows(estimate: Estimate, prior: Prior, belief: HostBelief, host: NDArray[np.intp]) -> Floats:
    """What each page says of its host, with the belief its prior was made of."""
    tempo = _tempo(estimate)
    weight, level, known = _message(
        estimate.silent_rate,
        estimate.covariance[:, 0, 0],
        prior.silent_mean,
        prior.silent_shape,
        belief.spread[host],
    )
    deviation = np.log(estimate.silent_rate / prior.silent_mean) ** 2
    ones = np.ones_like(tempo)
    columns = (ones, tempo, weight, weight * tempo, weight * tempo**2, level, level * tempo, deviation, known)
    return np.column_stack(columns)


def source_rows(
    estimate: Estimate,
    prior: Prior,
    belief: SourceBelief,
    host: NDArray[np.intp],
    *,
    signals: Floats,
    watched_s: Floats,
) -> Floats:
    """What each page says of its sources: (page, source, column)."""
    diagonal = np.arange(1, 1 + prior.weight_mean.shape[1])
    weight, level, known = _message(
        estimate.signal_weight,
        estimate.covariance[:, diagonal, diagonal],
        prior.weight_mean,
        prior.weight_shape,
        belief.spread[host],
    )
    deviation = np.log(estimate.signal_weight / prior.weight_mean) ** 2
    # A page watched for long counts for no more than the shape of the prior lets it.
    share = 1.0 / (1.0 + prior.signal_mean * watched_s[:, None] / prior.signal_shape)
    columns = (signals * share, watched_s[:, None] * share, weight, level, deviation, known)
    return np.stack(columns, axis=2)


def _message(
    theta: Floats, variance: Floats, mean: Floats, shape: Floats, spread: Floats
) -> tuple[Floats, Floats, Floats]:
    """(w, w·y, known): y the logarithm a page's own evidence points at, w its weight for the host.

    The likelihood's curvature is the posterior's without the prior's, j = 1/variance − aθ/m; its
    slope at the estimate is a(θ/m − 1). So y = log θ + slope/j and w = 1/(1/j + spread).
    """
    pull = shape * (theta / mean - 1.0)
    own = np.maximum(1.0 / variance - shape * theta / mean, 0.0)
    damped = 1.0 + own * spread
    return own / damped, (own * np.log(theta) + pull) / damped, own * variance


def believe_hosts(sums: Floats, everything: Floats, defaults: Defaults) -> HostBelief:
    """Beliefs from the hosts' sums: weighted least squares of level and slope around the centre.

    `everything` is the sum over all hosts of what `ascend` makes of their weight and level.
    """
    typical = level_of(everything, np.log(defaults.silent_rate), defaults.silent_spread)
    pages = np.maximum(sums[:, PAGES], 1.0)
    centre = np.where(sums[:, PAGES] > 0, sums[:, TEMPO] / pages, np.log(defaults.signal_rate))
    weight = sums[:, WEIGHT] + 1.0 / defaults.silent_spread
    tilt = sums[:, WEIGHT_TEMPO] - centre * sums[:, WEIGHT]
    bend = sums[:, WEIGHT_TEMPO2] - 2 * centre * sums[:, WEIGHT_TEMPO] + centre**2 * sums[:, WEIGHT]
    bend += 1.0 / defaults.slope_spread
    level = sums[:, LEVEL] + typical / defaults.silent_spread
    rise = sums[:, LEVEL_TEMPO] - centre * sums[:, LEVEL] + defaults.slope / defaults.slope_spread
    determinant = weight * bend - tilt**2
    return HostBelief(
        centre=centre,
        level=(bend * level - tilt * rise) / determinant,
        slope=(weight * rise - tilt * level) / determinant,
        spread=_spread(sums[:, DEVIATION], sums[:, KNOWN], defaults),
        level_variance=bend / determinant,
        slope_variance=weight / determinant,
    )


def believe_sources(sums: Floats, source: Floats, defaults: Defaults) -> SourceBelief:
    """Beliefs from the (host, source) sums; `source` has a row per source, summed over its hosts."""
    typical = level_of(source, np.log(defaults.weight), defaults.source_spread)
    precision = sums[:, :, SOURCE_WEIGHT] + 1.0 / defaults.host_spread
    level = (sums[:, :, SOURCE_LEVEL] + typical / defaults.host_spread) / precision
    counted = sums[:, :, SIGNALS] + defaults.signal_shape
    watched = sums[:, :, WATCHED] + defaults.signal_shape / defaults.signal_rate
    return SourceBelief(
        level=level,
        variance=1.0 / precision,
        spread=_spread(sums[:, :, SOURCE_DEVIATION], sums[:, :, SOURCE_KNOWN], defaults),
        signal_rate=counted / watched,
    )


def lean_on_kin(messages: Floats, defaults: Defaults) -> Floats:
    """What hosts say of each sender of a source, a row each, with what the other senders suggest put in.

    A sender is believed to be like the others of its source until its own signals have been checked: their
    level takes the place of the default, with the weight the default has. One without kin stays as it is.
    """
    upward = ascend(messages[:, 0], messages[:, 1], defaults.source_spread)
    default = np.log(defaults.weight)
    kin = level_of(np.sum(upward, axis=0) - upward, default, defaults.source_spread)
    leaned = messages.copy()
    leaned[:, 1] += (kin - default) / defaults.source_spread
    return leaned


def ascend(weight: Floats, level: Floats, spread: float) -> Floats:
    """What each group says of the level above: (weight, weight × level), no group above 1/spread."""
    damped = 1.0 + weight * spread
    return np.stack([weight / damped, level / damped], axis=-1)


def level_of(message: Floats, default: float, spread: float) -> Floats:
    """The level above, from a sum of messages and what is believed without them."""
    return np.asarray((message[..., 1] + default / spread) / (message[..., 0] + 1.0 / spread))


def page_prior(
    hosts: HostBelief,
    sources: SourceBelief,
    host: NDArray[np.intp],
    signals: Floats,
    watched_s: Floats,
    defaults: Defaults,
) -> Prior:
    """The prior of pages of the given hosts, whose own signals have been counted."""
    signal_mean = sources.signal_rate[host]
    signal_shape = np.full_like(signal_mean, defaults.signal_shape)
    rate = (signals + signal_shape) / (watched_s[:, None] + signal_shape / signal_mean)
    rate_variance = 1.0 / (np.sum(signals, axis=1) + defaults.signal_shape)
    away = np.log(np.sum(rate, axis=1)) - hosts.centre[host]
    slope = hosts.slope[host]
    silent = hosts.level[host] + slope * away
    doubt = hosts.spread[host] + hosts.level_variance[host] + away**2 * hosts.slope_variance[host]
    doubt += slope**2 * rate_variance
    weight_doubt = sources.spread + sources.variance
    return Prior(
        silent_mean=np.exp(silent),
        silent_shape=1.0 / doubt,
        weight_mean=np.exp(sources.level[host]),
        weight_shape=1.0 / weight_doubt[host],
        signal_mean=signal_mean,
        signal_shape=signal_shape,
    )


def _tempo(estimate: Estimate) -> Floats:
    return np.asarray(np.log(np.sum(estimate.signal_rate, axis=1)))


def _spread(deviation: Floats, known: Floats, defaults: Defaults) -> Floats:
    """Variance between pages: squared deviations per page's worth of knowledge (MacKay's rule)."""
    guess = defaults.page_doubt * defaults.page_spread
    return np.asarray((guess + deviation) / (defaults.page_doubt + known))
