"""What a batch says of its pages: the same as if each page had come alone."""

from __future__ import annotations

from itertools import product

import pytest

from service.address import parse_url
from service.domain import Belief, NewPage, Policy, Price
from service.policy.valuation import valuation_of
from service.sayings import Terms, distinct, first_sayings, merged_sayings
from service.store.records import FIXED, STARTED, read_heads

PRICED: Terms = (Price(20.0, 0.05), valuation_of(Policy()))
UNPRICED: Terms = (Price(0.0, 0.0), None)
WHOLE = Belief(2.0, 1.0, 0.5, 0.5)


def page(belief: Belief, *, fixed: bool | None = None, floor: float | None = None) -> NewPage:
    return NewPage(parse_url("https://one.example/"), belief, fixed, floor)


def test_the_letter_says_how_a_known_page_is_meant() -> None:
    beliefs = (WHOLE, Belief(importance=2.0), Belief(recall=0.5), Belief(signal_rate_per_day=1.0), Belief())
    pages = [page(belief) for belief in beliefs]
    assert first_sayings(pages, PRICED).hows == b"raaan"
    assert first_sayings(pages, UNPRICED).hows == b"aaaan"
    assert first_sayings([page(belief, fixed=True) for belief in beliefs], PRICED).hows == b"raaaa"
    assert first_sayings([page(belief, fixed=False) for belief in beliefs], PRICED).hows == b"raaaa"
    assert first_sayings([page(belief, floor=0.0) for belief in beliefs], PRICED).hows == b"RAAAA"


def test_a_batch_says_of_each_page_what_it_says_alone() -> None:
    said = product((None, 3.0), (None, 0.0, 2.0), (None, 0.4), (None, 1.0), (None, 0.5))
    pages = [
        page(Belief(*values), fixed=(True, None, False)[at % 3], floor=(None, 0.0, 4.0)[at % 5 % 3])
        for at, values in enumerate(said)
    ]
    heads, dues, hows, refused = first_sayings(pages, PRICED)
    for at, one in enumerate(pages):
        alone = first_sayings([one], PRICED)
        assert (refused.get(at), hows[at]) == (alone.refused.get(0), alone.hows[0])
        if at not in refused:
            assert (heads[at], dues[at]) == (alone.heads[0], alone.dues[0])
    assert 0 < len(refused) < len(pages)


def test_the_record_says_how_firmly_the_model_is_held_and_the_floor() -> None:
    pages = [page(Belief()), page(WHOLE), page(Belief(), fixed=True, floor=2.5), page(Belief(importance=3.0))]
    rows = read_heads(first_sayings(pages, PRICED).heads)
    assert rows["flags"].tolist() == [0, STARTED, FIXED, 0]
    assert rows["floor"].tolist() == [0.0, 0.0, 2.5, 0.0]


@pytest.mark.parametrize("terms", [PRICED, UNPRICED], ids=["value", "no value"])
def test_what_is_fixed_stays_so_until_a_whole_model_or_a_user_says_otherwise(terms: Terms) -> None:
    known = first_sayings([page(WHOLE, fixed=True)], PRICED).heads[0]
    said = [
        page(Belief()),
        page(Belief(2.0, 1.0, 0.5)),
        page(WHOLE),
        page(WHOLE, fixed=True),
        page(Belief(), fixed=False),
    ]
    rows = read_heads(merged_sayings(said, [known] * len(said), terms).heads)
    assert rows["flags"].tolist() == [FIXED, FIXED, STARTED, FIXED, STARTED]


def test_what_is_said_of_many_pages_is_worked_out_once() -> None:
    pages = [page(Belief(importance=1.0 + at % 3)) for at in range(100)]
    examples, which = distinct(pages)
    assert [example.belief.importance for example in examples] == [1.0, 2.0, 3.0]
    assert [examples[number].belief for number in which] == [one.belief for one in pages]


def test_pages_that_all_differ_speak_for_themselves() -> None:
    pages = [page(Belief(importance=1.0 + at)) for at in range(100)]
    examples, which = distinct(pages)
    assert [examples[number] for number in which] == pages
