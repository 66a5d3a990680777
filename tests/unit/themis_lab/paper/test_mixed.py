"""All policies on mixed devices: workloads, envy by hand, and a small run."""

import pytest
from msgspec.structs import replace

from rm_plugin.policies.registry import POLICIES
from themis.apps import CRUDE_SLOWDOWN, JobShape
from themis_lab.paper.mixed import COLUMNS, EXPERIMENTS, envies
from themis_lab.paper.output import section, summary_markdown
from themis_lab.paper.port import Done, Scale
from themis_lab.paper.registry import PAPERS
from themis_lab.paper.report_frame import figure_png
from themis_lab.paper.runner import run_cell
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.record import AppOutcome, Counts, RoundRecord, RunRecord
from themis_lab.simulator.workload import AppTrace, JobTrace, Workload

MIXED = cluster_named("mixed-3")
CASES = [(experiment, seed) for experiment in EXPERIMENTS for seed in (1, 2)]


@pytest.mark.parametrize(("experiment", "seed"), CASES)
def test_workload_follows_from_its_seed_and_runs_on_every_type(experiment, seed):
    one = experiment.make_workload(seed, 12)
    assert one == experiment.make_workload(seed, 12)
    assert one != experiment.make_workload(seed + 2, 12)
    types = set(cluster_named(experiment.cluster).gpus_by_device)
    for app in one.apps:
        for job in app.jobs:
            assert set(job.speed_by_device) == types
            assert min(job.speed_by_device.values()) > 0.0


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_policy_that_can_run_the_workload_takes_part(experiment):
    cells = experiment.cells(Scale.QUICK, 2)
    assert {cell.labels["policy"] for cell in cells} == set(POLICIES)
    assert len(cells) == 2 * len(POLICIES)


def trace(name, demand, **speeds):
    job = JobTrace(
        job_id="0",
        iterations_total=100,
        serial_iteration_s=1.0,
        slowdown=CRUDE_SLOWDOWN,
        shape=JobShape(tasks=demand, min_tasks=1),
        speed_by_device=speeds,
    )
    return AppTrace(name=name, arrival_s=0.0, jobs=(job,))


def outcome(name, ended_at_s):
    return AppOutcome(
        name=name, model="", jobs=1, submitted_at_s=0.0, first_gpu_at_s=0.0, ended_at_s=ended_at_s, rho={}, bound=1.0,
        gpu_time_s=1.0, running_gpu_s=1.0, ideal_gpu_s=100.0, placement_score=1.0, restarts=0, checkpoints=0,
        lost_gpu_s=0.0, contention=1.0,
    )  # fmt: skip


def round_of(now_s, **granted):
    return RoundRecord(
        round_id=1, now_s=now_s, reasons=(), free={}, renewable={}, kept={}, rho={}, demand_gpus={}, granted=granted
    )  # fmt: skip


def record_of(apps, rounds):
    return RunRecord(
        policy="", cluster="mixed-3", cluster_gpus=32, workload="w", seed=1, apps=apps, counts=Counts(),
        makespan_s=300.0, leased_share=1.0, running_share=1.0, rounds=rounds,
    )  # fmt: skip


def test_envy_is_what_anothers_devices_would_have_added_while_both_were_there():
    slow, fast = (next(m.machine_id for m in MIXED.machines if m.device == name) for name in ("k80", "v100"))
    speeds = {"k80": 0.3, "p100": 1.0, "v100": 1.0}
    workload = Workload(name="w", apps=(trace("a", 1, **speeds), trace("b", 4, **speeds)))
    rounds = (round_of(0.0, a={slow: 1}, b={fast: 2}), round_of(100.0, a={fast: 1}))
    # For 100 s a has 0.3 and could have had one V100 of b, but no use for two. Then b is gone.
    found = envies(workload, record_of((outcome("a", 200.0), outcome("b", 100.0)), rounds), MIXED)
    assert found == pytest.approx([0.7, 0.0])
    # b stays 50 s longer without a device and envies a: 50 s of a V100, less what it had more before.
    found = envies(workload, record_of((outcome("a", 200.0), outcome("b", 150.0)), rounds), MIXED)
    assert found == pytest.approx([0.2, 0.0])


def test_table_has_a_row_per_policy_with_the_fairest_first(tmp_path):
    experiment = EXPERIMENTS[0]
    cells = [cell for cell in experiment.cells(Scale.QUICK, 1) if cell.labels["policy"] in ("srtf", "drf", "oef")]
    small = [replace(cell, workload_arguments={"seed": 1, "apps": 6}) for cell in cells]
    findings = experiment.evaluate([Done(cell=cell, record=run_cell(cell)) for cell in small])
    shown = section(experiment, findings)
    assert shown.headings == ("policy", *COLUMNS.values())
    assert {row[0] for row in shown.rows} == {"srtf", "drf", "oef"}
    rho = [row["max_rho"] for row in sorted(findings.rows, key=lambda row: row["max_rho"])]
    assert [row["policy"] for row in findings.rows if row["max_rho"] == rho[0]] == [shown.rows[0][0]]
    assert figure_png(lambda: experiment.draw(findings))
    page = summary_markdown([(experiment, findings)], "how")
    assert "claim of the paper" not in page
    assert "mixed" in PAPERS
