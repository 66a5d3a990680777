"""Lifecycle tables: whole, every state reachable and ending, final states final."""

import re

import pytest

from themis.errors import InvariantError
from themis.lifecycle import APP_LIFECYCLE, JOB_LIFECYCLE, LEASE_LIFECYCLE, LIFECYCLES, AppState, JobState, LeaseState

BY_NAME = {lifecycle.name: lifecycle for lifecycle in LIFECYCLES}
FINAL = {
    "app": {AppState.FINISHED, AppState.FAILED, AppState.KILLED},
    "job": {JobState.FINISHED, JobState.FAILED, JobState.KILLED},
    "lease": {LeaseState.RELEASED, LeaseState.REVOKED},
}
# A lease begins reserved or granted; everything else begins in the first state of its table.
FIRST = {"app": {AppState.SUBMITTED}, "job": {JobState.WAITING}, "lease": {LeaseState.RESERVED, LeaseState.GRANTED}}
STATES = {"app": AppState, "job": JobState, "lease": LeaseState}


def reachable(table, starts):
    seen, open_ = set(starts), list(starts)
    while open_:
        for state in table[open_.pop()]:
            if state not in seen:
                seen.add(state)
                open_.append(state)
    return seen


@pytest.mark.parametrize("name", sorted(BY_NAME))
class TestTables:
    def test_the_table_has_every_state(self, name):
        assert set(BY_NAME[name].table) == set(STATES[name])

    def test_every_state_is_reachable(self, name):
        assert reachable(BY_NAME[name].table, FIRST[name]) == set(STATES[name])

    def test_every_state_can_end(self, name):
        table = BY_NAME[name].table
        for state in table:
            assert reachable(table, {state}) & FINAL[name], state

    def test_final_states_are_those_that_nothing_follows(self, name):
        lifecycle = BY_NAME[name]
        assert {state for state in lifecycle.table if lifecycle.is_final(state)} == FINAL[name]

    def test_no_transition_is_listed_twice(self, name):
        for targets in BY_NAME[name].table.values():
            assert len(set(targets)) == len(targets)

    def test_the_figure_has_an_arrow_for_every_transition_and_end(self, name):
        lifecycle = BY_NAME[name]
        arrows = re.findall(r"^    (\S+) --> (\S+)$", lifecycle.to_mermaid(), flags=re.M)
        inner = [(old, new) for old, new in arrows if "[*]" not in (old, new)]
        assert inner == [(str(old), str(new)) for old, targets in lifecycle.table.items() for new in targets]
        assert {old for old, new in arrows if new == "[*]"} == {str(state) for state in FINAL[name]}
        assert [new for old, new in arrows if old == "[*]"] == [str(next(iter(lifecycle.table)))]


def test_a_lease_renews_onto_itself_but_not_once_it_is_expiring():
    assert LEASE_LIFECYCLE.allows(LeaseState.GRANTED, LeaseState.GRANTED)
    assert not LEASE_LIFECYCLE.allows(LeaseState.EXPIRING, LeaseState.GRANTED)


def test_a_lost_app_master_sends_its_app_back_to_accepted():
    assert APP_LIFECYCLE.allows(AppState.RUNNING, AppState.ACCEPTED)


def test_a_forbidden_step_names_the_subject_and_both_states():
    with pytest.raises(InvariantError, match=r"job j-1 cannot go from FAILED to RUNNING"):
        JOB_LIFECYCLE.check(JobState.FAILED, JobState.RUNNING, "j-1")
    assert JOB_LIFECYCLE.check(JobState.WAITING, JobState.STARTING, "j-1") is JobState.STARTING
