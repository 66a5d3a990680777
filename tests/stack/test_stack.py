"""Real TensorFlow in YARN's containers of the stack: what the guide shows, leases that move, a node that dies."""

from compose_stack import wait_until
from documents import blocks, commands, missing

MAX_IDLE_MB = 1500
GPUS = {"nodemanager-1": 4, "nodemanager-2": 4, "nodemanager-3": 2}
# Two such apps want twice the GPUs that there are. By default the one with less work left comes first.
SEARCH = """\
name: {name}
program: digits_dense
tuner: single
job: {{tasks: 1, gpus_per_task: 2, iterations: {iterations}}}
estimate: {{serial_iteration_s: 0.01}}
search_space: {{learning_rate: {{log_uniform: [0.01, 0.1]}}}}
jobs: 5
resources: {{memory_mb: 1024, vcores: 1}}
checkpoint_every: 200
"""
STEADY = """\
name: steady
program: digits_dense
tuner: single
job: {{tasks: 1, iterations: {iterations}}}
hyper_parameters: [{{learning_rate: 0.05, hidden: 64}}]
resources: {{memory_mb: 1024, vcores: 1}}
checkpoint_every: 200
"""


def of_kind(events, kind):
    return [event for event in events if event["kind"] == kind]


def gpus_of(stack, app_id):
    return {lease["gpu"] for lease in stack.app(app_id)["leases"]}


def assert_never_two_holders(events):
    holder = {}
    for event in events:
        if event["kind"] == "lease_granted":
            gpu = event["detail"]["gpu"]
            assert gpu not in holder, f"{gpu} goes to {event['app_id']} while {holder[gpu]} has it"
            holder[gpu] = event["app_id"]
        elif event["kind"] in ("lease_released", "lease_revoked"):
            holder.pop(event["detail"]["gpu"], None)


def test_the_idle_stack_is_small_and_whole(stack, capsys):
    with capsys.disabled():
        print(f"\nidle stack: {stack.idle['mb']:.0f} MB in {stack.idle['containers']} containers")
    assert stack.idle["containers"] == 8
    assert stack.idle["mb"] < MAX_IDLE_MB
    (rack,) = stack.themis("/api/v1/cluster")["racks"]
    assert {machine["machine_id"]: sum(machine["slots"]) for machine in rack["machines"]} == GPUS


def test_the_commands_of_the_guide_do_what_it_shows(stack):
    ran = 0
    for part in blocks("docs/how-to/stack.md", "console"):
        for command in commands(part) if part.mark == "run" else ():
            done = stack.run(command.line)
            line = missing(command.shown, done.stdout)
            assert line is None, f"shown, but not printed: {line}\n$ {command.line}\n{done.stdout}"
            ran += 1
    assert ran


def test_yarn_knows_our_apps_as_its_own(stack):
    app_id = stack.submit(STEADY.format(iterations=1_000_000))

    def in_yarn():
        wanted = f"applicationTypes=THEMIS&applicationTags=themis-app:{app_id}"
        return (stack.yarn(f"/ws/v1/cluster/apps?{wanted}")["apps"] or {}).get("app", [])

    # The app master and a task.
    wait_until(lambda: [each for each in in_yarn() if each["runningContainers"] == 2])
    (running,) = in_yarn()
    assert (running["name"], running["state"]) == ("steady", "RUNNING")
    assert running["applicationType"] == "THEMIS"
    # The app master's own page, through YARN's proxy.
    assert "steady" in stack.yarn(f"/proxy/{running['id']}/")
    assert {node["nodeHostName"]: node["state"] for node in stack.nodes()} == dict.fromkeys(GPUS, "RUNNING")
    stack.kill(app_id)
    # Its app master takes leave, so to YARN it is not the application that was killed but what it worked on.
    wait_until(lambda: [(each["state"], each["finalStatus"]) for each in in_yarn()] == [("FINISHED", "KILLED")])


def test_leases_move_between_two_apps(stack):
    # Longer than any test waits.
    first = stack.submit(SEARCH.format(name="first", iterations=1_000_000))
    wait_until(lambda: len(gpus_of(stack, first)) == sum(GPUS.values()))
    wait_until(lambda: of_kind(stack.events(first), "checkpoint"))
    second = stack.submit(SEARCH.format(name="second", iterations=6_000))
    # It trains on what the first had: their leases end within a minute.
    wait_until(lambda: of_kind(stack.events(second), "job_progress"), 300)
    events = stack.events()
    had = {event["detail"]["gpu"] for event in of_kind(events, "lease_granted") if event["app_id"] == first}
    moved = {event["detail"]["gpu"] for event in of_kind(events, "lease_granted") if event["app_id"] == second}
    assert moved
    assert moved <= had
    assert gpus_of(stack, first).isdisjoint(gpus_of(stack, second))

    # And what one has to stop goes on from where it was, when it gets GPUs again.
    def resumed():
        starts = of_kind(stack.events(), "tasks_started")
        return [event for event in starts if event["detail"]["incarnation"] > 1 and event["detail"]["iteration"] > 0]

    wait_until(resumed, 300)
    checkpoints = f"/user/hadoop/themis/*/apps/{first}/checkpoints"
    assert "state.npz" in stack.inside("client", "hdfs", "dfs", "-ls", "-R", checkpoints)
    stack.end_apps()
    assert_never_two_holders(stack.events())


def test_an_app_outlives_a_node_whose_daemon_is_killed(stack):
    app_id = stack.submit(STEADY.format(iterations=30_000))
    wait_until(lambda: of_kind(stack.events(app_id), "checkpoint"))
    (gpu,) = gpus_of(stack, app_id)
    node = gpu.partition("/")[0]
    before = stack.restarts(node)
    # The container ends with its daemon, and everything that ran in it: to the others, a machine that loses power.
    stack.inside(node, "pkill", "-KILL", "java", check=False)
    wait_until(lambda: stack.restarts(node) == before + 1)
    wait_until(lambda: stack.app(app_id)["finished_at_s"], 400)
    assert stack.app(app_id)["state"] == "FINISHED"
    starts = [event["detail"]["iteration"] for event in of_kind(stack.events(app_id), "tasks_started")]
    assert len(starts) > 1
    # From its checkpoint on HDFS, on another machine or on the same one come back.
    assert starts[-1] > 0
    assert_never_two_holders(stack.events())
    wait_until(lambda: {each["nodeHostName"]: each["state"] for each in stack.nodes()}[node] == "RUNNING")
