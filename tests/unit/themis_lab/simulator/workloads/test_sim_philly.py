"""Philly: its two formats, malformed rows, and how jobs become apps."""

import json

import pytest

from themis.errors import InputError
from themis_lab.simulator.workloads.philly import PhillyJob, bursts_of, read_philly_csv, read_philly_json
from themis_lab.simulator.workloads.trace_apps import from_bursts

HEAD = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def attempt(begun, ended, *gpus):
    return {"start_time": begun, "end_time": ended, "detail": [{"ip": "m1", "gpus": list(gpus)}]}


ENTRY = {
    "status": "Pass",
    "vc": "6214e9",
    "jobid": "application_1",
    "attempts": [
        attempt("2017-10-09 07:02:00", "2017-10-09 07:03:00", "gpu0"),
        attempt("2017-10-09 07:04:00", "2017-10-09 07:04:30", "gpu0", "gpu1"),
        attempt("2017-10-09 07:05:00", None, "gpu0"),
    ],
    "submitted_time": "2017-10-09 07:01:55",
    "user": "ce2d6e",
}


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_the_flat_table(tmp_path):
    rows = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 06:13:03,0,2,0,6214e9\n"
    trace = read_philly_csv(write(tmp_path / "p.csv", HEAD + rows))
    (job,) = trace.jobs
    assert job == PhillyJob(submitted_s=1507532515.0, duration_s=66.0, gpus=1, virtual_cluster="11cb48")
    assert trace.gaps == "1 of the 2 jobs have no time in which they ran: left out"


def test_a_byte_order_mark_changes_nothing_in_philly(tmp_path):
    rows = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    marked = write(tmp_path / "p.csv", "\ufeff" + HEAD + rows)
    assert read_philly_csv(marked) == read_philly_csv(write(tmp_path / "q.csv", HEAD + rows))


def test_the_release(tmp_path):
    never_ran = {**ENTRY, "attempts": []}
    trace = read_philly_json(write(tmp_path / "p.json", json.dumps([ENTRY, never_ran])))
    (job,) = trace.jobs
    assert job == PhillyJob(submitted_s=1507532515.0, duration_s=90.0, gpus=2, virtual_cluster="6214e9", user="ce2d6e")
    assert trace.gaps == (
        "1 of the 2 jobs have no time in which they ran: left out; "
        "1 of the other jobs' attempts have no time or no GPUs: not counted"
    )


def test_a_trace_that_is_used_whole_has_no_gaps(tmp_path):
    rows = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
    assert read_philly_csv(write(tmp_path / "p.csv", HEAD + rows)).gaps == ""
    whole = {**ENTRY, "attempts": ENTRY["attempts"][:2]}
    assert read_philly_json(write(tmp_path / "p.json", json.dumps([whole]))).gaps == ""
    no_time_at_all = attempt("2017-10-09 07:05:00", "2017-10-09 07:05:00", "gpu0")
    brief = {**ENTRY, "attempts": [*whole["attempts"], no_time_at_all]}
    assert read_philly_json(write(tmp_path / "p.json", json.dumps([brief]))).gaps == ""


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("yesterday,66.0,1,66.0,a", "line 2: timestamp"),
        ("2017-10-09 07:01:55,long,1,66.0,a", "line 2: duration"),
        ("2017-10-09 07:01:55,-1,1,66.0,a", "line 2: duration"),
        ("2017-10-09 07:01:55,nan,1,66.0,a", "line 2: duration"),
        ("2017-10-09 07:01:55,6_6.0,1,66.0,a", "line 2: duration: not a number of seconds: '6_6.0'"),
        ("2017-10-09 07:01:55,\u0663,1,66.0,a", "line 2: duration"),
        ("2017-10-09 07:01:55,66.0,1_0,66.0,a", "line 2: num_gpus"),
        ("2017-10-09 07:01:55,66.0,0,66.0,a", "line 2: num_gpus"),
        ("2017-10-09 07:01:55,66.0,1.5,66.0,a", "line 2: num_gpus"),
        (f"2017-10-09 07:01:55,66.0,{'9' * 5000},66.0,a", "line 2: num_gpus"),
        ("2017-10-09 07:01:55,66.0,1,66.0", "line 2: cluster"),
        ("2017-10-09 07:01:55,66.0,1,66.0,a,b", r"line 2: more fields than there are columns: \['b'\]"),
        ("2017-10-09 07:01:55,1e308,8,66.0,a", "line 2: a duration that cannot be: '1e\\+308 s on 8 GPUs'"),
        ("2017-10-09 07:01:55,5e-324,1,66.0,a", "line 2: a duration that cannot be"),
        ("2017-10-09 07:01:55,66.0,999999999,66.0,a", "line 2: a duration that cannot be: '66 s on 999999999 GPUs'"),
    ],
)
def test_a_malformed_row_is_named(tmp_path, row, place):
    path = write(tmp_path / "p.csv", f"{HEAD}{row}\n")
    with pytest.raises(InputError, match=f"p.csv, {place}"):
        read_philly_csv(path)


def test_a_table_without_a_column(tmp_path):
    with pytest.raises(InputError, match="line 1: column num_gpus is missing"):
        read_philly_csv(write(tmp_path / "p.csv", "timestamp,duration,cluster\n"))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"submitted_time": None}, "job 2: submitted_time"),
        ({"vc": ""}, "job 2: vc"),
        ({"user": 7}, "job 2: user"),
        ({"attempts": None}, "job 2: attempts"),
        ({"attempts": ["x"]}, r"job 2: attempts\[1\]"),
        ({"attempts": [{**ENTRY["attempts"][0], "detail": [{"ip": "m1"}]}]}, r"job 2: attempts\[1\].detail"),
        ({"attempts": [attempt("soon", "2017-10-09 07:03:00", "gpu0")]}, r"job 2: attempts\[1\].start_time"),
        (
            {"attempts": [attempt("2017-10-09 07:03:00", "2017-10-09 07:02:00", "gpu0")]},
            r"job 2: attempts\[1\].end_time",
        ),
    ],
)
def test_a_malformed_job_is_named(tmp_path, change, place):
    path = write(tmp_path / "p.json", json.dumps([ENTRY, {**ENTRY, **change}]))
    with pytest.raises(InputError, match=f"p.json, {place}"):
        read_philly_json(path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"submitted_time": 0}, "job 2: submitted_time: not a time"),
        ({"user": 0}, "job 2: user"),
        ({"attempts": 0}, "job 2: attempts: must be a list"),
    ],
)
def test_a_number_of_very_many_digits_is_refused_with_its_field(tmp_path, change, place):
    entries = json.dumps([ENTRY, {**ENTRY, **change}]).replace(": 0", f": {'9' * 5000}")
    with pytest.raises(InputError, match=f"p.json, {place}"):
        read_philly_json(write(tmp_path / "p.json", entries))


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[" * 100_000, "9" * 5000])
def test_a_file_without_a_list_of_jobs_is_refused(tmp_path, text):
    with pytest.raises(InputError, match=r"p\.json"):
        read_philly_json(write(tmp_path / "p.json", text))


@pytest.mark.parametrize("read", [read_philly_csv, read_philly_json])
def test_no_such_file(tmp_path, read):
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "none")


def job(submitted_s, gpus=1, cluster="a", user="", duration_s=60.0):
    return PhillyJob(submitted_s=submitted_s, duration_s=duration_s, gpus=gpus, virtual_cluster=cluster, user=user)


def test_bursts_chain_from_job_to_job():
    sizes = [len(burst.jobs) for burst in bursts_of([job(0), job(30), job(60), job(90.5)])]
    assert sizes == [3, 1]


def test_another_cluster_user_or_number_of_gpus_is_another_burst():
    jobs = [job(0), job(1, gpus=2), job(2, cluster="b"), job(3, user="u"), job(4)]
    assert [len(burst.jobs) for burst in bursts_of(jobs)] == [2, 1, 1, 1]


def test_the_order_of_the_trace_does_not_matter():
    jobs = [job(at_s) for at_s in (0, 10, 100, 50, 20)]
    assert bursts_of(jobs) == bursts_of(jobs[::-1])


def test_apps_of_bursts_keep_times_and_work():
    bursts = bursts_of([job(1000.0, gpus=4, duration_s=600.0), job(1010.0, gpus=4), job(5000.0, duration_s=7.0)])
    workload = from_bursts(bursts, seed=1, name="tiny")
    first, second = workload.apps
    assert (first.arrival_s, second.arrival_s) == (0.0, 4000.0)
    assert [job.work_gpu_s for job in first.jobs] == pytest.approx([2400.0, 240.0], rel=0.01)
    assert {(job.shape.tasks, job.shape.min_tasks) for job in first.jobs} == {(4, 4)}
    assert workload.gaps == ""
    large = from_bursts(bursts, seed=1, name="tiny", least_jobs=2, gaps="so it was")
    assert [len(app.jobs) for app in large.apps] == [2]
    assert large.gaps == "so it was; 1 of the 2 bursts have fewer than 2 jobs: left out"
    with pytest.raises(InputError, match="tiny has no burst of at least this many jobs: 3; its largest has 2"):
        from_bursts(bursts, seed=1, name="tiny", least_jobs=3)


def test_a_duplicate_column_is_refused(tmp_path):
    path = write(tmp_path / "p.csv", "timestamp,duration,num_gpus,cluster,cluster\n2017-10-09 07:01:55,66.0,1,a,b\n")
    with pytest.raises(InputError, match=r"p\.csv, line 1: column cluster is there twice; name each column once"):
        read_philly_csv(path)
