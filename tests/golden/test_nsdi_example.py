"""The paper's worked example (NSDI'20, section 4.3.3): ideal time, rho, and its phases."""

import json
import subprocess
import sys

import pytest
from agent_cases import even_gangs

from am.agent.model.fairness import cluster_time_s, ideal_time_s, rho_by_definition
from am.agent.model.finish_time import later_phases_time_s, phase_time_s, time_on_count_s
from am.agent.model.nsdi_example import NSDI_CLUSTER_VIEW, nsdi_app, nsdi_table
from themis.cluster import Level
from themis.rho import RhoDefinition

GOLDEN = {"1": 4.0, "2": 2.0, "4": 1.064, "8": 0.532, "16": 0.356}


def first_phase_s(app, gpus):
    return phase_time_s(app.jobs, even_gangs(gpus, len(app.jobs), app.median_job.shape, NSDI_CLUSTER_VIEW))


def test_the_table_is_the_papers_but_for_its_rounding():
    table = nsdi_table()
    assert table["t_ideal_s"] == 2500.0
    assert table["rho"] == GOLDEN


def test_the_ideal_is_four_times_the_clusters_time():
    app = nsdi_app()
    assert app.work_total_gpu_s == 8 * 400 + 2 * 16 * 100 + 36 * 100
    assert cluster_time_s(app, NSDI_CLUSTER_VIEW) == 625.0
    assert ideal_time_s(app, NSDI_CLUSTER_VIEW) == 2500.0


def test_the_phases_on_two_gpus():
    app = nsdi_app()
    assert first_phase_s(app, 2) == 1600.0
    assert later_phases_time_s(app, 2, NSDI_CLUSTER_VIEW, Level.SLOT) == 1600.0 + 1800.0
    assert time_on_count_s(app, 2, NSDI_CLUSTER_VIEW) == 5000.0


def test_the_second_phase_when_a_slow_job_went_on():
    app = nsdi_app(phase=1, serial_s=(120.0, 100.0))
    assert first_phase_s(app, 2) == 1920.0
    # The paper prints 120 * 16 = 3200 for the phase before: an arithmetic error.
    assert later_phases_time_s(app, 2, NSDI_CLUSTER_VIEW, Level.SLOT) == 2160.0


def test_rho_at_completion_agrees_with_the_table_by_the_papers_definition():
    app = nsdi_app()
    for gpus, rho in GOLDEN.items():
        seconds = time_on_count_s(app, int(gpus), NSDI_CLUSTER_VIEW)
        assert rho_by_definition(app, seconds, NSDI_CLUSTER_VIEW)[RhoDefinition.THEMIS] == pytest.approx(rho)


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "themis_cli.main", *arguments], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_prints_it_as_json():
    assert command("rho", "--example", "nsdi", "--json") == (
        0,
        json.dumps({"t_ideal_s": 2500.0, "rho": GOLDEN}) + "\n",
        "",
    )


def test_the_command_prints_it_for_people():
    code, out, _ = command("rho", "--example", "nsdi")
    assert code == 0
    assert out.splitlines() == [
        "t_ideal 2500 s",
        "GPUs   rho",
        "   1   4.000",
        "   2   2.000",
        "   4   1.064",
        "   8   0.532",
        "  16   0.356",
    ]


def test_an_unknown_example_is_bad_usage():
    code, out, err = command("rho", "--example", "osdi")
    assert (code, out) == (2, "")
    assert "nsdi" in err
