"""The full public traces, which do not ship: set THEMIS_DATA to a folder with philly/philly.csv and gavel/."""

import importlib.util
import os
from pathlib import Path

import pytest
from documents import ROOT

from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.workloads.gavel import read_gavel_trace, read_throughputs
from themis_lab.simulator.workloads.models import DATA
from themis_lab.simulator.workloads.philly import bursts_of, read_philly_csv
from themis_lab.simulator.workloads.registry import workload_named

FOLDER = os.environ.get("THEMIS_DATA", "")
pytestmark = pytest.mark.skipif(not FOLDER, reason="the full traces do not ship: THEMIS_DATA names no folder of them")


def test_the_extract_equals_the_output_of_the_tool(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("derive", ROOT / "tools" / "derive_philly_extract.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "OUT", tmp_path / "philly_apps.csv")
    assert tool.main([FOLDER]) == 0
    assert tool.OUT.read_bytes() == (DATA / "philly_apps.csv").read_bytes()


def test_the_bursts_are_those_that_were_counted():
    trace = read_philly_csv(Path(FOLDER) / "philly/philly.csv")
    large = [burst for burst in bursts_of(trace.jobs) if len(burst.jobs) >= 8]
    assert (len(large), sum(len(burst.jobs) for burst in large)) == (1108, 50020)


def test_every_job_of_the_trace_of_120_finds_its_throughput():
    jobs = read_gavel_trace(Path(FOLDER) / "gavel/120_jobs_32_gpus.trace")
    table = read_throughputs(Path(FOLDER) / "gavel/throughputs.csv")
    assert len(jobs) == 120
    assert all((job.model, job.batch, job.gpus) in table for job in jobs)


@pytest.mark.parametrize(("path", "apps"), [("gavel/120_jobs_32_gpus.trace", 120), ("philly/philly.csv", 26708)])
def test_whole_traces_become_workloads(path, apps):
    assert len(workload_named(str(Path(FOLDER) / path), 1, cluster_named("testbed")).apps) == apps
