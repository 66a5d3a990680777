"""Code from a group file to the tasks, through a real ResourceManager and app master."""

import asyncio

from live_rm import live, settings

from submarine_client.groups import load_app
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_from_message, app_to_message

GROUP = """\
name: travelling
command: ./train.sh
code: ./training
job: {tasks: 2}
resources: {memory_mb: 256}
"""


def test_tasks_run_the_submitted_code_also_when_the_app_is_submitted_again(tmp_path):
    (tmp_path / "training").mkdir()
    script = tmp_path / "training" / "train.sh"
    script.write_text('#!/bin/sh\necho "task $THEMIS_TASK_INDEX of $WORLD_SIZE: $(cat word.txt)"\n')
    script.chmod(0o755)
    (tmp_path / "training" / "word.txt").write_text("first\n")
    (tmp_path / "g.yaml").write_text(GROUP)
    spec = load_app(tmp_path / "g.yaml")
    (tmp_path / "training" / "word.txt").write_text("changed since\n")
    state = tmp_path / "state"
    state.mkdir()

    def logs(app_id):
        return [(state / "apps" / app_id / "jobs" / "job-00" / f"task-{index}.log").read_text() for index in range(2)]

    async def scenario():
        async with live(settings(state)) as rm:
            request = pb.SubmitRequest(spec=app_to_message(spec), code=spec.program.code.content)
            first = (await rm.stub.Submit(request)).app_id
            ended = await rm.ended(first)
            assert ended.state == "FINISHED", ended.diagnostics
            again = await rm.submit(app_from_message((await rm.show(first)).spec))
            assert (await rm.ended(again)).state == "FINISHED"
            return logs(first), logs(again)

    for first, second in asyncio.run(scenario()):
        assert "task 0 of 2: first\n" in first
        assert "task 1 of 2: first\n" in second
