"""Experiments in learning: what it costs not to know the pages beforehand, and whom it protects."""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import numpy as np

from loadtest.findings import Cell, Findings
from loadtest.record import Run
from loadtest.scene import BELIEVING_DEFAULTS, LEARNING, LEARNING_ALONE, TOLD, Scene, try_all
from service.domain import Floats

Window = tuple[float, float]
KNOWN = "true parameters"
CONTESTANTS = {
    "learned, hosts pooled": LEARNING,
    "learned, page by page": LEARNING_ALONE,
    "defaults believed": BELIEVING_DEFAULTS,
}
BATCHES = 20


def learn(scenes: list[Scene], options: argparse.Namespace) -> Findings:
    """Freshness relative to the same service with the true parameters, early and late."""
    axes = ("time (units)", f"freshness relative to {KNOWN}")
    findings = Findings("learn", "Learning from nothing", axes)
    plans = {KNOWN: {"explore": 0.0, **TOLD}}
    plans |= {name: {"explore": options.explore, **plan} for name, plan in CONTESTANTS.items()}
    runs = try_all(scenes, plans, options.jobs)
    known = runs.pop(KNOWN)
    at = np.arange(options.window, options.time - options.window / 2, options.window / 4)
    for name, several in runs.items():
        for window in _windows(options.time, 1 / 6, 2 / 3, 1.0):
            row = _ratios(several, known, window)
            findings.rows.append({"window": _name(window), "service": name, **row})
        curves = [
            r.moving(at, options.window) / k.moving(at, options.window) for r, k in _pairs(several, known)
        ]
        findings.curves[name] = at, np.mean(curves, axis=0)
    findings.rows.sort(key=lambda row: float(str(row["window"]).split("–")[0]))
    return findings


def poison(scenes: list[Scene], options: argparse.Namespace) -> Findings:
    """Some hosts send ten times their honest signals as false ones: what it buys them, and who pays.

    `share of belief` is the extra crawls the liars got ÷ those they get from a service that goes
    on believing their honest models.
    """
    axes = ("time (units)", "poisoned hosts' share of crawls")
    findings = Findings("poison", "A fifth of the hosts lie", axes, marks=[options.poison_at])
    edges = (options.poison_at, options.poison_at + (options.time - options.poison_at) / 3, options.time)
    services = {"honest models kept": {"explore": 0.0, **TOLD}}
    services |= {"learned": {"explore": options.explore, **LEARNING}}
    plans = {
        (name, bad): {"poisoned": bad, **plan} for name, plan in services.items() for bad in (False, True)
    }
    runs = try_all(scenes, plans, options.jobs)
    for window in pairwise(edges):
        believed = _extra_crawls(scenes, runs, "honest models kept", window)
        for name in services:
            row = _victims(scenes, runs, name, window)
            extra = _extra_crawls(scenes, runs, name, window)
            gained: dict[str, Cell] = {"extra crawls": extra, "share of belief": extra / (believed or np.nan)}
            findings.rows.append({"window": _name(window), "service": name, **row, **gained})
    for (name, bad), several in runs.items():
        findings.curves[f"{name}, {_told(bad)}"] = _crawl_share(scenes, several, options.window)
    return findings


def floors(scenes: list[Scene], options: argparse.Namespace) -> Findings:
    """What exploration and a minimum crawl rate cost a service that knows, and one that learns."""
    findings = Findings("floors", "What floors cost", ("value", "freshness relative to none"))
    window = (options.time / 3, options.time)
    bare: dict[str, Any] = {"explore": 0.0, "min_crawls_per_day": 0.0}
    settings = {"explore": options.explores, "min_crawls_per_day": options.minimums}
    kinds = {"knows": TOLD, "learns": LEARNING}
    tried = [
        ("explore", 0.0),
        *((setting, value) for setting, values in settings.items() for value in values),
    ]
    plans = {
        (kind, setting, value): {**bare, setting: value, **plan}
        for kind, plan in kinds.items()
        for setting, value in tried
    }
    runs = try_all(scenes, plans, options.jobs)
    for kind in kinds:
        none = runs[kind, "explore", 0.0]
        for setting, values in settings.items():
            ratios = []
            for value in values:
                row = _ratios(runs[kind, setting, value], none, window)
                findings.rows.append({"service": kind, "setting": setting, "value": f"{value:g}", **row})
                ratios.append(float(row["expected ratio"]))
            findings.curves[f"{setting}, {kind}"] = np.array([0.0, *values]), np.array([1.0, *ratios])
    return findings


def _windows(end: float, *shares: float) -> list[Window]:
    edges = [end * share for share in shares]
    return list(pairwise(edges))


def _name(window: Window) -> str:
    return f"{window[0]:g}–{window[1]:g}"


def _told(poisoned: bool) -> str:
    return "poisoned" if poisoned else "clean"


def _pairs(runs: list[Run], others: list[Run]) -> list[tuple[Run, Run]]:
    return list(zip(runs, others, strict=True))


def _ratios(runs: list[Run], base: list[Run], window: Window) -> dict[str, Cell]:
    """Means over the webs; the error is from the webs if there are several, else from batches."""
    ratios = np.array([r.freshness(*window) / b.freshness(*window) for r, b in _pairs(runs, base)])
    expected = [r.expected_freshness(*window) / b.expected_freshness(*window) for r, b in _pairs(runs, base)]
    sample = ratios
    if len(runs) == 1:
        sample = runs[0].batches(*window, BATCHES) / base[0].batches(*window, BATCHES)
    return {
        "freshness": float(np.mean([run.freshness(*window) for run in runs])),
        "ratio": float(ratios.mean()),
        "±": float(np.std(sample, ddof=1) / np.sqrt(len(sample))),
        "expected ratio": float(np.mean(expected)),
    }


def _victims(
    scenes: list[Scene], runs: dict[tuple[str, bool], list[Run]], name: str, window: Window
) -> dict[str, Cell]:
    """The honest hosts' freshness, without and with the lies of the others."""
    fresh = [
        np.mean(
            [
                scene.only(run, ~scene.poison().pages).expected_freshness(*window)
                for scene, run in zip(scenes, runs[name, bad], strict=True)
            ]
        )
        for bad in (False, True)
    ]
    clean, poisoned = map(float, fresh)
    return {"honest, clean": clean, "honest, poisoned": poisoned, "ratio": poisoned / clean}


def _extra_crawls(
    scenes: list[Scene], runs: dict[tuple[str, bool], list[Run]], name: str, window: Window
) -> float:
    """Extra crawls of the liars per crawl they got before."""
    clean, poisoned = (
        sum(run.crawls(*window, scene.poison().pages) for scene, run in zip(scenes, several, strict=True))
        for several in (runs[name, False], runs[name, True])
    )
    return (poisoned - clean) / max(1, clean)


def _crawl_share(scenes: list[Scene], runs: list[Run], width: float) -> tuple[Floats, Floats]:
    edges = np.arange(0.0, runs[0].at[-1], width)
    shares = []
    for scene, run in zip(scenes, runs, strict=True):
        lying = scene.poison().pages[run.page].astype(np.float64)
        counts, _ = np.histogram(run.at, edges)
        gained, _ = np.histogram(run.at, edges, weights=lying)
        shares.append(gained / counts)
    return (edges[1:] + edges[:-1]) / 2, np.mean(shares, axis=0)
