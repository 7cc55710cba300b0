"""What a batch says of its pages, worked out once for all pages it says the same of.

A saying is what `put_pages` is told of a page: the record it would start with, its first due score, and how a
known page is treated; or, where what was said cannot be true, the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.beliefs import merge, model_rows, models_said, pack_models, ranking_rows
from service.domain import Belief, Floats, NewPage, Price
from service.errors import InvalidModel
from service.policy.valuation import PROVISIONAL, Valuation
from service.store.records import FIXED, STARTED, first_dues, new_heads, read_heads, read_record

REPLACE, ONLY_ADD, NOTHING_SAID, READ_BEFORE = b"ranv"  # as capitals where a floor is said
CAPITAL = ord("a") - ord("A")
NO_MODEL = 1.0, 0.0, 0.0, 0.0  # in the place of one that is refused
SAMPLE = 32  # pages that tell whether a batch says the same of many
Terms = tuple[Price, Valuation | None]


class Sayings(NamedTuple):
    """What is said of some pages, in their order; nothing that counts of those refused, by their places."""

    heads: list[bytes]
    dues: list[str]
    hows: bytearray  # a letter each
    refused: dict[int, str]


def distinct(pages: Sequence[NewPage]) -> tuple[Sequence[NewPage], Sequence[int]]:
    """Pages between which everything is said, and which of these says what of every page.

    One page of each saying; but where the first pages differ most do, and looking costs more than it saves.
    """
    if len({_saying(page) for page in pages[:SAMPLE]}) == SAMPLE:
        return pages, range(len(pages))
    places: dict[tuple[Belief, bool | None, float | None], int] = {}
    examples: list[NewPage] = []
    which: list[int] = []
    for page in pages:
        place = places.setdefault(_saying(page), len(examples))
        if place == len(examples):
            examples.append(page)
        which.append(place)
    return examples, which


def _saying(page: NewPage) -> tuple[Belief, bool | None, float | None]:
    return page.belief, page.fixed, page.min_crawls_per_day


def first_sayings(pages: Sequence[NewPage], terms: Terms) -> Sayings:
    """What is said of pages that may be new."""
    said = np.array([_numbers(page, page.belief) for page in pages], dtype=np.float64).reshape(-1, 7)
    models, refused = models_said(said[:, :5], [page.belief for page in pages])
    is_said, fixed = ~np.isnan(said), said[:, 6] == 1
    starts, floor_said = is_said[:, 1:5].any(axis=1), is_said[:, 5]
    # Without a value to rank by, known pages come back, so that their ranking can be kept.
    whole = is_said[:, :4].all(axis=1) & (terms[1] is not None)
    silent = ~(is_said[:, 0] | starts | floor_said | is_said[:, 6])
    hows = np.where(whole, REPLACE, np.where(silent, NOTHING_SAID, ONLY_ADD)) - CAPITAL * floor_said
    flags = np.where(fixed, FIXED, np.where(starts, STARTED, 0))
    floors = np.where(floor_said, said[:, 5], 0.0)
    heads, dues = _rows(models, flags, floors, terms)
    return Sayings(heads, dues, bytearray(hows.astype(np.uint8).tobytes()), refused)


def _numbers(page: NewPage, belief: Belief) -> tuple[float | None, ...]:
    """All that is said of a page; None, which becomes NaN, where nothing is."""
    return (
        belief.importance,
        belief.change_rate_per_day,
        belief.precision,
        belief.recall,
        belief.signal_rate_per_day,
        page.min_crawls_per_day,
        page.fixed,
    )


def merged_sayings(pages: Sequence[NewPage], records: Sequence[bytes], terms: Terms) -> Sayings:
    """What is said of known pages, over what is known; good for the version of their records only."""
    refused: dict[int, str] = {}
    models: list[tuple[float, float, float, float]] = []
    flags: list[int] = []
    for at, (page, raw) in enumerate(zip(pages, records, strict=True)):
        record = read_record(raw)
        try:
            models.append(merge(page.belief, record.model))
        except InvalidModel as error:
            models.append(NO_MODEL)
            refused[at] = str(error)
        flags.append(_flags_after(page, record.flags))
    known = read_heads(records)
    kept = None if terms[1] else known["ranking"]
    floors = [page.min_crawls_per_day or 0.0 for page in pages]
    heads, dues = _rows(models, flags, floors, terms, kept, known["version"])
    hows = bytearray(READ_BEFORE - CAPITAL * (page.min_crawls_per_day is not None) for page in pages)
    return Sayings(heads, dues, hows, refused)


def _rows(
    models: Floats | list[tuple[float, float, float, float]],
    flags: Sequence[int] | NDArray[Any],
    floors: Sequence[float] | Floats,
    terms: Terms,
    kept: NDArray[Any] | None = None,
    versions: NDArray[Any] | int = 0,
) -> tuple[list[bytes], list[str]]:
    """What the pages' records begin with, and their first due scores."""
    model = pack_models(models)
    price, valuation = terms
    ranking = ranking_rows(model, price, valuation=valuation or PROVISIONAL) if kept is None else kept
    rows = model_rows(model)
    return new_heads(ranking, rows, flags=flags, floors=floors, versions=versions), first_dues(rows)


def _flags_after(page: NewPage, known: int) -> int:
    """How firmly a known page's model is held: a user's truth, a user's starting belief, or neither."""
    is_whole = None not in _numbers(page, page.belief)[:4]  # and so replaces what was known
    if page.fixed or (page.fixed is None and not is_whole and known & FIXED):
        return FIXED
    says_nothing = page.belief.says_nothing_of_model
    return known & STARTED if says_nothing and not known & FIXED else STARTED
