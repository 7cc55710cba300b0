"""Putting pages into the register: what users say of them, merged with what is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from service.address import shard_of
from service.domain import NewPage, Price
from service.policy.valuation import valuation_of
from service.sayings import Said, Terms, distinct, first_sayings, merged_sayings
from service.store.control import Control
from service.store.pages import HostPages, Pages

TERMS_AGE_S = 1.0  # how old a price new pages may be ranked by; the worker renews it anyway
UPDATE_TRIES = 4
PAGES_PER_CALL = 32  # a call stays short on a host of a million pages, where each lies in another bin
RANKED_AT_ONCE = 1000  # few enough that others wait for milliseconds only, enough to be worth a vector
CALLS_AT_ONCE = 2  # a bulk load leaves room for those who ask for pages


class Register:
    """Adds and updates pages."""

    def __init__(self, pages: Pages, control: Control, shards: int) -> None:
        self._pages = pages
        self._control = control
        self._shards = shards
        self._terms: tuple[float, Terms] | None = None
        self._gate = asyncio.Semaphore(CALLS_AT_ONCE)

    async def put(self, pages: Sequence[NewPage]) -> list[str]:
        """'added', 'updated' or a refusal per page.

        One round trip per shard and 32 pages for new pages and whole models; a second for known pages of
        which only some fields were given, whose other fields are kept; more where others change them.
        """
        terms = await self._current_terms()
        examples, which = distinct(pages)
        said: list[Said | str] = []
        for at in range(0, len(examples), RANKED_AT_ONCE):
            await asyncio.sleep(0)
            said += first_sayings(examples[at : at + RANKED_AT_ONCE], terms)
        answers = await self._send(pages, which, said)
        for _ in range(UPDATE_TRIES):
            known = {at: answer for at, answer in enumerate(answers) if isinstance(answer, bytes)}
            if not known:
                break
            chosen = [pages[at] for at in known]
            said = merged_sayings(chosen, list(known.values()), terms)
            updated = await self._send(chosen, range(len(known)), said)
            for at, answer in zip(known, updated, strict=True):
                answers[at] = answer
        return [answer if isinstance(answer, str) else "moved" for answer in answers]

    async def _send(
        self, pages: Sequence[NewPage], which: Sequence[int], said: Sequence[Said | str]
    ) -> list[str | bytes]:
        """A word per page, or its record where what is known of it has to be heard first."""
        answers: list[str | bytes] = [""] * len(pages)
        shards: dict[int, dict[str, list[int]]] = {}
        for at, (page, number) in enumerate(zip(pages, which, strict=True)):
            saying = said[number]
            if isinstance(saying, str):
                answers[at] = saying
                continue
            host_id = page.address.host_id
            hosts = shards.setdefault(shard_of(host_id, self._shards), {})
            hosts.setdefault(host_id, []).append(at)

        async def send_shard(shard: int, groups: Iterable[list[int]]) -> None:
            # One after another: what is said of a page twice takes effect in its order.
            for call in _calls(groups):
                used: dict[int, int] = {}
                rows = [_host_pages(pages, which, places, used) for places in call]
                async with self._gate:
                    found = await self._pages.put(shard, [tuple(said[number]) for number in used], rows)
                for at, answer in zip(chain.from_iterable(call), found, strict=True):
                    answers[at] = answer

        await asyncio.gather(*(send_shard(shard, hosts.values()) for shard, hosts in shards.items()))
        return answers

    async def _current_terms(self) -> Terms:
        """The price and the value pages are ranked by; no value while only a sweep can tell."""
        now = asyncio.get_running_loop().time()
        if self._terms is None or now - self._terms[0] > TERMS_AGE_S:
            price, policy = await self._control.price(), await self._control.policy()
            current = price.of == policy.value_name
            self._terms = (now, (price, valuation_of(policy)) if current else (Price(0.0, 0.0), None))
        return self._terms[1]


def _calls(groups: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    """The pages of each host of a shard, in calls of at most PAGES_PER_CALL pages."""
    call: list[list[int]] = []
    room = PAGES_PER_CALL
    for group in groups:
        for start in range(0, len(group), PAGES_PER_CALL):
            part = group[start : start + PAGES_PER_CALL]
            if len(part) > room:
                yield call
                call, room = [], PAGES_PER_CALL
            call.append(part)
            room -= len(part)
    if call:
        yield call


def _host_pages(
    pages: Sequence[NewPage], which: Sequence[int], places: list[int], used: dict[int, int]
) -> HostPages:
    """A host's row of `put_pages`; what is said is numbered from 1 in the order it is used."""
    items: list[str | int] = []
    for at in places:
        address = pages[at].address
        items += str(address.page_id), used.setdefault(which[at], len(used) + 1), address.path
    host = pages[places[0]].address
    return host.host_id, host.host, items
