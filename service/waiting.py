"""Requests for pages that wait in this process, and how their answers are given."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from service.domain import Nothing

log = logging.getLogger("freshet.waiting")
Leases = list[Any]  # of one request, as the store gives them
Answer = Leases | Nothing | Exception
Give = Callable[[Answer], None]  # takes what there is for a caller; called once
Ask = tuple[str, int, bool]  # request id or '', how many pages, whether it goes on with a batch


class Waiting:
    """A request, and how its answer is to be given."""

    __slots__ = (
        "_count",
        "_give",
        "_most",
        "deadline",
        "is_gone",
        "is_plain",
        "leases",
        "next_count",
        "request_id",
    )

    def __init__(self, request_id: str, count: int, most: int, deadline: float, give: Give) -> None:
        self.request_id = request_id
        self.is_plain = count == 1 and not request_id  # any page will do
        self._count = count
        self._most = most
        self.deadline = deadline
        self._give = give
        self.leases: Leases = []
        self.is_gone = False  # the caller hung up
        # Pages of its next call: the same in every try, so that a retry finds what each call gave.
        self.next_count = min(count, most)

    def ask(self) -> Ask:
        if not self.leases:
            return self.request_id, self.next_count, False
        part_id = f"{self.request_id}\x1f{len(self.leases)}" if self.request_id else ""
        return part_id, self.next_count, True

    def take(self, leases: Leases) -> bool:
        """Keep what a call gave; whether another may give more."""
        leases = leases[: self.next_count]  # an id that came with a larger number before has more
        is_full = len(leases) == self.next_count
        self.leases = self.leases + leases if self.leases else leases
        self.next_count = min(self._count - len(self.leases), self._most)
        return is_full and self.next_count > 0

    def answer(self, answer: Answer) -> None:
        """Only the first counts: on a connection a second would be taken for the next request's."""
        give, self._give = self._give, _drop
        try:
            give(answer)
        except Exception:  # who is answered after this one must be
            log.exception("answer_not_given")


def give_all(answered: list[tuple[Waiting, Answer]]) -> None:
    """Give each their answer."""
    for waiting, answer in answered:
        waiting.answer(answer)


def _drop(_: Answer) -> None:
    pass


def next_group(
    queue: deque[Waiting], most: int, room: int, forget_if_gone: Callable[[Waiting], bool]
) -> list[Waiting]:
    """The first of the queue, at most so many, whose pages one call gives; none of those who hung up."""
    group: list[Waiting] = []
    while queue and len(group) < most and queue[0].next_count <= room:
        waiting = queue.popleft()
        if not forget_if_gone(waiting):
            room -= waiting.next_count
            group.append(waiting)
    return group
