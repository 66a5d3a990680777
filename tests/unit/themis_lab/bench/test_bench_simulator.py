"""The benchmark of the simulator: traces, cases, rows, growth, limits, and the measurement of a process."""

import itertools
import json
import statistics
import subprocess
import sys

import pytest

import themis_lab.bench.simulator_run as simulator_run
from themis.errors import InputError, ThemisError
from themis_lab.bench import simulator_starter
from themis_lab.bench.simulator_cases import LEFT_OUT_S, SHAPES, Part, Reference, SimulatorBenchPlan, Size, cases_of
from themis_lab.bench.simulator_output import document, growths, table
from themis_lab.bench.simulator_process import Usage, simulate_apart
from themis_lab.bench.simulator_run import Row, run_cases
from themis_lab.bench.simulator_trace import write_trace
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.workloads.gavel import from_gavel, read_gavel_trace, read_throughputs
from themis_lab.simulator.workloads.gavel_sample import GavelSampleOptions, draw_jobs, gavel_sample, read_statistics


def usage(wall_s=2.0, peak_mib=100.0, unproven=0):
    auctions = {"auctions": 10, "unproven": unproven}
    run = {"wall_s": 1.0, "events": 300, "rounds": 40, "auctions": auctions}
    return Usage(wall_s=wall_s, cpu_s=wall_s / 2, peak_mib=peak_mib, document=run)


def growth_row(gpus, apps, cpu_s, rounds=1):
    return Row(part=Part.GROWTH, gpus=gpus, apps=apps, source="synthetic", cpu_s=cpu_s, wall_s=cpu_s, rounds=rounds)


# ---- traces ---------------------------------------------------------------------------------------------------------


def test_drawn_trace_has_given_statistics():
    known, jobs = read_statistics(), draw_jobs(4000, 32, seed=3)
    gaps = [after.arrival_s - before.arrival_s for before, after in itertools.pairwise(jobs)]
    assert statistics.mean(gaps) == pytest.approx(known["mean_gap_s"][0], rel=0.1)
    assert statistics.median(job.run_s for job in jobs) == pytest.approx(known["run_s_deciles"][5], rel=0.15)
    shares = [count / sum(known["jobs_by_gpus"]) for count in known["jobs_by_gpus"]]
    assert [sum(job.gpus == gpus for job in jobs) / len(jobs) for gpus in known["gpus"]] == pytest.approx(
        shares, abs=0.03
    )
    assert min(job.across for job in jobs) >= 1.0


def test_larger_cluster_has_same_load_and_seed_is_reproducible():
    small, large = draw_jobs(50, 32, seed=1), draw_jobs(50, 256, seed=1)
    assert large[-1].arrival_s == pytest.approx(small[-1].arrival_s / 8)
    assert [job.run_s for job in small] == [job.run_s for job in large]
    assert draw_jobs(50, 32, seed=1) == small != draw_jobs(50, 32, seed=2)


def test_written_trace_reads_back(tmp_path):
    jobs = draw_jobs(20, 32, seed=1)
    trace, speeds = write_trace(jobs, tmp_path, "drawn")
    read = from_gavel(read_gavel_trace(trace), read_throughputs(speeds), 1, "drawn")
    assert [app.arrival_s for app in read.apps] == [job.arrival_s for job in jobs]
    for app, job in zip(read.apps, jobs, strict=True):
        assert app.demand_max_gpus == job.gpus
        assert app.jobs[0].work_gpu_s == pytest.approx(job.run_s * job.gpus, rel=0.01)
        assert app.jobs[0].slowdown.rack == pytest.approx(job.across)


def test_drawn_workload_equals_its_written_trace(tmp_path):
    cluster = cluster_named("8x4")
    trace, speeds = write_trace(draw_jobs(20, cluster.gpus, seed=1), tmp_path, "drawn")
    read = from_gavel(read_gavel_trace(trace), read_throughputs(speeds), 1, "drawn")
    assert gavel_sample(1, cluster, GavelSampleOptions(jobs=20)).apps == read.apps


# ---- cases ----------------------------------------------------------------------------------------------------------


def test_cases_use_exact_auctions_by_size(tmp_path):
    cases = cases_of(SimulatorBenchPlan(sizes=(Size(16, 4), Size(8, 2)), policy="themis"), tmp_path)
    assert [str(case) for case in cases] == [
        "gavel-120 32/120",
        "gavel-900 256/900",
        "w1 168/85",
        "growth 8/2",
        "growth 16/4",
    ]
    assert all(" ".join(case.arguments).startswith("simulate --policy themis --solver exact") for case in cases)
    assert [case.reference for case in cases] == [shape[1] for shape in SHAPES.values()] + [None] * 3


def test_trace_is_compared_only_with_same_number_of_jobs(tmp_path):
    for jobs, compared in ((120, True), (7, False)):
        trace, speeds = write_trace(draw_jobs(jobs, 32, seed=1), tmp_path, "given")
        (case,) = cases_of(SimulatorBenchPlan(parts=(Part.GAVEL_120,), trace=trace, throughputs=speeds), tmp_path)
        assert (case.source, case.size.apps, case.reference is not None) == ("given trace", jobs, compared)


def test_bad_numbers_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such size: '12/3'; write GPUS/APPS"):
        Size(12, 3)
    with pytest.raises(InputError, match="--repeats must be 1 or more: 0"):
        SimulatorBenchPlan(repeats=0)
    with pytest.raises(InputError, match="--budget-s"):
        SimulatorBenchPlan(budget_s=0.0)
    with pytest.raises(InputError, match="--throughputs belongs to a trace"):
        SimulatorBenchPlan(throughputs=tmp_path / "t.csv")
    with pytest.raises(InputError, match="cannot read"):
        cases_of(SimulatorBenchPlan(trace=tmp_path / "no.trace"), tmp_path)


# ---- rows -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def ran(monkeypatch):
    """Runs take the listed seconds; None exceeds the limit. Keeps the commands."""
    answers, asked = [], []

    def simulate(arguments, folder, limit_s):
        asked.append((arguments, limit_s))
        return answers.pop(0)

    monkeypatch.setattr(simulator_run, "simulate_apart", simulate)
    return answers, asked


def rows_of(plan):
    return [item for item in run_cases(plan) if isinstance(item, Row)]


def test_seconds_and_memory_are_compared_with_reference(ran):
    ran[0][:] = [usage(wall_s=0.46, peak_mib=50.0, unproven=3), usage(wall_s=16.8, peak_mib=600.0), usage(wall_s=61.0)]
    small, large, _ = rows = rows_of(SimulatorBenchPlan(parts=(Part.GAVEL_120, Part.GAVEL_900, Part.W1), repeats=1))
    assert (small.speedup, small.memory_share) == (pytest.approx(10.0), pytest.approx(52.4288 / 224.0))
    assert (large.speedup, large.memory_share) == (pytest.approx(2.0), pytest.approx(629.1456 / 630.0))
    assert [row.reached for row in rows] == [True, False, False]
    assert (small.events_per_s, small.rounds_per_s) == (300.0, 40.0)
    text = table(rows)
    assert "10.00 x as fast, 0.23 of the memory" in text
    assert "gavel-120 32/120: reached the aim: 5 x as fast, 0.5 of the memory" in text
    assert "gavel-120 32/120: 3 of 10 auctions hit their time limit" in text
    assert "w1 168/85: short of the aim: 60 s at most" in text
    assert "reference: figures from elsewhere, measured on another but like machine and never here" in text


def test_fastest_run_is_compared_and_slowest_reported(ran):
    answers, asked = ran
    answers[:] = [usage(wall_s=5.0), usage(wall_s=3.0, peak_mib=90.0), usage(wall_s=4.0, peak_mib=110.0), usage()]
    large, growth = rows = rows_of(SimulatorBenchPlan(parts=(Part.GAVEL_900, Part.GROWTH), sizes=(Size(8, 2),)))
    assert (large.runs, large.wall_s, large.slowest_s, large.cpu_s, large.memory_mib) == (3, 3.0, 5.0, 1.5, 110.0)
    assert large.speedup == pytest.approx(33.6 / 3.0)
    assert (growth.runs, len(asked)) == (1, 4)
    text = table(rows)
    assert "gavel-900 256/900: the fastest of 3 runs; the slowest took 5.00 s" in text
    assert "growth 8/2: the fastest" not in text


def test_runs_ended_by_budget_are_not_counted(ran):
    ran[0][:] = [usage(wall_s=4.0), None]
    (row,) = rows_of(SimulatorBenchPlan(parts=(Part.W1,), budget_s=50.0))
    assert (row.runs, row.wall_s, row.slowest_s, row.left_out) == (1, 4.0, 4.0, None)


def test_too_slow_size_skips_larger_sizes(ran):
    answers, asked = ran
    answers[:] = [usage(), None, usage()]
    sizes = (Size(8, 2), Size(16, 4), Size(64, 2), Size(64, 4), Size(80, 16))
    rows = rows_of(SimulatorBenchPlan(parts=(Part.GROWTH,), sizes=sizes))
    assert [limit_s for _, limit_s in asked] == [LEFT_OUT_S] * 3
    assert [(row.gpus, row.left_out) for row in rows] == [
        (8, None),
        (16, "it took over 300 s"),
        (64, None),
        (64, "a smaller size took over 300 s"),
        (80, "a smaller size took over 300 s"),
    ]
    assert "growth 16/4: left out: it took over 300 s" in table(rows)


def test_budget_limits_every_run(ran):
    answers, asked = ran
    answers[:] = [None]
    (row,) = rows_of(SimulatorBenchPlan(parts=(Part.GROWTH,), sizes=(Size(8, 2),), budget_s=50.0))
    assert asked[0][1] <= 50.0
    assert row.left_out == "it took over the 50 s left of the budget"
    (row,) = rows_of(SimulatorBenchPlan(parts=(Part.W1,), budget_s=1e-9))
    assert row.left_out == "the budget was spent"


def test_growth_is_reported_for_both_for_gpus_and_for_apps():
    rows = [
        growth_row(gpus, apps, 1e-3 * gpus * apps**1.5) for gpus, apps in ((80, 16), (400, 80), (400, 160), (800, 80))
    ]
    found = {growth.over: (growth.at, growth.sizes, growth.slope) for growth in growths(rows)}
    assert found == {
        "GPUs and apps": ("5 GPUs an app", ("80/16", "400/80"), pytest.approx(2.5)),
        "GPUs": ("80 apps", ("400/80", "800/80"), pytest.approx(1.0)),
        "apps": ("400 GPUs", ("400/80", "400/160"), pytest.approx(1.5)),
    }
    assert growths(rows[:1]) == []


def test_growth_of_a_round_leaves_out_what_comes_of_more_rounds():
    (growth,) = growths([growth_row(80, 16, 1.0, rounds=50), growth_row(160, 32, 8.0, rounds=100)])
    assert (growth.slope, growth.slope_of_round) == (pytest.approx(3.0), pytest.approx(2.0))


def test_document_is_json_and_labels_reference():
    read = json.loads(json.dumps(document(SimulatorBenchPlan(), [growth_row(8, 2, 1.0)])))
    assert "never here" in read["reference"]
    assert read["rows"][0]["gpus"] == 8


def test_references_equal_the_published_ones():
    assert [shape[1] for shape in SHAPES.values()] == [
        Reference(wall_s=4.6, memory_mb=224.0, reach=5.0),
        Reference(wall_s=33.6, memory_mb=630.0, reach=10.0),
    ]


# ---- processes ------------------------------------------------------------------------------------------------------


def started(tmp_path, limit_s, program):
    command = [sys.executable, "-I", "-S", simulator_starter.__file__, str(limit_s), str(tmp_path / "out")]
    ended = subprocess.run(
        [*command, sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=90, check=True
    )
    return json.loads(ended.stdout)


def test_memory_and_seconds_are_of_command_only(tmp_path):
    ballast = bytearray(200 * 2**20)  # the parent's memory does not count
    little = started(tmp_path, 20, "print('done')")
    assert (tmp_path / "out").read_text() == "done\n"
    assert little["peak_mib"] < 60 < len(ballast)
    much = started(tmp_path, 20, "b = bytearray(100 * 2**20); import time; time.sleep(0.2); raise SystemExit(3)")
    assert much["exit_code"] == 3
    assert 100 < much["peak_mib"] < 160
    assert much["wall_s"] >= 0.2
    assert little["cpu_s"] > 0.0


def test_run_over_limit_is_killed(tmp_path):
    taken = started(tmp_path, 0.3, "import time; time.sleep(60)")
    assert taken["exit_code"] == -9
    assert 0.3 <= taken["wall_s"] < 60
    assert simulate_apart(["simulate"], tmp_path, 0.001) is None


def test_failed_run_is_reported_with_its_command(tmp_path):
    with pytest.raises(ThemisError, match=r"a simulation failed: .*unknown cluster.*; themis simulate --policy themis"):
        simulate_apart(["simulate", "--policy", "themis", "--cluster", "no", "--workload", "w1"], tmp_path, 60.0)
