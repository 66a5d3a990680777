"""The order in which an app gives up renewable gangs."""

import pytest
from agent_cases import app_of, held, job

from themis.cluster import Level


def renewable_jobs(*gangs):
    app = app_of([job(gang.job_id) for gang in gangs], held=gangs)
    return [gang.job_id for gang in app.renewable]


@pytest.mark.parametrize(
    ("last", "first"),
    [
        (held("j0", {"m0": 2}, up=True), held("j1", {"m1": 1}, Level.SLOT, up=True)),
        (held("j0", {"m0": 1}, up=True), held("j1", {"m1": 2}, up=True)),
        (held("j0", {"m1": 2}, up=True), held("j1", {"m0": 2}, up=True)),
        (held("j1", {"m0": 2}, up=True), held("j0", {"m0": 2}, up=True)),
    ],
    ids=["tightest level", "largest", "machine ids", "job id"],
)
def test_the_first_renewable_gang_is_given_up_last(last, first):
    for gangs in ((last, first), (first, last)):
        assert renewable_jobs(*gangs) == [first.job_id, last.job_id]
