"""Putting pages into the register: what users say of them, merged with what is known."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, repeat, zip_longest

from service.address import shard_of
from service.domain import NewPage, Price
from service.policy.valuation import valuation_of
from service.sayings import Sayings, Terms, distinct, first_sayings, merged_sayings
from service.store.control import Control
from service.store.pages import Pages, PutCall

TERMS_AGE_S = 1.0  # how old a price new pages may be ranked by; the worker renews it anyway
UPDATE_TRIES = 4
PAGES_PER_CALL = 64  # of one host
HOST_WORK = 2  # a host costs as much as two of its pages
WORK_PER_CALL = HOST_WORK + PAGES_PER_CALL  # about a millisecond; a part of a host leaves no room for another
RANKED_AT_ONCE = 1000  # few enough that others wait for milliseconds only, enough to be worth a vector
CALLS_PER_TRIP = 4  # sent together: a server runs them, in a millisecond or two, before it listens to others
TRIPS_AT_ONCE = 2  # the server has the next calls when it is done with some


class Register:
    """Adds and updates pages."""

    def __init__(self, pages: Pages, control: Control, shards: int) -> None:
        self._pages = pages
        self._control = control
        self._shards = shards
        self._terms: tuple[float, Terms] | None = None
        self._gate = asyncio.Semaphore(TRIPS_AT_ONCE)

    async def put(self, pages: Sequence[NewPage], *, ranked_at_once: int = RANKED_AT_ONCE) -> list[str]:
        """'added', 'updated' or a refusal per page.

        One call per 64 pages of a shard, or fewer where these are of many hosts, for new pages and whole
        models; a second for known pages of which only some fields were given, whose other fields are kept;
        more where others change them.
        """
        terms = await self._current_terms()
        examples, which = distinct(pages)
        answers = await self._send(pages, which, await _said_first(examples, terms, ranked_at_once))
        for _ in range(UPDATE_TRIES):
            if answers.count("added") == len(answers):
                break
            known = {at: answer for at, answer in enumerate(answers) if isinstance(answer, bytes)}
            if not known:
                break
            chosen = [pages[at] for at in known]
            said = merged_sayings(chosen, list(known.values()), terms)
            updated = await self._send(chosen, range(len(known)), said)
            for at, answer in zip(known, updated, strict=True):
                answers[at] = answer
        return [answer if isinstance(answer, str) else "moved" for answer in answers]

    async def _send(self, pages: Sequence[NewPage], which: Sequence[int], said: Sayings) -> list[str | bytes]:
        """A word per page, or its record where what is known of it has to be heard first."""
        answers: list[str | bytes] = ["added"] * len(pages)  # what most become
        hosts: dict[str, list[int]] = defaultdict(list)
        for at, page in enumerate(pages):
            hosts[page.address.host_id].append(at)
        if said.refused:
            _leave_out(hosts, which, said.refused, answers)

        async def send_lane(calls: Iterator[tuple[int, list[list[int]]]]) -> None:
            # One after another: what is said of a page twice takes effect in its order.
            while group := list(islice(calls, CALLS_PER_TRIP)):
                told = [_call_of(pages, which, said, call) for call in group]
                async with self._gate:
                    found = await self._pages.put(told)
                for (_, places), words in zip(group, found, strict=True):
                    if words.count("added") < len(words):
                        for at, word in zip(chain.from_iterable(places), words, strict=True):
                            answers[at] = word

        shards: dict[int, list[list[int]]] = {}
        for host_id, places in hosts.items():
            shards.setdefault(shard_of(host_id, self._shards), []).append(places)
        lanes = [list(shards.items())[lane::TRIPS_AT_ONCE] for lane in range(TRIPS_AT_ONCE)]
        await asyncio.gather(*(send_lane(_in_turn(lane)) for lane in lanes))
        return answers

    async def _current_terms(self) -> Terms:
        """The price and the value pages are ranked by; no value while only a sweep can tell."""
        now = asyncio.get_running_loop().time()
        if self._terms is None or now - self._terms[0] > TERMS_AGE_S:
            price, policy = await self._control.price(), await self._control.policy()
            current = price.of == policy.value_name
            self._terms = (now, (price, valuation_of(policy)) if current else (Price(0.0, 0.0), None))
        return self._terms[1]


async def _said_first(pages: Sequence[NewPage], terms: Terms, at_once: int) -> Sayings:
    """What is said of pages that may be new, worked out in parts: others have their turn between them."""
    whole = Sayings([], [], bytearray(), {})
    for begin in range(0, len(pages), at_once):
        await asyncio.sleep(0)
        part = first_sayings(pages[begin : begin + at_once], terms)
        whole.heads.extend(part.heads)
        whole.dues.extend(part.dues)
        whole.hows.extend(part.hows)
        whole.refused.update({begin + at: reason for at, reason in part.refused.items()})
    return whole


def _leave_out(
    hosts: dict[str, list[int]], which: Sequence[int], refused: dict[int, str], answers: list[str | bytes]
) -> None:
    """Pages of which nothing true is said are answered without the store."""
    for host_id, places in list(hosts.items()):
        sound = []
        for at in places:
            if which[at] in refused:
                answers[at] = refused[which[at]]
            else:
                sound.append(at)
        if sound:
            hosts[host_id] = sound
        else:
            del hosts[host_id]


def _in_turn(shards: Iterable[tuple[int, list[list[int]]]]) -> Iterator[tuple[int, list[list[int]]]]:
    """The calls of some shards: each shard's in their order, the shards in turn."""
    rounds = zip_longest(*(zip(repeat(shard), _calls(hosts)) for shard, hosts in shards))
    return filter(None, chain.from_iterable(rounds))


def _calls(hosts: Iterable[list[int]]) -> Iterator[list[list[int]]]:
    """The pages of each host of a shard, in calls that stay short."""
    call: list[list[int]] = []
    room = WORK_PER_CALL
    for places in hosts:
        for part in [places] if len(places) <= PAGES_PER_CALL else _parts(places):
            work = HOST_WORK + len(part)
            if work > room:
                yield call
                call, room = [], WORK_PER_CALL
            call.append(part)
            room -= work
    if call:
        yield call


def _parts(places: list[int]) -> Iterator[list[int]]:
    return (places[at : at + PAGES_PER_CALL] for at in range(0, len(places), PAGES_PER_CALL))


def _call_of(
    pages: Sequence[NewPage], which: Sequence[int], said: Sayings, call: tuple[int, list[list[int]]]
) -> PutCall:
    """What `put_pages` is told of some pages of each host."""
    shard, hosts = call
    heads, dues, letters, _ = said
    hows: list[int] = []
    host_ids: list[str] = []
    items: list[str | int | bytes] = []
    for places in hosts:
        first = pages[places[0]].address
        host_ids.append(first.host_id)
        items += len(places), first.host
        for at in places:
            address, nth = pages[at].address, which[at]
            items += str(address.page_id), dues[nth], heads[nth] + address.path.encode()
            hows.append(letters[nth])
    return shard, bytes(hows), host_ids, items
