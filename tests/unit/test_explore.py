"""Who is seen though its value does not ask for it."""

from __future__ import annotations

import numpy as np

from service.store.bins import Bin
from service.store.records import CRAWLED, FIXED, HEAD, LEASED
from workers.explore import KEPT, PageName, Unseen, choose

NOW_AT = 1e9
DAY_S = 86400.0


def look(
    days: list[float],
    *,
    floors: list[float] | None = None,
    flags: list[int] | None = None,
    common: float = 0.0,
) -> Unseen:
    """A shard whose pages were last crawled so many days ago."""
    heads = np.zeros(len(days), dtype=HEAD)
    heads["flags"] = CRAWLED + np.array(flags or [0] * len(days))
    heads["floor"] = floors or [0.0] * len(days)
    at_ms = [int((NOW_AT - d * DAY_S) * 1000).to_bytes(6, "little") for d in days]
    heads["crawled_at"] = np.frombuffer(b"".join(at_ms), dtype="V6")
    unseen = Unseen(common)
    unseen.look([Bin("a", 0, 0, 0.0, [b"%d" % at for at in range(len(days))], [], [])], heads, NOW_AT)
    return unseen


def pages(*numbers: int) -> list[PageName]:
    return [("a", number) for number in numbers]


def test_exploration_spends_whole_crawls_on_the_pages_unseen_for_longest() -> None:
    chosen, left = choose(look([1.0, 3.0, 2.0]), 1.5, 100.0)
    assert (chosen, left) == (pages(1), (0.5, 100.0))


def test_pages_whose_truth_is_fixed_need_no_exploring_and_leased_ones_are_being_seen() -> None:
    unseen = look([1.0, 3.0, 2.0, 4.0], flags=[0, FIXED, 0, LEASED])
    assert choose(unseen, 9.0, 100.0)[0] == pages(2, 0)


def test_a_common_floor_promotes_every_page_unseen_for_longer() -> None:
    assert choose(look([0.4, 0.6, 2.0], common=2.0), 0.0, 100.0)[0] == pages(2, 1)


def test_a_page_has_its_own_floor_or_the_common_one_whichever_is_more() -> None:
    unseen = look([1.0, 1.0, 1.0], floors=[0.0, 3.0, 1.5], common=1.2)
    assert choose(unseen, 0.0, 100.0)[0] == pages(1, 2, 0)
    assert choose(look([1.0, 1.0], floors=[0.0, 3.0]), 0.0, 100.0)[0] == pages(1)


def test_floors_spend_what_was_saved_up_for_them_and_no_more() -> None:
    chosen, left = choose(look([2.0] * 50, common=2.0), 0.0, 10.5)
    assert (len(chosen), left) == (10, (0.0, 0.5))
    assert choose(look([2.0] * 50, common=2.0), 0.0, 0.9)[0] == []


def test_no_more_candidates_are_kept_than_needed_and_they_are_the_oldest() -> None:
    unseen = look([float(1 + day % 97) for day in range(3 * KEPT)])
    assert len(unseen.oldest) == KEPT
    assert unseen.oldest[0][0] > unseen.oldest[-1][0] >= 60 * DAY_S
