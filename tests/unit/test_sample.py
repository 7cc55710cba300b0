"""A sweep's sample: few pages, each as likely as any other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from service.store.records import HEAD, PARKED, pack_sample, read_samples
from workers.sample import SAMPLED, Sample


def heads(count: int, first: int = 0, flags: int = 0) -> NDArray[np.void]:
    """Pages whose importance is their number."""
    rows = np.zeros(count, dtype=HEAD)
    rows["model"]["importance"] = np.arange(first, first + count)
    rows["flags"] = flags
    return rows


def numbers(sample: Sample) -> NDArray[np.float64]:
    model, _ = read_samples([pack_sample(sample.pages, sample.models)], SAMPLED)
    return model.importance


def test_of_few_pages_all_are_drawn() -> None:
    sample = Sample()
    sample.look(heads(5))
    sample.look(heads(7, first=5))
    assert sample.pages == 12
    assert sorted(numbers(sample)) == list(range(12))


def test_of_many_each_is_as_likely() -> None:
    sums = np.zeros(4)
    for seed in range(40):
        sample = Sample(random=np.random.default_rng(seed))
        for first in range(0, 8000, 1000):
            sample.look(heads(1000, first))
        assert len(set(numbers(sample))) == SAMPLED
        sums += np.histogram(numbers(sample), bins=4, range=(0, 8000))[0]
    expected = 40 * SAMPLED / 4
    assert np.all(np.abs(sums - expected) < 4 * np.sqrt(expected))


def test_pages_given_up_are_not_drawn() -> None:
    sample = Sample()
    sample.look(heads(300, flags=PARKED))
    sample.look(heads(3))
    assert (sample.pages, len(sample.drawn)) == (3, 3)


def test_who_goes_on_with_a_sweep_goes_on_with_its_sample() -> None:
    one, other = Sample(), Sample()
    one.look(heads(1000))
    other.take_up(*one.keep())
    assert (other.pages, other.models) == (one.pages, one.models)
    other.look(heads(1000, first=1000))
    assert other.pages == 2000
    assert 0.25 < np.mean(numbers(other) < 1000) < 0.75


def test_samples_stand_for_all_pages_of_their_shards() -> None:
    small, large = Sample(), Sample()
    small.look(heads(10))
    large.look(heads(10_000))
    _, counts = read_samples([pack_sample(s.pages, s.models) for s in (small, large, Sample())], 10**6)
    assert counts.tolist() == [1.0] * 10 + [10_000 / SAMPLED] * SAMPLED
