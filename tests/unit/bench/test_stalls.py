"""A process that only looks at the clock tells when it was not let run."""

from __future__ import annotations

from itertools import accumulate, chain, repeat

import pytest

from loadtest.bench.stalls import stalls_per_s


def test_only_long_pauses_are_counted_and_per_second_of_looking() -> None:
    steps = chain([0.0, 0.001, 0.006, 0.001, 0.020], repeat(0.004))
    assert stalls_per_s(0.005, 0.5, clock=accumulate(steps).__next__) == pytest.approx(2 / 0.5, rel=0.01)


def test_a_machine_that_never_pauses_has_no_stalls() -> None:
    assert stalls_per_s(0.005, 1.0, clock=accumulate(repeat(0.001)).__next__) == 0.0
