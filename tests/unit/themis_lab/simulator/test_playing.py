"""A run that is made in part, examined, and observed."""

import pytest
from msgspec.structs import replace
from sim_cases import FREE, app, cluster, job, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from rm_plugin.policies.registry import make_policy
from rm_plugin.solvers.highs import HighsSolver
from themis.choices import LeaseEnds
from themis.leases import LeaseChangeKind
from themis_lab.simulator.observer import History
from themis_lab.simulator.simulation import Simulation

TWO = cluster((2,), (2,))
APPS = [app(f"a{n}", job("j0", 900 + 100 * n), job("j1", 2500, gpus=2), at_s=70.0 * n) for n in range(4)]


def simulation(**others):
    return Simulation(workload(*APPS), settings(TWO, record_rounds=True), **others)


def bare(record):
    """The record without what differs from run to run."""
    counts = replace(record.counts, bid_s=[], auction_s=[])
    return replace(record, wall_s=0.0, counts=counts)


class TestPlaying:
    def test_a_run_in_parts_is_the_run_in_one(self):
        run = simulation()
        run.play_rounds(2)
        run.play_until(300.0)
        for _ in range(3):
            run.play_until(run.arbiter.next_lease_round_s())
            run.play_rounds(1)
        assert bare(run.run()) == bare(simulation().run())

    def test_rounds_are_counted(self):
        run = simulation()
        run.play_rounds(3)
        assert run.counts.rounds >= 3
        assert not run.over
        run.play_rounds(10_000)
        assert run.over
        assert run.counts.rounds == len(run.rounds) < 10_000

    def test_up_to_a_time_leaves_the_round_of_that_time_to_come(self):
        run = simulation()
        run.play_until(70.0)
        assert sorted(run.apps) == ["a0", "a1"]
        assert (run.now_s, run.next_s, run.counts.rounds) == (70.0, 70.0, 1)
        run.play_until(run.arbiter.next_lease_round_s())
        snapshot, _ = run.arbiter.begin_round(run.now_s)
        assert snapshot.free.gpus == 4
        assert not any(each.kept for each in snapshot.apps)

    def test_time_passes_without_rounds(self):
        run = Simulation(workload(app("a", job(iterations=100)), app("b", job(), job("j1"))), settings(TWO, costs=FREE))
        run.play_rounds(1)
        run.pass_time(5000.0)
        assert (run.now_s, run.counts.rounds) == (5000.0, 1)
        # Its work was done, and its lease given back.
        assert [each.name for each in run.ended] == ["a", "b"]
        assert run.ended[0].completion_s == pytest.approx(100.0)

    def test_reports_and_bids_do_not_change_the_run(self):
        run, other = simulation(), simulation()
        for each in (run, other):
            each.play_until(570.0)
        snapshot, _ = run.arbiter.begin_round(run.now_s)
        assert run.report(snapshot, "a0").app_id == run.bid(snapshot, "a0").app_id == "a0"
        assert run.decide(snapshot) == run.decide(snapshot)
        assert run.decide(snapshot, make_policy("srtf")).snapshot.bids is None
        assert run.arbiter.table.live == other.arbiter.table.live


def test_a_round_is_recorded_by_falling_rho_and_equal_apps_by_name():
    apps = [app("zoe"), app("eve", job(iterations=10)), app("ann")]
    run = Simulation(workload(*apps), settings(TWO, record_rounds=True))
    run.play_rounds(1)
    (first,) = run.rounds
    assert first.rho["ann"] == first.rho["zoe"] < first.rho["eve"]
    assert list(first.rho) == list(first.demand_gpus) == ["eve", "ann", "zoe"]


def test_batched_answers_equal_single_answers():
    lone = [app(f"a{n:02}", job("j0", 900 + 70 * n, gpus=1 + n % 2), at_s=9.0 * n) for n in range(24)]
    # Staggered, so that some hold what they want as others' leases end.
    leases = LeasePolicy(checkpoint_lead_s=5.0, ends=LeaseEnds.STAGGERED)
    run = Simulation(workload(*APPS, *lone), settings(TWO, leases=leases))
    bids = content = 0
    run.play_rounds(1)
    for _ in range(8):
        # Up to the next moment with GPUs to hand out, before its round.
        run.play_until(run.arbiter.next_lease_round_s())
        snapshot, _ = run.arbiter.begin_round(run.now_s)
        reported = run.decide(snapshot).snapshot
        assert {name: run.bid(snapshot, name) for name in reported.bids} == reported.bids
        wanting = {name: each.demands for name, each in reported.answered.items() if each.demands}
        for name, said in reported.reports.items():
            assert run.report(snapshot, name).demands == said.demands == wanting.get(name, ())
            if name in wanting:
                assert run.report(snapshot, name) == said
        bids += sum(bool(bid.rows) for bid in reported.bids.values())
        content += len(reported.reports) - len(wanting)
        run.play_rounds(2)
    assert bids > 20
    assert content > 0


@pytest.mark.parametrize("ends", LeaseEnds)
def test_batched_renewal_answers_equal_single_answers(ends):
    lone = [app(f"a{n:02}", job("j0", 9000 + 70 * n, gpus=1 + n % 2), at_s=1.0 * (n // 8)) for n in range(16)]
    leases = LeasePolicy(checkpoint_lead_s=5.0, ends=ends)
    run = Simulation(workload(*APPS, *lone), settings(cluster((4,) * 8), leases=leases))
    run.play_rounds(1)
    together = 0
    for _ in range(20):
        due_s = run.arbiter.next_lease_round_s()
        if due_s is None:
            break
        run.play_until(due_s)
        snapshot, _ = run.arbiter.begin_round(run.now_s)
        reported = run.decide(snapshot).snapshot
        for name, said in reported.reports.items():
            if said.demands:
                together += 1
                assert run.report(snapshot, name) == said
        run.play_rounds(1)
    assert together > 40


def test_an_observer_receives_every_round_and_lease():
    history = History()
    record = simulation(observer=history).run()
    assert [result.snapshot.round_id for result in history.results] == [each.round_id for each in record.rounds]
    kinds = [change.kind for change in history.changes]
    assert kinds.count(LeaseChangeKind.RENEWED) == record.counts.renewed_gpus > 0
    granted = {change.lease.lease_id for change in history.changes if change.kind is LeaseChangeKind.GRANTED}
    released = [change.lease.lease_id for change in history.changes if change.kind is LeaseChangeKind.RELEASED]
    assert sorted(granted) == sorted(released)


def test_auctions_are_held_by_the_solver_that_is_given():
    class Spy(HighsSolver):
        calls = 0

        def solve(self, market, time_limit_s):
            Spy.calls += 1
            return super().solve(market, time_limit_s)

    record = simulation(solver=Spy()).run()
    assert Spy.calls >= record.counts.auctions > 0
