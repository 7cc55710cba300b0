"""What is kept of a page's crawls for learning: a bounded record, updated one observation at a time.

An observation is (τ, n_k, z): seconds since the crawl before, signals of each source since then,
changed or not, with P(z = 0) = exp(−(ατ + Σ κ_k n_k)). The log-likelihood of unchanged ones is
linear, so their sums are exact; changed ones are kept in a few weighted slots, the two most alike
being merged when a new one finds no room. The past fades with every crawl, and faster when the page
no longer behaves as it did. Records are rounded to what is stored at every step, so
a record depends on the observations and their order alone, not on how they were batched.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from service.domain import Floats
from service.policy.drift import heed_drift

HALF_LIFE = 40.0  # crawls of the page after which an observation counts half
SLOTS = 8  # changed observations kept apart
SHORTEST_S = 1e-3  # elapsed time below which two crawls count as one
LIGHTEST = 1e-3  # weight below which a slot is free again
SIGNALS_MATTER = 4.0  # squared log-distance in signals against that in time, when choosing what to merge


@cache
def evidence_dtype(sources: int = 1, slots: int = SLOTS) -> np.dtype[Any]:
    """The packed record: 72 bytes with one source, 96 with two, 144 with four."""
    return np.dtype(
        [
            ("crawls", "<f4"),  # Σ 1
            ("watched_s", "<f4"),  # Σ τ, of every observation
            ("signals", "<f4", (sources,)),  # Σ n_k, of every observation
            ("quiet_s", "<f4"),  # Σ τ, of unchanged ones
            ("quiet_signals", "<f4", (sources,)),  # Σ n_k, of unchanged ones
            ("weight", "<f2", (slots,)),  # of each changed observation; 0 is a free slot
            ("log_elapsed", "<f2", (slots,)),  # log τ: relative error below 1%
            ("heard", "<f2", (slots, sources)),  # n_k
            ("drift", "<f2", (2,)),  # evidence that the page now changes more, less often
        ]
    )


def no_evidence(pages: int, sources: int = 1, slots: int = SLOTS) -> NDArray[Any]:
    """Records of pages never observed."""
    return np.zeros(pages, dtype=evidence_dtype(sources, slots))


def read_evidence(raw: bytes, sources: int = 1, slots: int = SLOTS) -> NDArray[Any]:
    """Stored records, one after another, as an array; `tobytes` is the way back."""
    return np.frombuffer(raw, dtype=evidence_dtype(sources, slots))


def fold(
    evidence: NDArray[Any],
    elapsed_s: ArrayLike,
    signals: ArrayLike,
    changed: ArrayLike,
    *,
    half_life: float = HALF_LIFE,
) -> NDArray[Any]:
    """The records with one more observation each: `signals` has a row per page, a column per source.

    What was known is discounted by 2^(−1/half_life) first, and what was known of changes further
    where the page drifts; an infinite half-life forgets nothing.
    A page with several new observations is folded once for each, in their order.
    """
    elapsed = np.maximum(np.asarray(elapsed_s, dtype=np.float64), SHORTEST_S)
    heard = np.asarray(signals, dtype=np.float64).reshape(evidence["signals"].shape)
    news = np.asarray(changed, dtype=bool)
    out = _faded(evidence, elapsed, heard, news, half_life)
    _add(out, elapsed, heard, news)
    return out


def fold_known_change(
    evidence: NDArray[Any],
    since_change_s: ArrayLike,
    signals_after: ArrayLike,
    signals_at: ArrayLike,
    *,
    elapsed_s: ArrayLike,
    half_life: float = HALF_LIFE,
) -> NDArray[Any]:
    """The records with one more changed observation whose last change is known to the instant.

    The likelihood is then (rate at that instant) × P(no change since): a change within
    `SHORTEST_S` accompanied by `signals_at`, and an unchanged stretch with `signals_after`.
    What came before the last change says nothing more of changes; it was watched all the same, and
    signals before it are left out of the signal rate by a caller that does not pass them.
    """
    shape = evidence["signals"].shape
    at = np.asarray(signals_at, dtype=np.float64).reshape(shape)
    after = np.asarray(signals_after, dtype=np.float64).reshape(shape)
    elapsed = np.maximum(np.asarray(elapsed_s, dtype=np.float64), SHORTEST_S)
    since = np.clip(np.asarray(since_change_s, dtype=np.float64), 0.0, elapsed)
    news = np.ones(elapsed.shape, dtype=bool)
    out = _faded(evidence, elapsed, at + after, news, half_life)
    _add(out, np.full_like(elapsed, SHORTEST_S), at, news)
    _add(out, since, after, ~news)
    out["watched_s"] += np.maximum(elapsed - since - SHORTEST_S, 0.0).astype(np.float32)
    return out


def _faded(
    evidence: NDArray[Any], elapsed: Floats, heard: Floats, news: NDArray[np.bool_], half_life: float
) -> NDArray[Any]:
    """A copy with the past discounted and the crawl counted."""
    out = evidence.copy()
    keep = np.full(elapsed.shape, 2.0 ** (-1.0 / half_life))
    _discount(out, ("crawls", "watched_s", "signals"), keep)
    if np.isfinite(half_life):
        keep, out["drift"] = heed_drift(out, elapsed, heard, news, keep)
    _discount(out, ("quiet_s", "quiet_signals", "weight"), keep)
    out["crawls"] += np.float32(1.0)
    return out


def _add(evidence: NDArray[Any], elapsed: Floats, heard: Floats, news: NDArray[np.bool_]) -> None:
    evidence["watched_s"] += elapsed.astype(np.float32)
    evidence["signals"] += heard.astype(np.float32)
    evidence["quiet_s"] += np.where(news, 0.0, elapsed).astype(np.float32)
    evidence["quiet_signals"] += np.where(news[:, None], 0.0, heard).astype(np.float32)
    if news.any():
        evidence[news] = _with_change(evidence[news], np.log(elapsed[news]), heard[news])


def _discount(evidence: NDArray[Any], names: tuple[str, ...], keep: Floats) -> None:
    for name in names:
        column = evidence[name]
        column *= keep.astype(column.dtype).reshape(-1, *[1] * (column.ndim - 1))
    # Half precision cannot shrink for ever, and a free slot is worth more than a faint memory.
    evidence["weight"][evidence["weight"] < LIGHTEST] = 0.0


def _with_change(evidence: NDArray[Any], log_elapsed: Floats, heard: Floats) -> NDArray[Any]:
    """One changed observation more: into a free slot, or by merging two of the slots + 1."""
    row = np.arange(evidence.size)
    free = evidence["weight"] == 0.0
    into = np.argmax(free, axis=1)
    full = ~free[row, into]
    if full.any():
        evidence[full], into[full] = _make_room(evidence[full], log_elapsed[full], heard[full])
    # Where the newcomer itself was merged there is nothing left to write.
    row, log_elapsed, heard, into = (a[into >= 0] for a in (row, log_elapsed, heard, into))
    evidence["weight"][row, into] = 1.0
    evidence["log_elapsed"][row, into] = log_elapsed
    evidence["heard"][row, into] = heard
    return evidence


def _make_room(
    evidence: NDArray[Any], log_elapsed: Floats, heard: Floats
) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Merge the two most alike of the slots and the newcomer; the slot left free, −1 if it was merged.

    Alike are observations close in log τ and log(1 + n), the loss growing as w₁w₂/(w₁+w₂)·d².
    Log τ is averaged because log(1 − e^(−ατ)) is all but linear in it where it matters.
    """
    count = evidence.size
    weight = np.column_stack([evidence["weight"].astype(np.float64), np.ones(count)])
    times = np.column_stack([evidence["log_elapsed"].astype(np.float64), log_elapsed])
    counts = np.concatenate([evidence["heard"].astype(np.float64), heard[:, None, :]], axis=1)
    keep, drop = np.triu_indices(weight.shape[1], 1)
    apart = (times[:, keep] - times[:, drop]) ** 2
    tempo = np.log1p(counts)
    apart += SIGNALS_MATTER * np.sum((tempo[:, keep] - tempo[:, drop]) ** 2, axis=2)
    loss = apart * weight[:, keep] * weight[:, drop] / (weight[:, keep] + weight[:, drop])
    best = np.argmin(loss, axis=1)
    row, first, second = np.arange(count), keep[best], drop[best]
    left, right = weight[row, first], weight[row, second]
    share = right / (left + right)
    evidence["weight"][row, first] = left + right
    evidence["log_elapsed"][row, first] = (1 - share) * times[row, first] + share * times[row, second]
    mean = (1 - share)[:, None] * counts[row, first] + share[:, None] * counts[row, second]
    evidence["heard"][row, first] = mean
    return evidence, np.where(second == weight.shape[1] - 1, -1, second)
