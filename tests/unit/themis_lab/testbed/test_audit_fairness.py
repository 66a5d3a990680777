"""The audit plays the apps of a run on the fluid fair cluster again, from the events alone."""

from __future__ import annotations

import pytest
from audit_samples import RHO, changed, declared, found, rows, run_of
from msgspec.structs import replace

from themis.queues import Queue, Queues, QueueUser
from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_fairness import FLUID_RHO


def test_reported_rho_is_compared_by_each_definition():
    result = audit(run_of(rows(), rho=RHO))
    assert result.clean
    assert result.checks[FLUID_RHO] == 6


@pytest.mark.parametrize("definition", ["fluid", "isolated_fluid", "themis_fluid"])
@pytest.mark.parametrize("app_id", ["a", "b"])
def test_another_rho_than_that_of_the_events_is_found(app_id, definition):
    reported = {**RHO, app_id: {**RHO[app_id], definition: RHO[app_id][definition] * 1.001}}
    (text,) = found(rows(), FLUID_RHO, rho=reported).violations
    assert f"{app_id} has rho" in text
    assert f"by {definition}" in text


def test_rho_that_was_not_reported_is_found():
    reported = {**RHO, "a": {"themis": 1.0}}
    assert len(found(rows(), FLUID_RHO, rho=reported).violations) == 3


def test_app_that_was_killed_leaves_the_fluid_cluster():
    # `b` is killed at 4 s there, so `a` has both GPUs from then on, and ends after 2 + 2 + 14 / 2 = 11 s. N is 13 / 11.
    killed = changed("app_state", {"state": "KILLED", **declared(2.0, 40.0, 1.0)}, app="b", at_s=4.0)
    reported = {"a": {"fluid": 15.2 / 11.0, "isolated_fluid": 15.2 * 1.1 / 13.0, "themis_fluid": 15.2 * 1.1 / 13.0}}
    result = audit(run_of(killed, rho=reported))
    assert result.checks[FLUID_RHO] == 3
    assert not [text for text in result.violations if text.startswith(FLUID_RHO)]


def test_nothing_is_compared_while_an_app_has_not_ended():
    running = changed("app_state", {"state": "RUNNING"}, app="b")
    assert audit(run_of(running, rho=RHO)).checks[FLUID_RHO] == 0


def test_nothing_is_compared_after_a_machine_was_lost():
    lost = [*rows(), (3.0, "machine_lost", "", {"machine_id": "m1", "reason": "it does not answer"})]
    assert audit(run_of(lost, rho=RHO)).checks[FLUID_RHO] == 0


def test_nothing_is_compared_if_an_end_has_no_declaration():
    """A service of an earlier version wrote that event."""
    earlier = changed("app_state", {"declaration": None}, app="b")
    result = audit(run_of(earlier, rho=RHO))
    assert result.checks[FLUID_RHO] == 0
    assert not [text for text in result.violations if text.startswith(FLUID_RHO)]


def test_users_have_the_weights_of_the_run():
    # Of two GPUs `a` of a user of weight 3 has 1.5 and `b` 0.5: `b` ends after 8 s.
    owned = [
        (at_s, kind, app, {**detail, "user": app} if kind == "app_submitted" else detail)
        for at_s, kind, app, detail in rows()
    ]
    queues = Queues(queues={"default": Queue(name="default", users={"a": QueueUser(weight=3.0)})})
    run = run_of(owned, rho={"b": {"fluid": 17.2 / 8.0, "isolated_fluid": 17.2 / 8.0, "themis_fluid": 17.2 / 16.0}})
    assert [text for text in audit(run).violations if text.startswith(FLUID_RHO)]
    weighted = audit(replace(run, queues=queues))
    assert weighted.checks[FLUID_RHO] == 3
    assert not [text for text in weighted.violations if text.startswith(FLUID_RHO)]
