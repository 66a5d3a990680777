"""`themis allox`: what it prints, its exit codes, and that no file makes it fail in another way."""

import copy
import io
import json

import pytest

from themis_cli.main import main

GOOD = {
    "machines": [
        {"id": "g0", "type": "gpu", "available_s": 0},
        {"id": "g1", "type": "gpu", "available_s": 0},
        {"id": "c0", "type": "cpu", "available_s": 0},
        {"id": "c1", "type": "cpu", "available_s": 0},
    ],
    "jobs": [
        {"id": name, "user": user, "arrival_s": 0, "time_s": {"gpu": gpu, "cpu": cpu}}
        for name, user, gpu, cpu in (
            ("j1", "u1", 10, 15), ("j2", "u2", 8, 10), ("j3", "u1", 10, 50),
            ("j4", "u2", 5, 75), ("j5", "u1", 10, 15), ("j6", "u2", 10, 15),
        )
    ],
    "now_s": 0,
}  # fmt: skip
"""Table 1 of the paper."""


@pytest.fixture
def allox(capsys, tmp_path):
    def run(document, *arguments):
        """Exit code, standard output and standard error."""
        path = tmp_path / "instance.json"
        path.write_bytes(document if isinstance(document, bytes) else json.dumps(document).encode())
        code = main(["allox", "--instance", str(path), *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def changed(*path, to=...):
    """The good instance with one value replaced, or removed."""
    document = copy.deepcopy(GOOD)
    at = document
    for key in path[:-1]:
        at = at[key]
    if to is ...:
        del at[path[-1]]
    else:
        at[path[-1]] = to
    return document


def solved(allox, document):
    code, out, err = allox(document, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_table_1_takes_75_minutes(allox):
    result = solved(allox, GOOD)
    assert list(result)[:2] == ["status", "total_completion_s"]
    assert (result["status"], result["total_completion_s"]) == ("optimal", 75.0)
    assert sorted(job for queue in result["schedule"].values() for job in queue) == [f"j{k}" for k in range(1, 7)]
    assert result["start_now"] == [[queue[0], machine] for machine, queue in result["schedule"].items()]
    assert result["certificate"]["proved"] is True
    assert sum(result["certificate"]["positions_used"].values()) == 6
    assert result["solve_s"] >= 0


def test_result_does_not_depend_on_the_order_of_the_file(allox):
    turned = {**GOOD, "jobs": GOOD["jobs"][::-1], "machines": GOOD["machines"][::-1]}
    one, other = solved(allox, GOOD), solved(allox, turned)
    assert one["schedule"] == other["schedule"]
    assert one["total_completion_s"] == other["total_completion_s"]


def test_job_with_null_runs_on_the_other_type(allox):
    result = solved(allox, changed("jobs", 3, "time_s", "gpu", to=None))
    assert "j4" in result["schedule"]["c0"] + result["schedule"]["c1"]


def test_job_without_a_time_on_a_type_runs_on_the_other(allox):
    result = solved(allox, changed("jobs", 3, "time_s", "gpu"))
    assert "j4" in result["schedule"]["c0"] + result["schedule"]["c1"]


def test_null_on_a_type_without_machines_says_what_is_true(allox):
    document = {
        "machines": [{"id": "g0", "type": "gpu", "available_s": 0}],
        "jobs": [{"id": "j1", "user": "u", "arrival_s": 0, "time_s": {"gpu": 10, "cpu": None}}],
        "now_s": 0,
    }
    result = solved(allox, document)
    assert (result["total_completion_s"], result["start_now"]) == (10.0, [["j1", "g0"]])


def test_waits_count_in_the_total_and_busy_machines_start_nothing(allox):
    document = {
        "machines": [{"id": "g0", "type": "gpu", "available_s": 10}],
        "jobs": [{"id": "j", "user": "u", "arrival_s": 4, "time_s": {"gpu": 5}}],
        "now_s": 6,
    }
    result = solved(allox, document)
    assert (result["total_completion_s"], result["start_now"], result["schedule"]) == (11.0, [], {"g0": ["j"]})


def test_no_jobs_is_an_empty_schedule(allox):
    result = solved(allox, {**GOOD, "jobs": []})
    assert (result["status"], result["total_completion_s"], result["start_now"]) == ("optimal", 0.0, [])
    assert result["schedule"] == {"g0": [], "g1": [], "c0": [], "c1": []}


def test_three_types_of_machines(allox):
    document = copy.deepcopy(GOOD)
    document["machines"].append({"id": "t0", "type": "tpu", "available_s": 0})
    for job in document["jobs"]:
        job["time_s"]["tpu"] = 1
    assert solved(allox, document)["total_completion_s"] < 75


def test_table_names_every_job(allox):
    code, out, err = allox(GOOD)
    assert (code, err) == (0, "")
    assert all(job["id"] in out for job in GOOD["jobs"])
    assert "optimal: total completion time 75 s, 6 jobs" in out


def test_standard_input_is_read(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(GOOD).encode())))
    assert main(["allox", "--instance", "-", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total_completion_s"] == 75


NUMBERS = (("now_s",), ("machines", 0, "available_s"), ("jobs", 0, "arrival_s"), ("jobs", 0, "time_s", "gpu"))
TEXTS = (("machines", 0, "id"), ("machines", 0, "type"), ("jobs", 0, "id"), ("jobs", 0, "user"))
OTHERS = (("machines",), ("machines", 0), ("jobs",), ("jobs", 0), ("jobs", 0, "time_s"))
NAN, INFINITY = float("nan"), float("inf")


@pytest.mark.parametrize("path", [path for path in (*NUMBERS[:3], *TEXTS, *OTHERS) if isinstance(path[-1], str)])
def test_missing_field_exits_with_2_and_is_named(allox, path):
    code, out, err = allox(changed(*path))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert path[-1] in err


@pytest.mark.parametrize("value", [-1, NAN, INFINITY, -INFINITY, "1", True, [], {}, 1e300, 10**400])
@pytest.mark.parametrize("path", NUMBERS)
def test_bad_number_exits_with_2_and_is_named(allox, path, value):
    code, out, err = allox(changed(*path, to=value))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert path[-1] in err


@pytest.mark.parametrize("path", NUMBERS[:3])
def test_null_exits_with_2_but_for_a_time(allox, path):
    code, out, err = allox(changed(*path, to=None))
    assert (code, out) == (2, "")
    assert path[-1] in err


@pytest.mark.parametrize("value", [None, "", 1, True, [], "\ud800"])
@pytest.mark.parametrize("path", TEXTS)
def test_bad_text_exits_with_2_and_is_named(allox, path, value):
    code, out, err = allox(changed(*path, to=value))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert path[-1] in err


@pytest.mark.parametrize("value", [None, "x", 1, True])
@pytest.mark.parametrize("path", OTHERS)
def test_bad_object_exits_with_2_and_is_named(allox, path, value):
    code, out, err = allox(changed(*path, to=value))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert ".".join(key for key in path if isinstance(key, str)) in err.replace("[0]", "")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        (changed("machines", 1, "id", to="g0"), "instance.machines[1].id is there twice: 'g0'"),
        (changed("jobs", 1, "id", to="j1"), "instance.jobs[1].id is there twice: 'j1'"),
        (
            changed("jobs", 0, "time_s", to={"gpuu": 1}),
            "instance.jobs[0].time_s.gpuu is of a type that no machine has; the types are: cpu, gpu",
        ),
        (changed("jobs", 0, "time_s", "tpu", to=5), "instance.jobs[0].time_s.tpu is of a type that no machine has"),
        (
            changed("jobs", 0, "time_s", "t\nu", to=-1),
            "instance.jobs[0].time_s.'t\\nu' must be a finite number above 0",
        ),
        (changed("jobs", 0, "time_s", "tpu", to=-1), "instance.jobs[0].time_s.tpu must be a finite number above 0"),
        (changed("jobs", 0, "time_s", "gpu", to=0), "instance.jobs[0].time_s.gpu must be a finite number above 0"),
        (changed("jobs", 0, "time_s", to={"gpu": None, "cpu": None}), "time_s lets the job run nowhere"),
        (changed("jobs", 0, "arrival_s", to=1), "instance.jobs[0].arrival_s must be at most instance.now_s"),
        (changed("machines", to=[]), "instance.machines must hold at least one machine"),
        (
            changed("machines", 0, "typ", to="gpu"),
            "instance.machines[0] has an unknown key: 'typ'; did you mean 'type'",
        ),
        (changed("job", to=[]), "instance has an unknown key: 'job'; did you mean 'jobs'?"),
        (changed("jobs", 0, "users", to="u"), "instance.jobs[0] has an unknown key: 'users'; did you mean 'user'?"),
        ([], "instance must be an object: []"),
        (b"", "is not JSON, line 1, column 1"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"now_s": 0, "now_s": 1}', "instance has a key twice: 'now_s'"),
        (b"[" * 100_000, "is nested too deeply"),
    ],
)
def test_malformed_instance_exits_with_2_and_one_line(allox, document, named):
    code, out, err = allox(document, "--json")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert named in err


def test_missing_file_exits_with_2(capsys, tmp_path):
    assert main(["allox", "--instance", str(tmp_path / "none.json")]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_largest_and_smallest_numbers_are_scheduled(allox):
    document = changed("jobs", 0, "time_s", to={"gpu": 1e15, "cpu": 1e15})
    document["jobs"][1]["time_s"] = {"gpu": 5e-324, "cpu": 1e-300}
    result = solved(allox, document)
    assert sorted(job for queue in result["schedule"].values() for job in queue) == [f"j{k}" for k in range(1, 7)]
