"""The benchmark of valuations: its references compared with each other, its rows, and its command."""

import json
import math
import subprocess
import sys

import pytest
from agent_cases import FLAT, STRICT, app_of, cluster_of, job, jobs_of
from documents import ROOT

from am.agent.bids.bidding import make_bid
from am.agent.model.finish_time import phase_time_s
from themis.apps import JobShape
from themis.bids import FreeMachine
from themis.cluster import Level
from themis_lab.bench.valuation_bound import bound_s
from themis_lab.bench.valuation_cases import BUNDLES_GPUS, JOBS, bundle_of, large_case, small_case
from themis_lab.bench.valuation_exact import divisions, exact_time_s, least_time_s
from themis_lab.bench.valuation_output import table
from themis_lab.bench.valuation_run import GapRow, TimeRow, ValuationBenchPlan, bid_time_s, run_plan, small_gaps


def free(cluster):
    return tuple(
        FreeMachine(machine_id=each.machine_id, rack_id=each.rack_id, free_slots=each.slots)
        for each in cluster.machines
    )


class TestExact:
    def test_exhaustive_assignment_equals_agent(self):
        """Three, three, two, two, two on two GPUs: the longest first end at 7, the best way at 6."""
        cluster = cluster_of((2,))
        app = app_of(jobs_of([3, 3, 2, 2, 2]))
        (pair,) = [gangs for gangs in divisions(app, free(cluster)) if len(gangs) == 2]
        assert phase_time_s(app.jobs, pair) == least_time_s(app.jobs, pair) == exact_time_s(app, free(cluster)) == 6.0

    def test_gang_level_follows_its_machines(self):
        cluster = cluster_of((2, 1), (1,))
        app = app_of([job("j", 12.0, JobShape(tasks=2, min_tasks=2), STRICT)] * 1)
        levels = {gangs[0].level for gangs in divisions(app, free(cluster))}
        assert levels == {Level.SLOT, Level.MACHINE, Level.RACK}
        assert exact_time_s(app, free(cluster)) == 6.0

    def test_bundle_without_fitting_gang_never_ends(self):
        app = app_of([job("j", 12.0, JobShape(tasks=3, min_tasks=3), FLAT)])
        assert math.isinf(exact_time_s(app, free(cluster_of((2,)))))


class TestBound:
    @pytest.mark.parametrize("seed", range(40))
    def test_bound_is_never_above_best_packing(self, seed):
        case = small_case(seed)
        best_s = exact_time_s(case.app, case.machines)
        if math.isfinite(best_s):
            assert 0.0 < bound_s(case.app, case.machines, best_s) <= best_s * (1 + 1e-9)

    def test_bound_counts_whole_jobs(self):
        """Five equal jobs on two GPUs: one GPU runs three."""
        cluster = cluster_of((2,))
        app = app_of(jobs_of([10.0] * 5))
        assert bound_s(app, free(cluster), 100.0) == pytest.approx(30.0, rel=1e-5)


@pytest.mark.parametrize("block", range(4))
def test_no_division_of_small_bundle_beats_bid(block):
    """Exact, with jobs assigned to gangs in the order of apps."""
    gaps = {seed: small_gaps(seed) for seed in range(50 * block, 50 * block + 50)}
    assert {seed: as_run for seed, (_, as_run) in gaps.items() if as_run} == {}
    assert all(0.0 <= gap <= 1.0 for gap, _ in gaps.values())


@pytest.mark.parametrize(("seed", "searched_s"), [(4, 1980.0), (10, 1625.0), (16, 2098.0)])
def test_large_elastic_bid_beats_long_random_search(seed, searched_s):
    """6,000 random steps over the divisions of all machines, each valued by `phase_time_s`, ended at these times."""
    case = large_case(seed)
    by_bid_s = bid_time_s(case, make_bid(case.app, case.offer, case.cluster_view), case.machines)
    assert 0.95 * searched_s < by_bid_s < 0.985 * searched_s


def test_cases_match_their_description():
    assert small_case(3) == small_case(3) != small_case(4)
    for seed in range(30):
        assert 2 <= sum(each.free for each in small_case(seed).machines) <= 7
    case = large_case(1)
    assert len(case.app.jobs) == JOBS
    assert sum(each.free for each in case.machines) == 168
    assert [sum(each.free for each in bundle_of(case, gpus, 1)) for gpus in BUNDLES_GPUS] == list(BUNDLES_GPUS)


def test_rows_add_up():
    rows = list(run_plan(ValuationBenchPlan(small=12, large=1, bids=2)))
    gaps = [row for row in rows if isinstance(row, GapRow)]
    assert [row.part for row in gaps] == [
        "small",
        "small-as-run",
        *(f"large-{gpus}" for gpus in BUNDLES_GPUS),
        *(f"alone-{gpus}" for gpus in BUNDLES_GPUS),
    ]
    for row in gaps:
        assert -1e-6 <= row.median_gap <= row.worst_gap < 1.0
        assert row.exact_share <= row.near_share <= 1.0
    times = {row.part: row for row in rows if isinstance(row, TimeRow)}
    assert list(times) == ["bid", "rho-first", "rho-again"]
    assert times["rho-again"].p50_ms < times["rho-first"].p50_ms < times["bid"].p50_ms
    assert len(table(rows).splitlines()) == 16


def bench(*options):
    command = [sys.executable, "-m", "themis_cli.main", "bench", "valuation", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_command_prints_document_and_progress_on_stderr():
    ended = bench("--small", "3", "--large", "0", "--bids", "1", "--json")
    assert ended.returncode == 0, ended.stderr
    output = json.loads(ended.stdout)
    assert [row["part"] for row in output["gaps"]] == ["small", "small-as-run"]
    assert [row["part"] for row in output["times"]] == ["bid", "rho-first", "rho-again"]
    assert "small: done" in ended.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--small", "-1"], "--small must be 0 or more: -1"),
        (["--reference-s", "-1"], "--reference-s must be 0 or more and finite: -1.0"),
        (["--reference-s", "nan"], "--reference-s must be 0 or more and finite: nan"),
        (
            ["--small", "0", "--large", "0", "--bids", "0"],
            "there is nothing to measure; give one of --small, --large and --bids",
        ),
    ],
)
def test_bad_options_exit_2(options, expected):
    ended = bench(*options)
    assert (ended.returncode, ended.stderr.strip()) == (2, f"themis: {expected}")
