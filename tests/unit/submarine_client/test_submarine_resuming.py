"""An app that failed is submitted again with its checkpoints."""

import pytest

from submarine_client.resuming import resumed
from themis.apps import AppSpec, JobSpec, ProgramSpec, TunerSpec
from themis.errors import InputError
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message

SPEC = AppSpec(
    name="mine",
    tuner=TunerSpec(name="single"),
    program=ProgramSpec(name="digits_dense"),
    jobs=(JobSpec(job_id="job-00", iterations_total=10),),
    seed=7,
)


def ended(state="FAILED", checkpoint_uri="/state/apps/app-0001/checkpoints"):
    return pb.AppStatus(app_id="app-0001", state=state, spec=app_to_message(SPEC), checkpoint_uri=checkpoint_uri)


@pytest.mark.parametrize("state", ["FAILED", "KILLED"])
def test_everything_but_the_place_of_checkpoints_is_the_same(state):
    spec = resumed(ended(state))
    assert spec.checkpoint_uri == "/state/apps/app-0001/checkpoints"
    assert app_to_message(spec).jobs == app_to_message(SPEC).jobs
    assert (spec.name, spec.seed) == ("mine", 7)


@pytest.mark.parametrize(
    ("app", "message"),
    [
        (ended("RUNNING"), "app app-0001 has not ended: 'RUNNING'"),
        (ended("FINISHED"), "app app-0001 has finished"),
        (ended(checkpoint_uri=""), "the checkpoints of app app-0001 are not known"),
    ],
)
def test_app_that_cannot_be_resumed_is_refused_with_a_remedy(app, message):
    with pytest.raises(InputError, match=message) as caught:
        resumed(app)
    assert caught.value.remedy
