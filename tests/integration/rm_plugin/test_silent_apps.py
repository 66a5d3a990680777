"""Apps that never say how fast they are, beside an honest one, on a real ResourceManager."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path

import pytest
from live_rm import Live, live, settings

from themis.apps import AppSpec, Estimate, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec
from themis.config.rm_settings import LeaseSettings

LEASE = LeaseSettings(duration_s=12, checkpoint_lead_s=2, grace_s=3)


def sleeper(name: str, seconds: float, *, states_pace: bool) -> AppSpec:
    gpus = 4
    return AppSpec(
        name=name,
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(command=f"sleep {seconds}"),
        jobs=(JobSpec(job_id="job-00", shape=JobShape(tasks=gpus, min_tasks=gpus), iterations_total=1),),
        resources=TaskResources(memory_mb=64),
        estimate=Estimate(serial_iteration_s=seconds * gpus if states_pace else None),
    )


async def seconds_to_gpus(rm: Live, app_id: str) -> float:
    begin_s = asyncio.get_running_loop().time()
    await rm.wait(app_id, lambda app: app.gpus == 4)
    return asyncio.get_running_loop().time() - begin_s


@pytest.mark.slow
def test_honest_app_shares_the_cluster_with_two_silent_ones_within_a_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with live(settings(tmp_path, lease=LEASE)) as rm:
            silent = [await rm.submit(sleeper(name, 60, states_pace=False)) for name in ("silent-a", "silent-b")]
            for app_id in silent:
                await rm.wait(app_id, lambda app: app.gpus == 4)
            honest = await rm.submit(sleeper("honest", 20, states_pace=True))
            # A lease and its grace, and time for a busy machine: before a second lease could end.
            assert await seconds_to_gpus(rm, honest) < 2 * LEASE.duration_s
            for app_id in silent:
                status = await rm.show(app_id)
                assert math.isnan(status.rho)
                assert not status.jobs[0].pace_known
            assert math.isfinite((await rm.show(honest)).rho)

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert "not believed" not in caplog.text
