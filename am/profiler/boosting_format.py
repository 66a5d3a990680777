"""Lines of XGBoost, LightGBM and CatBoost, one a round.

XGBoost counts from 0: `[0]` TAB `train-rmse:0.5` TAB `validation-rmse:0.6`, perhaps behind a time in brackets. LightGBM
counts from 1, and names the best round once more at its end: `[1]` TAB `training's l2: 0.5` TAB `valid_1's l2: 0.6`.
CatBoost counts from 0 and names no metric: `0:` TAB `learn: 0.5` TAB `test: 0.6` TAB `best: 0.6 (0)` TAB `total: 1ms`
TAB `remaining: 9ms`.
"""

from __future__ import annotations

import re

from am.profiler.line_parts import TRAINED
from am.profiler.line_places import LinePlace
from am.profiler.named_values import NamedValues
from am.profiler.numbers import NUMBER

_ROUND = re.compile(r"(?:\[[0-9:. /-]{8,23}\] )?\[(?P<round>[0-9]{1,12})\]\t(?P<values>\S.*)")
_XGBOOST = re.compile(rf"(?P<set>[\w.-]{{1,60}})-(?P<metric>[\w@.]{{1,40}}):(?P<value>{NUMBER})(?:\+{NUMBER})?")
_LIGHTGBM = re.compile(rf"(?P<set>[\w. -]{{1,60}})'s (?P<metric>[\w@. ]{{1,40}}): (?P<value>{NUMBER})(?: \+ {NUMBER})?")
_CATBOOST = re.compile(
    rf"(?P<round>[0-9]{{1,12}}):(?:\tlearn: (?P<learn>{NUMBER}))?(?:\ttest[0-9]*: (?P<test>{NUMBER}))*"
    rf"(?:\tbest: (?P<best>{NUMBER}) \([0-9]+\))?\ttotal: \S.*"
)
_LOSS = re.compile(
    r"(?:valid |train )?(?:\w*(?:loss|error|deviance|nloglik)|rmsle|[rm]?mse|mae|mape|mphe|l1|l2|quantile|huber|fair"
    r"|poisson|gamma|tweedie|cross_entropy\w*|xentropy|xentlambda|kullback_leibler|kldiv)(?:@[0-9.]{1,9})?"
)
"""Metrics of which less is better. `auc`, `ndcg`, `map` and the like are none."""
_SUFFIX = re.compile(r"[_\W]+")


class BoostingLines:
    """Reads the last loss of training and of held-out data in a line, as the libraries do to stop early."""

    def __init__(self) -> None:
        self._repeats = False
        self._before: float | None = None
        self._is_loss: bool | None = None

    def read(self, line: str) -> NamedValues | None:
        """Return the values of a line of a round. None for any other line, and for a round that is shown again."""
        repeats, self._repeats = self._repeats, line.endswith("est iteration is:")
        if catboost := _CATBOOST.fullmatch(line):
            return self._of_catboost(catboost)
        found = _ROUND.fullmatch(line)
        if found is None or repeats:
            return None
        parts = found["values"].split("\t")
        from_zero = _XGBOOST.fullmatch(parts[0]) is not None
        values = NamedValues(LinePlace(step=int(found["round"]) + from_zero))
        for part in parts:
            each = (_XGBOOST if from_zero else _LIGHTGBM).fullmatch(part)
            if each is None:
                return None
            if _LOSS.fullmatch(each["metric"]) is None:
                continue
            if TRAINED & set(_SUFFIX.split(each["set"].lower())):
                values.loss = float(each["value"])
            else:
                values.held_out_loss = float(each["value"])
        return values

    def _of_catboost(self, found: re.Match[str]) -> NamedValues:
        """Return the values of a line if less is better: the best or else the learnt value falls."""
        values = NamedValues(LinePlace(step=int(found["round"]) + 1))
        if values.place.step == 1:
            self._before = self._is_loss = None
        if (falling := found["best"] or found["learn"]) is None:
            return values
        best = float(falling)
        if self._is_loss is None and self._before is not None and best != self._before:
            self._is_loss = best < self._before
        self._before = best
        if self._is_loss:
            values.loss = None if found["learn"] is None else float(found["learn"])
            values.held_out_loss = None if found["test"] is None else float(found["test"])
        return values
