"""The `submarine` command against a ResourceManager over gRPC: output, exit codes, outages, Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fake_rm import FakeRm

from submarine_client import wait
from submarine_client.connection import Connection
from submarine_client.groups import load_app
from submarine_client.main import main
from themis.errors import InputError, UnreachableError
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message

EXAMPLES = Path(__file__).parents[3] / "conf" / "apps"
SEARCH = str(EXAMPLES / "replay-search.yaml")


@pytest.fixture
def rm(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRm]:
    fake = FakeRm()
    monkeypatch.setenv("THEMIS_RM", fake.address)
    # A proxy for the web must not come between client and ResourceManager.
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    yield fake
    fake.stop()


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "submarine_client.main", *words]


def test_submit_prints_the_id_only_and_sends_the_whole_app(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "submit", SEARCH]) == 0
    assert capsys.readouterr() == ("app-0001\n", "")
    spec = rm.service.submitted[0]
    assert (spec.name, spec.replay, len(spec.jobs)) == ("replay-search", True, 8)
    assert spec.tuner.settings["eta"].integer == 2


def test_submit_notes_the_device_types_that_can_run_the_app(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.runs_on = "runs on v100 (speed 3), not on cpu"
    assert main(["app", "submit", SEARCH]) == 0
    assert capsys.readouterr() == ("app-0001\n", "submarine: runs on v100 (speed 3), not on cpu\n")


@pytest.mark.parametrize("verb", ["submit", "resubmit"])
def test_submitted_app_has_its_page_named_beside_the_output(
    rm: FakeRm, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    rm.service.page_url = "http://h:8651/apps/app-0001"
    rm.service.add("a-1", "FINISHED", spec=app_to_message(load_app(SEARCH)))
    assert main(["app", verb, SEARCH if verb == "submit" else "a-1"]) == 0
    assert capsys.readouterr() == ("app-0001\n", "submarine: its page is http://h:8651/apps/app-0001\n")


def test_an_invalid_group_file_is_refused_locally(
    rm: FakeRm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("name: a\nprogram: digits_cn\njob: {iterations: 1}\n")
    assert main(["app", "submit", str(path)]) == 2
    assert capsys.readouterr().err == "submarine: unknown program: 'digits_cn'; did you mean 'digits_cnn'?\n"
    assert not rm.service.submitted


def test_refusals_of_the_resource_manager_are_printed_verbatim(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.refuse = (grpc.StatusCode.INVALID_ARGUMENT, "no machine has 16 GPUs")
    assert main(["app", "submit", SEARCH]) == 2
    assert capsys.readouterr().err == "submarine: no machine has 16 GPUs\n"
    rm.service.refuse = (grpc.StatusCode.INTERNAL, "boom")
    assert main(["app", "submit", SEARCH]) == 1
    assert "failed: 'boom'" in capsys.readouterr().err


@pytest.mark.parametrize(("end", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 1)])
def test_wait_prints_the_final_state(rm: FakeRm, capsys: pytest.CaptureFixture[str], end: str, code: int) -> None:
    rm.service.then = ["SUBMITTED", "RUNNING", "RUNNING", end]
    assert main(["app", "submit", SEARCH, "--wait", "--poll", "0.02"]) == code
    out, err = capsys.readouterr()
    assert out.splitlines() == ["app-0001", f"app-0001 {end}"]
    assert [line.split(",")[0] for line in err.splitlines()] == [
        "submarine: app-0001 SUBMITTED",
        "submarine: app-0001 RUNNING",
    ]


def test_several_apps_are_waited_for_and_the_worst_counts(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING", "RUNNING", "FAILED")
    rm.service.add("a-2", "FINISHED", name="other")
    assert main(["app", "wait", "a-1", "other", "a-2", "--poll", "0.02"]) == 1
    assert capsys.readouterr().out.splitlines() == ["a-2 FINISHED", "a-1 FAILED"]


def test_list_and_show_address_apps_by_id_or_unique_name(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING", name="one")
    rm.service.add("a-2", "FINISHED", name="twin")
    rm.service.add("a-3", "RUNNING", name="twin")
    assert main(["app", "list", "--state", "RUNNING", "--json"]) == 0
    assert [app["app_id"] for app in json.loads(capsys.readouterr().out)] == ["a-3", "a-1"]
    assert rm.service.list_requests[-1].reasons  # Programs learn why apps wait, as readers of `-o wide` do.
    assert main(["app", "list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4
    for reference in ("a-1", "one"):
        assert main(["app", "show", reference]) == 0
        assert capsys.readouterr().out.startswith("App:            a-1, one\n")
    assert main(["app", "show", "a-2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "FINISHED"
    assert main(["app", "show", "a-4"]) == 2
    assert capsys.readouterr().err == "submarine: unknown app: 'a-4'\n"


def test_list_shows_the_newest_apps_and_counts_the_rest(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(7):
        rm.service.add(f"a-{number}", "FINISHED", submitted_at_s=float(number), tuner="single" if number < 2 else "x")
    assert main(["app", "list", "--limit", "3"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["APP", "a-6", "a-5", "a-4"]
    assert err == "submarine: and up to 4 more; --limit 0 lists all\n"
    assert main(["app", "list", "--limit", "0"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (8, "")
    # Jobs lie in a later page.
    assert main(["job", "list", "--limit", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    assert [app["app_id"] for app in json.loads(out)] == ["a-1"]
    assert err == "submarine: and up to 1 more; --limit 0 lists all\n"


def test_list_shows_the_newest_of_a_resource_manager_without_pages(
    rm: FakeRm, capsys: pytest.CaptureFixture[str]
) -> None:
    rm.service.has_pages = False
    for number in range(5):
        rm.service.add(f"a-{number}", "FINISHED", submitted_at_s=float(number))
    assert main(["app", "list", "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[0] for line in out.splitlines()] == ["APP", "a-4", "a-3"]
    assert err == "submarine: and up to 3 more; --limit 0 lists all\n"


def test_ages_follow_the_clock_of_the_resource_manager(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.now_s = 2e9 + 7300
    rm.service.add("a-1", "RUNNING", submitted_at_s=2e9)
    assert main(["app", "list"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert line[head.index("AGE") :].split()[0] == "2h"


def test_an_empty_list_is_said_on_standard_error(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "list"]) == 0
    assert capsys.readouterr() == ("", "submarine: no apps\n")


def test_logs_name_their_sources_as_these_take_turns(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    from themis.wire import themis_pb2 as pb

    rm.service.add("a-1", "RUNNING")
    turns = [("job-00/0", "one\n"), ("job-00/0", "two"), ("job-01/0", "three\n"), ("job-00/0", "!\n")]
    rm.service.chunks = [pb.LogChunk(source=source, text=text) for source, text in turns]
    assert main(["app", "logs", "app", "--job", "job-00", "--follow"]) == 0
    assert capsys.readouterr().out == ("==> job-00/0 <==\none\ntwo\n==> job-01/0 <==\nthree\n==> job-00/0 <==\n!\n")
    request = rm.service.log_requests[0]
    assert (request.app_id, request.job_id, request.follow) == ("a-1", "job-00", True)


def test_resume_submits_a_failed_app_with_its_checkpoints(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "submit", SEARCH]) == 0
    spec = rm.service.submitted[0]
    spec.program.environment["KEY"] = "value"
    rm.service.apps["app-0001"] = [pb.AppStatus(app_id="app-0001", state="FAILED", spec=spec, checkpoint_uri="/c")]
    capsys.readouterr()
    assert main(["app", "resume", "app-0001"]) == 0
    assert capsys.readouterr() == ("app-0002\n", "")
    again = rm.service.submitted[1]
    assert again.checkpoint_uri == "/c"
    again.checkpoint_uri = ""
    assert again == spec
    assert main(["app", "resume", "app-0002"]) == 2
    assert "has finished" in capsys.readouterr().err


def test_kill_prints_the_state_of_the_app(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING")
    # A value may look like an option, if it has a space.
    assert main(["app", "kill", "a-1", "--reason", "--reason: many"]) == 0
    assert main(["app", "kill", "a-1", "--reason", "wrong data"]) == 0
    assert capsys.readouterr().out == "a-1 KILLED\n" * 2
    assert rm.service.killed == [("a-1", "--reason: many"), ("a-1", "wrong data")]
    rm.service.refuse = (grpc.StatusCode.FAILED_PRECONDITION, "the app has ended")
    assert main(["app", "kill", "a-1"]) == 2
    assert capsys.readouterr().err == "submarine: the app has ended\n"


def test_kill_of_an_app_that_runs_says_that_it_is_asked_to_end(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING")
    rm.service.killed_state = "RUNNING"
    assert main(["app", "kill", "a-1"]) == 0
    assert capsys.readouterr().out == "a-1 RUNNING, asked to end\n"


def test_pause_waits_until_the_apps_are_paused(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING", "RUNNING", "RUNNING", "PAUSED")
    rm.service.add("a-2", "PAUSED")
    assert main(["app", "pause", "a-1", "a-2", "--reason", "for the night", "--poll", "0.02"]) == 0
    assert capsys.readouterr().out == "a-1 PAUSED\na-2 PAUSED\n"
    assert rm.service.paused == [("a-1", "for the night"), ("a-2", "for the night")]


def test_pause_of_an_app_that_ends_meanwhile_says_so(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING", "FINISHED")
    assert main(["app", "pause", "a-1", "--poll", "0.02"]) == 0
    assert capsys.readouterr().out == "a-1 FINISHED\n"


def test_refused_pause_exits_with_2(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "KILLED")
    rm.service.refuse = (grpc.StatusCode.INVALID_ARGUMENT, "app a-1 cannot be paused")
    assert main(["app", "pause", "a-1"]) == 2
    assert capsys.readouterr().err == "submarine: app a-1 cannot be paused\n"


def test_resume_of_a_paused_app_keeps_its_id(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "PAUSED", "FINISHED")
    assert main(["app", "resume", "a-1", "--wait", "--poll", "0.02"]) == 0
    assert capsys.readouterr().out == "a-1\na-1 FINISHED\n"
    assert (rm.service.resumed, rm.service.submitted) == (["a-1"], [])


def test_several_apps_are_killed_by_one_command_but_none_if_one_is_unknown(
    rm: FakeRm, capsys: pytest.CaptureFixture[str]
) -> None:
    for app_id in ("a-1", "a-2"):
        rm.service.add(app_id, "RUNNING", name=f"named-{app_id}")
    assert main(["app", "kill", "a-1", "a-9"]) == 2
    assert rm.service.killed == []
    assert main(["app", "kill", "a-1", "named-a-2", "a-1", "--reason", "enough"]) == 0
    assert rm.service.killed == [("a-1", "enough"), ("a-2", "enough")]
    assert capsys.readouterr().out == "a-1 KILLED\na-2 KILLED\n"


@pytest.mark.parametrize(
    ("flags", "ids"),
    [
        ("--state WAITING", "a-4"),
        ("--state RUNNING", "a-1"),
        ("--state WAITING --state FINISHED", "a-4 a-2"),
        ("--user bob", "a-4 a-3"),
        ("--user bob --user carol --limit 2", "a-4 a-3"),
        ("--sort name", "a-3 a-1 a-2 a-4"),
        ("--sort gpus --limit 2", "a-1 a-4"),
    ],
)
def test_list_selects_and_sorts(rm: FakeRm, capsys: pytest.CaptureFixture[str], flags: str, ids: str) -> None:
    rm.service.add("a-1", "RUNNING", name="b", user="alice", submitted_at_s=1.0, gpus=2)
    rm.service.add("a-2", "FINISHED", name="b2", user="carol", submitted_at_s=2.0)
    rm.service.add("a-3", "FAILED", name="a", user="bob", submitted_at_s=3.0)
    rm.service.add("a-4", "RUNNING", name="d", user="bob", submitted_at_s=4.0, gpus=0)
    assert main(["app", "list", "-o", "name", *flags.split()]) == 0
    assert capsys.readouterr().out.split() == ids.split()


def test_watch_lists_again_until_ctrl_c(rm: FakeRm) -> None:
    rm.service.add("a-1", "RUNNING")
    process = subprocess.Popen(
        command("app", "list", "-o", "name", "--watch", "0.05"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert [process.stdout.readline() for _ in range(3)] == [b"a-1\n", b"\n", b"a-1\n"]
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, b"")


def test_resubmit_sends_the_same_specification_as_a_new_app(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["app", "submit", SEARCH]) == 0
    spec = rm.service.submitted[0]
    spec.program.environment["KEY"] = "value"
    rm.service.add("app-0001", "FINISHED", spec=spec)
    assert main(["app", "resubmit", "app-0001"]) == 0
    assert capsys.readouterr().out == "app-0001\napp-0002\n"
    assert rm.service.submitted[1] == spec


def test_events_leave_out_the_progress_of_jobs(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "FINISHED")
    rm.service.events = [
        pb.Event(sequence=1, time_s=1.0, kind="app_state", app_id="a-1", detail='{"state": "RUNNING", "attempt": 1}'),
        pb.Event(sequence=2, time_s=2.0, kind="job_progress", app_id="a-1", detail='{"iteration": 5}'),
    ]
    assert main(["app", "events", "a-1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("  The app runs")
    assert main(["app", "events", "a-1", "--all", "--json"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(event["kind"], event["detail"]) for event in events] == [
        ("app_state", {"state": "RUNNING", "attempt": 1}),
        ("job_progress", {"iteration": 5}),
    ]


def test_events_are_in_the_order_of_their_times(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "FINISHED")
    times_s = (1.0, 3.0, 2.0, 2.0)
    rm.service.events = [
        pb.Event(sequence=sequence, time_s=time_s, kind="app_state", app_id="a-1", detail='{"state": "RUNNING"}')
        for sequence, time_s in enumerate(times_s, start=1)
    ]
    assert main(["app", "events", "a-1", "--json"]) == 0
    assert [json.loads(line)["sequence"] for line in capsys.readouterr().out.splitlines()] == [1, 3, 4, 2]


def test_top_sums_up_apps_by_user(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 0
    assert capsys.readouterr() == ("", "submarine: no apps\n")
    rm.service.add("a-1", "FINISHED", user="alice", gpu_time_s=7200.0)
    rm.service.add("a-2", "RUNNING", user="bob", gpus=3, gpu_time_s=1800.0)
    rm.service.add("a-3", "RUNNING", user="bob", gpus=0)
    assert main(["top"]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["USER", "GPUS", "GPU-HOURS", "RUNNING", "WAITING", "ENDED"],
        ["bob", "3", "0.50", "1", "1", "0"],
        ["alice", "0", "2.00", "0", "0", "1"],
    ]
    assert main(["top", "--json"]) == 0
    alice = {"user": "alice", "running": 0, "waiting": 0, "ended": 1, "gpus": 0, "gpu_time_s": 7200.0}
    assert json.loads(capsys.readouterr().out)[1] == alice


@pytest.mark.parametrize(("is_admin", "said"), [(False, "ada, a user of"), (True, "ada, an administrator of")])
def test_whoami_says_as_whom_the_resource_manager_knows_its_caller(rm, capsys, is_admin, said):
    rm.service.cluster = pb.ClusterStatus(cluster=pb.Cluster(name="lab"), user="ada", is_admin=is_admin)
    assert main(["whoami"]) == 0
    assert capsys.readouterr().out == f"{said} the cluster lab\n"
    assert main(["whoami", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"user": "ada", "is_admin": is_admin, "cluster": "lab"}


def test_cluster_shows_devices_by_type_and_by_node(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    machines = [
        pb.Machine(machine_id="m0", rack_id="r0", slots=[2, 2], device="v100"),
        pb.Machine(machine_id="m1", rack_id="r1", slots=[1], device="cpu"),
    ]
    rm.service.cluster = pb.ClusterStatus(
        cluster=pb.Cluster(name="mixed", machines=machines),
        policy="oef",
        gpus=5,
        gpus_leased=3,
        active_apps=2,
        lease_s=300,
        nodes=[
            pb.NodeStatus(machine_id="m0", state="drained", gpus=4, gpus_leased=3),
            pb.NodeStatus(machine_id="m1", state="usable", gpus=1, gpus_free=1),
        ],
    )
    assert main(["cluster"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 of 5 devices free, 3 leased, 2 active apps, policy oef, leases of 5:00 min",
        "",
        "TYPE  NODES  DEVICES  LEASED  FREE",
        "v100      1        4       3  0",
        "cpu       1        1       0  1",
        "",
        "NODE  RACK  TYPE  STATE    DEVICES  LEASED  FREE",
        "m0    r0    v100  drained        4       3  0",
        "m1    r1    cpu   usable         1       0  1",
    ]
    assert main(["cluster", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(machine["machine_id"], machine["leased"]) for machine in document["machines"]] == [("m0", 3), ("m1", 0)]


def complete(line: str) -> list[str]:
    """Return what a shell gets for a line that ends at the cursor."""
    read, write = os.pipe()
    # argcomplete writes to descriptor 8.
    script = f"exec 8>&{write}; exec {sys.executable} -m submarine_client.main"
    shell = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\v", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    subprocess.run(["bash", "-c", script], env=os.environ | shell, pass_fds=[write], check=True, timeout=60)
    os.close(write)
    with os.fdopen(read) as answer:
        return [word.strip() for word in answer.read().split("\v")]


def test_a_shell_completes_verbs_options_and_apps(rm: FakeRm) -> None:
    rm.service.add("a-1", "RUNNING", name="digits")
    rm.service.add("a-2", "FINISHED", name="words")
    assert complete("submarine app re") == ["resume", "resubmit"]
    assert complete("submarine app list --us") == ["--user"]
    assert complete("submarine app show ") == ["a-1", "a-2", "digits", "words"]
    rm.stop()
    assert complete("submarine app show d") == [""]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "submarine" in capsys.readouterr().out


def test_validate_contacts_the_resource_manager_only_with_ask_rm(
    rm: FakeRm, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["app", "validate", SEARCH, "--ask-rm"]) == 0
    assert capsys.readouterr().out.endswith("\n8 jobs fit the cluster\n")
    rm.stop()
    assert main(["app", "validate", SEARCH, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["jobs"]) == 8


@pytest.mark.parametrize("words", ["app list", "app show x", "app wait x", "app logs x", "app kill x", "job list"])
def test_no_resource_manager_is_exit_code_2_with_its_address(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_RM", "127.0.0.1:1")
    assert main(words.split()) == 2
    assert capsys.readouterr().err == (
        "submarine: no ResourceManager answers at: '127.0.0.1:1'; "
        "start one with: themis rm start -c FILE, or name another with --rm\n"
    )


def test_rm_is_named_before_the_verb_or_after_it(rm: FakeRm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THEMIS_RM", "127.0.0.1:1")
    assert main(["--rm", rm.address, "app", "list"]) == 0
    assert main(["app", "list", "--rm", rm.address]) == 0
    assert main(["--rm", "127.0.0.1:1", "app", "list", f"--rm={rm.address}"]) == 0


def test_waiting_survives_a_restart_of_the_resource_manager(
    rm: FakeRm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rm.service.add("a-1", "RUNNING")
    missed, seen = threading.Event(), threading.Event()
    retry_after_s = wait._Outage.retry_after_s

    def noted(outage: wait._Outage, error: UnreachableError) -> float:
        missed.set()
        return retry_after_s(outage, error)

    monkeypatch.setattr(wait._Outage, "retry_after_s", noted)

    def restart() -> None:
        while rm.service.shows < 2:
            time.sleep(0.01)
        rm.stop()
        missed.wait(60)
        rm.service.add("a-1", "FINISHED")
        rm.start()
        seen.set()

    restarter = threading.Thread(target=restart)
    restarter.start()
    assert main(["app", "wait", "a-1", "--poll", "0.05", "--patience", "60"]) == 0
    restarter.join()
    out, err = capsys.readouterr()
    assert seen.is_set() and out == "a-1 FINISHED\n"
    assert "submarine: the ResourceManager does not answer; trying for 60 s\n" in err
    assert "submarine: the ResourceManager answers again\n" in err


def test_waiting_gives_up_when_its_patience_ends(rm: FakeRm, capsys: pytest.CaptureFixture[str]) -> None:
    rm.service.add("a-1", "RUNNING")

    def leave() -> None:
        while rm.service.shows < 2:
            time.sleep(0.01)
        rm.stop()

    leaver = threading.Thread(target=leave)
    leaver.start()
    assert main(["app", "wait", "a-1", "--poll", "0.05", "--patience", "0.6"]) == 2
    leaver.join()
    assert "no ResourceManager answers" in capsys.readouterr().err


def test_ctrl_c_while_waiting_is_exit_code_3_and_says_that_the_app_goes_on(rm: FakeRm) -> None:
    rm.service.then = ["RUNNING"]
    with subprocess.Popen(
        command("app", "submit", SEARCH, "--wait", "--poll", "0.05"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert b"app-0001 RUNNING" in first
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert out == b"app-0001\n"
    assert b"interrupted: app app-0001 goes on running" in err
    assert b"submarine app wait app-0001" in err and b"submarine app kill app-0001" in err
    assert b"Traceback" not in err


@pytest.mark.parametrize(("stream", "apps"), [("stdout", 3000), ("stderr", 0)])
def test_a_reader_that_went_away_ends_it_as_a_shell_has_it(rm: FakeRm, stream: str, apps: int) -> None:
    for number in range(apps):
        rm.service.add(f"app-{number:05d}", "RUNNING", name=f"a-rather-long-name-{number}")
    reading, writing = os.pipe()
    os.close(reading)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writing}
    try:
        done = subprocess.run(command("app", "list"), **streams, timeout=30, check=False)  # type: ignore[call-overload]
    finally:
        os.close(writing)
    assert (done.returncode, done.stdout or b"", done.stderr or b"") == (141, b"", b"")


def in_a_shell(redirection: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The command with streams that are closed before it begins."""
    shell = ["bash", "-c", f'"$@" {redirection}', "bash", *command(*words)]
    return subprocess.run(shell, capture_output=True, text=True, timeout=30, check=False)


def test_a_closed_output_is_refused_before_submission(rm: FakeRm) -> None:
    done = in_a_shell(">&-", "app", "submit", SEARCH)
    printed = "submarine: standard output is closed; redirect it to /dev/null to discard it\n"
    assert (done.returncode, done.stderr) == (2, printed)
    assert not rm.service.submitted


def test_where_standard_error_is_closed_results_are_all_that_is_written(rm: FakeRm) -> None:
    assert (done := in_a_shell("2>&-", "app", "submit", SEARCH)).returncode == 0
    assert done.stdout == "app-0001\n"
    assert (missing := in_a_shell("2>&-", "app", "show", "nobody")).returncode == 2
    assert missing.stdout == ""


ONE_JOB = "--name j --input_path /d --worker_resources gpu=1,memory=1G --worker_launch_cmd sh"


@pytest.mark.parametrize(("redirection", "code"), [(">/dev/full", 2), ("| true; exit ${PIPESTATUS[0]}", 141)])
@pytest.mark.parametrize("words", [f"app submit {SEARCH}", f"job run {ONE_JOB}"])
def test_an_app_that_is_submitted_is_named_where_its_id_finds_no_reader(
    rm: FakeRm, words: str, redirection: str, code: int
) -> None:
    done = in_a_shell(redirection, *words.split())
    assert done.returncode == code
    assert "submarine: app-0001 is submitted, and goes on\n" in done.stderr


@pytest.mark.parametrize("words", ["", "--help", "app", "app submit -h"])
@pytest.mark.parametrize(("redirection", "code"), [("| true; exit ${PIPESTATUS[0]}", 141), (">/dev/full", 2)])
def test_unwritable_help_fails(words: str, redirection: str, code: int) -> None:
    assert in_a_shell(redirection, *words.split()).returncode == code


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_waiting_goes_on_where_progress_finds_no_room(rm: FakeRm, redirection: str) -> None:
    rm.service.then = ["RUNNING", "RUNNING", "FINISHED"]
    done = in_a_shell(redirection, "app", "submit", SEARCH, "--wait", "--poll", "0.02")
    assert (done.returncode, done.stdout) == (0, "app-0001\napp-0001 FINISHED\n")


def test_a_full_output_device_is_reported(rm: FakeRm) -> None:
    rm.service.add("app-00001", "RUNNING", name="mine")
    done = in_a_shell(">/dev/full", "app", "list")
    assert (done.returncode, done.stderr) == (2, "submarine: [Errno 28] No space left on device\n")


def test_job_run_submits_one_job_and_the_other_verbs_find_it_by_name(
    rm: FakeRm, capsys: pytest.CaptureFixture[str]
) -> None:
    rm.service.then = ["RUNNING"]
    words = "job run -name tf-job-001 --input_path /data --checkpoint_path /ck --num_workers 2 --quicklink B=http://w:1"
    resources = ["--worker_resources", "memory=2G,vcores=2,gpu=1", "--worker_launch_cmd", "sh -c 'ls %input_path%'"]
    assert main([*words.split(), *resources, "--tensorboard"]) == 0
    out, err = capsys.readouterr()
    assert out == "app-0001\n"
    assert err.splitlines() == [
        "submarine: --quicklink is ignored: no page shows it yet",
        "submarine: its TensorBoard: run tensorboard --logdir /ck",
    ]
    spec = rm.service.submitted[0]
    assert spec.program.command == "sh -c 'ls /data'"
    assert (spec.jobs[0].shape.tasks, spec.jobs[0].shape.min_tasks) == (2, 2)
    assert main(["job", "show", "--name", "tf-job-001"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == ["Job Meta Info:", "\tApplication Id: app-0001", "\tInput Path: /data"]
    assert shown[4] == "\tCheckpoint Path: /ck" and shown[5].startswith(
        "\tRun Parameters: -name tf-job-001 --input_path"
    )
    assert main(["job", "list"]) == 0
    assert "tf-job-001" in capsys.readouterr().out
    assert main(["job", "logs", "-name", "tf-job-001"]) == 0
    assert main(["job", "kill", "--name", "tf-job-001"]) == 0
    assert rm.service.killed == [("app-0001", "")]


def test_job_run_waits_with_wait_job_finish_and_uses_its_rm_flag(
    rm: FakeRm, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEMIS_RM", "127.0.0.1:1")
    rm.service.then = ["FAILED"]
    words = f"{ONE_JOB} --wait_job_finish"
    assert main(["job", "run", *words.split(), "--verbose", "--rm", rm.address]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == ["app-0001", "app-0001 FAILED"]
    assert "submarine: Name:" in err
    assert main(["--rm", rm.address, "job", "run", *words.split()]) == 1
    assert main(["--rm", rm.address, "job", "wait", "--name", "app-0001"]) == 1


@pytest.mark.parametrize("words", ["", "app", "job", "-h", "app submit -h", "job run", "job run -h", "job run --help"])
def test_help_is_exit_code_0(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    out, err = capsys.readouterr()
    assert out.startswith("usage: submarine") and err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("ap", "invalid choice: 'ap' (did you mean 'app'?)"),
        ("app sho x", "invalid choice: 'sho' (did you mean 'show'?)"),
        ("app show", "the following arguments are required: APP; see: submarine app show -h"),
        ("app list --stat RUNNING", "unknown option of submarine app list: '--stat'; did you mean '--state'?"),
        ("--rmm x app list", "unknown option of submarine: '--rmm'; did you mean '--rm'?"),
        ("app list --zzz", "unrecognized arguments: --zzz; see: submarine app list -h"),
        ("app validate a.yaml b.yaml", "unrecognized arguments: b.yaml; see: submarine app validate -h"),
        ("app list --limit -1", "not a whole number from 0 on: '-1'"),
        ("app list --state NOWHERE", "invalid choice: 'NOWHERE' (choose from "),
        ("app list --state RUNING", "invalid choice: 'RUNING' (did you mean 'RUNNING'?)"),
        ("app wait x --poll 0", "not a number of seconds: '0'"),
        ("app wait x --poll 1_0", "not a number of seconds: '1_0'"),
        ("app list --rm nowhere", "--rm must be HOST:PORT: 'nowhere'"),
        ("app submit missing.yaml", "cannot read missing.yaml"),
        ("job show", "--name"),
        ("job run --nam x", "did you mean '--name'"),
        ("job run --workr_launch_cmd x", "did you mean '--worker_launch_cmd'"),
        ("job run --foo x", "unknown flag of job run: '--foo'; known: --ca, --checkpoint_path, "),
    ],
)
def test_bad_usage_is_exit_code_2_on_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("submarine: ") and err.count("\n") == 1
    assert message in err


def test_the_library_watches_and_sees_the_cluster(rm: FakeRm) -> None:
    with Connection(rm.address) as client:
        client.wait_until_ready(5.0)
        assert [event.sequence for event in client.watch("a-1", after_sequence=1, follow=False)] == [2, 3]
        assert (client.cluster().gpus, client.cluster().policy) == (8, "themis")
        with pytest.raises(InputError):
            client.show("nobody")
    with Connection("127.0.0.1:1") as nobody, pytest.raises(UnreachableError):
        nobody.wait_until_ready(0.2)
