"""Reports one by one and of many apps at once, as one mapping."""

import math

import pytest

from themis.bids import AppReport, GangDemand, RhoOf
from themis.reports import ReportGroup, Reports

WANTS = (GangDemand(job_id="j", min_gpus=1, max_gpus=2),)


def report(app_id, rho=1.0, demands=WANTS):
    return AppReport(app_id=app_id, round_id=3, rho=rho, t_shared_s=rho, t_ideal_s=1.0, demands=demands)


class Told(ReportGroup):
    """A group by reports that are there already; counts those that were made."""

    def __init__(self, *reports):
        super().__init__(3)
        self.reports = {each.app_id: each for each in reports}
        self.made = []

    @property
    def app_ids(self):
        return self.reports.keys()

    def wanting(self):
        return [(app_id, each.demands) for app_id, each in self.reports.items() if each.demands]

    def worst(self, most):
        return sorted((-each.rho, app_id) for app_id, each in self.reports.items() if each.demands)[:most]

    def tells(self, rho_of):
        return rho_of is RhoOf.NO_APP or not any(math.isnan(each.rho) for each in self.reports.values())

    def _make(self, app_id):
        self.made.append(app_id)
        return self.reports[app_id]


def test_a_report_of_a_group_is_made_where_somebody_looks_at_it_and_once():
    group = Told(report("b"), report("c"))
    reports = Reports({"a": report("a")}, [group])
    assert list(reports) == ["a", "b", "c"]
    assert len(reports) == 3
    assert group.made == []
    assert reports["c"] is reports["c"]
    assert reports.get("b") == report("b")
    assert group.made == ["c", "b"]
    assert reports == {"a": report("a"), "b": report("b"), "c": report("c")}


def test_nobody_else_is_among_them():
    reports = Reports({"a": report("a")}, [Told(report("b"))])
    assert "d" not in reports
    assert reports.get("d") is None
    with pytest.raises(KeyError):
        reports["d"]


def test_the_worst_of_all_come_first_and_of_equals_the_least_id():
    groups = [Told(report("b", 2.0), report("e", 5.0), report("x", 9.0, ())), Told(report("d", 2.0))]
    reports = Reports({"a": report("a", 2.0), "c": report("c", math.inf), "y": report("y", 9.0, ())}, groups)
    assert reports.worst(9) == ["c", "e", "a", "b", "d"]
    assert reports.worst(3) == ["c", "e", "a"]
    assert groups[0].made == groups[1].made == []


def test_who_wants_nothing_is_not_among_those_that_want():
    reports = Reports({"a": report("a"), "y": report("y", 1.0, ())}, [Told(report("b"), report("x", 1.0, ()))])
    assert reports.wanting() == [("a", WANTS), ("b", WANTS)]
