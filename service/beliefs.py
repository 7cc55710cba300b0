"""From what a user says of a page to what is stored and ranked by.

A user speaks of change rate, precision, recall and signal rate; the model is (α, κ, γ); the scripts rank
by a local form of V around the price, computed here with the policy and packed for the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.domain import Belief, Floats, Model, Price
from service.errors import InvalidModel
from service.policy.objectives import Objective
from service.policy.ranking import (
    Ranking,
    depth_below,
    is_dormant,
    local_value,
    open_value,
    rank,
    storable,
)
from service.policy.valuation import NCIS, Valuation
from service.store.records import MODEL, RANKING

DAY_S = 86400.0
DEFAULT_CHANGES_PER_DAY = 1.0
DEFAULT_PRECISION = 0.5
DEFAULT_RECALL = 0.5
DEFAULTS = 1.0, DEFAULT_CHANGES_PER_DAY, DEFAULT_PRECISION, DEFAULT_RECALL  # importance first
_LEAST_LEVEL = 1e-6  # share of the ceiling: before anything was served the price is 0
_CENTRE_LEVEL = 0.9  # share of the ceiling beyond which the local form would be centred on infinity
_SLACK = 0.05  # how far over-determined beliefs may disagree


def model_from(belief: Belief) -> tuple[float, float, float, float]:
    """(μ, α, κ, γ) per second; InvalidModel where what was said cannot all be true."""
    importance = 1.0 if belief.importance is None else belief.importance
    changes = _default(belief.change_rate_per_day, DEFAULT_CHANGES_PER_DAY) / DAY_S
    precision, recall = _quality(belief, changes * DAY_S)
    if precision <= 0 or recall <= 0 or changes == 0:
        return importance, changes, 0.0, 0.0
    weight = math.inf if precision >= 1 else -math.log1p(-precision)
    return importance, (1 - recall) * changes, weight, recall * changes / precision


def models_said(said: Floats, beliefs: Sequence[Belief]) -> tuple[Floats, dict[int, str]]:
    """A row of `model_from` for each belief, and by their places why some cannot be true.

    `said` has their fields in rows, those not said as NaN.
    """
    importance, changes, precision, recall = (
        np.where(np.isnan(column), default, column)
        for column, default in zip(said[:, :4].T, DEFAULTS, strict=True)
    )
    changes = changes / DAY_S
    heard = (precision > 0) & (recall > 0) & (changes > 0)
    with np.errstate(divide="ignore"):  # a precision of 1 weighs infinitely much
        weight = np.where(heard, -np.log1p(-precision), 0.0)
    rate = np.divide(recall * changes, precision, out=np.zeros_like(changes), where=heard)
    rows = np.stack((importance, np.where(heard, 1 - recall, 1.0) * changes, weight, rate), axis=1)
    refused = {}
    for at in np.flatnonzero(~np.isnan(said[:, 4])).tolist():
        try:
            rows[at] = model_from(beliefs[at])
        except InvalidModel as error:
            refused[at] = str(error)
    return rows, refused


def _quality(belief: Belief, changes_per_day: float) -> tuple[float, float]:
    """Precision and recall; what was not said follows from the signal rate: λΔ = precision · γ."""
    precision, recall, signals = belief.precision, belief.recall, belief.signal_rate_per_day
    if signals is None:
        return _default(precision, DEFAULT_PRECISION), _default(recall, DEFAULT_RECALL)
    if signals == 0 or changes_per_day == 0:
        return 0.0, 0.0
    if precision is None and recall is not None:
        precision = recall * changes_per_day / signals
    precision = _default(precision, DEFAULT_PRECISION)
    implied = precision * signals / changes_per_day
    if recall is not None and abs(implied - recall) > _SLACK * max(recall, implied):
        raise InvalidModel("precision x signal_rate_per_day must equal recall x change_rate_per_day")
    if precision > 1 + _SLACK or implied > 1 + _SLACK:
        raise InvalidModel("these rates would need more true signals than there are changes or signals")
    return min(precision, 1.0), min(_default(recall, implied), 1.0)


def merge(said: Belief, known: Model) -> tuple[float, float, float, float]:
    """What was said, over what is known."""
    importance = float(known.importance[0]) if said.importance is None else said.importance
    if said.says_nothing_of_model:
        silent, weight, signals = known.silent_rate[0], known.signal_weight[0], known.signal_rate[0]
        return importance, float(silent), float(weight), float(signals)
    kept = Belief(
        importance=importance,
        change_rate_per_day=_default(said.change_rate_per_day, float(known.change_rate[0]) * DAY_S),
        precision=_default(said.precision, float(known.precision[0])),
        recall=_default(said.recall, float(known.recall[0])),
        signal_rate_per_day=said.signal_rate_per_day,
    )
    return model_from(kept)


def pack_models(rows: Floats | list[tuple[float, float, float, float]]) -> Model:
    """Many models as one, made safe to store."""
    columns = np.array(rows, dtype=np.float64).reshape(-1, 4)
    return storable(Model(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3]))


def ranking_rows(
    model: Model, price: Price, due: NDArray[np.float64] | None = None, *, valuation: Valuation = NCIS
) -> NDArray[Any]:
    """How pages are ranked at a price, as the records hold it; a negative interval marks a dormant page.

    The local form is centred between the price served and the due price, where pages are compared; `lead`
    is how far (in depth) a page becomes due before that. `due` overrides the due price page by page.
    """
    objective, seen = valuation.objective, valuation.believe(model)
    least, level = _levels(seen, price, due, objective)
    ranking = rank(level, seen, objective)
    lead = -depth_below(least, ranking) if objective.growth is None else np.zeros_like(ranking.depth)
    silent = np.asarray(seen.silent_rate, dtype=np.float64)
    depth = ranking.depth - lead
    interval = np.divide(depth, silent, out=np.ones_like(silent), where=silent > 0)
    rows = np.empty(ranking.depth.shape, dtype=RANKING)
    rows["interval_s"] = np.where(ranking.dormant, -interval, interval)
    rows["lead"], rows["tempo"], rows["credit_s"] = lead, silent, valuation.credit_s(seen)
    for name in ("ceiling", "base", "slope", "near", "far"):
        rows[name] = getattr(ranking, name)
    return rows


def _levels(
    seen: Model, price: Price, due: NDArray[np.float64] | None, objective: Objective
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The value each page is due at, and the one its local form is centred on."""
    top = _finite(objective.ceiling(seen))
    least = np.maximum(price.due if due is None else due, _LEAST_LEVEL * top)
    if objective.growth is not None:
        return least, least
    return least, np.maximum(least, np.minimum(price.centre, _CENTRE_LEVEL * top))


def is_settled(
    stored: NDArray[Any],
    model: Model,
    price: Price,
    due: NDArray[np.float64],
    *,
    valuation: Valuation,
    tolerance: float,
) -> NDArray[np.bool_]:
    """Which stored rankings are what `ranking_rows` would give, at prices within a tolerance of theirs.

    A dormant page looks the same at any price out of its reach, so it needs no inversion to be told.
    """
    objective, seen = valuation.objective, valuation.believe(model)
    least, level = _levels(seen, price, due, objective)
    row = {name: stored[name].astype(np.float64) for name in RANKING.names or ()}
    dormant = is_dormant(level, seen, objective)
    known = {"tempo": seen.silent_rate, "credit_s": valuation.credit_s(seen)}
    if objective.growth is None:
        known["ceiling"] = _finite(objective.ceiling(seen))
    else:
        known["near"], known["far"] = objective.growth(seen)
        known["ceiling"] = np.full_like(level, np.inf)
    same = [stored[name] == value.astype(np.float32) for name, value in known.items()]
    depth = np.abs(row["interval_s"]) * row["tempo"] + row["lead"]
    left = np.exp(row["lead"])
    gain = (1.0 - left) + (1.0 - left * (1.0 - row["lead"])) / np.maximum(depth, 1e-30)
    near = np.abs(row["base"] - level) <= tolerance * level
    near &= np.abs(row["base"] + row["slope"] * gain - least) <= tolerance * least
    as_dormant = dormant == (row["interval_s"] < 0)
    return np.asarray(np.all([*same, as_dormant, dormant | near], axis=0))


def stored_value(head: NDArray[Any], *, effective_s: float, elapsed_s: float) -> float:
    """What one crawled page is worth by its stored ranking, as the scripts compute it."""
    row = head["ranking"].astype([(name, np.float64) for name in RANKING.names or ()])
    interval, tempo, credit = np.abs(row["interval_s"]), row["tempo"], row["credit_s"]
    since_s = np.where(credit < 0, effective_s, elapsed_s + head["signals"] * np.maximum(credit, 0.0))
    depth = interval * tempo + row["lead"]
    past = np.maximum(tempo * (since_s - interval) - row["lead"], -depth)
    form = (row[name] for name in ("ceiling", "base", "slope", "near", "far"))
    ranking = Ranking(depth, row["interval_s"] < 0, *form)
    if np.isinf(ranking.ceiling[0]):
        return float(open_value(past, ranking)[0])
    weight = np.where(credit < 0, head["model"]["signal_weight"], 0.0)
    return float(local_value(past, ranking, weight)[0])


def _finite(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(values), values, 0.0)


def model_rows(model: Model) -> NDArray[Any]:
    """Models as the records hold them."""
    rows = np.empty(np.shape(model.importance), dtype=MODEL)
    rows["importance"], rows["silent_rate"] = model.importance, model.silent_rate
    rows["signal_weight"], rows["signal_rate"] = model.signal_weight, model.signal_rate
    return rows


def _default(value: float | None, default: float) -> float:
    return default if value is None else value
