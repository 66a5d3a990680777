"""AlloX' times of jobs that did not run: another job of the app is sampled, and what its user states is wrong."""

import pytest
from oef_round_cases import CLUSTER, round_of

from am.app_view import phase_views
from am.jobs.search_state import SearchState
from am.journal import Journal
from am.profiler.records import StepLoss
from rm_plugin.policies.allox_policy import AlloxMemory
from rm_plugin.policies.oef.profiling import Profile, ProfileState
from rm_plugin.policies.registry import make_policy
from themis.apps import AppSpec, Estimate, JobSpec, ProgramSpec, TunerSpec
from themis.cluster import Level

ITERATIONS = 1000
TRUE_S = {"k80": 0.8, "v100": 0.2}
"""True seconds per iteration by device type."""

START_S = 5.0
"""The first ten iterations on a type take so much longer."""


def sampled_search(folder, stated_s, stated_v100, restarts=False):
    """A search of two jobs. The second one has run 40 iterations on each type."""
    spec = AppSpec(
        name="a",
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(name="p"),
        jobs=tuple(
            JobSpec(job_id=f"j{place}", iterations_total=ITERATIONS, speed_by_device={"k80": 1.0, "v100": stated_v100})
            for place in range(2)
        ),
        estimate=Estimate(serial_iteration_s=stated_s),
    )
    search = SearchState(spec, folder, 1.0, Journal(folder / "journal.jsonl"), {}.get)
    search.fit_cluster(CLUSTER)
    job = search.jobs["j1"]
    for device, iteration_s in TRUE_S.items():
        begun = job.profile.iteration
        job.profile.started(1, Level.SLOT, device)
        for line in range(5):
            seconds = None if not line else 10 * iteration_s + (START_S if line == 1 else 0.0)
            job.profile.feed(StepLoss(step=begun + 10 * line, loss=1.0, seconds=seconds))
            search.progressed(job)
            search.keep_measurements(job)
    return next_attempt(search, spec, folder) if restarts else search


def next_attempt(search, spec, folder):
    """The app master died, and the next one reads its journal."""
    search._journal.close()
    search = SearchState(spec, folder, 1.0, Journal(folder / "journal.jsonl"), {"j1": 80}.get)
    search.fit_cluster(CLUSTER)
    return search


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("has_samples", [True, False])
@pytest.mark.parametrize("stated_v100", [1.0, 4.0, 16.0])
@pytest.mark.parametrize("stated_s", [0.2, 0.8, 3.2])
def test_time_of_a_job_that_was_not_sampled_is_right_whatever_its_user_states(
    tmp_path, stated_s, stated_v100, has_samples, restarts
):
    """The true pace is 0.8 s on a K80, and the V100 is 4 times as fast."""
    search = sampled_search(tmp_path, stated_s, stated_v100, restarts)
    views = phase_views(search.progress(), search.plan())
    demands = tuple(view.demand for view in views)
    rates = tuple(demands[1].speeds.on(device) for device in TRUE_S)
    profile = Profile(state=ProfileState.DONE, types=tuple(TRUE_S), rates=rates, job_id="j1")
    memory = AlloxMemory(profiles={"a": profile}, samples={"a": demands[1].samples if has_samples else ()})
    frame = round_of({"a": demands}, memory=memory, profiling_runs=True, alpha=1.0)
    times_s = make_policy("allox").decide(frame).memory.times_s["a"]
    setup_s = START_S if has_samples else 0.0
    assert times_s == pytest.approx({name: setup_s + ITERATIONS * pace for name, pace in TRUE_S.items()}, rel=0.1)


@pytest.mark.parametrize("stated_s", [0.2, 3.2])
def test_work_of_the_app_is_that_of_the_measured_pace(tmp_path, stated_s):
    search = sampled_search(tmp_path, stated_s, 4.0)
    assert search.work_total_gpu_s == pytest.approx(2 * ITERATIONS * TRUE_S["k80"], rel=0.1)
    assert search.progress()["j0"].serial_iteration_s == pytest.approx(TRUE_S["k80"])
