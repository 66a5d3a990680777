"""Proof that an app's jobs cannot end by some time on a bundle: whole gangs, between which jobs may be cut.

Beside `valuation_columns`, which keeps jobs whole and cuts gangs: on small bundles of jobs of several sizes it is the
number of gangs of each size that leaves room over. An integer programme, decided by HiGHS.
"""

from __future__ import annotations

import math

import highspy
import numpy as np

from bench.valuation_columns import Limits, Times

_MOST_S = 10.0


def is_too_soon_for_whole_gangs(times_s: Times, limits: Limits, end_s: float) -> bool:
    """True when it is proven that not all jobs can end by then; False when not, or when it would take too long.

    Arguments as for `valuation_columns.is_too_soon`.
    """
    jobs, kinds = times_s.shape
    fits = [(job, kind) for job, kind in np.argwhere(times_s <= end_s).tolist()]
    share = {pair: kinds + place for place, pair in enumerate(fits)}
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    for option, value in (("output_flag", False), ("threads", 1), ("time_limit", _MOST_S)):
        model.setOptionValue(option, value)
    columns = kinds + len(fits)
    most = np.array([float(jobs)] * kinds + [1.0] * len(fits))
    model.addVars(columns, np.zeros(columns), most)
    for kind in range(kinds):
        model.changeColIntegrality(kind, highspy.HighsVarType.kInteger)
    rows = [(-math.inf, room, dict(enumerate(uses))) for uses, room in limits]
    for job in range(jobs):
        mine = [pair for pair in fits if pair[0] == job]
        rows.append((1.0, 1.0, {share[pair]: 1.0 for pair in mine}))
        rows.append((-math.inf, 1.0, {share[pair]: float(times_s[pair]) / end_s for pair in mine}))
    for kind in range(kinds):
        work = {share[pair]: float(times_s[pair]) / end_s for pair in fits if pair[1] == kind}
        rows.append((-math.inf, 0.0, {kind: -1.0} | work))
    for low, high, terms in rows:
        used = {column: factor for column, factor in terms.items() if factor}
        model.addRow(low, high, len(used), np.array(list(used), dtype=np.int32), np.array(list(used.values())))
    model.run()
    return bool(model.getModelStatus() == highspy.HighsModelStatus.kInfeasible)
