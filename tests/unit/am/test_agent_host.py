"""The agent host reports and bids as the app masters of the same apps do."""

import io
import math
import struct
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hosted_cases import specs
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from am.agent_host import AgentHost, serve
from am.app import App
from am.app_view import view_from_bytes, view_to_bytes
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.journal_store import EmptyJournal
from am.negotiator import Negotiator
from am.status import LossCurves, heartbeat_message
from am.tuners.port import Phase
from themis.apps import JobShape
from themis.bids import Bid, Offer
from themis.clock import VirtualClock
from themis.cluster import Allocation, Cluster, DeviceType, Machine
from themis.errors import InputError
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, bid_from_message, cluster_to_message, offer_to_message

DEVICES = {name: DeviceType(name=name, emulated=True, speed=speed) for name, speed in (("k80", 1.0), ("v100", 3.0))}
CLUSTERS = {
    kind: Cluster(
        name=kind,
        machines=tuple(
            Machine(machine_id=f"m{place}", rack_id=f"r{place // 2}", slots=(2, 2), device=types[place % len(types)])
            for place in range(4)
        ),
        devices={name: DEVICES[name] for name in types},
    )
    for kind, types in (("one type", ("v100",)), ("two types", ("k80", "v100")))
}
SUBMITTED_S, ASKED_S, CONTENTION, ACTIVE = 1_000.0, 1_234.5, 7.25, 9
QUESTION = pb.AskRho(round_id=3, now_s=ASKED_S, active_apps=ACTIVE)


def registered_cluster(cluster):
    return pb.Registered(
        cluster=cluster_to_message(cluster),
        lease_s=600.0,
        bundle_rule="continuation",
        time_scale=2.0,
        gpus_available=cluster.gpus - 4,
    )


def app_master(spec, cluster, tmp_path):
    registered = registered_cluster(cluster)
    registered.MergeFrom(
        pb.Registered(
            app_id=spec.name, spec=app_to_message(spec), submitted_at_s=SUBMITTED_S, now_s=ASKED_S, contention=1.0
        )
    )
    return App(registered, tmp_path, "", Journal(EmptyJournal()), VirtualClock(ASKED_S))


def host_of(cluster):
    host = AgentHost()
    apps = [pb.HostedApp(app_id=spec.name, spec=app_to_message(spec), submitted_at_s=SUBMITTED_S) for spec in specs()]
    return host, host.answer(pb.HostRequest(cluster=registered_cluster(cluster), enter=apps)).entered


def asked(host, **question):
    app_ids = [spec.name for spec in specs()]
    return host.answer(pb.HostRequest(app_ids=app_ids, contentions=[CONTENTION] * len(app_ids), **question))


@pytest.fixture(params=CLUSTERS)
def cluster(request):
    return CLUSTERS[request.param]


def test_reports_of_the_host_are_those_of_app_masters(cluster, tmp_path):
    host, entered = host_of(cluster)
    reply = asked(host, ask_rho=QUESTION)
    for index, spec in enumerate(specs()):
        negotiator = Negotiator(app_master(spec, cluster, tmp_path), dict)
        question = pb.AskRho(contention=CONTENTION)
        question.MergeFrom(QUESTION)
        report = entered[index].report
        report.round_id = QUESTION.round_id
        report.rho, report.t_shared_s, report.t_ideal_s = (
            times[index] for times in (reply.rho, reply.t_shared_s, reply.t_ideal_s)
        )
        assert report.SerializeToString(deterministic=True) == negotiator.report(question).rho.SerializeToString(
            deterministic=True
        )


def test_bids_of_the_host_are_those_of_app_masters(cluster, tmp_path):
    free = {f"m{place}": (2, 1) for place in range(3)}
    offer = offer_to_message(
        Offer(
            round_id=3,
            now_s=ASKED_S,
            deadline_s=ASKED_S,
            lease_s=500.0,
            free=Allocation.of({name: sum(slots) for name, slots in free.items()}),
            slots=free,
            contention=1.0,
            active_apps=ACTIVE,
        )
    )
    host, _ = host_of(cluster)
    asked(host, ask_rho=QUESTION)
    bids = msgspec.msgpack.decode(asked(host, offer=offer).bids, type=list[Bid])
    offer.contention = CONTENTION
    for index, spec in enumerate(specs()):
        bid = Negotiator(app_master(spec, cluster, tmp_path), dict).bid(offer).bid
        assert bid.rows
        assert bid_from_message(bid, bids[index].app_id) == bids[index]


def test_first_heartbeat_of_an_app_is_that_of_its_app_master(cluster, tmp_path):
    _, entered = host_of(cluster)
    for first, spec in zip(entered, specs(), strict=True):
        app = app_master(spec, cluster, tmp_path)
        app.contention = 1.0
        heartbeat = heartbeat_message(app, app.view({}), LossCurves(), None)
        heartbeat.checkpoint_uri = ""
        assert first.heartbeat == heartbeat


def test_app_that_cannot_be_evaluated_names_the_problem_and_spares_the_others():
    host = AgentHost()
    good = pb.HostedApp(app_id="good", spec=app_to_message(next(specs())), submitted_at_s=SUBMITTED_S)
    bad = pb.HostedApp(app_id="bad", spec=pb.AppSpec(name="bad"))
    cluster = registered_cluster(CLUSTERS["one type"])
    entered = host.answer(pb.HostRequest(cluster=cluster, enter=[bad, good])).entered
    assert [bool(first.problem) for first in entered] == [True, False]


def test_number_of_plans_does_not_grow_with_that_of_the_jobs(monkeypatch):
    """A plan looks at each job, so that 10,000 jobs took the host minutes, and the apps of all users waited."""
    plans = []
    plan = SearchState.plan
    monkeypatch.setattr(SearchState, "plan", lambda search: plans.append(search) or plan(search))
    host, [spec, *_] = AgentHost(), specs()
    counts = []
    for jobs in (1, 30):
        many = replace(spec, jobs=tuple(replace(spec.jobs[0], job_id=f"job-{place}") for place in range(jobs)))
        app = pb.HostedApp(app_id="many", spec=app_to_message(many), submitted_at_s=SUBMITTED_S)
        host.answer(pb.HostRequest(cluster=registered_cluster(CLUSTERS["one type"]), enter=[app]))
        counts.append(len(plans))
        plans.clear()
    assert counts[0] == counts[1]


def test_app_whose_answer_fails_is_named_and_the_others_are_answered(monkeypatch):
    host, _ = host_of(CLUSTERS["one type"])
    app_ids = [spec.name for spec in specs()]
    monkeypatch.setitem(host._outlooks, app_ids[1], None)
    reply = asked(host, ask_rho=QUESTION)
    assert list(reply.failed) == [app_ids[1]]
    assert len(reply.rho) == len(app_ids) - 1


def test_new_cluster_makes_the_host_forget_its_apps():
    host, _ = host_of(CLUSTERS["one type"])
    host.answer(pb.HostRequest(cluster=registered_cluster(CLUSTERS["two types"])))
    assert len(asked(host, ask_rho=QUESTION).failed) == len(list(specs()))


def test_served_requests_are_answered_until_the_stream_ends():
    content = pb.HostRequest(cluster=registered_cluster(CLUSTERS["one type"])).SerializeToString(deterministic=True)
    replies = io.BytesIO()
    serve(io.BytesIO(2 * (struct.pack(">I", len(content)) + content)), replies)
    assert replies.getvalue() == bytes(8)


class TestRestingApps:
    """Of an app that has begun and holds nothing, the host has the view that its app master left."""

    @staticmethod
    def begun(spec, cluster, tmp_path):
        """An app master whose app has done half of its work on some jobs, and has measured more than it declared."""
        app = app_master(spec, cluster, tmp_path)
        for place, job in enumerate(app.search.jobs.values()):
            job.profile.reach(job.spec.iterations_total // 2 if place % 2 else 0)
        app.restarted(3.5)
        return app

    def test_reports_are_those_of_the_app_master(self, cluster, tmp_path):
        for spec in specs():
            app = self.begun(spec, cluster, tmp_path)
            host = AgentHost()
            hosted = pb.HostedApp(
                app_id=spec.name,
                spec=app_to_message(spec),
                submitted_at_s=SUBMITTED_S,
                view=view_to_bytes(app.view({})),
            )
            (first,) = host.answer(pb.HostRequest(cluster=registered_cluster(cluster), enter=[hosted])).entered
            assert (first.problem, first.HasField("heartbeat")) == ("", False)
            reply = host.answer(pb.HostRequest(app_ids=[spec.name], contentions=[CONTENTION], ask_rho=QUESTION))
            first.report.round_id, first.report.rho = QUESTION.round_id, reply.rho[0]
            first.report.t_shared_s, first.report.t_ideal_s = reply.t_shared_s[0], reply.t_ideal_s[0]
            question = pb.AskRho(contention=CONTENTION)
            question.MergeFrom(QUESTION)
            report = Negotiator(app, dict).report(question).rho
            assert first.report.SerializeToString(deterministic=True) == report.SerializeToString(deterministic=True)

    @pytest.mark.parametrize(
        "change",
        [
            {"jobs": ()},
            {"work_total_gpu_s": math.nan},
            {"restart_s": -1.0},
            {"later_phases": (Phase(jobs=1, iterations=1),) * 50},
            {"app_id": 3},
        ],
    )
    def test_view_that_is_not_of_this_app_is_refused(self, change, tmp_path):
        spec = next(specs())
        view = app_master(spec, CLUSTERS["one type"], tmp_path).view({})
        search = SearchState(spec, tmp_path, 1.0, Journal(EmptyJournal()), lambda _: None)
        assert view_from_bytes(view_to_bytes(view), spec, search.first_phases) == view
        with pytest.raises(InputError, match="not a view"):
            view_from_bytes(view_to_bytes(replace(view, **change)), spec, search.first_phases)

    @given(data=st.data())
    def test_any_damaged_view_is_read_or_refused(self, data):
        spec = next(specs())
        content = view_to_bytes(app_master(spec, CLUSTERS["one type"], Path()).view({}))
        search = SearchState(spec, Path(), 1.0, Journal(EmptyJournal()), lambda _: None)
        at = data.draw(st.integers(0, len(content)))
        end = at + data.draw(st.sampled_from((0, 1, 2, 9, 100)))
        with suppress(InputError):
            view_from_bytes(content[:at] + data.draw(st.binary(max_size=9)) + content[end:], spec, search.first_phases)

    def test_view_with_a_larger_job_than_the_specification_is_refused(self, tmp_path):
        spec = next(specs())
        view = app_master(spec, CLUSTERS["one type"], tmp_path).view({})
        larger = replace(view, jobs=(replace(view.jobs[0], shape=JobShape(tasks=4_000)),))
        search = SearchState(spec, tmp_path, 1.0, Journal(EmptyJournal()), lambda _: None)
        with pytest.raises(InputError, match="not a view of this app"):
            view_from_bytes(view_to_bytes(larger), spec, search.first_phases)
