"""The auditor of OEF: what it draws, finds and shrinks."""

import json

import pytest
from msgspec.structs import replace

from rm_plugin.policies.oef.instance_file import parse_instance
from themis_cli.main import main
from themis_lab.audit.instance_audit import InstanceAudit, audit_instances, document, text
from themis_lab.audit.oef.instances import instance_document, random_instance, smaller
from themis_lab.audit.oef.properties import CLAIMS, PROPERTIES
from themis_lab.audit.subjects import SUBJECTS


def audited(names, planned=30, seed=1):
    return audit_instances(
        InstanceAudit(subject=SUBJECTS["oef"], seed=seed, planned=planned, names=names), lambda: True
    )


def test_random_instances_violate_no_property():
    found = audited(list(PROPERTIES), planned=15)
    assert (found.drawn, found.violations, found.findings) == (15, 0, [])


def test_false_claims_get_a_small_counterexample_and_are_no_violation():
    found = audited(list(CLAIMS))
    assert found.violations == 0
    assert {finding.name for finding in found.findings} >= {"understatement", "neighbours"}
    sizes = [len(finding.instance.tenants) for finding in found.findings if finding.name == "understatement"]
    assert sizes == [2]


def broken(instance, _):
    if any(tenant.speedup[-1] > 1.2 for tenant in instance.tenants):
        return ["too fast"]
    return []


def test_a_violation_is_shrunk_and_fails_the_command(monkeypatch, capsys):
    checks = {**PROPERTIES, "order": broken}
    monkeypatch.setitem(SUBJECTS, "oef", replace(SUBJECTS["oef"], properties=checks))
    assert main(["audit", "--mechanism", "oef", "--markets", "1", "--property", "order", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["name"], finding["what"]) == ("order", "too fast")
    assert len(finding["instance"]["tenants"]) == len(finding["instance"]["types"]) == 1


def test_an_exception_is_a_violation(monkeypatch):
    def raises(*_):
        raise ZeroDivisionError("nothing")

    monkeypatch.setitem(SUBJECTS, "oef", replace(SUBJECTS["oef"], properties={"order": raises}))
    found = audited(["order"], planned=1)
    assert found.findings[0].what == "raises ZeroDivisionError: nothing"


def test_equal_seeds_draw_equal_instances():
    assert random_instance(1, 3) == random_instance(1, 3)
    assert random_instance(1, 3) != random_instance(2, 3)


def test_documents_can_be_solved_again():
    instance = random_instance(1, 0)
    assert parse_instance(json.loads(json.dumps(instance_document(instance)))) == instance


def test_smaller_instances_are_valid():
    for candidate in smaller(random_instance(1, 0)):
        parse_instance(instance_document(candidate))


def test_time_that_is_over_ends_the_audit():
    found = audit_instances(InstanceAudit(subject=SUBJECTS["oef"], seed=1, planned=5, names=["equal"]), lambda: False)
    assert (found.ended, found.drawn) == ("time", 0)
    assert document(found)["instances"] == 0
    assert text(found).startswith("0 of 5 instances")


def test_show_prints_an_instance(capsys):
    assert main(["audit", "--mechanism", "oef", "--show", "3"]) == 0
    assert parse_instance(json.loads(capsys.readouterr().out)) == random_instance(1, 3)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--family", "small"), "--family has no meaning for OEF"),
        (("--worlds", "3"), "--worlds has no meaning for OEF"),
        (("--property", "envies"), "unknown property: 'envies'; did you mean 'envy'?"),
        (("--show", "a:3"), "--show wants a number for OEF"),
        (("--markets", "-1"), "--markets must be 0 or more"),
    ],
)
def test_bad_options_exit_with_2(capsys, words, said):
    assert main(["audit", "--mechanism", "oef", *words]) == 2
    assert said in capsys.readouterr().err
