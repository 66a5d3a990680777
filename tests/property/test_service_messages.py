"""Whatever app masters send, the service goes on: lists, rounds, invariants and a restart from the same store."""

import contextlib
import math

from google.protobuf.descriptor import FieldDescriptor as Field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from instant_loop import run_instantly
from service_cases import ServiceCase, bid, finish, heartbeat, job_event, registration, report

from rm_plugin.service.store_memory import MemoryStore
from themis.errors import InputError
from themis.events import EMITTERS
from themis.lifecycle import AppState, JobState
from themis.wire import themis_pb2 as pb

WORDS = (
    "",
    "app-0001",
    "job-0",
    "job-1",
    "../..",
    "m0",
    "m9",
    "x" * 500,
    "\x1b[2J",
    "machine",
    "{}",
    '{"seconds": NaN}',
)
TEXTS = st.sampled_from((*WORDS, *EMITTERS, *AppState, *JobState)) | st.text(max_size=20)
FLOATS = st.sampled_from((0.0, -0.0, -1.0, 1.0, 5e-324, 1e308, math.inf, -math.inf, math.nan)) | st.floats()
SMALL = (-1, 0, 1, 2, 3, 100)
VALUES = {
    Field.CPPTYPE_STRING: TEXTS,
    Field.CPPTYPE_DOUBLE: FLOATS,
    Field.CPPTYPE_INT32: st.sampled_from((*SMALL, 2**31 - 1, -(2**31))),
    Field.CPPTYPE_INT64: st.sampled_from((*SMALL, 2**63 - 1, -(2**63))),
    Field.CPPTYPE_BOOL: st.booleans(),
}
BODIES = ("rho", "bid", "release", "heartbeat", "job_event", "finish", "register")


@st.composite
def messages(draw, round_id=1, bodies=BODIES):
    """A message that an app master could send, with up to three of its fields changed."""
    body = draw(st.sampled_from(bodies))
    good = {
        "rho": report(round_id),
        "bid": bid(round_id),
        "release": pb.Release(lease_ids=draw(st.lists(st.integers(0, 9), max_size=5)), reason="r"),
        "heartbeat": heartbeat(),
        "job_event": job_event(draw(st.sampled_from(sorted(EMITTERS)))),
        "finish": finish(draw(st.sampled_from(sorted(AppState)))),
        "register": pb.Register(app_id="app-0001"),
    }
    message = pb.AmMessage(id=draw(st.sampled_from((0, 0, 0, 0, -1, 1, 2**40))), **{body: good[body]})
    for _ in range(draw(st.integers(0, 3))):
        change(draw, getattr(message, body))
    return message


def change(draw, message):
    """Change one field, here or in a part."""
    field = draw(st.sampled_from(tuple(message.DESCRIPTOR.fields)))
    value = getattr(message, field.name)
    if field.is_repeated:
        change_list(draw, field, value)
    elif field.cpp_type == Field.CPPTYPE_MESSAGE:
        value.SetInParent()
        change(draw, value)
    else:
        setattr(message, field.name, draw(values_of(field)))


def values_of(field):
    """Values of a field that is no message."""
    return st.binary(max_size=20) if field.type == Field.TYPE_BYTES else VALUES[field.cpp_type]


def change_list(draw, field, values):
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value = field.message_type.fields_by_name["value"]
        if value.cpp_type == Field.CPPTYPE_MESSAGE:
            change(draw, values[draw(TEXTS)])
        else:
            values[draw(TEXTS)] = draw(values_of(value))
    elif field.cpp_type != Field.CPPTYPE_MESSAGE:
        values.append(draw(values_of(field)))
    elif values and draw(st.booleans()):
        change(draw, draw(st.sampled_from(list(values))))
    else:
        values.add().CopyFrom(values[0] if values else values.add())
        change(draw, values[-1])


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), policy=st.sampled_from(("themis", "drf", "tiresias", "optimus")))
def test_the_service_survives_arbitrary_app_master_messages(data, policy):
    async def whole():
        store = MemoryStore()
        case = ServiceCase(store, policy=policy)
        sessions = [await case.started("liar"), await case.started("honest")]
        changes = registration(sessions[0][0])
        change(data.draw, changes)
        with contextlib.suppress(InputError):
            sessions[0] = await case.manager.sessions.register(changes)
        liar, honest = sessions

        def answers(round_id, body):
            good = {"rho": report(round_id), "bid": bid(round_id)}[body]
            lies = [*data.draw(st.lists(messages(round_id), max_size=4)), data.draw(messages(round_id, (body,)))]
            return [(*honest, pb.AmMessage(**{body: good})), *((*liar, lie) for lie in lies)]

        for _ in range(2):
            await case.round(answers)
            case.check()
        ended = (event for event in case.recorder.events(0, "", None) if event.kind == "round_ended")
        assert next(ended).detail["outcome"] == "granted"
        again = ServiceCase(store, policy=policy)
        again.check()
        await again.manager.app_masters.recover()
        entry, session = await again.started("later")
        await again.round(lambda number, body: [(entry, session, pb.AmMessage(rho=report(number)))][: body == "rho"])
        again.check()

    run_instantly(whole())
