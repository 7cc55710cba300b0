"""Putting pages into the register: what users say of them, merged with what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from service.address import Address, shard_of
from service.beliefs import is_whole, merge, model_from, model_rows, pack_models, ranking_rows
from service.domain import NewPage, Price
from service.errors import InvalidModel
from service.policy.valuation import PROVISIONAL, Valuation, valuation_of
from service.store.control import Control
from service.store.pages import Groups, Pages, PageState
from service.store.records import FIXED, RANKING, RANKING_AT, STARTED, pack_rows, read_record
from service.store.rows import Row

ONLY_ADD, REPLACE = -2, -1
UNSAID = -1.0  # of a floor: it stays as it is
KEPT = FIXED | STARTED  # what stays of a page of whose model nothing new is said
TERMS_AGE_S = 1.0  # how old a price new pages may be ranked by; the worker renews it anyway
UPDATE_TRIES = 4
Terms = tuple[Price, Valuation | None]
Call = Callable[[Groups], Awaitable[list[list[Any]]]]
ByShard = Callable[[Sequence[str], Sequence[Row], Call], Awaitable[list[Any]]]


class Register:
    """Adds and updates pages."""

    def __init__(self, pages: Pages, control: Control, by_shard: ByShard, shards: int) -> None:
        self._pages = pages
        self._control = control
        self._by_shard = by_shard
        self._shards = shards
        self._terms: tuple[float, Terms] | None = None

    async def put(self, pages: Sequence[NewPage]) -> list[str]:
        """'added', 'updated' or a refusal per page.

        One round trip per shard for new pages and whole models; a second for known pages of which only some
        fields were given, whose other fields are kept.
        """
        terms = await self._current_terms()
        words: list[str] = [""] * len(pages)
        models: list[tuple[float, float, float, float]] = []
        valid: list[int] = []
        for at, page in enumerate(pages):
            try:
                models.append(model_from(page.belief))
                valid.append(at)
            except InvalidModel as error:
                words[at] = str(error)
        whole = [is_whole(pages[at].belief) for at in valid]
        # Without a value to rank by, known pages come back, so that their ranking can be kept.
        expected = [REPLACE if w and terms[1] else ONLY_ADD for w in whole]
        chosen = [pages[at] for at in valid]
        flags = [_flags(page) for page in chosen]
        replies = await self._put(chosen, models, flags, expected, terms)
        for at, reply in zip(valid, replies, strict=True):
            words[at] = await self._merge(pages[at], reply, terms) if isinstance(reply, list) else reply
        return words

    async def _merge(self, page: NewPage, known: list[bytes], terms: Terms) -> str:
        """Update some fields of a known page; the version guards what others change meanwhile."""
        raw: bytes | None = known[1]
        for _ in range(UPDATE_TRIES):
            if raw is None:
                return "unknown"
            record = read_record(raw)
            flags = _flags(page) | record.flags & (FIXED if not page.belief.says_nothing_of_model else KEPT)
            model = merge(page.belief, record.model)
            ranking = None if terms[1] else raw[RANKING_AT : RANKING_AT + RANKING.itemsize]
            (word,) = await self._put([page], [model], [flags], [record.version], terms, ranking)
            if word != "moved":
                return str(word)
            state = await self._inspect(page.address)
            raw = state.record if state else None
        return "moved"

    async def _put(
        self,
        pages: Sequence[NewPage],
        models: list[tuple[float, float, float, float]],
        flags: Sequence[int],
        expected: Sequence[int],
        terms: Terms,
        kept: bytes | None = None,
    ) -> list[Any]:
        if not pages:
            return []
        model = pack_models(models)
        price, valuation = terms
        ranking = (
            [kept] if kept else pack_rows(ranking_rows(model, price, valuation=valuation or PROVISIONAL))
        )
        belief = [r + m for r, m in zip(ranking, pack_rows(model_rows(model)), strict=True)]
        items = [
            (a.host_id, a.host, a.page_id, a.path, belief[at], flags[at], expected[at], _floor(pages[at]))
            for at, a in enumerate(page.address for page in pages)
        ]
        return await self._by_shard([p.address.host_id for p in pages], items, self._pages.put)

    async def _inspect(self, address: Address) -> PageState | None:
        shard = shard_of(address.host_id, self._shards)
        return await self._pages.inspect(shard, address.host_id, address.page_id, address.path)

    async def _current_terms(self) -> Terms:
        """The price and the value pages are ranked by; no value while only a sweep can tell."""
        now = asyncio.get_running_loop().time()
        if self._terms is None or now - self._terms[0] > TERMS_AGE_S:
            price, policy = await self._control.price(), await self._control.policy()
            current = price.of == policy.value_name
            self._terms = (now, (price, valuation_of(policy)) if current else (Price(0.0, 0.0), None))
        return self._terms[1]


def _floor(page: NewPage) -> float:
    return UNSAID if page.min_crawls_per_day is None else page.min_crawls_per_day


def _flags(page: NewPage) -> int:
    """How firmly the page's model is held: a user's truth, a user's starting belief, or neither."""
    if page.fixed:
        return FIXED
    return 0 if page.belief.says_nothing_of_model else STARTED
