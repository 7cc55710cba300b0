"""Both examples of "Deep reinforcement learning for web crawling": reward, and the freshness it costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from loadtest.findings import Findings
from loadtest.lab.averages import means_and_errors
from loadtest.lab.deep_bandit import Bandit, Groups, static_optimum
from loadtest.lab.deep_learner import DeepLearner
from loadtest.lab.deep_policies import Course, CrawlValue, Policy, Static, Thompson, play
from loadtest.lab.experiment import Effort, Experiment

PAPER = "Deep reinforcement learning for web crawling"
IMPORTANCE = np.array([5.0, 0.2, 1.0, 0.5])
SINGLE = Groups(np.array([0.6, 0.08, 0.01, 0.3]), IMPORTANCE, np.array([1, 1, 1, 1]))
GROUPED = Groups(np.array([0.1, 0.002, 0.005, 0.05]), IMPORTANCE, np.array([5, 80, 10, 5]))
SLOTS, SLOTS_SHORT = 5_000, 400
THOMPSON, DEEP, AVERAGED = "Thompson", "deep, full gradient", "deep, successors averaged"
Maker = Callable[[Bandit], Policy]


def contestants(groups: Groups, slots: int, rng: np.random.Generator) -> dict[str, Maker]:
    """The policies by name; those above the learners are told the rates, except the uniform one."""
    uniform = np.full(groups.arms, 1.0 / groups.arms)
    fresh = static_optimum(groups, groups.importance)
    paying = static_optimum(groups, groups.importance * groups.chance)
    return {
        "uniform": lambda bandit: Static(bandit, uniform, rng),
        "static, best freshness": lambda bandit: Static(bandit, fresh, rng),
        "static, best reward": lambda bandit: Static(bandit, paying, rng),
        "crawl value": CrawlValue,
        THOMPSON: lambda bandit: Thompson(bandit, rng, weighted=False),
        "Thompson × importance": lambda bandit: Thompson(bandit, rng, weighted=True),
        DEEP: lambda bandit: DeepLearner(bandit, slots, rng, averaged=False),
        AVERAGED: lambda bandit: DeepLearner(bandit, slots, rng, averaged=True),
    }


def compare(name: str, title: str, groups: Groups, effort: Effort) -> Findings:
    findings = Findings(name, title, ("slot", "running average of reward"))
    slots, runs = (SLOTS_SHORT, 4) if effort.short else (SLOTS, effort.repetitions)
    courses: dict[str, Course] = {}
    makers = contestants(groups, slots, effort.rng(1))
    for index, (policy, make) in enumerate(makers.items()):
        done = partial(_tell, effort, index, len(makers))
        courses[policy] = play(groups, make, slots=slots, runs=runs, rng=effort.rng(2), report=done)
        _add(findings, policy, groups, courses[policy])
    effort.report(1.0)
    optimum = ", ".join(f"{chance:.3f}" for chance in static_optimum(groups, groups.importance))
    findings.notes.append(f"Static optimum for freshness: [{optimum}].")
    findings.notes += [_overtaking(courses, deep, slots) for deep in (DEEP, AVERAGED)]
    return findings


def _tell(effort: Effort, index: int, policies: int, share: float) -> None:
    effort.report((index + share) / policies)


def _add(findings: Findings, policy: str, groups: Groups, course: Course) -> None:
    """A row, of the whole run and of its second half, and the running average as a curve."""
    slots = len(course.reward)
    overall, overall_error = means_and_errors(np.mean(course.reward, axis=0))
    late, late_error = means_and_errors(np.mean(course.reward[slots // 2 :], axis=0))
    fresh, fresh_error = means_and_errors(np.mean(course.freshness[slots // 2 :], axis=0))
    findings.rows.append(
        {
            "policy": policy,
            "reward": float(overall),
            "±": float(overall_error),
            "reward, 2nd half": float(late),
            "± late": float(late_error),
            "freshness, 2nd half": float(fresh),
            "± fresh": float(fresh_error),
            "crawls by group": " ".join(f"{x:.3f}" for x in course.arm_shares(groups.arms, slots // 2)),
        }
    )
    at = np.unique(np.geomspace(20, slots, 25).astype(np.int64))
    running = np.cumsum(course.reward, axis=0)[at - 1] / at[:, None]
    mean, findings.bars[policy] = means_and_errors(running, axis=1)
    findings.curves[policy] = at.astype(np.float64), mean


def _overtaking(courses: dict[str, Course], deep: str, slots: int) -> str:
    """From when on the running average of deep learning stays above that of Thompson sampling."""
    count = np.arange(1, slots + 1)
    ours, theirs = (np.cumsum(np.mean(courses[name].reward, axis=1)) / count for name in (deep, THOMPSON))
    behind = np.flatnonzero(ours <= theirs)
    after = int(behind[-1]) + 1 if len(behind) else 0
    if after == slots:
        return f"{deep}: running average not above {THOMPSON}'s after {slots} slots."
    return f"{deep}: running average above {THOMPSON}'s from slot {after} on (the paper: about 3,000)."


CLAIM = (
    "Deep learning and static optimisation earn more than Thompson sampling, and all of them more than the "
    "uniform policy; static optimisation is slightly ahead but never crawls some pages."
)
DIFFERS = (
    "A network of 32 and 8 rectifiers instead of 4,000 and 8, with Adam, elapsed slots on a logarithmic "
    "scale, and no noise added to the gradient. The paper drops the average over successors that its scheme "
    "calls for; both are here. Freshness is reported too: the reward pays for finding changes, so policies "
    "that earn most let other pages go stale."
)

EXPERIMENTS = (
    Experiment(
        "deep1",
        f"{PAPER}, figures 1 and 3",
        CLAIM,
        partial(compare, "deep1", "Four pages, one per group", SINGLE),
        repetitions=10,
        differs=f"{DIFFERS} The paper prints the static optimum with its second and third page swapped.",
    ),
    Experiment(
        "deep2",
        f"{PAPER}, figures 2 and 4",
        CLAIM,
        partial(compare, "deep2", "A hundred pages in four groups", GROUPED),
        repetitions=10,
        differs=f"{DIFFERS} Importances are those of the first example, as the paper gives no others. Deep "
        "learning passes the static optimum in reward: that one is the best for freshness, not for reward.",
    ),
)
