"""What torchrun promises its processes, kept for the tasks of a gang. Needs no PyTorch."""

import asyncio
import json
import sys

from live_rm import live, settings

from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TaskResources, TunerSpec

# A process group as torch.distributed.init_process_group makes it by `env://`: task 0 listens, the others connect. The
# first incarnation then fails, so that there is a second one.
SCRIPT = """\
import json, os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
names = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "MASTER_PORT", "THEMIS_INCARNATION")
mine = {"RANK": rank, "WORLD_SIZE": size, **{name: int(os.environ[name]) for name in names}}
if rank == 0:
    with socket.create_server(address) as server:
        met = [server.accept()[0] for _ in range(size - 1)]
    seen = [mine, *(json.loads(each.makefile().readline()) for each in met)]
    print("MET " + json.dumps(seen), flush=True)
    for each in met:
        each.sendall(b"done\\n")
else:
    for _ in range(1200):
        try:
            peer = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(json.dumps(mine).encode() + b"\\n")
    peer.makefile().readline()
sys.exit(3 if mine["THEMIS_INCARNATION"] == 1 else 0)
"""


def test_tasks_meet_at_the_master_and_at_another_port_after_a_restart(tmp_path, monkeypatch):
    # The service's own place in a gang is not its tasks'.
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("MASTER_PORT", "1")
    script = tmp_path / "rendezvous.py"
    script.write_text(SCRIPT)
    app = AppSpec(
        name="rendezvous",
        tuner=TunerSpec(name="single"),
        program=ProgramSpec(command=f"exec {sys.executable} {script}", framework="pytorch"),
        jobs=(JobSpec(job_id="job-00", shape=JobShape(tasks=3, min_tasks=3), iterations_total=1),),
        resources=TaskResources(memory_mb=256),
    )

    async def scenario():
        async with live(settings(tmp_path)) as rm:
            app_id = await rm.submit(app)
            status = await rm.ended(app_id)
            assert status.state == "FINISHED", status.diagnostics
            return (tmp_path / "apps" / app_id / "jobs" / "job-00" / "task-0.log").read_text()

    log = asyncio.run(scenario())
    first, second = (json.loads(line.removeprefix("MET ")) for line in log.splitlines() if line.startswith("MET "))
    for incarnation, met in ((1, first), (2, second)):
        port = met[0]["MASTER_PORT"]
        own = {"WORLD_SIZE": 3, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "THEMIS_INCARNATION": incarnation}
        assert sorted(met, key=lambda each: each["RANK"]) == [
            {**own, "RANK": rank, "NODE_RANK": rank, "GROUP_RANK": rank, "MASTER_PORT": port} for rank in range(3)
        ]
    assert first[0]["MASTER_PORT"] != second[0]["MASTER_PORT"]
