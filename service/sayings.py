"""What a batch says of its pages, worked out once for all pages it says the same of.

A saying is what `put_pages` is told of a page: the record it would start with, its first due score, and how a
known page is treated; or, where what was said cannot be true, the refusal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from service.beliefs import is_whole, merge, model_rows, models_from, pack_models, ranking_rows
from service.domain import Belief, Floats, NewPage, Price
from service.errors import InvalidModel
from service.policy.valuation import PROVISIONAL, Valuation
from service.store.records import FIXED, STARTED, first_dues, new_heads, read_heads, read_record

REPLACE, ONLY_ADD, NOTHING_SAID, READ_BEFORE = "r", "a", "n", "v"  # in capitals where a floor is said
KEPT = FIXED | STARTED  # what stays of a page of whose model nothing new is said
Terms = tuple[Price, Valuation | None]
Said = tuple[bytes, str, str]


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
    models, refused = models_from([page.belief for page in pages])
    hows = [_how(page, terms) for page in pages]
    said: list[Said | str] = [*_rows(pages, models, [*map(_flags, pages)], hows, terms)]
    for at, reason in refused.items():
        said[at] = reason
    return said


def merged_sayings(pages: Sequence[NewPage], records: Sequence[bytes], terms: Terms) -> list[Said | str]:
    """What is said of known pages, over what is known; good for the version of their records only."""
    said: list[Said | str] = [""] * len(pages)
    models: list[tuple[float, float, float, float]] = []
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
    hows = [READ_BEFORE] * len(sound)
    rows = _rows([pages[at] for at in sound], models, flags, hows, terms, kept, versions)
    for at, row in zip(sound, rows, strict=True):
        said[at] = row
    return said


def _rows(
    pages: Sequence[NewPage],
    models: Floats | list[tuple[float, float, float, float]],
    flags: Sequence[int],
    hows: Sequence[str],
    terms: Terms,
    kept: NDArray[Any] | None = None,
    versions: Sequence[int] | int = 0,
) -> list[Said]:
    model = pack_models(models)
    price, valuation = terms
    ranking = ranking_rows(model, price, valuation=valuation or PROVISIONAL) if kept is None else kept
    floors = [page.min_crawls_per_day or 0.0 for page in pages]
    rows = model_rows(model)
    heads = new_heads(ranking, rows, flags=flags, floors=floors, versions=versions)
    said = [how if p.min_crawls_per_day is None else how.upper() for p, how in zip(pages, hows, strict=True)]
    return list(zip(heads, first_dues(rows), said, strict=True))


def _how(page: NewPage, terms: Terms) -> str:
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
