"""Which pages are seen though their value does not ask for it."""

from __future__ import annotations

import math

from service.domain import Policy
from workers.explore import Unseen, choose


def policy(explore: float = 0.02, floor: float = 0.0) -> Policy:
    return Policy("freshness", "ncis", explore, floor)


AGES = Unseen([(90_000.0, True, "a", 1), (50_000.0, False, "a", 2), (40_000.0, True, "b", 3)])


def test_the_pages_unseen_for_longest_come_first_as_far_as_the_credit_goes() -> None:
    pages, left = choose(AGES, policy(), 1.5, 100.0)
    assert pages == [("a", 1)]
    assert math.isclose(left, 0.5)


def test_pages_whose_truth_is_fixed_are_not_explored() -> None:
    assert choose(AGES, policy(), 9.0, 100.0)[0] == [("a", 1), ("b", 3)]


def test_a_floor_brings_every_page_unseen_for_longer_than_it_allows() -> None:
    assert choose(AGES, policy(explore=0, floor=2.0), 0.0, 100.0)[0] == [("a", 1), ("a", 2)]


def test_a_floor_takes_at_most_half_of_the_slots() -> None:
    many = Unseen([(90_000.0, True, "a", number) for number in range(50)])
    assert len(choose(many, policy(floor=2.0), 0.0, 20.0)[0]) == 10
