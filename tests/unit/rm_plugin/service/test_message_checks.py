"""Messages that a ResourceManager must refuse: each is counted and changes nothing."""

import asyncio
import json
import math

import pytest
from service_cases import ServiceCase, app, bid, finish, heartbeat, job_event, registration, report

from rm_plugin.service.admission import check_app
from rm_plugin.service.message_checks import check_reference, check_states
from rm_plugin.service.store_memory import MemoryStore
from themis.errors import InputError
from themis.events import EMITTERS, Emitter
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb
from themis.wire.values import ROUND_ANSWERS, app_from_message, app_to_message


def changed(message, **fields):
    """The message with fields set; a double underscore leads into a part, whose first element is meant."""
    for path, value in fields.items():
        part = message
        *way, last = path.split("__")
        for name in way:
            part = getattr(part, name)
            part = part if hasattr(part, "DESCRIPTOR") else part[0]
        if isinstance(value, list):
            getattr(part, last).extend(value)
        else:
            setattr(part, last, value)
    return message


def run(scenario):
    async def whole():
        store = MemoryStore()
        case = ServiceCase(store)
        entry, session = await case.started("mine")
        await scenario(case, entry, session)
        case.check()
        # A restart of the same store, and a round after it.
        again = ServiceCase(store)
        await again.round()
        again.check()

    asyncio.run(asyncio.wait_for(whole(), 20))


RM_KINDS = sorted(kind for kind, emitter in EMITTERS.items() if emitter is Emitter.RESOURCE_MANAGER)
NESTED = "[" * 50 + "]" * 50
REFUSED = [
    *[{"job_event": job_event(kind, "{}")} for kind in (*RM_KINDS, "client", "", "x" * 100_000)],
    *[{"job_event": changed(job_event(), time_s=time_s)} for time_s in (math.nan, math.inf, -1.0, 4e9)],
    {"job_event": changed(job_event(), job_id="job-7")},
    *[{"job_event": job_event("job_state", f'{{"state": {state}}}')} for state in ('"GONE"', "[]", "{}", "1", "null")],
    *[
        {"job_event": job_event(detail=detail)}
        for detail in ("[1]", "{", '{"a": ' + NESTED + "}", "[" * 100_000, '{"a": "\\ud800"}', '{"job_id": "job-1"}')
    ],
    {"job_event": job_event(detail=json.dumps({"a": "x" * 1_100_000}))},
    *[{"finish": changed(finish(), state=state)} for state in ("SUBMITTED", "ACCEPTED", "RUNNING", "", "DONE")],
    {"finish": changed(finish(), best="job-9")},
    {"finish": changed(finish(), jobs__state="LOST")},
    {"finish": pb.Finish(state="FAILED", rho={"themis": -1.0})},
    *[{"finish": changed(finish(), best_checkpoint=text)} for text in ("a\nb", "x" * 100_000)],
    *[{"heartbeat": changed(heartbeat(), progress=value)} for value in (math.nan, math.inf, -0.1, 1.1)],
    *[{"heartbeat": changed(heartbeat(), declaration__phases__gpus=gpus)} for gpus in (0.0, -1.0, math.nan)],
    {"heartbeat": changed(heartbeat(), declaration__phases__time_s=math.inf)},
    {"heartbeat": changed(heartbeat(), phases_left__gpus=0.0)},
    {"heartbeat": changed(heartbeat(), phases_left__time_s=math.nan)},
    {"heartbeat": changed(heartbeat(), restart_s=-1.0)},
    *[
        {"heartbeat": pb.Heartbeat(loss_curves=[pb.LossCurve(job_id=job, iterations=at, losses=losses)])}
        for job, at, losses in (
            ("nobody", [1], [0.5]),
            ("job-0", [1], []),
            ("job-0", [2, 1], [0.5, 0.5]),
            ("job-0", [1], [math.inf]),
            ("job-0", [1] * 129, [0.5] * 129),
        )
    ],
    {"heartbeat": changed(heartbeat(), declaration__cluster_time_s=-1.0)},
    {"finish": changed(finish(), declaration__share_demand=1.5)},
    {"heartbeat": changed(heartbeat(), unmet_gpus=-5)},
    {"heartbeat": changed(heartbeat(), best="other")},
    {"heartbeat": changed(heartbeat(), jobs=list(heartbeat().jobs))},
    {"heartbeat": changed(heartbeat(), jobs__job_id="../../etc")},
    {"heartbeat": changed(heartbeat(), jobs__iteration=-1)},
    {"heartbeat": changed(heartbeat(), jobs__iteration_s=math.inf)},
    {"heartbeat": changed(heartbeat(), jobs__slowdown__level="moon")},
    {"heartbeat": changed(heartbeat(), jobs__device="v\x1b100")},
    *[{"rho": changed(report(1), rho=value)} for value in (math.nan, -1.0)],
    {"rho": changed(report(1), restart_s=math.inf)},
    {"rho": changed(report(1), demands__work_left_gpu_s=1e300)},
    {"rho": changed(report(1), demands__job_id="job-9")},
    {"rho": changed(report(1), demands__max_gpus=2**31 - 1)},
    {"rho": changed(report(1), demands__held__counts__machine_id="m9")},
    {"rho": changed(report(1), demands__held__counts__gpus=1000)},
    {"rho": changed(report(1), demands__slowdown__cluster=math.inf)},
    {"rho": changed(report(1), phases_left__work_gpu_s=math.nan)},
    {"bid": changed(bid(1), rows__gangs__count=2**31 - 1)},
    {"bid": changed(bid(1), rows__value=1e308)},
    {"bid": changed(bid(1), prepare_ms=math.nan)},
    {"bid": changed(bid(1), rows_dropped=-1)},
    {"bid": changed(bid(1), rows__gangs__within=77)},
    {"release": pb.Release(lease_ids=[1] * 100_001)},
    {"register": pb.Register()},
    {"message": pb.AmMessage(id=5)},
    {"message": pb.AmMessage(id=-1, finish=finish())},
]


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: next(iter(body)))
def test_invalid_message_is_counted_and_ignored_and_acknowledged_unless_it_answers_a_round(body, caplog):
    async def scenario(case, entry, session):
        before = (case.recorder.events(0, "", 1000), entry.stored(), entry.heartbeat)
        sent = session._outgoing.qsize()
        await case.send(entry, session, **body)
        after = (case.recorder.events(0, "", 1000), entry.stored(), entry.heartbeat)
        assert after == before
        if body.get("message", pb.AmMessage(id=1)).id > 0:
            assert entry.refused_messages == 1
        assert session._outgoing.qsize() == sent + (0 if body.keys() & set(ROUND_ANSWERS) else 1)
        assert len(caplog.text) < 5_000

    run(scenario)


@pytest.mark.parametrize(
    "body",
    [{"rho": report(1)}, {"bid": bid(1)}, {"heartbeat": heartbeat()}, {"job_event": job_event()}]
    + [{"finish": finish(state)} for state in ("FINISHED", "FAILED", "KILLED")]
    + [{"release": pb.Release(lease_ids=[77], reason="x\n")}]
    + [
        {"rho": changed(report(1), rho=math.inf)},
        {"rho": changed(report(1), t_ideal_s=math.inf)},
    ],
    ids=lambda body: next(iter(body)),
)
def test_valid_message_is_processed(body):
    async def scenario(case, entry, session):
        await case.send(entry, session, **body)
        assert entry.refused_messages == 0

    run(scenario)


def test_long_diagnostics_are_truncated():
    async def scenario(case, entry, session):
        await case.send(entry, session, finish=changed(finish("FAILED"), diagnostics="x" * 1_000_000))
        assert entry.state is AppState.FAILED
        assert 10_000 < len(entry.diagnostics) < 10_100

    run(scenario)


def test_finish_of_old_attempt_does_not_end_next_one():
    async def scenario(case, entry, session):
        case.launcher.restarted[entry.app_id] = 2
        await case.manager.sessions.register(registration(entry, attempt=2))
        await case.send(entry, session, finish=finish())
        assert entry.state is AppState.RUNNING
        assert entry.attempt == 2

    run(scenario)


@pytest.mark.parametrize(
    "changes",
    [
        {"token": "wrong"},
        {"attempt": 0},
        {"attempt": 2**31 - 1},
        {"pid": -1},
        {"page_url": "javascript:alert(1)"},
        {"page_url": "http://" + "x" * 5_000},
        {"engine_id": "a\nb"},
        {"held_lease_ids": [1] * 100_001},
        {"app_id": "x" * 1_000_000},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_invalid_registration_is_refused_and_changes_nothing(changes):
    async def scenario(case, entry, session):
        before = (entry.stored(), entry.session, entry.page_url)
        with pytest.raises(InputError) as refused:
            await case.manager.sessions.register(registration(entry, **changes))
        assert len(str(refused.value)) < 1_000
        assert (entry.stored(), entry.session, entry.page_url) == before

    run(scenario)


def test_app_that_was_not_started_cannot_register():
    async def scenario(case, entry, session):
        entry.update(state=AppState.SUBMITTED, attempt=0)
        with pytest.raises(InputError):
            await case.manager.sessions.register(registration(entry))
        entry.update(state=AppState.RUNNING, attempt=1)

    run(scenario)


@pytest.mark.parametrize("name", ["x" * 201, "a\x1b[2J"])
def test_invalid_app_name_is_not_looked_up(name):
    with pytest.raises(InputError, match="unusable app"):
        check_reference(name)


def test_unknown_states_to_list_are_refused():
    assert check_states(["RUNNING"]) == {"RUNNING"}
    with pytest.raises(InputError, match="unknown state of an app: 'running'; known: SUBMITTED"):
        check_states(["running"])


@pytest.mark.parametrize(
    "changes",
    [
        {"program__command": "x" * 100_001, "program__name": ""},
        {"program__command": "a\0b", "program__name": ""},
        {"resources__memory_mb": -1},
        {"checkpoint_every": 0},
        {"keep_checkpoints": 0},
        {"max_task_restarts": -1},
        {"estimate__serial_iteration_s": math.nan},
        {"estimate__serial_iteration_s": math.inf},
        {"jobs__iterations_total": 2**60},
        {"jobs__shape__tasks": 20_000},
        {"checkpoint_uri": "/" + "x" * 5_000},
        {"user": "x" * 5_000},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_specification_out_of_bounds_is_refused(changes):
    async def scenario(case, entry, session):
        with pytest.raises(InputError):
            check_app(app_from_message(changed(app_to_message(app("other")), **changes)), case.arbiter.cluster)

    run(scenario)


def test_non_finite_hyper_parameter_is_refused():
    message = app_to_message(app("other"))
    message.jobs[0].hyper_parameters["learning_rate"].number = math.nan

    async def scenario(case, entry, session):
        with pytest.raises(InputError, match="hyper-parameter learning_rate is no finite number"):
            check_app(app_from_message(message), case.arbiter.cluster)

    run(scenario)
