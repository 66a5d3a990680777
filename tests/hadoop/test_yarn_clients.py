"""Hadoop's Java clients behind our interfaces, against a real YARN of three nodes with 4, 4 and 2 GPUs."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from waiting import wait_until
from yarn_apps import ROOT, Application, RemoteError, client_environment, is_alive

from themis.errors import InputError
from themis.hadoop.errors import ResourceAskError, UnknownYarnAppError, YarnError
from themis.hadoop.jvm import start_jvm
from themis.hadoop.quoting import command_line
from themis.hadoop.values import AppState, AppSubmission, ExitCode, FinalStatus, NodeState, ProcessLaunch
from themis.hadoop.yarn_client import YarnClient

SLEEP = command_line(["sleep", "600"])


@pytest.fixture(scope="module")
def yarn(cluster):
    start_jvm(client_environment(cluster))
    with YarnClient() as client:
        yield client


@pytest.fixture
def application(cluster, yarn):
    made = []

    def submit(**fields):
        made.append(Application(yarn, client_environment(cluster), **fields))
        return made[-1]

    yield submit
    for one in made:
        one.close()


@pytest.fixture
def am(application):
    running = application().attempt()
    running.register()
    return running


def over(yarn, app_id):
    """An application's report once it is over."""
    wait_until(lambda: yarn.report(app_id).state.is_final, 30)
    return yarn.report(app_id)


def test_nodes_have_their_gpus(yarn):
    nodes = yarn.nodes()
    assert sorted(node.gpus for node in nodes) == [2, 4, 4]
    assert all(node.state is NodeState.RUNNING and node.used_gpus == 0 for node in nodes)
    assert all(node.node_id.startswith(f"{node.host}:") and node.memory_mb > 0 and node.vcores > 0 for node in nodes)
    assert yarn.nodes([NodeState.DECOMMISSIONED]) == ()


def test_queues(yarn):
    queue = yarn.queue("default")
    assert (queue.name.rsplit(".", 1)[-1], queue.is_running, queue.children) == ("default", True, ())
    assert queue.max_capacity_share == 1.0
    assert "default" in {name.rsplit(".", 1)[-1] for name in yarn.queue("root").children}
    with pytest.raises((InputError, YarnError), match="nowhere"):
        yarn.queue("nowhere")


def test_queue_that_may_grow_is_granted_more_than_its_headroom(am):
    """The queue has half of the ten GPUs, and may use all. So a headroom limits no app by itself."""
    wait_until(lambda: am.allocate()["headroom_gpus"] == 5, 30)
    for number, host in enumerate(("gpu-node-1", "gpu-node-2", "gpu-node-3"), 1):
        am.ask(allocation_request_id=number, host=host, gpus=2)
    granted = []

    def all_granted():
        granted.extend(am.allocate()["granted"])
        return sum(container["gpus"] for container in granted) == 6

    wait_until(all_granted, 30)
    assert 0 <= am.allocate()["headroom_gpus"] <= 4


def test_an_application_shows_its_state_and_attempts(yarn, application):
    tag = f"Run-{uuid.uuid4()}"
    app = application(name="seen", tags=frozenset({"App-1", tag}), max_attempts=1)
    running = app.attempt()
    registration = running.register()
    assert (registration["previous"], registration["max_gpus"]) == ([], 4)
    assert registration["max_memory_mb"] >= 1024
    running.allocate(progress=0.25)
    report = yarn.report(app.app_id)
    assert (report.name, report.app_type, report.queue.rsplit(".", 1)[-1]) == ("seen", "THEMIS", "default")
    assert (report.state, report.final_status, report.attempt) == (AppState.RUNNING, FinalStatus.UNDEFINED, 1)
    assert report.tags == {"app-1", tag.lower()}
    assert (report.progress, report.am_rpc_port, report.finished_at_s) == (0.25, 4711, None)
    assert abs(report.started_at_s - time.time()) < 120
    assert app.app_id in report.tracking_url
    assert [one.yarn_app_id for one in yarn.reports(tags=[tag.upper()])] == [app.app_id]
    assert app.app_id in {one.yarn_app_id for one in yarn.reports(app_types=["THEMIS"], states=[AppState.RUNNING])}
    assert yarn.reports(tags=[tag], states=[AppState.KILLED]) == ()

    running.unregister(status="SUCCEEDED", diagnostics="all jobs done")
    running.tell("exit", code=0)
    report = over(yarn, app.app_id)
    assert (report.state, report.final_status) == (AppState.FINISHED, FinalStatus.SUCCEEDED)
    assert report.diagnostics == "all jobs done"
    assert report.finished_at_s >= report.started_at_s


def test_pinned_containers_run_on_their_hosts_and_report_exit_codes(yarn, am):
    asks = {1: ("gpu-node-1", 4), 2: ("gpu-node-2", 1), 3: ("gpu-node-2", 3), 4: ("gpu-node-3", 2)}
    for number, (host, gpus) in asks.items():
        am.ask(allocation_request_id=number, host=host, gpus=gpus)
    news = am.heartbeats_until(lambda news: len(news.get("granted", ())) == 4)
    granted = {one["allocation_request_id"]: one for one in news["granted"]}
    assert {number: (one["host"], one["gpus"]) for number, one in granted.items()} == asks
    wait_until(lambda: sum(node.used_gpus for node in yarn.nodes()) == 10)
    for number, one in granted.items():
        am.start(container_id=one["container_id"], commands=[command_line(["sh", "-c", f"exit {number * 10}"])])
    codes = am.ended(*(one["container_id"] for one in granted.values()))
    assert {number: codes[one["container_id"]] for number, one in granted.items()} == {1: 10, 2: 20, 3: 30, 4: 40}
    wait_until(lambda: sum(node.used_gpus for node in yarn.nodes()) == 0)


def test_a_stopped_container_ends_when_its_process_has_exited(am, tmp_path):
    """TERM is handled here within the time that the NodeManager gives."""
    pids = tmp_path / "pid"
    script = f"trap 'sleep 0.1; exit 3' TERM; echo $$ > {pids}.new; mv {pids}.new {pids}; while :; do sleep 0.02; done"
    container = am.granted(allocation_request_id=1, host="gpu-node-1", gpus=4)
    am.start(container_id=container["container_id"], commands=[command_line(["sh", "-c", script])])
    wait_until(pids.exists)
    assert am.status(container_id=container["container_id"]) == "RUNNING"
    am.stop(container_id=container["container_id"])
    codes = am.ended(container["container_id"])
    assert not is_alive(int(pids.read_text()))
    assert codes[container["container_id"]] == 3
    again = am.granted(allocation_request_id=2, host="gpu-node-1", gpus=4)
    assert again["container_id"] != container["container_id"]


def test_a_process_that_ignores_term_is_killed(am, tmp_path):
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"
    container = am.granted(allocation_request_id=1, host="gpu-node-2", gpus=1)
    am.start(container_id=container["container_id"], commands=[command_line(["sh", "-c", script])])
    wait_until(ready.exists)
    am.stop(container_id=container["container_id"])
    assert am.ended(container["container_id"])[container["container_id"]] in (ExitCode.KILLED_BY_AM, 137)


def test_an_unknown_host_is_never_granted_and_a_withdrawn_ask_is_gone(cluster, yarn, am):
    am.ask(allocation_request_id=1, host="gpu-node-99", gpus=1)
    am.ask(allocation_request_id=2, host="gpu-node-1", gpus=4)
    news = am.heartbeats_until(lambda news: news.get("granted"))
    assert [one["allocation_request_id"] for one in news["granted"]] == [2]
    am.ask(allocation_request_id=3, host="gpu-node-1", gpus=1)
    until = time.monotonic() + 3
    news = am.heartbeats_until(lambda news: time.monotonic() > until)
    assert news["granted"] == []
    assert am.withdraw(allocation_request_id=1)
    assert am.withdraw(allocation_request_id=3)
    assert not am.withdraw(allocation_request_id=3)
    am.allocate()
    am.release(container_id=held_by(cluster, yarn, am))
    until = time.monotonic() + 2
    news = am.heartbeats_until(lambda news: time.monotonic() > until)
    assert (news["granted"], news["unasked"]) == ([], [])
    assert [end["exit_code"] for end in news["ended"]] == [ExitCode.ABORTED]
    assert sum(node.used_gpus for node in yarn.nodes()) == 0


def held_by(cluster, yarn, am):
    """Return the running application's only container besides the app master's, from YARN's page."""
    (app,) = yarn.reports(states=[AppState.RUNNING])
    attempt = f"{app.yarn_app_id.replace('application', 'appattempt')}_000001"
    url = f"{cluster.rm_web}/ws/v1/cluster/apps/{app.yarn_app_id}/appattempts/{attempt}/containers"
    with urllib.request.urlopen(url, timeout=60) as answer:
        held = {one["containerId"] for one in json.load(answer)["container"]}
    (container_id,) = held - {am.container_id}
    return container_id


def test_an_ask_larger_than_any_node_is_refused_alone(am):
    """Hadoop's own client would never get a heartbeat through again."""
    am.ask(allocation_request_id=1, host="gpu-node-1", gpus=5)
    am.ask(allocation_request_id=2, host="gpu-node-1", gpus=1)
    am.ask(allocation_request_id=3, host="gpu-node-2", gpus=6)
    news = am.heartbeats_until(lambda news: news.get("granted"))
    assert sorted(one["allocation_request_id"] for one in news["refused"]) == [1, 3]
    assert "yarn.io/gpu: 5" in news["refused"][0]["reason"] + news["refused"][1]["reason"]
    assert [one["allocation_request_id"] for one in news["granted"]] == [2]
    assert am.granted(allocation_request_id=1, host="gpu-node-1", gpus=2)["gpus"] == 2
    assert am.allocate()["refused"] == []


def test_an_app_master_larger_than_any_node_is_refused(application):
    with pytest.raises(ResourceAskError, match="no node can ever fill"):
        application(memory_mb=10**6)


def test_killed_applications_are_reported_and_unknown_ids_refused(yarn, application):
    app = application()
    app.attempt().register()
    yarn.kill(app.app_id, "no longer wanted")
    report = over(yarn, app.app_id)
    assert (report.state, report.final_status) == (AppState.KILLED, FinalStatus.KILLED)
    assert "no longer wanted" in report.diagnostics
    yarn.kill(app.app_id)
    unknown = "application_1500000000000_0001"
    with pytest.raises(UnknownYarnAppError, match=unknown):
        yarn.report(unknown)
    with pytest.raises(UnknownYarnAppError):
        yarn.kill(unknown)
    with pytest.raises(InputError, match="looks like application_"):
        yarn.report("app-1")


def test_invalid_submissions_are_refused(yarn, application):
    with pytest.raises(YarnError, match="nowhere"):
        application(queue="nowhere")
    with pytest.raises(InputError, match="20 characters"):
        application(app_type="T" * 21)
    with pytest.raises(InputError, match="command"):
        yarn.submit(AppSubmission(name="empty", memory_mb=64, launch=ProcessLaunch(commands=())))


def test_a_submission_in_another_users_name(yarn, application):
    app = application(user="alice", view_acl="bob", modify_acl="bob")
    app.attempt().register()
    assert yarn.report(app.app_id).user == "alice"


def test_commands_and_values_arrive_letter_by_letter(am, tmp_path):
    """Two shells and YARN's own replacements lie between."""
    arguments = [
        *(
            "",
            " ",
            "a b",
            "'",
            '"',
            'it\'s "so"',
            "$HOME",
            "${HOME}",
            "$(id)",
            "`id`",
            "\\",
            "\\\\n",
            "two\nlines",
            "tab\t",
        ),
        *(
            "{{HOME}}",
            "{{{",
            "}}}",
            "{a}}",
            "<LOG_DIR>",
            "<CPS>",
            "<<LOG_DIR>>",
            "*",
            "?",
            "~",
            "!x",
            "#",
            ";",
            "|",
            "&",
            ">",
        ),
        *("-n", "--", "%s", "äöü €", "a'b\"c$d`e\\f{{g}}<LOG_DIR>h"),
    ]
    values = {f"VALUE_{number}": argument for number, argument in enumerate(arguments)}
    report = tmp_path / "report.json"
    code = "import json, os, sys; json.dump([sys.argv[2:], dict(os.environ)], open(sys.argv[1] + '.new', 'w'))"
    command = command_line(
        [sys.executable, "-c", code + "; os.rename(sys.argv[1] + '.new', sys.argv[1])", str(report), *arguments]
    )
    container = am.granted(allocation_request_id=1, host="gpu-node-3", gpus=0)
    am.start(
        container_id=container["container_id"],
        commands=[command],
        environment=values,
        environment_templates={"WHERE": "{{PWD}}/lib<CPS>$PWD"},
    )
    assert am.ended(container["container_id"]) == {container["container_id"]: 0}
    got_arguments, got_environment = json.loads(report.read_text())
    assert got_arguments == arguments
    assert {name: got_environment[name] for name in values} == values
    first, second = got_environment["WHERE"].split(":")
    assert first == f"{second}/lib"
    assert container["container_id"] in second


def test_a_task_does_not_get_the_app_masters_token(am, tmp_path):
    kinds = am.add_task_token()
    assert kinds == ["FOR_TASKS", "YARN_AM_RM_TOKEN"]
    copy = tmp_path / "tokens"
    script = f'cp "$HADOOP_TOKEN_FILE_LOCATION" {copy}'
    container = am.granted(allocation_request_id=1, host="gpu-node-3", gpus=0)
    am.start(container_id=container["container_id"], commands=[command_line(["sh", "-c", script])])
    assert am.ended(container["container_id"]) == {container["container_id"]: 0}
    held = copy.read_bytes()
    assert b"FOR_TASKS" in held
    assert b"YARN_AM_RM_TOKEN" not in held


def test_starting_a_container_twice_or_stopping_an_ended_one_is_refused(am):
    container = am.granted(allocation_request_id=1, host="gpu-node-1", gpus=1)["container_id"]
    am.start(container_id=container, commands=[SLEEP])
    with pytest.raises(RemoteError) as caught:
        am.start(container_id=container, commands=[SLEEP])
    assert caught.value.name in ("YarnError", "ContainerStateError")
    assert am.has(container_id=container)
    am.stop(container_id=container)
    am.ended(container)
    am.stop(container_id=container)
    assert am.status(container_id=container) == "COMPLETE"


def test_a_container_that_fails_to_start_can_be_released_at_once(yarn, am):
    container = am.granted(allocation_request_id=1, host="gpu-node-3", gpus=2)["container_id"]
    with pytest.raises(RemoteError) as caught:
        am.start_with_unreadable_tokens(container_id=container)
    assert caught.value.name == "YarnError"
    assert not am.has(container_id=container)
    am.release(container_id=container)
    assert am.ended(container, timeout_s=60) == {container: ExitCode.ABORTED}
    again = am.granted(allocation_request_id=2, host="gpu-node-3", gpus=2)["container_id"]
    am.start(container_id=again, commands=[SLEEP])


def test_containers_outlive_a_killed_app_master(cluster, application):
    app = application(max_attempts=2)
    first = app.attempt()
    first.register()
    kept = first.granted(allocation_request_id=7, host="gpu-node-2", gpus=3)
    unused = first.granted(allocation_request_id=8, host="gpu-node-1", gpus=1)
    first.start(container_id=kept["container_id"], commands=[SLEEP])
    # By then its node knows that it runs. YARN, which ends unknown containers, learns of it a heartbeat later.
    runs = f"{kept['container_id']} Container Transitioned from ACQUIRED to RUNNING"
    wait_until(lambda: runs in cluster.deployment.layout.log("resourcemanager").read_text())
    os.kill(first.pid(), signal.SIGKILL)

    second = app.attempt()
    previous = {one["allocation_request_id"]: one for one in second.register()["previous"]}
    assert previous[7] == kept
    assert previous.get(8) in (None, unused)
    second.stop(container_id=kept["container_id"])
    codes = second.ended(kept["container_id"])
    assert codes[kept["container_id"]] in (ExitCode.KILLED_BY_AM, 128 + signal.SIGTERM)
    assert second.granted(allocation_request_id=7, host="gpu-node-2", gpus=3)["gpus"] == 3


def host_of(am):
    """Where the app master runs."""
    return psutil.Process(am.pid()).environ()["NM_HOST"]


def test_an_attempt_ends_when_yarn_gives_it_up(breakable_cluster, yarn, application):
    """Its NodeManager hangs, so its process does not end."""
    app = application(max_attempts=1)
    am = app.attempt()
    am.register()
    pid = breakable_cluster.daemons()[f"nodemanager-{host_of(am)}"]
    os.kill(pid, signal.SIGSTOP)
    try:
        yarn.kill(app.app_id)
        with pytest.raises(RemoteError) as caught:
            am.allocate()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert caught.value.name == "AttemptGoneError"


def test_yarns_resource_manager_may_be_killed_and_come_back(breakable_cluster, yarn, application):
    app = application(connect_wait_s=2.0)
    am = app.attempt()
    am.register()
    kept = am.granted(allocation_request_id=1, host="gpu-node-1", gpus=2)
    am.start(container_id=kept["container_id"], commands=[SLEEP])
    am.ask(allocation_request_id=2, host="gpu-node-1", gpus=4)
    am.allocate()
    breakable_cluster.kill("resourcemanager")
    begun_s = time.monotonic()
    with pytest.raises(RemoteError) as caught:
        am.allocate()
    assert caught.value.name == "UnreachableError"
    assert 1.0 < time.monotonic() - begun_s < 50.0
    am.ask(allocation_request_id=3, host="gpu-node-2", gpus=1)
    breakable_cluster.start_daemon("resourcemanager")
    news = am.heartbeats_until(lambda news: news.get("granted"))
    assert [one["allocation_request_id"] for one in news["granted"]] == [3]
    if news["refused"]:
        # As by one that knows the small node only.
        am.ask(allocation_request_id=2, host="gpu-node-1", gpus=4)
    assert am.status(container_id=kept["container_id"]) == "RUNNING"
    assert yarn.report(app.app_id).attempt == 1
    am.stop(container_id=kept["container_id"])
    news = am.heartbeats_until(lambda news: news.get("granted") and news.get("ended"))
    assert [one["allocation_request_id"] for one in news["granted"]] == [2]
    assert [end["container_id"] for end in news["ended"]] == [kept["container_id"]]


def test_a_heartbeat_waits_for_a_resource_manager_that_comes_back(breakable_cluster, application):
    """It does not block other requests."""
    am = application(connect_wait_s=60.0).attempt()
    am.register()
    breakable_cluster.kill("resourcemanager")
    am.tell("allocate_and_ask_meanwhile", allocation_request_id=1, host="gpu-node-1", gpus=4)
    time.sleep(1.5)
    breakable_cluster.start_daemon("resourcemanager")
    heartbeat_s, ask_s, news = am.hear()
    assert heartbeat_s > 1.5
    assert ask_s < heartbeat_s / 2
    if news["refused"]:
        # The ResourceManager knew of the small node only: those of four GPUs come back to it a little later.
        am.ask(allocation_request_id=1, host="gpu-node-1", gpus=4)
    news = am.heartbeats_until(lambda news: news.get("granted"))
    assert [one["gpus"] for one in news["granted"]] == [4]


def test_an_ask_is_refused_while_nodes_that_large_are_away(breakable_cluster, application):
    """YARN's ResourceManager, restarted, counts the nodes that have come back to it."""
    am = application(connect_wait_s=60.0).attempt()
    am.register()
    numbers = itertools.count(1)
    large = [f"nodemanager-{host}" for host, gpus in breakable_cluster.node_gpus.items() if gpus >= 4]
    pids = [breakable_cluster.daemons()[name] for name in large]
    breakable_cluster.kill("resourcemanager")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(breakable_cluster.start_daemon, "resourcemanager")
            wait_until(lambda: breakable_cluster.nodes(), 60)
            # Soon it no longer takes its configured limits for what its nodes can have.
            wait_until(lambda: refused(am, next(numbers)), 60)
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            started.result()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    assert am.granted(allocation_request_id=next(numbers), host="gpu-node-1", gpus=4)["gpus"] == 4


def refused(am, number):
    """Whether YARN refuses an ask of four GPUs. It is withdrawn if not."""
    am.ask(allocation_request_id=number, host="gpu-node-1", gpus=4)
    if any(one["allocation_request_id"] == number for one in am.allocate()["refused"]):
        return True
    am.withdraw(allocation_request_id=number)
    return False


def test_a_node_that_is_lost(breakable_cluster, yarn, application):
    app = application(connect_wait_s=2.0)
    am = app.attempt()
    am.register()
    of_am = host_of(am)
    host = next(host for host in breakable_cluster.node_gpus if host != of_am)
    container = am.granted(allocation_request_id=1, host=host, gpus=2)["container_id"]
    am.start(container_id=container, commands=[SLEEP])
    breakable_cluster.kill_node(host)
    for call in (am.status, am.stop):
        with pytest.raises(RemoteError) as caught:
            call(container_id=container)
        assert caught.value.name == "UnreachableError"
    news = am.heartbeats_until(lambda news: news.get("ended") and news.get("lost_nodes"), 90)
    assert [(end["container_id"], end["exit_code"]) for end in news["ended"]] == [(container, ExitCode.ABORTED)]
    assert news["lost_nodes"] == [host]
    (lost,) = yarn.nodes([NodeState.LOST])
    assert (lost.host, lost.state, lost.used_gpus) == (host, NodeState.LOST, 0)
    assert host not in {node.host for node in yarn.nodes()}


def in_a_process_of_its_own(cluster, code, **environment):
    """Runs Python with another JVM; a process has one."""
    values = {**client_environment(cluster), "PYTHONPATH": str(ROOT), **environment}
    values = {name: value for name, value in values.items() if value is not None}
    return subprocess.run([sys.executable, "-c", code], env=values, capture_output=True, text=True, timeout=90)


ASK_FOR_NODES = """
from themis.hadoop.yarn_client import YarnClient
from themis.errors import ThemisError
try:
    with YarnClient(connect_wait_s=1.0) as yarn:
        print(sorted(node.gpus for node in yarn.nodes()))
except ThemisError as error:
    print(type(error).__name__, error)
"""


def copied_configuration(cluster, folder, leave_out=(), change=lambda text: text):
    for path in cluster.conf_dir.iterdir():
        if path.is_file() and path.name not in leave_out:
            (folder / path.name).write_text(change(path.read_text()))
    return str(folder)


def test_a_site_that_does_not_name_gpus_to_its_clients(cluster, tmp_path):
    conf_dir = copied_configuration(cluster, tmp_path, leave_out=["resource-types.xml"])
    done = in_a_process_of_its_own(cluster, ASK_FOR_NODES, HADOOP_CONF_DIR=conf_dir)
    assert (done.stdout, done.returncode) == ("[2, 4, 4]\n", 0), done.stderr


def test_no_resource_manager(cluster, tmp_path):
    port = cluster.rm_web.rsplit(":", 1)[1]
    yarn_site = (cluster.conf_dir / "yarn-site.xml").read_text()
    assert f":{int(port) - 4}<" in yarn_site
    conf_dir = copied_configuration(cluster, tmp_path, change=lambda text: text.replace(f":{int(port) - 4}<", ":1<"))
    begun_s = time.monotonic()
    done = in_a_process_of_its_own(cluster, ASK_FOR_NODES, HADOOP_CONF_DIR=conf_dir)
    assert done.stdout.startswith("UnreachableError Hadoop does not answer (listing nodes)"), done.stderr
    assert time.monotonic() - begun_s < 60
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            {"HADOOP_CONF_DIR": None},
            "HadoopConfigurationError no configuration of a Hadoop cluster; set HADOOP_CONF_DIR",
        ),
        ({"HADOOP_CONF_DIR": "/no/such"}, "HadoopConfigurationError HADOOP_CONF_DIR is no folder: '/no/such'"),
        ({"JAVA_HOME": "/no/such"}, "HadoopMissingError JAVA_HOME holds no Java: '/no/such'; install Java"),
        ({"THEMIS_HADOOP_JARS": "/no/such"}, "HadoopMissingError no jar of YARN's client"),
        ({"THEMIS_HADOOP_HOSTS_FILE": "/no/such"}, "JvmError THEMIS_HADOOP_HOSTS_FILE is no file: '/no/such'"),
        ({"THEMIS_HADOOP_JVM_OPTIONS": "--no-such-option"}, "JvmError the JVM does not start"),
        ({"THEMIS_HADOOP_JVM_OPTIONS": "'"}, "JvmError THEMIS_HADOOP_JVM_OPTIONS is not quoted"),
    ],
)
def test_invalid_java_settings_are_reported(cluster, environment, expected):
    done = in_a_process_of_its_own(cluster, ASK_FOR_NODES, **environment)
    assert expected in done.stdout
    assert "Traceback" not in done.stderr


def test_python_keeps_its_signals_and_leaves_no_files(cluster, tmp_path):
    code = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("told") or sys.exit(3))
from themis.hadoop.jvm import start_jvm
start_jvm()
start_jvm()
print([name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("themis")])
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = in_a_process_of_its_own(cluster, code, TMPDIR=str(tmp_path))
    assert (done.stdout, done.returncode) == ("[]\ntold\n", 3), done.stderr


def test_a_process_has_one_cluster(cluster, tmp_path):
    conf_dir = copied_configuration(cluster, tmp_path)
    code = f"""
import os
from themis.hadoop.errors import JvmError
from themis.hadoop.jvm import start_jvm
start_jvm()
try:
    start_jvm({{**os.environ, "HADOOP_CONF_DIR": {conf_dir!r}}})
except JvmError as error:
    print(error)
"""
    done = in_a_process_of_its_own(cluster, code)
    assert "serves another cluster already" in done.stdout
    assert conf_dir in done.stdout
