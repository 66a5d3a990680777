"""Every check of the audit passes a clean run, and fails on a damaged one."""

from __future__ import annotations

import pytest
from audit_samples import (
    RHO,
    a_round,
    changed,
    dropped,
    ended,
    found,
    lease,
    rows,
    run_of,
    started,
    with_limits,
)

from themis.choices import Bidders
from themis_lab.testbed import audit_idle, audit_leases, audit_ownership, audit_progress, audit_rounds
from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_values import HistoryLine


def history(*lines: tuple[int, str, int]) -> tuple[HistoryLine, ...]:
    return tuple(HistoryLine(incarnation=number, event=event, iteration=at) for number, event, at in lines)


GOOD_HISTORY = history(
    (1, "start", 0), (1, "checkpoint", 50), (1, "stop", 85), (2, "start", 85), (2, "checkpoint", 150), (2, "end", 200)
)


def test_clean_run_passes_every_check_and_each_examined_something():
    result = audit(run_of(rows(), histories={("a", "j"): GOOD_HISTORY}, rho=RHO))
    assert result.clean, result.violations
    assert all(result.checks.values()), result.checks
    # GPU m0/1 changed hands: 9 s and 8.7 s of its leases ran tasks.
    assert result.measured[audit_idle.LEASED] == pytest.approx(14.0 + 9.0 + 9.0)
    assert result.measured[audit_idle.LEASED_IDLE] == pytest.approx(0.2 + 0.2 + 0.1 + 0.2 + 0.1 + 0.2 + 0.5 + 0.1)


def test_run_without_events_has_no_violation():
    result = audit(run_of([], targets={}))
    assert result.clean
    assert not any(result.checks.values())


# ---- ownership


def test_gpu_with_two_leases_is_found():
    early = [
        *rows(),
        lease(5.0, "lease_granted", "c", 9, "m0/0", 11.0, 0),
        lease(6.0, "lease_released", "c", 9, "m0/0", 0, 0),
    ]
    result = found(early, audit_ownership.ONE_LEASE)
    assert "m0/0 granted to c at 5.00 s while a holds it" in result.violations[0]


def test_gpu_with_two_tasks_is_found_despite_valid_leases():
    late_end = changed("tasks_ended", {}, app="a", at_s=10.4)
    result = audit(run_of(late_end))
    checks = {text.split(": ")[0] for text in result.violations}
    assert audit_ownership.ONE_TASK in checks  # a's tasks still run on m0/1 when b's begin
    assert audit_ownership.WITHIN_LEASE in checks  # and past their lease


def test_task_outside_any_lease_is_found():
    stray = [*rows(), started(5.0, "c", 1, ["m0/0"], 0), ended(5.5, "c", 1, ["m0/0"], 0, [75], requested=True)]
    result = audit(run_of(stray))
    assert any(text.startswith(audit_ownership.WITHIN_LEASE) and "c/j #1" in text for text in result.violations)


def test_task_before_its_lease_is_found():
    early = changed("tasks_started", {}, app="a", at_s=1.05)
    found(early, audit_ownership.WITHIN_LEASE)


def test_tasks_of_a_lost_app_master_end_with_it():
    lost = [row for row in rows() if not (row[1] == "tasks_ended" and row[2] == "b" and row[3]["incarnation"] == 1)]
    lost.append((16.0, "am_lost", "b", {"attempt": 1, "reason": "exit code 1"}))
    assert audit(run_of(lost)).clean


def test_tasks_of_revoked_lease_may_end_slightly_later():
    forced = changed("lease_released", {}, app="a")
    forced = [
        (t, "lease_revoked" if d.get("lease_id") == 2 and k == "lease_released" else k, a, d) for t, k, a, d in forced
    ]
    forced = [(10.1, k, a, d) if k == "tasks_ended" and t == 10.0 else (t, k, a, d) for t, k, a, d in forced]
    forced = [(10.05, k, a, d) if k == "lease_revoked" else (t, k, a, d) for t, k, a, d in forced]
    assert audit(run_of(forced)).clean


def test_another_job_on_a_bound_gpu_is_found():
    result = found(changed("lease_granted", {"job_id": "other"}, app="b"), audit_ownership.BOUND_JOB)
    assert "b/j #1 on m0/1, which is bound to other" in result.violations[0]


def test_round_that_ends_a_bound_lease_is_found():
    found(changed("lease_expiring", {"job_id": "j"}), audit_ownership.BOUND_KEPT)


def test_bound_lease_may_expire_as_its_gpu_is_closed():
    closed = changed("lease_expiring", {"job_id": "j", "round_id": 0})
    assert not [text for text in audit(run_of(closed)).violations if text.startswith(audit_ownership.BOUND_KEPT)]


# ---- idle


def test_idle_gpus_are_no_violation_under_a_policy_that_may_wait():
    may_wait = (-1.0, "rm_started", "", {"cluster": "tiny", "work_conserving": False})
    assert audit(run_of([may_wait, *changed("round_granted", {"usable_left": 3}, place=1)])).clean


def test_round_that_leaves_usable_gpus_is_found():
    result = found(changed("round_granted", {"usable_left": 3}, place=1), audit_idle.NOTHING_USABLE)
    assert "round 2 left 3 usable GPUs" in result.violations[0]


def idle_rows(planned: tuple[str, ...] = ("j",), granted_at_s: float = 9.0) -> list:
    return [
        (0.0, "app_submitted", "a", {}),
        (0.5, "tuner", "a", {"phase": 0, "phases": 1, "running": list(planned), "stopped": [], "best": None}),
        (1.0, "am_registered", "a", {"attempt": 1, "pid": 1}),
        *a_round(1, 1.0, free={"m0": 2}, demand={"a": 2}, auction={}),
        *a_round(2, granted_at_s, free={"m0": 2}, demand={"a": 2}, auction={"a": {"m0": 2}}),
        lease(granted_at_s, "lease_granted", "a", 1, "m0/0", 30.0, 2),
        lease(granted_at_s, "lease_granted", "a", 2, "m0/1", 30.0, 2),
        started(granted_at_s, "a", 1, ["m0/0", "m0/1"], 0),
        ended(15.0, "a", 1, ["m0/0", "m0/1"], 200, [0], requested=False),
        lease(15.0, "lease_released", "a", 1, "m0/0", 0, 0),
        lease(15.0, "lease_released", "a", 2, "m0/1", 0, 0),
        (15.0, "app_state", "a", {"state": "FINISHED"}),
    ]


def test_idle_gpus_with_waiting_job_are_found():
    result = found(idle_rows(), audit_idle.NOT_IDLE, targets={"a": 200})
    assert "m0/0 free from 1.00 s to 9.00 s while a job of a waits" in result.violations[0]


def test_gpus_may_be_idle_during_a_round():
    assert audit(run_of(idle_rows(granted_at_s=3.5), targets={"a": 200})).clean


def test_gpus_may_be_idle_without_waiting_job():
    assert audit(run_of(idle_rows(planned=()), targets={"a": 200})).clean


def test_gpus_may_be_idle_if_gang_does_not_fit():
    from msgspec.structs import replace

    run = run_of(idle_rows(), targets={"a": 200})
    jobs = {key: replace(job, gpus_per_task=4) for key, job in run.jobs.items()}
    assert audit(replace(run, jobs=jobs)).clean


def waiting_rows(end_s: float, *more: tuple) -> list:
    """Return rows in which a job waits from 1 s on and no round runs."""
    return [
        (0.0, "rm_started", "", {"cluster": "tiny"}),
        (0.1, "app_submitted", "a", {}),
        (0.5, "am_registered", "a", {"attempt": 1, "pid": 1}),
        (1.0, "tuner", "a", {"phase": 0, "phases": 1, "running": ["j"], "stopped": [], "best": None}),
        *more,
        (end_s, "client", "", {}),
    ]


def test_waiting_job_without_round_is_found():
    result = found(waiting_rows(300.0), audit_idle.NOT_IDLE, targets={})
    assert "m0/0 free from 1.00 s to 300.00 s while a job of a waits (j, 1 more GPUs" in result.violations[0]


def test_repeated_plan_does_not_restart_wait():
    again = [(at_s, "tuner", "a", {"running": ["j"], "best": str(at_s)}) for at_s in (3.0, 5.0, 7.0)]
    found(waiting_rows(8.0, *again), audit_idle.NOT_IDLE, targets={})


@pytest.mark.parametrize("end", ["am_lost", "app_state"])
def test_app_without_master_does_not_wait(end):
    gone = (3.0, end, "a", {"attempt": 1, "reason": "killed", "state": "KILLED"})
    assert audit(run_of(waiting_rows(300.0, gone), targets={})).clean
    back = (200.0, "am_registered", "a", {"attempt": 2, "pid": 2})
    assert audit(run_of(waiting_rows(300.0, gone, back), targets={})).clean


def test_no_app_waits_without_resource_manager():
    restarted = (10.0, "rm_started", "", {"cluster": "tiny", "recovered": True})
    assert audit(run_of(waiting_rows(12.0, restarted), targets={})).clean
    found(waiting_rows(14.0, restarted), audit_idle.NOT_IDLE, targets={})


def between_rounds(end_s: float, *more: tuple) -> list:
    """Return rows: the only round serves `a`; the demand of `b` arises after it, at 4 s, and m0/1 is free."""
    return [
        *waiting_rows(end_s),
        *a_round(1, 1.5, free={"m0": 2}, demand={"a": 1}, auction={"a": {"m0": 1}}),
        lease(1.5, "lease_granted", "a", 1, "m0/0", 11.5, 1),
        started(1.6, "a", 1, ["m0/0"], 0),
        (3.5, "am_registered", "b", {"attempt": 1, "pid": 2}),
        (4.0, "tuner", "b", {"phase": 0, "phases": 1, "running": ["j"], "stopped": [], "best": None}),
        *more,
    ]


def test_unserved_demand_between_rounds_is_found():
    result = found(between_rounds(9.0), audit_idle.NOT_IDLE, targets={})
    assert "m0/1 free from 4.00 s to 9.00 s while a job of b waits" in result.violations[0]


def test_demand_served_in_time_is_no_violation():
    served = [
        *a_round(2, 6.5, free={"m0": 1}, demand={"b": 1}, auction={"b": {"m0": 1}}),
        lease(6.5, "lease_granted", "b", 2, "m0/1", 16.5, 2),
        started(6.7, "b", 1, ["m0/1"], 0),
    ]
    assert audit(run_of(between_rounds(9.0, *served), targets={})).clean


@pytest.mark.parametrize(("end_s", "clean"), [(9.9, True), (10.2, False)])
def test_crashed_job_may_pause_before_it_waits(end_s, clean):
    crash = [
        (5.0, "job_restarted", "a", {"job_id": "j", "reason": "crash", "restarts": 1}),
        ended(4.9, "a", 1, ["m0/0"], 0, [1], requested=False),
        (5.0, "lease_released", "a", {"lease_id": 1, "gpu": "m0/0", "reason": "its lease ended"}),
    ]
    without_b = [row for row in between_rounds(end_s, *crash) if row[2] != "b"]
    idle = [text for text in audit(run_of(without_b, targets={})).violations if text.startswith(audit_idle.NOT_IDLE)]
    assert clean is not bool(idle), idle


def test_job_with_reserved_gpus_does_not_wait():
    reserved = lease(5.0, "lease_reserved", "b", 2, "m0/0", 15.0, 1)
    result = audit(run_of(between_rounds(11.0, reserved), targets={}))
    assert not [text for text in result.violations if text.startswith(audit_idle.NOT_IDLE)]


def test_lease_without_tasks_is_found():
    silent = [row for row in rows() if not (row[1] in ("tasks_started", "tasks_ended") and row[2] == "a")]
    result = audit(run_of(silent, targets={"b": 100}))
    assert any(text.startswith(audit_idle.LEASE_USED) for text in result.violations)


# ---- leases


def test_lease_not_renewed_in_time_is_found():
    found(dropped("lease_renewed"), audit_leases.IN_TIME)


def test_lease_that_outlives_its_app_is_found():
    later = changed("lease_released", {}, app="a", place=1, at_s=18.9)
    result = found(later, audit_leases.WITH_APP)
    assert "ended at 18.90 s" in result.violations[0]


def test_endless_lease_of_ended_app_is_found():
    never = dropped("lease_released", app="a", place=1)
    result = found(never, audit_leases.WITH_APP)
    assert "never ended" in result.violations[0]


def test_lease_granted_to_ended_app_is_found():
    after = [
        *rows(),
        lease(18.0, "lease_granted", "a", 9, "m0/0", 28.0, 0),
        lease(18.1, "lease_released", "a", 9, "m0/0", 0, 0),
    ]
    result = found(after, audit_leases.WITH_APP)
    assert "began at 18.00 s" in result.violations[0]


# ---- progress


def test_iterations_lost_at_a_requested_stop_are_found():
    # It had done 80 iterations, but only the checkpoint at 50 was kept.
    lost = [
        (t, k, a, {**d, "iteration": 50})
        if k in ("tasks_ended", "tasks_started") and d.get("iteration") == 85
        else (t, k, a, d)
        for t, k, a, d in rows()
    ]
    result = found(lost, audit_progress.AFTER_STOP)
    assert "with iteration 50 safe, but had done 80" in result.violations[0]


def test_resume_before_stop_iteration_is_found():
    result = audit(run_of(changed("tasks_started", {"iteration": 50}, app="a", place=1)))
    assert {text.split(": ")[0] for text in result.violations} == {audit_progress.AFTER_STOP, audit_progress.NOT_BACK}


def test_resume_after_stop_iteration_is_found():
    found(changed("tasks_started", {"iteration": 90}, app="a", place=1), audit_progress.AFTER_STOP)


def test_resume_from_old_checkpoint_after_crash_is_found():
    found(changed("tasks_started", {"iteration": 45}, app="b", place=1), audit_progress.AFTER_CRASH)


def test_forgotten_checkpoint_after_crash_is_found():
    result = audit(run_of(changed("tasks_started", {"iteration": 0}, app="b", place=1)))
    assert {text.split(": ")[0] for text in result.violations} == {audit_progress.AFTER_CRASH, audit_progress.NOT_BACK}


def test_checkpoint_that_goes_backwards_is_found():
    back = [*rows(), (17.0, "checkpoint", "b", {"job_id": "j", "iteration": 10})]
    found(back, audit_progress.NOT_BACK)


def test_iterations_lost_in_crash_are_allowed_and_counted():
    crash = [*rows(), (15.9, "job_progress", "b", {"job_id": "j", "iteration": 57, "loss": 1.0})]
    result = audit(run_of(crash))
    assert result.clean
    assert result.measured[audit_progress.LOST] == 17


def test_concurrent_incarnations_are_found():
    twice = [*rows(), started(17.0, "b", 3, ["m0/1"], 40)]
    result = audit(run_of(twice))
    assert any(text.startswith(audit_progress.IN_TURN) and "and runs" in text for text in result.violations)


def test_incarnation_number_that_does_not_grow_is_found():
    again = changed("tasks_started", {"incarnation": 1}, app="a", place=1)
    again = [
        (t, k, a, {**d, "incarnation": 1}) if k == "tasks_ended" and a == "a" else (t, k, a, d) for t, k, a, d in again
    ]
    result = audit(run_of(again))
    assert any(text.startswith(audit_progress.IN_TURN) for text in result.violations)


def test_unreported_checkpoint_is_valid_after_lost_app_master():
    lost = [row for row in rows() if not (row[1] in ("tasks_ended", "checkpoint") and row[2] == "b" and row[0] == 16.0)]
    lost.append((16.0, "am_lost", "b", {"attempt": 1, "reason": "killed"}))
    assert audit(run_of(lost)).clean


def test_finished_job_below_target_is_found():
    result = found(rows(), audit_progress.TARGET, targets={"a": 200, "b": 101})
    assert "b/j finished at iteration 100 of 101" in result.violations[0]


def test_unreported_end_is_known_from_history():
    untold = [row for row in rows() if not (row[1] == "tasks_ended" and row[2] == "a" and row[3]["iteration"] == 200)]
    untold.append((18.5, "am_lost", "a", {"attempt": 1, "reason": "killed"}))
    whole = audit(run_of(untold, histories={("a", "j"): GOOD_HISTORY}))
    assert not [text for text in whole.violations if text.startswith(audit_progress.TARGET)]
    short = audit(run_of(untold, histories={("a", "j"): GOOD_HISTORY[:5]}))
    assert any("its tasks saved iteration 150 of 200" in text for text in short.violations)
    assert any("finished at iteration" in text for text in audit(run_of(untold)).violations)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (GOOD_HISTORY[:3] + history((2, "start", 84), (2, "end", 200)), "began after iteration 84"),
        (GOOD_HISTORY[:3] + history((2, "start", 90), (2, "end", 200)), "began after iteration 90"),
        (GOOD_HISTORY[:4] + history((2, "checkpoint", 60), (2, "end", 200)), "saved iteration 60 after 85"),
        (GOOD_HISTORY + history((7, "start", 200)), "it has no event"),
        (GOOD_HISTORY[:5], "its tasks saved iteration 150 of 200"),
    ],
)
def test_history_that_contradicts_events_is_found(lines, words):
    result = audit(run_of(rows(), histories={("a", "j"): tuple(lines)}))
    assert any(words in text for text in result.violations), result.violations
    expected = {audit_progress.WITNESS, audit_progress.TARGET}
    assert {text.split(": ")[0] for text in result.violations} <= expected


def test_unrecorded_checkpoint_is_no_violation():
    # Killed between the two: the events know of iteration 85 by the store, the history of 50 only.
    unnoted = history((1, "start", 0), (1, "checkpoint", 50), (2, "start", 85), (2, "end", 200))
    assert audit(run_of(rows(), histories={("a", "j"): unnoted})).clean


# ---- rounds


def test_round_without_end_is_found():
    found(dropped("round_ended"), audit_rounds.ENDS)


def test_round_with_two_ends_is_found():
    twice = [*rows(), (9.0, "round_ended", "", {"round_id": 2, "duration_ms": 1.0, "outcome": "granted"})]
    found(twice, audit_rounds.ENDS)


def test_overlapping_rounds_are_found():
    found(changed("round_ended", {}, at_s=9.5), audit_rounds.ENDS)


def test_last_round_may_be_open():
    going_on = [*rows(), (19.1, "round_started", "", {"round_id": 3, "free": {}, "renewable": {}, "active": []})]
    assert audit(run_of(going_on)).clean


def test_round_that_grants_more_than_free_is_found():
    result = found(changed("round_started", {"free": {"m0": 1}}, place=1), audit_rounds.WITHIN_FREE)
    assert "gives {'m0': 2} where only {'m0': 1} is" in result.violations[0]


@pytest.mark.parametrize("share", [-0.1, 1.2])
def test_payment_outside_unit_interval_is_found(share):
    found(changed("round_auctioned", {"payments": {"b": share}}, place=1), audit_rounds.PAYMENTS)


def test_payment_that_adds_gpus_is_found():
    found(changed("round_auctioned", {"proportional_fair": {"b": {}}}, place=1), audit_rounds.PAYMENT_TAKES)


def test_win_without_offer_is_found():
    granted = {"auction": {"b": {"m0": 1}, "a": {"m0": 1}}, "leftovers": {}}
    spoilt = changed("round_granted", granted, place=1)
    spoilt = [
        (t, k, a, {**d, "proportional_fair": granted["auction"]})
        if k == "round_auctioned" and t == 9.0
        else (t, k, a, d)
        for t, k, a, d in spoilt
    ]
    found(spoilt, audit_rounds.BIDDERS_WIN)


def test_too_many_asked_apps_are_found():
    result = found(changed("round_offered", {"apps": ["a", "b"]}, place=1), audit_rounds.WORST_ASKED)
    assert "asks 2 of 2 apps with a demand, not 1" in result.violations[0]


def test_offer_to_app_that_is_not_worst_is_found():
    spoilt = changed("round_reported", {"rho": {"a": 4.0, "b": 3.0}}, place=1)
    found(spoilt, audit_rounds.WORST_ASKED)


def test_other_bidders_than_the_worst_are_found_only_if_their_number_is_wrong():
    both, better = (
        changed("round_offered", {"apps": ["a", "b"]}, place=1),
        changed("round_reported", {"rho": {"a": 4.0, "b": 3.0}}, place=1),
    )
    assert audit(run_of(better, limits=with_limits(bidders=Bidders.PRESSED))).clean
    assert not audit(run_of(both, limits=with_limits(bidders=Bidders.PRESSED))).clean
    assert not audit(run_of(better, limits=with_limits(bidders=Bidders.ALL))).clean


def test_offers_of_other_policies_are_not_checked():
    assert audit(
        run_of(changed("round_offered", {"apps": ["a", "b"]}, place=1), limits=with_limits(policy="drf"))
    ).clean


def test_lease_without_round_is_found():
    result = found(changed("round_granted", {"leftovers": {}}, place=1), audit_rounds.LEASES_GRANTED)
    assert "a has 1 leases on m0 by round 2, which granted 0" in result.violations[0]
