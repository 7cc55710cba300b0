"""Evidence as stored: a function of a page's observations and their order, however they were batched."""

from __future__ import annotations

import numpy as np

from service.ledger import MOST_SOURCES, OTHER, Entry, fold_all, stack
from service.policy.reputation import NEW
from service.store.observations import Observation, PageName
from service.trust import DATES, Trust, believable_dates, pack_trust, read_trust, update

PAGE: PageName = ("host-------", 7)


def observations(count: int, seed: int = 1, sources: int = 2) -> list[Observation]:
    rng = np.random.default_rng(seed)
    return [
        Observation(
            entry=str(number).encode(),
            page=("host-------", int(rng.integers(0, 5))),
            elapsed_s=float(rng.exponential(3600)) + 1,
            since_change_s=0.0,
            changed=bool(rng.random() < 0.4),
            predicted_depth=0.5,
            signals={k: int(n) for k in range(sources) if (n := rng.poisson(0.7))},
        )
        for number in range(count)
    ]


def entries() -> dict[PageName, Entry]:
    return {("host-------", page): Entry.read(b"") for page in range(5)}


def test_evidence_does_not_depend_on_how_observations_were_batched() -> None:
    log = observations(200)
    together, apart = entries(), entries()
    fold_all(together, log, 40.0)
    for at in range(0, len(log), 7):
        apart = {page: Entry.read(entry.pack()) for page, entry in apart.items()}
        fold_all(apart, log[at : at + 7], 40.0)
    assert {p: e.pack() for p, e in together.items()} == {p: e.pack() for p, e in apart.items()}


def test_a_stored_entry_reads_back_as_it_was() -> None:
    kept = entries()
    fold_all(kept, observations(50), 40.0)
    for entry in kept.values():
        again = Entry.read(entry.pack())
        assert again.sources == entry.sources
        assert again.pack() == entry.pack()


def test_sources_beyond_the_columns_are_counted_together() -> None:
    entry = Entry.read(b"")
    entry.hear_of(range(10, 20))
    assert len(entry.sources) == MOST_SOURCES
    assert entry.sources[-1] == OTHER
    assert entry.counts({10: 2, 18: 1, 19: 1}) == [2, 0, 0, 2]


def test_a_page_widens_to_its_hosts_sources_without_losing_counts() -> None:
    entry = Entry.read(b"")
    kept = {PAGE: entry}
    fold_all(kept, [Observation(b"1", PAGE, 100.0, 0.0, False, 0.1, {3: 4})], 40.0)
    wide = stack([kept[PAGE]], (1, 3))
    assert wide["signals"][0].tolist() == [0.0, 4.0]


def test_sources_a_host_has_no_column_for_are_counted_with_the_rest() -> None:
    kept = {PAGE: Entry.read(b"")}
    fold_all(kept, [Observation(b"1", PAGE, 100.0, 0.0, False, 0.1, {7: 4, 8: 1, OTHER: 2})], 40.0)
    wide = stack([kept[PAGE]], (1, 2, 7, OTHER))
    assert wide["signals"][0].tolist() == [0.0, 0.0, 4.0, 3.0]


def test_a_change_whose_instant_is_known_says_when() -> None:
    vague, exact = entries(), entries()
    page = ("host-------", 0)
    fold_all(vague, [Observation(b"1", page, 1000.0, 0.0, True, 0.1, {})], 40.0)
    fold_all(exact, [Observation(b"1", page, 1000.0, 400.0, True, 0.1, {})], 40.0, dated={b"1"})
    assert vague[page].row["quiet_s"][0] == 0
    assert exact[page].row["quiet_s"][0] == np.float32(400)


def test_a_source_that_turns_bad_loses_its_weight_within_twenty_checks() -> None:
    kept = {PAGE: Entry.read(b"")}
    rng = np.random.default_rng(4)
    trusts: dict[str, dict[int, float]] = {PAGE[0]: {}}

    def crawl(number: int, changed: bool) -> None:
        seen = Observation(str(number).encode(), PAGE, 3600.0, 0.0, changed, 0.5, {0: 2})
        update(trusts, [seen], fold_all(kept, [seen], 40.0))

    for number in range(60):
        crawl(number, bool(rng.random() < 0.9))
    honest = trusts[PAGE[0]][0]
    checks = 0
    while trusts[PAGE[0]][0] > 0.5 * honest and checks < 100:
        checks += 1
        crawl(1000 + checks, changed=False)
    assert honest > 0.9 * NEW
    assert checks <= 20


def test_trust_is_checked_in_the_order_of_the_log_whatever_the_batches() -> None:
    log = observations(120, sources=1)
    whole: dict[str, dict[int, float]] = {PAGE[0]: {}}
    parts: dict[str, dict[int, float]] = {PAGE[0]: {}}
    update(whole, log, fold_all(entries(), log, 40.0))
    kept = entries()
    for at in range(0, len(log), 11):
        some = log[at : at + 11]
        parts = {h: read_trust(pack_trust(t)) for h, t in parts.items()}
        update(parts, some, fold_all(kept, some, 40.0))
    assert whole == parts


def dated(number: int, since_s: float, changed: bool = True, signals: int = 0) -> Observation:
    heard = {0: signals} if signals else {}
    return Observation(str(number).encode(), PAGE, 1000.0, since_s, changed, 0.1, heard)


def test_dates_of_change_are_used_once_four_in_a_row_have_fitted() -> None:
    trusts: dict[str, Trust] = {PAGE[0]: {}}
    used = believable_dates(trusts, [dated(number, 400.0) for number in range(8)])
    assert sorted(used) == [b"4", b"5", b"6", b"7"]
    obscured = [dated(9, 400.0, signals=1), dated(10, 1500.0, changed=False)]
    assert believable_dates(trusts, obscured) == set()


def test_a_server_that_dates_every_answer_with_its_clock_is_not_believed() -> None:
    trusts: dict[str, Trust] = {PAGE[0]: {}}
    assert not believable_dates(trusts, [dated(number, 0.5, number % 2 == 0) for number in range(50)])


def test_one_date_that_contradicts_the_fetch_costs_the_belief() -> None:
    trusts: dict[str, Trust] = {PAGE[0]: {}}
    believable_dates(trusts, [dated(number, 400.0) for number in range(20)])
    believable_dates(trusts, [dated(20, 400.0, changed=False)])
    assert not believable_dates(trusts, [dated(21, 400.0)])
    assert believable_dates(trusts, [dated(number, 400.0) for number in range(22, 30)])


def test_credibility_of_dates_does_not_depend_on_the_batches() -> None:
    log = [dated(number, 100.0 + number, number % 7 != 3) for number in range(60)]
    whole: dict[str, Trust] = {PAGE[0]: {}}
    parts: dict[str, Trust] = {PAGE[0]: {}}
    used = believable_dates(whole, log)
    apart = set[bytes]().union(*(believable_dates(parts, log[at : at + 7]) for at in range(0, 60, 7)))
    assert used == apart
    assert whole == parts
    assert DATES in whole[PAGE[0]]
