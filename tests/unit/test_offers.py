"""Which shards of a cluster are asked for pages, from what they had to offer."""

from __future__ import annotations

from collections import Counter

import pytest

from service.store.offers import (
    FRESH_MS,
    PAGES_PER_SHARD,
    PLENTY,
    RUSH_PAGES,
    TURN_PAGES,
    Offer,
    Offers,
    unused_tail,
)


def offers_of(*worths: list[float]) -> Offers:
    offers = Offers(len(worths))
    for shard, row in enumerate(worths):
        offers.note(shard, Offer(row, seen_ms=0.0))
    return offers


def test_the_best_page_is_asked_for_where_it_is() -> None:
    assert offers_of([1.0], [3.0, 2.9], [2.0]).allot(1)[0] == [1]


def test_pages_are_asked_for_best_first_over_all_shards() -> None:
    shards, least = offers_of([5.0, 1.0], [4.0, 3.0], [2.0]).allot(4)
    assert shards == [0, 1, 1, 2]
    assert least == pytest.approx(2.0, rel=0.02)


def test_no_more_is_asked_of_a_shard_than_it_offers() -> None:
    shards, _ = offers_of([5.0], [1.0]).allot(10)
    assert shards == [0, 1]


def test_nothing_on_offer_asks_nobody() -> None:
    assert offers_of([], []).allot(3) == ([], 0.0)


def test_pages_as_good_come_from_few_shards() -> None:
    """Sixteen shards offer the same: asking all of them for one page each would be sixteen calls."""
    rows = [[1.0 + shard * 1e-5] * 8 for shard in range(16)]
    shards, least = offers_of(*rows).allot(16)
    assert len(shards) == 16
    assert len(set(shards)) == 2
    assert least < 1.0


def test_a_clearly_better_page_is_asked_for_all_the_same() -> None:
    rows = [[1.0] * 8 for _ in range(15)] + [[2.0, 1.0]]
    shards, _ = offers_of(*rows).allot(16)
    assert shards[0] == 15
    assert Counter(shards)[15] <= 2


def test_what_will_be_asked_for_soon_may_come_in_any_order_from_few_shards() -> None:
    """Sixteen shards offer eight pages each, and all of them will be gone before the offers are old."""
    offers = offers_of(*([10.0 - 0.1 * shard - at for at in range(8)] for shard in range(16)))
    for _ in range(3):
        soon = offers.expect(16, now_ms=0.0)
    shards, least = offers.allot(16, soon)
    assert (len(shards), soon) == (16, 48)
    assert len(set(shards)) <= 6
    worths = sorted((10.0 - 0.1 * shard - at for shard in range(16) for at in range(8)), reverse=True)
    assert least == pytest.approx(0.99 * worths[47])


def test_where_all_on_offer_will_be_asked_for_the_shards_that_have_most_are_asked() -> None:
    offers = offers_of([9.0], [3.0] * 5 + [2.0], [8.0] * 4, [])
    shards, least = offers.allot(8, soon=11)
    assert Counter(shards) == {1: 6, 2: 2}
    assert least == pytest.approx(0.99 * 2.0)
    assert Counter(offers.allot(8, soon=10)[0]) != Counter(shards)  # one of them will not: the best count


def test_of_shards_that_have_as_many_as_good_the_one_asked_longest_ago_is_asked() -> None:
    offers = offers_of([1.0] * 16, [1.0] * 16)
    (first,) = set(offers.allot(16, soon=32)[0])
    offers.note(first, Offer([1.0] * 16, seen_ms=1.0))
    assert set(offers.allot(16, soon=32)[0]) == {1 - first}


def rush_of(*worths: list[float]) -> Offers:
    """Offers of shards that have more of the kind."""
    offers = offers_of(*worths)
    for shard, row in enumerate(worths):
        offers.note(shard, Offer(row, 0.0, PLENTY if row else "no-pages"))
    return offers


def test_in_a_rush_shards_take_turns_whose_last_is_longest_ago() -> None:
    offers = rush_of(*[[2.0, 1.0]] * 16)
    asked = []
    for turn in range(16):
        shards, least = offers.take_turns(16, soon=256)
        assert (len(shards), len(set(shards)), least) == (16, 1, pytest.approx(0.99))
        offers.note(shards[0], Offer([2.0, 1.0], turn + 1.0, PLENTY))
        asked.append(shards[0])
    assert sorted(asked) == list(range(16))
    assert offers.take_turns(16, soon=256)[0] == [asked[0]] * 16


def test_all_shards_have_their_turn_while_an_offer_holds() -> None:
    """A quarter of what is asked for in that time comes from a quarter of them."""
    shards, _ = rush_of(*[[1.0]] * 16).take_turns(100, soon=400)
    assert Counter(Counter(shards).values()) == {25: 4}


def test_no_shard_is_asked_for_so_many_pages_that_others_wait() -> None:
    offers = rush_of([1.0], [], [1.0])
    assert Counter(offers.take_turns(100, soon=10_000)[0]) == {0: 50, 2: 50}
    assert Counter(offers.take_turns(200, soon=10_000)[0]) == {0: 64, 2: 64}


def test_shards_that_take_turns_together_lie_apart() -> None:
    """Neighbours are on one server, which would do everything while the others wait."""
    shards, _ = rush_of(*[[1.0]] * 16).take_turns(4 * PAGES_PER_SHARD, soon=10_000)
    assert {shard * 3 // 16 for shard in shards} == {0, 1, 2}


def test_shards_take_turns_only_while_each_has_plenty_and_much_is_asked_for() -> None:
    offers = rush_of(*[[1.0]] * 32)
    assert offers.take_turns(16, soon=32 * TURN_PAGES)[0]
    assert offers.take_turns(16, soon=32 * TURN_PAGES - 1)[0] == []
    assert rush_of([1.0], [2.0]).take_turns(16, soon=RUSH_PAGES)[0]
    assert rush_of([1.0], [2.0]).take_turns(16, soon=RUSH_PAGES - 1)[0] == []
    offers.note(3, Offer([1e200, 1.0], 0.0, "leased"))  # a new page
    assert offers.take_turns(16, soon=10_000)[0] == []
    assert Offers(16).take_turns(16, soon=10_000)[0] == []


def test_few_pages_are_the_best_whatever_is_asked_for_soon() -> None:
    assert offers_of([1.0, 0.9], [3.0, 0.5]).allot(2, soon=100)[0] == [1, 0]


def test_what_was_asked_for_long_ago_says_nothing_of_the_next_moment() -> None:
    offers = offers_of([1.0])
    offers.expect(50, now_ms=0.0)
    assert offers.expect(8, now_ms=FRESH_MS) == 8
    assert offers.expect(8, now_ms=FRESH_MS + 1) == 16
    assert offers.expect(8, now_ms=0.0) == 8  # the clock has stepped back


def test_an_offer_grows_stale() -> None:
    offers = offers_of([1.0], [1.0])
    offers.note(1, Offer([1.0], seen_ms=50.0))
    assert offers.stale(FRESH_MS - 1) == []
    assert offers.stale(FRESH_MS + 1) == [0]


def test_an_offer_from_the_future_is_stale() -> None:
    """The clock has stepped back: nobody knows how old it is."""
    assert offers_of([1.0]).stale(-1.0) == [0]


def test_hosts_at_rest_are_the_reason_where_any_are() -> None:
    offers = Offers(2)
    offers.note(0, Offer([], 0.0, "no-pages", 1000.0))
    offers.note(1, Offer([], 0.0, "politeness", 1500.0))
    assert offers.why_nothing() == ("politeness", 1500.0)


@pytest.mark.parametrize(
    ("used", "tail"), [(set(), 3), ({1.0}, 2), ({3.0}, 0), ({1.0, 2.0, 3.0}, 0), ({2.0}, 1)]
)
def test_only_the_last_slots_can_be_taken_back(used: set[float], tail: int) -> None:
    assert unused_tail([1.0, 2.0, 3.0], used) == tail
