"""Gavel's trace and throughputs."""

import pytest

from themis.apps import CRUDE_SLOWDOWN
from themis.errors import InputError
from themis_lab.simulator.workloads.gavel import from_gavel, read_gavel_trace, read_throughputs

TABLE = """\
model,batch_size,num_gpus,gpu_type,steps_per_s_consolidated,steps_per_s_unconsolidated
LM,80,1,v100,28.0,28.0
LM,80,2,v100,50.0,20.0
LM,80,2,k80,5.0,2.0
A3C,,1,v100,7.0,8.0
"""


def line(job_type="LM (batch size 80)", steps="1000", gpus="2", duration="30", arrival="0"):
    return "\t".join((job_type, "cmd", "dir", "--steps", "1", steps, gpus, "gns", "1", "-1.0", duration, arrival))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "throughputs.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


def workload(folder, *lines, gpu_type="v100"):
    path = folder / "jobs.trace"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return from_gavel(read_gavel_trace(path), read_throughputs(folder / "throughputs.csv", gpu_type), 1, "jobs.trace")


def test_a_byte_order_mark_changes_nothing(folder):
    plain = workload(folder, line(), line(arrival="7"))
    for name in ("jobs.trace", "throughputs.csv"):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    jobs = read_gavel_trace(folder / "jobs.trace")
    assert from_gavel(jobs, read_throughputs(folder / "throughputs.csv"), 1, "jobs.trace") == plain


def test_a_throughput_of_nothing_was_not_measured(folder):
    table = folder / "throughputs.csv"
    table.write_text(TABLE + "LM,80,4,k80,0.0,\n", encoding="utf-8")
    known = workload(folder, line(gpus="2"), gpu_type="k80")
    assert ("not known" in known.source, known.gaps) == (False, "")
    lacking = workload(folder, line(gpus="2"), line(gpus="4", duration="33"), gpu_type="k80")
    assert lacking.apps[1].jobs[0].work_gpu_s == pytest.approx(4 * 33)
    assert lacking.gaps == "the throughput of 1 of the 2 jobs is not known, their durations stand in for it"
    assert lacking.source.endswith(f"; {lacking.gaps}.")


def test_a_table_without_a_row_is_refused(folder):
    (folder / "throughputs.csv").write_text(TABLE.splitlines()[0] + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"throughputs.csv holds no throughput"):
        workload(folder, line())


def test_a_job_arrives_within_a_century(folder):
    with pytest.raises(InputError, match="an app cannot arrive more than a century later"):
        workload(folder, line(), line(arrival="1e300"))


def test_a_job_takes_its_steps_at_its_throughput(folder):
    ((app,),) = [workload(folder, line()).apps]
    (job,) = app.jobs
    assert (app.model, job.iterations_total, job.shape.tasks, job.shape.min_tasks) == ("LM", 1000, 2, 2)
    assert job.work_gpu_s / 2 == pytest.approx(1000 / 50.0)
    s = job.slowdown
    assert (s.slot, s.machine, s.rack, s.cluster) == (1.0, 1.0, 2.5, 2.5)


def test_another_type_of_gpu(folder):
    (app,) = workload(folder, line(), gpu_type="k80").apps
    assert app.jobs[0].work_gpu_s / 2 == pytest.approx(1000 / 5.0)


def test_a_job_has_a_speed_on_every_type_that_was_measured(folder):
    two, three = workload(folder, line(), line("A3C", gpus="1")).apps
    assert two.jobs[0].speed_by_device == {"v100": 1.0, "k80": 0.1}
    assert three.jobs[0].speed_by_device == {"v100": 1.0}


def test_a_table_of_one_type_says_nothing_of_speeds(folder):
    (folder / "throughputs.csv").write_text(TABLE.replace("LM,80,2,k80,5.0,2.0\n", ""), encoding="utf-8")
    assert workload(folder, line()).apps[0].jobs[0].speed_by_device == {}


def test_a_type_of_gpu_that_the_table_lacks_is_refused_with_those_that_it_has(folder):
    with pytest.raises(InputError, match=r"throughputs\.csv has no such type of GPU: 'k81'; known: k80, v100"):
        workload(folder, line(), gpu_type="k81")


def test_a_job_without_a_throughput_takes_its_duration(folder):
    (app,) = workload(folder, line("Other (batch size 1)", gpus="4")).apps
    assert app.jobs[0].work_gpu_s == pytest.approx(4 * 30.0)
    assert app.jobs[0].slowdown == CRUDE_SLOWDOWN


def test_a_model_without_a_batch_and_faster_apart_is_not_slowed_down(folder):
    (app,) = workload(folder, line("A3C", gpus="1")).apps
    assert (app.model, app.jobs[0].slowdown.cluster) == ("A3C", 1.0)


def test_arrivals_are_sorted_and_begin_at_0(folder):
    apps = workload(folder, line(arrival="90"), line(arrival="40.5")).apps
    assert [app.arrival_s for app in apps] == [0.0, 49.5]


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ("LM\t1", "line 2: 2 fields in place of 12"),
        (line(job_type=" "), "line 2: job type"),
        (line(steps="0"), "line 2: total steps"),
        (line(gpus="1.5"), "line 2: scale factor"),
        (line(duration="-3"), "line 2: duration"),
        (line(arrival="nan"), "line 2: arrival"),
        (line(arrival="1_0"), "line 2: arrival: not a number of 0 or more: '1_0'"),
        (line(steps="1_0"), "line 2: total steps"),
        (line(gpus="1_0"), "line 2: scale factor"),
        (line(duration="\u0663"), "line 2: duration"),
    ],
)
def test_a_malformed_line_is_named(folder, bad, place):
    with pytest.raises(InputError, match=rf"jobs\.trace, {place}"):
        workload(folder, line(), bad)


def test_a_job_that_takes_more_than_a_century_is_named(folder):
    message = "the job that arrives at 5 s, app-1, cannot be: a job cannot have more work than a century"
    with pytest.raises(InputError, match=message):
        workload(folder, line(), line(steps="999999999", gpus="1", duration="1e300", arrival="5", job_type="unknown"))


@pytest.mark.parametrize("rows", ["drawn-0000,,1\n", "LM,80,4,k80,9.0\n", "LM,80,1,v100,28.0,28.0\ndrawn-0000,,1\n"])
def test_a_short_row_of_throughputs_is_refused(folder, rows):
    path = folder / "throughputs.csv"
    path.write_text(TABLE.splitlines()[0] + "\n" + rows, encoding="utf-8")
    column = "steps_per_s_unconsolidated" if "k80" in rows else "gpu_type"
    with pytest.raises(InputError, match=rf"throughputs\.csv, line {rows.count(chr(10)) + 1}: {column} is missing"):
        read_throughputs(path)


def test_malformed_throughputs_are_named(folder):
    path = folder / "throughputs.csv"
    path.write_text(TABLE.replace("7.0,8.0", "7.0,fast"), encoding="utf-8")
    with pytest.raises(InputError, match=r"throughputs\.csv, line 5: steps_per_s_unconsolidated"):
        read_throughputs(path)
    path.write_text(TABLE.replace("7.0,8.0", "7_0,8.0"), encoding="utf-8")
    with pytest.raises(InputError, match=r"throughputs\.csv, line 5: steps_per_s_consolidated.*: '7_0'"):
        read_throughputs(path)
    path.write_text("model,batch_size\n", encoding="utf-8")
    with pytest.raises(InputError, match="line 1: column num_gpus is missing"):
        read_throughputs(path)
    with pytest.raises(InputError, match=r"name the throughputs\.csv"):
        read_throughputs(folder / "none.csv")


def test_no_jobs_and_no_file(folder):
    with pytest.raises(InputError, match="holds no job"):
        workload(folder)
    with pytest.raises(InputError, match="cannot read"):
        read_gavel_trace(folder / "none.trace")
