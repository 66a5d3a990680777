"""How a batch is dealt to tasks, whole shares or parts in order."""

import pytest

from tf_jobs.batch_sums import OrderedParts, TaskShares, batch_sum
from tf_jobs.context import read_context
from tf_jobs.program import _run
from tf_jobs.signals import StopRequest
from themis.errors import InputError


def context(task_index, tasks):
    environment = {"THEMIS_TASK_INDEX": str(task_index), "THEMIS_TASKS": str(tasks), "THEMIS_INCARNATION": "1"}
    if tasks > 1:
        workers = ", ".join(f'"h:{number + 1}"' for number in range(tasks))
        environment["TF_CONFIG"] = f'{{"cluster": {{"worker": [{workers}]}}, "task": {{"index": {task_index}}}}}'
    return read_context("j", environment, "c")


def dealt(tasks, *, batch_size, parts):
    return [batch_sum(None, context(index, tasks), batch_size=batch_size, parts=parts) for index in range(tasks)]


@pytest.mark.parametrize("parts", [0, 8, 11])
@pytest.mark.parametrize("batch_size", [11, 64])
@pytest.mark.parametrize("tasks", range(1, 9))
def test_each_row_is_one_tasks(tasks, batch_size, parts):
    rows = [row for each in dealt(tasks, batch_size=batch_size, parts=parts) for row in range(batch_size)[each.rows]]
    assert rows == list(range(batch_size))


@pytest.mark.parametrize("tasks", range(1, 9))
def test_parts_do_not_depend_on_the_number_of_tasks(tasks):
    def parts_of(tasks):
        return [
            (each.rows.start + begin, each.rows.start + end)
            for each in dealt(tasks, batch_size=21, parts=8)
            for begin, end in each.bounds
        ]

    assert parts_of(tasks) == parts_of(1)
    assert len(parts_of(tasks)) == 8


def test_no_parts_are_a_share_a_task():
    assert isinstance(dealt(1, batch_size=4, parts=0)[0], TaskShares)
    assert isinstance(dealt(1, batch_size=4, parts=4)[0], OrderedParts)


@pytest.mark.parametrize(("tasks", "parts", "allowed"), [(3, 2, "3 .tasks. to 16"), (1, 17, "1 .tasks. to 16")])
def test_too_few_parts_or_too_many_are_refused(tasks, parts, allowed):
    with pytest.raises(InputError, match=f"--ordered_parts is out of range.*{allowed}"):
        dealt(tasks, batch_size=16, parts=parts)


@pytest.mark.parametrize("flags", [["--ordered_parts", "65"], ["--ordered_parts", "9", "--batch_size", "8"]])
def test_a_task_refuses_them_before_tensorflow_is_loaded_and_peers_are_waited_for(tmp_path, monkeypatch, flags):
    def begun(tasks):
        raise AssertionError("too late")

    monkeypatch.setattr("tf_jobs.program.begin_watch", begun)
    monkeypatch.setenv("THEMIS_CHECKPOINT_URI", str(tmp_path))
    with pytest.raises(InputError, match="--ordered_parts is out of range"):
        _run("digits_dense", ["--iterations", "5", *flags], StopRequest())
