"""Real TensorFlow in YARN's containers of the stack: what the guide shows, leases that move, a node that dies."""

import re

from compose_stack import wait_until
from documents import blocks, commands, missing

MOST_IDLE_MB = 1500
GPUS = {"nodemanager-1": 4, "nodemanager-2": 4, "nodemanager-3": 2}
# Two such apps want twice the GPUs that there are, for longer than any test waits.
LONG = """\
name: {name}
program: digits_dense
tuner: single
job: {{tasks: 1, gpus_per_task: 2, iterations: 1000000}}
search_space: {{learning_rate: {{log_uniform: [0.01, 0.1]}}}}
jobs: 5
resources: {{memory_mb: 1024, vcores: 1}}
checkpoint_every: 200
"""
ENOUGH = """\
name: steady
program: digits_dense
tuner: single
job: {tasks: 1, iterations: 20000}
hyper_parameters: [{learning_rate: 0.05, hidden: 64}]
resources: {memory_mb: 1024, vcores: 1}
checkpoint_every: 200
"""


def of_kind(events, kind):
    return [event for event in events if event["kind"] == kind]


def gpus_of(stack, app_id):
    return {lease["gpu"] for lease in stack.app(app_id)["leases"]}


def ended(stack, app_id):
    return stack.app(app_id)["state"] in ("FINISHED", "FAILED", "KILLED")


def test_the_idle_stack_is_small_and_whole(stack, capsys):
    with capsys.disabled():
        print(f"\nidle stack: {stack.idle['mb']:.0f} MB in {stack.idle['containers']} containers")
    assert stack.idle["containers"] == 8
    assert stack.idle["mb"] < MOST_IDLE_MB
    (rack,) = stack.themis("/api/v1/cluster")["racks"]
    assert {machine["machine_id"]: sum(machine["slots"]) for machine in rack["machines"]} == GPUS


def test_the_commands_of_the_guide_do_what_it_shows(stack):
    ran = 0
    for part in blocks("docs/stack.md", "console"):
        for command in commands(part) if part.mark == "run" else ():
            done = stack.run(command.line)
            line = missing(command.shown, done.stdout)
            assert line is None, f"shown, but not printed: {line}\n$ {command.line}\n{done.stdout}"
            ran += 1
    assert ran


def test_yarn_knows_our_apps_as_its_own(stack):
    app_id = stack.submit(ENOUGH)
    try:
        of_app = f"/ws/v1/cluster/apps?applicationTypes=THEMIS&applicationTags=themis-app:{app_id}"
        running = wait_until(
            lambda: [
                each
                for each in (stack.yarn(of_app)["apps"] or {}).get("app", [])
                if each["state"] == "RUNNING" and each["runningContainers"] == 2
            ]
        )
        assert [each["name"] for each in running] == ["steady"]
        # The app master's own page, through YARN's proxy.
        assert "steady" in stack.yarn(f"/proxy/{running[0]['id']}/")
        nodes = stack.yarn("/ws/v1/cluster/nodes")["nodes"]["node"]
        assert {node["nodeHostName"]: node["state"] for node in nodes} == dict.fromkeys(GPUS, "RUNNING")
    finally:
        stack.kill(app_id)
    (over,) = wait_until(
        lambda: [each for each in stack.yarn(of_app)["apps"]["app"] if each["state"] not in ("RUNNING", "ACCEPTED")]
    )
    assert (over["state"], over["type"] if "type" in over else over["applicationType"]) == ("KILLED", "THEMIS")


def test_leases_move_between_two_apps(stack):
    first = stack.submit(LONG.format(name="first"))
    second = ""
    try:
        wait_until(lambda: len(gpus_of(stack, first)) == 10)
        wait_until(lambda: len(of_kind(stack.events(first), "checkpoint")) >= 1)
        second = stack.submit(LONG.format(name="second"))
        # It trains on what the first had: their leases end within a minute.
        wait_until(lambda: of_kind(stack.events(second), "job_progress"), 240)
        events = stack.events()
        had = {event["detail"]["gpu"] for event in of_kind(events, "lease_granted") if event["app_id"] == first}
        moved = {event["detail"]["gpu"] for event in of_kind(events, "lease_granted") if event["app_id"] == second}
        assert moved
        assert moved <= had
        assert_never_two_holders(events)
        # And what the first has to stop goes on later from where it was.
        resumed = wait_until(
            lambda: [
                event
                for app_id in (first, second)
                for event in of_kind(stack.events(app_id), "tasks_started")
                if event["detail"]["incarnation"] > 1 and event["detail"]["iteration"] > 0
            ],
            240,
        )
        assert resumed
        listed = stack.inside("client", "hdfs", "dfs", "-ls", "-R", "/user/hadoop/themis")
        assert re.search(rf"/{first}/\S*job-00", listed)
    finally:
        for app_id in filter(None, (first, second)):
            stack.kill(app_id)
    wait_until(lambda: ended(stack, first) and ended(stack, second))
    assert_never_two_holders(stack.events())
    wait_until(lambda: all(not node["usedMemoryMB"] for node in stack.yarn("/ws/v1/cluster/nodes")["nodes"]["node"]))


def assert_never_two_holders(events):
    holder = {}
    for event in events:
        if event["kind"] == "lease_granted":
            gpu = event["detail"]["gpu"]
            assert gpu not in holder, f"{gpu} goes to {event['app_id']} while {holder.get(gpu)} has it"
            holder[gpu] = event["app_id"]
        elif event["kind"] in ("lease_released", "lease_revoked"):
            holder.pop(event["detail"]["gpu"], None)


def test_an_app_outlives_a_node_whose_daemon_is_killed(stack):
    app_id = stack.submit(ENOUGH)
    try:
        wait_until(lambda: of_kind(stack.events(app_id), "checkpoint"))
        (gpu,) = gpus_of(stack, app_id)
        node = gpu.partition("/")[0]
        before = stack.restarts(node)
        # The container ends with its daemon, and everything that ran in it: to the others, a machine that loses power.
        stack.inside(node, "pkill", "-KILL", "java", check=False)
        wait_until(lambda: stack.restarts(node) == before + 1)
        wait_until(lambda: ended(stack, app_id), 400)
        assert stack.app(app_id)["state"] == "FINISHED"
    finally:
        stack.kill(app_id)
    events = stack.events(app_id)
    starts = [event["detail"]["iteration"] for event in of_kind(events, "tasks_started")]
    assert len(starts) > 1
    # From its checkpoint on HDFS, on another machine or on the same one come back.
    assert starts[-1] > 0
    assert_never_two_holders(stack.events())
    wait_until(
        lambda: (
            "RUNNING"
            in {n["state"] for n in stack.yarn("/ws/v1/cluster/nodes")["nodes"]["node"] if n["nodeHostName"] == node}
        )
    )
