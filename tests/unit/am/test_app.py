"""The app in its master: leases by state, views, restart costs, and the clock."""

import pytest
from agent_cases import cluster_of
from msgspec.structs import replace

from am.app import App, kept_code
from am.journal import Journal
from am.searched_app import PRIOR_RESTART_S
from themis.apps import AppSpec, CodeArchive, Estimate, JobSpec, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.cluster import Allocation, Cluster, GpuId
from themis.errors import MissingHereError
from themis.rho import SCHEDULE_DEFINITIONS
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message

SPEC = AppSpec(
    name="x",
    tuner=TunerSpec(name="single"),
    program=ProgramSpec(name="p"),
    jobs=tuple(JobSpec(job_id=f"j{place}", iterations_total=100) for place in range(2)),
    estimate=Estimate(serial_iteration_s=2.0),
)


@pytest.fixture
def app(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    registered = pb.Registered(
        app_id="app-1",
        spec=app_to_message(SPEC),
        cluster=cluster_to_message(cluster_of((2, 2), (2,), racks=("r0", "r1"))),
        submitted_at_s=900.0,
        now_s=1000.0,
        lease_s=600.0,
        checkpoint_lead_s=30.0,
        grace_s=30.0,
        active_apps=2,
        contention=1.5,
        bundle_rule="continuation",
    )
    yield App(registered, tmp_path, str(tmp_path), journal, VirtualClock(50.0))
    journal.close()


def lease(lease_id, gpu, state="GRANTED", expires_at_s=1600.0):
    machine, index = gpu.split("/")
    return pb.Lease(lease_id=lease_id, machine_id=machine, gpu_index=int(index), expires_at_s=expires_at_s, state=state)


def gpus(*texts):
    return frozenset(GpuId.parse(text) for text in texts)


def cluster_with(machine_id):
    """A cluster of one machine of two GPUs."""
    [machine] = cluster_of((2,)).machines
    return Cluster(name="c", machines=(replace(machine, machine_id=machine_id),))


def run_on(app, job_id, *texts):
    app.search.jobs[job_id].gpus = tuple(sorted(gpus(*texts)))


class TestLeases:
    UPDATE = pb.LeaseUpdate(
        version=1, leases=[lease(1, "m0/0"), lease(2, "m0/1", "EXPIRING"), lease(3, "m1/0", "RESERVED")]
    )

    def test_leases_are_grouped_by_state(self, app):
        app.take_leases(self.UPDATE)
        holdings = app.holdings()
        assert (holdings.granted, holdings.expiring, holdings.reserved) == (
            gpus("m0/0"),
            gpus("m0/1"),
            gpus("m1/0"),
        )

    def test_update_replaces_all_leases(self, app):
        app.take_leases(self.UPDATE)
        app.take_leases(pb.LeaseUpdate(version=2, leases=[lease(3, "m1/0")]))
        assert app.holdings().granted == gpus("m1/0")
        assert app.holdings().reserved == app.holdings().expiring == frozenset()

    def test_older_update_is_ignored(self, app):
        app.take_leases(pb.LeaseUpdate(version=2, leases=[lease(3, "m1/0")]))
        app.take_leases(self.UPDATE)
        assert app.holdings().granted == gpus("m1/0")

    def test_late_update_does_not_restore_returned_lease(self, app):
        app.take_leases(self.UPDATE)
        assert app.give_back(gpus("m0/0", "m0/1")) == [1, 2]
        late = pb.LeaseUpdate(version=2, leases=self.UPDATE.leases)
        app.take_leases(late)
        assert app.holdings().granted == app.holdings().expiring == frozenset()

    @pytest.mark.parametrize(("round_at_s", "renewable"), [(1569.9, {}), (1570.0, {"m0": 1}), (1700.0, {"m0": 1})])
    def test_granted_leases_that_end_within_lead_are_renewable(self, app, round_at_s, renewable):
        app.take_leases(self.UPDATE)
        run_on(app, "j0", "m0/0", "m0/1")
        [gang] = app.view({}, round_at_s).held
        assert gang.renewable_gpus == Allocation.of(renewable)


class TestView:
    def test_view_includes_running_and_planned_gangs(self, app):
        app.take_leases(
            pb.LeaseUpdate(
                version=1,
                leases=[lease(1, "m0/0", expires_at_s=2000.0), lease(2, "m0/1"), lease(3, "m1/0", "RESERVED")],
            )
        )
        run_on(app, "j0", "m0/0", "m0/1")
        view = app.view({"j1": tuple(gpus("m1/0"))}, 1600.0)
        assert [(gang.job_id, gang.gpus, gang.renewable_gpus) for gang in view.held] == [
            ("j0", Allocation.of({"m0": 2}), Allocation.of({"m0": 1})),
            ("j1", Allocation.of({"m1": 1}), Allocation()),
        ]
        assert view.elapsed_s == 100.0
        assert view.work_total_gpu_s == 2 * 100 * 2.0

    def test_gang_with_missing_lease_is_omitted(self, app):
        app.take_leases(pb.LeaseUpdate(version=1, leases=[lease(1, "m0/0")]))
        run_on(app, "j0", "m0/0", "m0/1")
        assert app.view({}).held == ()

    def test_rho_counts_held_gpus(self, app):
        app.take_leases(pb.LeaseUpdate(version=1, leases=[lease(1, "m0/0"), lease(2, "m0/1")]))
        idle = app.rho_now(app.view({}))
        run_on(app, "j0", "m0/0")
        run_on(app, "j1", "m0/1")
        # 400 GPU s on two GPUs of six with N_avg 1.5: t_ideal 300 s; 100 s waited, 200 s to go.
        assert app.rho_now(app.view({})) == pytest.approx(1.0)
        assert idle > 1.0

    def test_final_rho_has_every_definition(self, app):
        final = app.final_rho()
        assert final["themis"] == pytest.approx(100 / 300)
        assert set(final) == set(SCHEDULE_DEFINITIONS)

    def test_declaration_is_none_while_the_cluster_has_no_gpus(self, app):
        declared = app.declaration()
        assert declared.cluster_time_s == pytest.approx(200.0)
        app.cluster_view = replace(app.cluster_view, cluster_gpus=0)
        assert app.declaration() is None


class TestSurroundings:
    def test_contention_update_changes_contention_and_share_only(self, app):
        before = app.cluster_view
        app.set_contention(contention=3.0, active_apps=3)
        assert (app.contention, app.cluster_view.share_gpus) == (3.0, 2.0)
        assert app.cluster_view.fitting_level is before.fitting_level
        app.set_contention(contention=0.0, active_apps=0)
        assert (app.view({}).contention, app.cluster_view.active_apps) == (1.0, 1)

    def test_machine_that_left_stays_until_its_jobs_have_stopped(self, app):
        run_on(app, "j0", "m0/0")
        joined = cluster_with("m9")
        app.take_cluster(pb.ClusterUpdate(cluster=cluster_to_message(joined), gpus_available=2))
        # Leases on the new machine may come at once.
        assert [machine.machine_id for machine in app.cluster.machines] == ["m9", "m0"]
        assert app.cluster_view.cluster_gpus == 2
        run_on(app, "j0")
        app.fit_cluster()
        assert app.cluster == joined

    def test_restarted_resource_manager_may_have_other_machines_and_settings(self, app):
        app.take_leases(TestLeases.UPDATE)
        joined = cluster_with("m9")
        again = pb.Registered(
            cluster=cluster_to_message(joined),
            lease_s=60.0,
            checkpoint_lead_s=3.0,
            grace_s=4.0,
            heartbeat_s=5.0,
            bundle_rule="continuation",
            gpus_available=1,
            leases=pb.LeaseUpdate(version=1, leases=[lease(9, "m9/0")]),
        )
        app.registered_again(again)
        assert app.cluster == joined
        assert (app.cluster_view.lease_s, app.cluster_view.cluster_gpus, app.cluster_view.active_apps) == (60.0, 1, 2)
        assert (app.checkpoint_lead_s, app.grace_s, app.heartbeat_s) == (3.0, 4.0, 5.0)
        assert app.holdings().granted == gpus("m9/0")


class TestTimes:
    def test_clock_follows_resource_manager(self, app):
        assert app.now_s() == 1000.0

    def test_fastest_answer_sets_clock(self, app):
        app.set_clock(50.0, 52.0, 1010.0)
        assert app.now_s() == 50.0 + 1010.0 - 51.0
        app.set_clock(50.0, 60.0, 5000.0)
        assert app.now_s() == 1009.0
        app.set_clock(50.0, 50.2, 1001.0)
        assert app.now_s() == pytest.approx(1000.9)
        # Its machine's clock was set back meanwhile.
        app.set_clock(50.0, 10.0, 9000.0)
        assert app.now_s() == pytest.approx(1000.9)

    def test_old_answer_gives_way_to_a_slower_one_since_clocks_drift(self, app):
        app.set_clock(50.0, 50.002, 1000.001)
        app.set_clock(60.0, 60.005, 5000.0)
        assert app.now_s() == pytest.approx(1000.0)
        app.set_clock(110.0, 110.005, 1060.0)
        assert app.now_s() == pytest.approx(999.9975)

    def test_clock_is_that_of_the_resource_manager_which_took_over(self, app):
        """A standby on a machine whose clock is five minutes ahead. Its answers are no quicker than the former's."""
        app.set_clock(50.0, 50.001, 1000.0)
        cluster = cluster_to_message(app.cluster)
        app.registered_again(pb.Registered(now_s=1300.0, cluster=cluster, bundle_rule="continuation"))
        assert app.now_s() == 1300.0
        app.set_clock(50.0, 50.2, 1300.5)
        assert app.now_s() == pytest.approx(1300.4)

    def test_restart_cost_is_median_of_recent_restarts(self, app):
        assert app.restart_s == PRIOR_RESTART_S[False]
        for seconds in (3.0, 100.0, 5.0):
            app.restarted(seconds)
        assert app.restart_s == 5.0
        for _ in range(20):
            app.restarted(7.0)
        assert app.restart_s == 7.0

    def test_starts_cut_short_raise_restart_cost(self, app):
        app.start_cut_short(2.0)
        assert app.restart_s == PRIOR_RESTART_S[False]
        for seconds in (17.0, 12.0, 16.0):
            app.start_cut_short(seconds)
        assert app.restart_s == 17.0
        # The one that was quick enough to be seen does not stand for those that were not.
        app.restarted(5.0)
        assert app.restart_s == 17.0


def test_an_attempt_uses_the_code_of_an_earlier_one_if_the_resource_manager_lost_it(tmp_path):
    # In a container of YARN the app's folder does not exist yet.
    code, folder = CodeArchive.of(b"an archive"), tmp_path / "app"
    path = kept_code(code, b"an archive", folder)
    assert path is not None
    assert path.read_bytes() == b"an archive"
    assert kept_code(code, b"", folder) == path
    assert kept_code(None, b"", folder) is None


@pytest.mark.parametrize("content", [b"", b"another"])
def test_an_attempt_without_the_right_code_does_not_go_on(tmp_path, content):
    with pytest.raises(MissingHereError, match="submit the app again"):
        kept_code(CodeArchive.of(b"an archive"), content, tmp_path)
