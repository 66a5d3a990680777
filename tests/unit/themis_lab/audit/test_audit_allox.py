"""The auditor of AlloX: what it draws, that it finds planted faults, and what it shrinks them to."""

import json
import random

import numpy as np
import pytest
from msgspec.structs import replace

from rm_plugin.policies.allox import decision, matching
from rm_plugin.policies.allox.instance_file import parse_instance
from themis_cli.main import main
from themis_lab.audit.allox import properties
from themis_lab.audit.allox.instances import instance_document, random_instance, smaller
from themis_lab.audit.allox.properties import PROPERTIES
from themis_lab.audit.instance_audit import InstanceAudit, audit_instances
from themis_lab.audit.subjects import SUBJECTS

ALLOX = SUBJECTS["allox"]


def audited(names=tuple(PROPERTIES), planned=40, seed=1):
    return audit_instances(InstanceAudit(subject=ALLOX, seed=seed, planned=planned, names=list(names)), lambda: True)


def test_random_instances_violate_no_property():
    found = audited()
    assert (found.drawn, found.violations, found.findings) == (40, 0, [])


def test_properties_apply_to_many_instances():
    cases = [random_instance(1, number) for number in range(60)]
    small = [case for case in cases if len(case.machines) ** len(case.jobs) <= properties._MAX_COMPARED]
    overloaded = [case for case in cases if len({job.user for job in case.jobs}) > 1 and case.alpha < 0.5]
    assert min(len(small), len(overloaded)) > 15


def test_matching_that_is_not_the_cheapest_is_found_and_shrunk(monkeypatch):
    def greedy(cost):
        columns = []
        for row in cost:
            free = [column for column in np.argsort(row, kind="stable").tolist() if column not in columns]
            columns.append(free[0])
        return np.arange(len(cost)), np.array(columns)

    monkeypatch.setattr(matching, "linear_sum_assignment", greedy)
    found = audited(["optimality"], planned=60)
    assert found.violations
    assert len(found.findings[0].instance.jobs) <= 3


def test_decision_that_forgets_the_last_start_starves_a_user(monkeypatch):
    ranked = decision.rank_users
    monkeypatch.setattr(decision, "rank_users", lambda waiting, users: sorted(ranked(waiting, {})))
    found = audited(["starvation"], planned=200)
    assert found.violations
    assert "has run nothing for" in found.findings[0].what


def test_decision_that_depends_on_the_order_is_found(monkeypatch):
    monkeypatch.setattr(decision, "arrival_order", lambda job: 0)
    assert audited(["determinism"], planned=200).violations


def test_decision_that_ignores_progress_is_found(monkeypatch):
    """`decisions` and `determinism` saw only users without progress before."""
    ranked = decision.rank_users
    monkeypatch.setattr(decision, "rank_users", lambda waiting, users: ranked(waiting, {}))
    found = audited(["decisions"], planned=60)
    assert found.violations
    assert "users are not let in by their progress; progress: " in found.findings[0].what


def test_decision_that_depends_on_the_order_of_users_is_found(monkeypatch):
    ranked = decision.rank_users

    def in_order_of_users(waiting, users):
        names = ranked(waiting, users)
        return sorted(
            names,
            key=lambda name: (
                users[name].progress if name in users else 0.0,
                [*users].index(name) if name in users else -1,
            ),
        )

    monkeypatch.setattr(decision, "rank_users", in_order_of_users)
    assert audited(["determinism"], planned=100).violations


def test_instances_have_users_of_equal_and_of_different_progress():
    cases = [random_instance(1, number) for number in range(60)]
    spreads = [len({state.progress for state in case.users.values()}) for case in cases if len(case.users) == 3]
    assert {1, 2, 3} <= set(spreads)


def test_documents_are_instances_of_the_command(capsys, tmp_path):
    for number in range(5):
        case = random_instance(1, number)
        instance = parse_instance(json.loads(json.dumps(instance_document(case))))
        assert (instance.jobs, instance.machines) == (case.jobs, case.machines)
    assert main(["audit", "--mechanism", "allox", "--show", "3"]) == 0
    path = tmp_path / "shown.json"
    path.write_text(capsys.readouterr().out)
    assert main(["allox", "--instance", str(path), "--json"]) == 0


def test_smaller_instances_are_valid():
    for candidate in smaller(random_instance(1, 0)):
        parse_instance(instance_document(candidate))
        for check in PROPERTIES.values():
            assert check(candidate, random.Random(1)) == []


def test_command_reports_a_violation_with_its_instance(monkeypatch, capsys):
    def broken(case, _):
        return ["two jobs"] if len(case.jobs) > 1 else []

    monkeypatch.setitem(SUBJECTS, "allox", replace(ALLOX, properties={**PROPERTIES, "optimality": broken}))
    words = ["audit", "--mechanism", "allox", "--markets", "3", "--property", "optimality"]
    assert main([*words, "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert len(findings[0]["instance"]["jobs"]) == 2
    assert len(findings[0]["instance"]["machines"]) == 1
    assert main(words) == 1
    assert "VIOLATION of optimality" in capsys.readouterr().out


@pytest.mark.parametrize("words", [("--family", "x"), ("--worlds", "3"), ("--property", "envy"), ("--show", "a")])
def test_bad_options_exit_with_2(capsys, words):
    assert main(["audit", "--mechanism", "allox", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
