"""Parts of a trace that a run omits or replaces are one line on standard error."""

import json

import pytest

from themis_cli.main import main

TABLE = """\
model,batch_size,num_gpus,gpu_type,steps_per_s_consolidated,steps_per_s_unconsolidated
LM,80,1,v100,28.0,28.0
"""
LACK = "the throughput of 1 of the 2 jobs is not known, their durations stand in for it"


def gavel_line(batch_size, at_s):
    fields = (f"LM (batch size {batch_size})", "cmd", "dir", "--steps", "1", "2000", "1", "gns", "1", "-1.0", "60")
    return "\t".join((*fields, str(at_s)))


@pytest.fixture
def gavel(tmp_path):
    (tmp_path / "throughputs.csv").write_text(TABLE, encoding="utf-8")
    path = tmp_path / "jobs.trace"
    path.write_text(f"{gavel_line(80, 0)}\n{gavel_line(7, 10)}\n", encoding="utf-8")
    return path


@pytest.fixture
def philly(tmp_path):
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-09 {row},a\n" for row in ("07:01:55,66,1", "07:01:56,66,1", "08:01:55,7,1", "06:13:03,0,2")]
    path.write_text("timestamp,duration,num_gpus,cluster\n" + "".join(rows), encoding="utf-8")
    return path


def reported(capsys, workload, *options):
    assert main(["simulate", "--policy", "tiresias", "--cluster", "2x2", "--workload", str(workload), *options]) == 0
    return capsys.readouterr()


def test_jobs_without_throughput_are_counted_on_stderr(gavel, capsys):
    assert reported(capsys, gavel).err == f"simulate: jobs.trace: {LACK}\n"


def test_omitted_jobs_and_bursts_are_one_line(philly, capsys):
    err = reported(capsys, philly, "--option", "least_jobs=2").err
    never = "1 of the 4 jobs have no time in which they ran: left out"
    assert err == f"simulate: philly.csv: {never}; 1 of the 2 bursts have fewer than 2 jobs: left out\n"


def test_gaps_are_printed_once_for_all_runs_on_stderr(gavel, capsys):
    out, err = reported(capsys, gavel, "--policy", "drf", "--seeds", "2", "--json")
    assert err == f"simulate: jobs.trace: {LACK}\n"
    assert LACK not in out
    assert len(json.loads(out)["runs"]) == 4


def test_complete_trace_prints_no_gaps(gavel, capsys):
    gavel.write_text(f"{gavel_line(80, 0)}\n", encoding="utf-8")
    assert reported(capsys, gavel).err == ""


def test_replay_prints_gaps_of_recording(gavel, tmp_path, capsys):
    recording = tmp_path / "run.jsonl"
    reported(capsys, gavel, "--record", str(recording))
    assert main(["replay", str(recording), "--policy", "drf"]) == 0
    assert capsys.readouterr().err == f"simulate: jobs.trace: {LACK}\n"


def test_skipped_rows_are_counted_and_the_first_are_named(philly, capsys):
    rows = [f"2017-10-09 07:01:5{place},x{place},1,a\n" for place in range(7)]
    philly.write_text(philly.read_text(encoding="utf-8") + "".join(rows), encoding="utf-8")
    err = reported(capsys, philly, "--skip-bad-rows").err
    named = ", ".join(
        f"{philly}, line {6 + place}: duration: not a number of seconds: 'x{place}'" for place in range(5)
    )
    assert f"; 7 rows cannot be read: left out ({named}, and 2 more)" in err


def test_skipped_rows_of_gavel_trace_and_table_are_reported_together(gavel, tmp_path, capsys):
    gavel.write_text(f"{gavel_line(80, 0)}\nodd\n", encoding="utf-8")
    (tmp_path / "throughputs.csv").write_text(f"{TABLE}LM,80,x,v100,1.0,1.0\n", encoding="utf-8")
    err = reported(capsys, gavel, "--skip-bad-rows").err
    places = f"{gavel}, line 2: 1 fields in place of 12, {tmp_path / 'throughputs.csv'}, line 3: num_gpus"
    assert err.startswith(f"simulate: jobs.trace: 2 rows cannot be read: left out ({places}")


def test_bad_row_without_the_option_is_an_error_that_names_the_option(gavel, capsys):
    gavel.write_text(f"{gavel_line(80, 0)}\nodd\n", encoding="utf-8")
    assert main(["simulate", "--policy", "drf", "--cluster", "2x2", "--workload", str(gavel)]) == 2
    err = capsys.readouterr().err
    assert "--skip-bad-rows leaves such rows out" in err
    assert err.count("\n") == 1


def test_workload_that_is_no_trace_has_no_such_option(capsys):
    assert main(["simulate", "--policy", "drf", "--workload", "w1-small", "--skip-bad-rows"]) == 2
    assert "skip_bad_rows" in capsys.readouterr().err
