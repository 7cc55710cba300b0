"""The queue of one process: few calls, first come, first served, nobody forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import uvloop

from service.dispatcher import CALLS_AT_ONCE, FEW, PAGES_PER_CALL, Dispatcher
from service.domain import UNDER_WAY, Lease, Nothing
from service.errors import StoreUnavailable
from service.waiting import Ask, Leases


def a_lease(name: str) -> Lease:
    return Lease(
        url=name,
        host="h",
        lease=name,
        lease_expires_at=0.0,
        not_before=0.0,
        value=1.0,
        freshness=0.0,
        effective_elapsed_s=None,
        signals=0,
        last_crawled_at=None,
        etag=None,
        last_modified=None,
    )


class Store:
    """Answers calls from a stock of pages, when it is let."""

    def __init__(self) -> None:
        self.calls: list[list[Ask]] = []
        self.called = asyncio.Condition()
        self.stock = 0
        self.retry_after_s = 0.01
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.running = 0
        self.given_back: Leases = []
        self.under_way: set[str] = set()  # ids whose first try is, elsewhere

    async def give_back(self, leases: Leases) -> None:
        self.given_back += leases

    async def serve(self, requests: Sequence[Ask], ahead: int) -> tuple[list[Leases], Leases, Nothing]:
        assert not ahead
        self.running += 1
        assert self.running <= CALLS_AT_ONCE
        async with self.called:
            self.calls.append(list(requests))
            self.called.notify_all()
        await self.gate.wait()
        self.running -= 1
        if self.error:
            raise self.error
        answers = []
        for request_id, count, _ in requests:
            if request_id in self.under_way:
                answers.append(UNDER_WAY)
                continue
            taken = min(count, self.stock)
            self.stock -= taken
            answers.append([a_lease(f"{request_id}{at}") for at in range(taken)])
        return answers, [], Nothing("pace", self.retry_after_s)


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def dispatcher(store: Store) -> AsyncIterator[Dispatcher]:
    dispatcher = Dispatcher(store.serve, store.give_back)
    yield dispatcher
    await dispatcher.close()


async def until(store: Store, calls: int) -> None:
    async with asyncio.timeout(10), store.called:
        await store.called.wait_for(lambda: len(store.calls) >= calls)


async def test_one_request_is_one_call(dispatcher: Dispatcher, store: Store) -> None:
    store.stock = 5
    answer = await dispatcher.next("a", 2, 0)
    assert [lease.url for lease in answer] == ["a0", "a1"]
    assert store.calls == [[("a", 2, False)]]


async def test_nothing_to_give_is_answered_at_once_without_a_wait(
    dispatcher: Dispatcher,
) -> None:
    assert await dispatcher.next("a", 1, 0) == Nothing("pace", 0.01)


async def test_a_large_request_takes_several_calls_and_the_same_again(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.stock = 1000
    large = 2 * PAGES_PER_CALL + 10
    for _ in range(2):
        others = [dispatcher.next(name, 1, 0) for name in "bc"]
        answer, *_ = await asyncio.gather(dispatcher.next("a", large, 0), *others)
        assert len(answer) == large
    parts = [ask for call in store.calls for ask in call if ask[0].startswith("a")]
    assert len(set(parts)) == 3
    assert parts[:3] == parts[3:]
    assert [count for _, count, _ in parts[:3]] == [PAGES_PER_CALL, PAGES_PER_CALL, 10]
    assert [goes_on for _, _, goes_on in parts[:3]] == [False, True, True]
    assert all(sum(count for _, count, _ in call) <= PAGES_PER_CALL for call in store.calls)


async def test_a_large_request_gets_what_there_is(dispatcher: Dispatcher, store: Store) -> None:
    store.stock = PAGES_PER_CALL + 1
    assert len(await dispatcher.next("a", 1000, 0)) == PAGES_PER_CALL + 1
    assert isinstance(await dispatcher.next("b", 1000, 0), Nothing)


async def test_requests_that_arrive_during_a_call_share_the_next(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.stock = 200
    store.gate.clear()
    first = asyncio.create_task(dispatcher.next("first", 1, 0))
    await until(store, 1)
    others = [asyncio.create_task(dispatcher.next(f"r{at}-", 1, 0)) for at in range(60)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.gather(first, *others)
    assert [len(call) for call in store.calls] == [1, 31, FEW, 60 - 31 - FEW]


async def test_a_second_call_follows_when_it_serves_as_many(dispatcher: Dispatcher, store: Store) -> None:
    store.stock = 100
    store.gate.clear()
    first = [asyncio.create_task(dispatcher.next(f"a{at}", 1, 0)) for at in range(3)]
    await until(store, 1)
    second = [asyncio.create_task(dispatcher.next(f"b{at}", 1, 0)) for at in range(2)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(call) for call in store.calls] == [3]
    second += [asyncio.create_task(dispatcher.next(f"c{at}", 1, 0)) for at in range(2)]
    await until(store, 2)
    third = asyncio.create_task(dispatcher.next("d", 1, 0))
    for _ in range(20):
        await asyncio.sleep(0)
    assert [len(call) for call in store.calls] == [3, 4]
    store.gate.set()
    assert all(len(answer) == 1 for answer in await asyncio.gather(*first, *second, third))


async def test_of_calls_one_at_a_time_each_serves_half_of_who_is_about(store: Store) -> None:
    """Else one request and all others would take turns: nobody was answered while the store works."""
    store.gate.clear()
    store.stock = 1000
    dispatcher = Dispatcher(store.serve, store.give_back, beside=PAGES_PER_CALL)
    waiting = [asyncio.create_task(dispatcher.next("first", 1, 0.0))]
    await until(store, 1)
    waiting += [asyncio.create_task(dispatcher.next(str(at), 1, 0.0)) for at in range(2 * FEW - 1)]
    await asyncio.sleep(0)
    store.gate.set()
    await asyncio.gather(*waiting)
    assert [len(call) for call in store.calls] == [1, FEW, FEW - 1]
    await dispatcher.close()


async def test_a_second_call_may_have_to_be_worth_it(store: Store) -> None:
    store.gate.clear()
    store.stock = 1000
    dispatcher = Dispatcher(store.serve, store.give_back, beside=50)
    waiting = [asyncio.create_task(dispatcher.next(str(at), count, 0.0)) for at, count in enumerate((9, 20))]
    await until(store, 1)
    waiting += [asyncio.create_task(dispatcher.next(f"a{at}", 16, 0.0)) for at in range(3)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(store.calls) == 1  # 48 pages are asked for
    waiting.append(asyncio.create_task(dispatcher.next("b", 2, 0.0)))
    await until(store, 2)
    store.gate.set()
    assert [len(answer) for answer in await asyncio.gather(*waiting)] == [9, 20, 16, 16, 16, 2]
    await dispatcher.close()


async def test_a_retry_stays_behind_its_first_try(store: Store) -> None:
    """Where calls are not run one after the other the second would be told of nothing."""
    store.gate.clear()
    store.stock = 1000
    dispatcher = Dispatcher(store.serve, store.give_back, beside=1)
    waiting = [asyncio.create_task(dispatcher.next("again", 2, 0.0))]
    await until(store, 1)
    waiting += [asyncio.create_task(dispatcher.next(each, 2, 0.0)) for each in ("other", "again")]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(store.calls) == 1
    store.gate.set()
    await asyncio.gather(*waiting)
    assert [[ask[0] for ask in call] for call in store.calls] == [["again"], ["other", "again"]]
    await dispatcher.close()


async def test_who_waits_is_asked_for_again_however_many_others_come(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.retry_after_s = 0.02
    patient = asyncio.create_task(dispatcher.next("patient", 1, 20))
    await until(store, 1)
    others: set[asyncio.Task[object]] = set()

    async def ask_on() -> None:
        """There is always somebody in the queue."""
        while not patient.done():
            others.update(asyncio.create_task(dispatcher.next("x", PAGES_PER_CALL, 0)) for _ in range(3))
            await until(store, len(store.calls) + 1)

    asking = asyncio.create_task(ask_on())
    async with asyncio.timeout(10):
        while sum(any(ask[0] == "patient" for ask in call) for call in store.calls) < 3:
            await until(store, len(store.calls) + 1)
    store.stock = 10**6
    assert len(await asyncio.wait_for(patient, 10)) == 1
    await asyncio.gather(asking, *others)


async def test_large_requests_that_wait_keep_nobody_from_being_asked_for(
    dispatcher: Dispatcher, store: Store
) -> None:
    """Each takes a call of its own, and after it waits again."""
    store.retry_after_s = 0.0
    patient = [asyncio.create_task(dispatcher.next(f"p{at}", PAGES_PER_CALL, 20)) for at in range(5)]
    await until(store, 5)
    async with asyncio.timeout(10):
        assert isinstance(await dispatcher.next("late", 1, 0), Nothing)
    for waiting in patient:
        waiting.cancel()
    await asyncio.gather(*patient, return_exceptions=True)


async def test_first_come_first_served(dispatcher: Dispatcher, store: Store) -> None:
    store.stock = 2
    answers = await asyncio.gather(*(dispatcher.next(str(at), 1, 0) for at in range(4)))
    assert [isinstance(answer, Nothing) for answer in answers] == [False, False, True, True]


async def test_who_waits_goes_before_who_comes_later(dispatcher: Dispatcher, store: Store) -> None:
    patient = asyncio.create_task(dispatcher.next("patient", 1, 20))
    await until(store, 1)
    store.gate.clear()
    await until(store, 2)
    store.stock = 1
    late = asyncio.create_task(dispatcher.next("late", 1, 0))
    await asyncio.sleep(0)
    store.gate.set()
    assert not isinstance(await patient, Nothing)
    assert isinstance(await late, Nothing)


async def test_who_waits_is_served_when_there_is_something(dispatcher: Dispatcher, store: Store) -> None:
    waiting = asyncio.create_task(dispatcher.next("a", 1, 20))
    await until(store, 3)
    store.stock = 1
    assert len(await waiting) == 1


async def test_a_wait_that_is_over_is_answered_with_the_reason(dispatcher: Dispatcher) -> None:
    answer = await dispatcher.next("a", 1, 0.05)
    assert isinstance(answer, Nothing)
    assert answer.reason == "pace"


async def test_an_error_reaches_everybody_it_concerns_and_the_next_call_works(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.error = StoreUnavailable()
    calls = [dispatcher.next(str(at), 1, 20) for at in range(3)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 3
    store.error, store.stock = None, 1
    assert len(await dispatcher.next("a", 1, 0)) == 1


async def test_a_caller_that_hung_up_is_not_asked_for(dispatcher: Dispatcher, store: Store) -> None:
    gone = asyncio.create_task(dispatcher.next("gone", 1, 20))
    await until(store, 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    store.stock = 1
    assert len(await dispatcher.next("here", 1, 0)) == 1
    assert store.calls[-1] == [("here", 1, False)]


async def test_what_a_caller_that_hung_up_was_leased_is_given_back(
    dispatcher: Dispatcher, store: Store
) -> None:
    """Unless it gave an id: then it may ask for them again."""
    store.stock = 5
    store.gate.clear()
    tasks = [asyncio.create_task(dispatcher.next(name, 2, 0)) for name in ("", "again")]
    await until(store, 1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    store.gate.set()
    assert [lease.url for lease in await returned(store)] == ["0", "1"]


async def returned(store: Store) -> Leases:
    async with asyncio.timeout(10):
        while not store.given_back:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
    return store.given_back


async def test_what_a_batch_was_leased_is_given_back_where_its_caller_hangs_up_in_the_queue(
    dispatcher: Dispatcher, store: Store
) -> None:
    got: list[object] = []
    store.stock = 10_000
    store.gate.clear()
    batch = dispatcher.ask("", 3 * PAGES_PER_CALL, 0, got.append)
    for _ in range(4):  # whose calls come before its second part
        dispatcher.ask("", 2 * PAGES_PER_CALL, 0, lambda _: None)
    async with asyncio.timeout(10):
        while not batch.leases:  # no further call ends
            store.gate.set()
            await asyncio.sleep(0)
            store.gate.clear()
    assert batch in dispatcher._queue
    batch.is_gone = True
    store.gate.set()
    assert await returned(store) == batch.leases
    assert got == []


async def test_what_a_batch_was_leased_is_given_back_where_its_caller_hangs_up_before_a_call_fails(
    dispatcher: Dispatcher, store: Store
) -> None:
    got: list[object] = []
    store.stock = 10_000
    batch = dispatcher.ask("", 2 * PAGES_PER_CALL, 0, got.append)
    async with asyncio.timeout(10):
        while not batch.leases:  # noqa: ASYNC110 - turn by turn
            await asyncio.sleep(0)
    store.gate.clear()
    await until(store, 2)
    batch.is_gone = True
    store.error = StoreUnavailable()
    store.gate.set()
    assert await returned(store) == batch.leases
    assert got == []


async def test_a_retry_waits_for_the_last_part_of_its_first_try(dispatcher: Dispatcher, store: Store) -> None:
    """It is not told of a part of what that gets."""
    store.stock = 2 * PAGES_PER_CALL
    large = 2 * PAGES_PER_CALL
    store.under_way = {f"again\x1f{PAGES_PER_CALL}"}
    answer = await dispatcher.next("again", large, 0)
    assert isinstance(answer, Nothing)
    assert answer.retry_after_s >= 0.05
    waiting = asyncio.create_task(dispatcher.next("again", large, 20))
    await until(store, 4)
    store.stock, store.under_way = large, set()
    assert len(await asyncio.wait_for(waiting, 10)) == large


async def test_closing_answers_those_who_wait(dispatcher: Dispatcher, store: Store) -> None:
    waiting = asyncio.create_task(dispatcher.next("a", 1, 20))
    await until(store, 1)
    await asyncio.sleep(0)
    await dispatcher.close()
    assert isinstance(await asyncio.wait_for(waiting, 10), Nothing)


async def test_closing_answers_those_whose_call_is_on_its_way(dispatcher: Dispatcher, store: Store) -> None:
    """Otherwise a request in flight at shutdown hangs for ever."""
    store.gate.clear()
    waiting = asyncio.create_task(dispatcher.next("a", 1, 20))
    await until(store, 1)
    await dispatcher.close()
    assert isinstance(await asyncio.wait_for(waiting, 10), Nothing)


async def test_the_next_call_is_on_its_way_before_answers_are_made(
    dispatcher: Dispatcher, store: Store
) -> None:
    """Otherwise the store waits while answers are written."""
    store.stock = 2
    store.gate.clear()
    calls: list[int] = []
    dispatcher.ask("first", 1, 0, lambda _: calls.append(len(store.calls)))
    await until(store, 1)
    second = asyncio.create_task(dispatcher.next("second", 1, 0))
    await asyncio.sleep(0)
    store.gate.set()
    assert len(await second) == 1
    assert calls == [2]


async def test_a_caller_that_cannot_be_answered_is_the_only_one(
    dispatcher: Dispatcher, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.stock = 2

    def fail(_: object) -> None:
        raise ZeroDivisionError

    dispatcher.ask("a", 1, 0, fail)
    assert len(await dispatcher.next("b", 1, 0)) == 1
    assert [record.message for record in caplog.records] == ["answer_not_given"]


async def test_only_the_first_answer_is_given(dispatcher: Dispatcher) -> None:
    answers: list[object] = []
    waiting = dispatcher.ask("a", 1, 0, answers.append)
    waiting.answer([])
    waiting.answer(Nothing("pace", 1.0))
    assert answers == [[]]


async def test_who_is_called_back_hears_what_went_wrong(dispatcher: Dispatcher, store: Store) -> None:
    store.error = StoreUnavailable()
    answers: asyncio.Queue[object] = asyncio.Queue()
    dispatcher.ask("a", 1, 20, answers.put_nowait)
    async with asyncio.timeout(10):
        assert await answers.get() is store.error


async def test_closing_takes_nothing_from_whom_the_store_has_answered(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.stock = 1
    store.gate.clear()
    waiting = asyncio.create_task(dispatcher.next("a", 1, 0))
    await until(store, 1)
    store.gate.set()
    while store.running:  # noqa: ASYNC110 - turn by turn: the subject is what happens in the next one
        await asyncio.sleep(0)
    await dispatcher.close()
    assert len(await waiting) == 1


async def test_an_idle_queue_makes_no_calls(dispatcher: Dispatcher, store: Store) -> None:
    store.stock = 1
    await dispatcher.next("a", 1, 0)
    for _ in range(50):
        await asyncio.sleep(0)
    assert len(store.calls) == 1


async def test_waiting_asks_at_the_pace_it_is_told(dispatcher: Dispatcher, store: Store) -> None:
    """Real time is the subject: a far slot is asked for a few times a second, not in a busy loop."""
    store.retry_after_s = 60
    await dispatcher.next("a", 1, 0.6)
    assert len(store.calls) <= 5


async def test_what_a_large_request_got_is_not_lost_when_a_later_call_fails(store: Store) -> None:
    """Without an id nobody could ask for it again: the pages would be kept from everybody for a lease."""
    store.stock = 1000

    async def serve(requests: Sequence[Ask], ahead: int) -> tuple[list[Leases], Leases, Nothing]:
        if store.calls:
            raise StoreUnavailable
        return await store.serve(requests, ahead)

    dispatcher = Dispatcher(serve, store.give_back)
    assert len(await dispatcher.next("", PAGES_PER_CALL + 1, 0)) == PAGES_PER_CALL
    await dispatcher.close()


async def test_closing_takes_nothing_from_a_large_request_half_way(
    dispatcher: Dispatcher, store: Store
) -> None:
    store.stock = 1000
    waiting = asyncio.create_task(dispatcher.next("", PAGES_PER_CALL + 1, 0))
    await until(store, 1)
    store.gate.clear()
    await until(store, 2)
    await dispatcher.close()
    assert len(await waiting) == PAGES_PER_CALL


async def test_who_stands_behind_a_call_that_failed_late_is_told_at_once(
    dispatcher: Dispatcher, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.dispatcher.LONG_S", 0.0)
    store.gate.clear()
    store.error = StoreUnavailable()
    calls = [asyncio.create_task(dispatcher.next("", PAGES_PER_CALL, 20)) for _ in range(8)]
    await until(store, CALLS_AT_ONCE)
    store.gate.set()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 8
    assert len(store.calls) == CALLS_AT_ONCE


def test_who_may_be_asked_for_again_at_once_is_waited_for_on_the_loop_of_the_service() -> None:
    """uvloop runs what is due within half a millisecond as if it had no time of its own."""

    async def serve() -> list[object]:
        store = Store()
        store.retry_after_s = 0.0
        store.stock = 1
        dispatcher = Dispatcher(store.serve, store.give_back)
        answers = await asyncio.gather(
            *(dispatcher.next("", 1, 0.05) for _ in range(4)), return_exceptions=True
        )
        await dispatcher.close()
        return list(answers)

    loop = uvloop.new_event_loop()
    try:
        first, *others = loop.run_until_complete(serve())
    finally:
        loop.close()
    assert isinstance(first, list)
    assert [type(other) for other in others] == [Nothing] * 3


async def test_large_requests_that_wait_do_not_go_before_others_again_and_again(store: Store) -> None:
    """Their round takes longer than the store says they should wait."""
    store.retry_after_s = 0.001

    async def serve(requests: Sequence[Ask], ahead: int) -> tuple[list[Leases], Leases, Nothing]:
        await asyncio.sleep(0.003)
        return await store.serve(requests, ahead)

    dispatcher = Dispatcher(serve, store.give_back)
    patient = [asyncio.create_task(dispatcher.next(f"p{at}", PAGES_PER_CALL, 20)) for at in range(5)]
    await until(store, 5)
    try:
        async with asyncio.timeout(10):
            assert isinstance(await dispatcher.next("late", 1, 0), Nothing)
    finally:
        for waiting in patient:
            waiting.cancel()
        await asyncio.gather(*patient, return_exceptions=True)
        await dispatcher.close()
