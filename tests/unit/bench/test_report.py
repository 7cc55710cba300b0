"""Figures, verdicts and the written report of a bench."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.bench import growth
from loadtest.bench.figures import Findings, percentile, pretty
from loadtest.bench.plan import PARTS, Plan
from loadtest.bench.report import PLOT, spread, write_results
from loadtest.bench.run import _parser, plan_of
from loadtest.bench.targets import Target, Verdict, judge
from loadtest.bench.web import Web

PLAN = Plan(parts=frozenset(PARTS), env_dir=Path("envs"), sizes=(1000, 2000), rounds=3)


def test_a_percentile_is_the_value_that_share_does_not_exceed() -> None:
    values = list(range(100, 0, -1))
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile(values, 1.0)) == (50, 99, 100)
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) != percentile([], 0.5)


@pytest.mark.parametrize(
    ("value", "text"), [(12345.6, "12,346"), (12.345, "12.3"), (0.012345, "0.0123"), (float("nan"), "–")]
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert pretty(value) == text


def test_ratios_are_taken_round_by_round() -> None:
    """The machine slows down in the second round; the ratio does not notice."""
    findings = Findings()
    for ours, other in ((10.0, 20.0), (1.0, 2.0), (9.0, 15.0)):
        findings.add("next", "ours", ours, "1/s")
        findings.add("noop", "other", other, "1/s")
    assert findings.ratio("ours", "other") == [0.5, 0.5, 0.6]
    assert findings.ratio("ours", "nobody") is None
    assert spread(findings.ratio("ours", "other") or []) == "0.5 (0.5–0.6)"


@pytest.mark.parametrize(
    ("values", "at_least", "word"),
    [
        ([0.4, 0.5, 0.1], True, "reached"),
        ([0.3, 0.34, 0.9], True, "not reached"),
        ([0.3, 0.34, 0.9], False, "reached"),
        ([0.4], False, "not reached"),
        ([], True, "not measured"),
    ],
)
def test_the_median_decides(values: list[float], at_least: bool, word: str) -> None:
    assert Verdict(Target("", "", 0.35, at_least=at_least), values).word == word


def test_the_report_says_every_figure_with_its_spread_and_what_was_not_reached(tmp_path: Path) -> None:
    findings = Findings()
    for pages in PLAN.sizes:
        for rate in (900.0, 1000.0, 1100.0):
            findings.add("growth", growth.load_name(pages), rate, "pages/s")
        findings.add("growth", growth.memory_name(pages), 190.0, "bytes")
        for share in (50, 99):
            findings.add("growth", growth.latency_name(pages, share), 0.5, "ms")
    findings.remarks["Frontera"] = "could not be installed: no such version"
    path = tmp_path / "RESULTS.md"
    write_results(path, findings, judge(findings, PLAN), PLAN, "freshet bench --rounds 3")
    text = path.read_text()
    assert "`freshet bench --rounds 3`" in text
    assert "| 2,000 pages: loaded per second | ≥ 50,000 | 1,000 (900–1,100) | not reached |" in text
    assert "bytes per page, crawled (meant for 1,000,000 pages) | ≤ 200 | 190 | reached |" in text
    assert "- Frontera: could not be installed: no such version" in text
    assert "not measured" in text
    assert (tmp_path / PLOT).read_bytes().startswith(b"\x89PNG")


def test_options_choose_parts_and_sizes() -> None:
    plan = plan_of(_parser().parse_args(["--only", "growth", "--pages", "10000000", "--rounds", "7"]))
    assert plan.parts == {"growth"}
    assert plan.sizes == (10_000, 100_000, 1_000_000, 10_000_000)
    assert plan.sweep_pages == 1_000_000
    assert plan.rounds == 7
    short = plan_of(_parser().parse_args(["--short"]))
    assert short.parts == set(PARTS) - {"peers"}


def test_the_web_has_long_urls_and_one_large_host() -> None:
    web = Web(10_000)
    urls = [web.url(number) for number in range(web.pages)]
    assert {len(url) for url in urls} == {73}
    assert len(set(urls)) == web.pages
    sizes: dict[str, int] = {}
    for url in urls:
        host = url.split("/")[2]
        sizes[host] = sizes.get(host, 0) + 1
    assert max(sizes.values()) >= web.pages / 10
    assert len(sizes) > 0.9 * web.hosts
