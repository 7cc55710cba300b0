"""What a batch says of its pages, worked out once for all pages it says the same of.

A saying is a row of `put_pages`: the record a new page would start with, how a known page is treated, and
the floor; or, where what was said cannot be true, the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from service.beliefs import is_whole, merge, model_from, model_rows, pack_models, ranking_rows
from service.domain import Belief, NewPage, Price
from service.errors import InvalidModel
from service.policy.valuation import PROVISIONAL, Valuation
from service.store.records import FIXED, STARTED, new_heads, read_heads, read_record

REPLACE, ONLY_ADD, NOTHING_SAID = -1, -2, -3
UNSAID = -1.0  # of a floor: it stays as it is
KEPT = FIXED | STARTED  # what stays of a page of whose model nothing new is said
Terms = tuple[Price, Valuation | None]
Said = tuple[bytes, int, float]
Models = list[tuple[float, float, float, float]]


def distinct(pages: Sequence[NewPage]) -> tuple[list[NewPage], list[int]]:
    """One page of each saying, and which of these says what of every page."""
    places: dict[tuple[Belief, bool, float | None], int] = {}
    examples: list[NewPage] = []
    which: list[int] = []
    for page in pages:
        place = places.setdefault((page.belief, page.fixed, page.min_crawls_per_day), len(examples))
        if place == len(examples):
            examples.append(page)
        which.append(place)
    return examples, which


def first_sayings(pages: Sequence[NewPage], terms: Terms) -> list[Said | str]:
    """What is said of pages that may be new."""
    said: list[Said | str] = [""] * len(pages)
    models: Models = []
    sound: list[int] = []
    for at, page in enumerate(pages):
        try:
            models.append(model_from(page.belief))
            sound.append(at)
        except InvalidModel as error:
            said[at] = str(error)
    chosen = [pages[at] for at in sound]
    expected = [_expected(page, terms) for page in chosen]
    flags = [_flags(page) for page in chosen]
    for at, row in zip(sound, _rows(chosen, models, flags, expected, terms), strict=True):
        said[at] = row
    return said


def merged_sayings(pages: Sequence[NewPage], records: Sequence[bytes], terms: Terms) -> list[Said | str]:
    """What is said of known pages, over what is known; good for the version of their records only."""
    said: list[Said | str] = [""] * len(pages)
    models: Models = []
    flags: list[int] = []
    versions: list[int] = []
    sound: list[int] = []
    for at, (page, raw) in enumerate(zip(pages, records, strict=True)):
        record = read_record(raw)
        try:
            models.append(merge(page.belief, record.model))
        except InvalidModel as error:
            said[at] = str(error)
            continue
        flags.append(_flags(page) | record.flags & (KEPT if page.belief.says_nothing_of_model else FIXED))
        versions.append(record.version)
        sound.append(at)
    kept = None if terms[1] else read_heads([records[at] for at in sound])["ranking"]
    rows = _rows([pages[at] for at in sound], models, flags, versions, terms, kept)
    for at, row in zip(sound, rows, strict=True):
        said[at] = row
    return said


def _rows(
    pages: Sequence[NewPage],
    models: Models,
    flags: Sequence[int],
    expected: Sequence[int],
    terms: Terms,
    kept: NDArray[Any] | None = None,
) -> list[Said]:
    model = pack_models(models)
    price, valuation = terms
    ranking = ranking_rows(model, price, valuation=valuation or PROVISIONAL) if kept is None else kept
    floors = [UNSAID if p.min_crawls_per_day is None else p.min_crawls_per_day for p in pages]
    heads = new_heads(ranking, model_rows(model), flags, floors)
    return list(zip(heads, expected, floors, strict=True))


def _expected(page: NewPage, terms: Terms) -> int:
    """Without a value to rank by, known pages come back, so that their ranking can be kept."""
    belief = page.belief
    if terms[1] and is_whole(belief):
        return REPLACE
    silent = belief.importance is None and belief.says_nothing_of_model and page.min_crawls_per_day is None
    return NOTHING_SAID if silent and not page.fixed else ONLY_ADD


def _flags(page: NewPage) -> int:
    """How firmly the page's model is held: a user's truth, a user's starting belief, or neither."""
    if page.fixed:
        return FIXED
    return 0 if page.belief.says_nothing_of_model else STARTED
