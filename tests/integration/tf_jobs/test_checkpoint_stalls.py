"""How long training stands still for a checkpoint, by the logs of real programs that save to a real folder."""

import importlib.util
import json
import os
import re
import subprocess
import sys

import pytest

from am.profiler.parser import parse_line
from am.profiler.records import CheckpointSaved

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("the real programs need the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COPIED = re.compile(r"INFO:themis:copied iteration = (\d+), stalled = (\S+)")


def share_of_writing(folder, program):
    """Seconds that training stood still over seconds that a thread wrote, of ten checkpoints."""
    environment = os.environ | {
        "THEMIS_JOB_ID": "j",
        "THEMIS_TASK_INDEX": "0",
        "THEMIS_TASKS": "1",
        "THEMIS_INCARNATION": "1",
        "THEMIS_CHECKPOINT_URI": str(folder / "ck"),
        "THEMIS_JOB_DIR": str(folder / "job"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    words = ["--iterations", "210", "--checkpoint_every", "20", "--learning_rate", "0.01"]
    command = [sys.executable, "-m", f"tf_jobs.{program}", *words]
    told = subprocess.run(command, env=environment, check=True, text=True, stderr=subprocess.PIPE).stderr
    stalls = {int(iteration): float(seconds) for iteration, seconds in COPIED.findall(told)}
    records = [parse_line(line) for line in told.splitlines()]
    writes = {record.iteration: record.seconds for record in records if isinstance(record, CheckpointSaved)}
    assert len(stalls) == 10
    # The last is of the program's end, which nothing goes on beside.
    assert stalls.keys() | {210} == writes.keys(), "each is written before the next is due"
    return sum(stalls.values()) / sum(writes[iteration] for iteration in stalls)


IN_PLACE = """
import numpy as np
import tensorflow as tf
from tf_jobs.learner import value_of
raw, ones = tf.raw_ops, tf.ones([4, 2])
for change in (
    lambda v: raw.ResourceApplyGradientDescent(var=v.handle, alpha=1.0, delta=ones),
    lambda v: raw.ResourceScatterAdd(resource=v.handle, indices=[1], updates=ones[:1]),
    lambda v: v.assign_add(ones),
    lambda v: v.assign(ones),
):
    variable = tf.Variable(tf.zeros([4, 2]))
    kept = value_of(tf, variable)
    assert np.shares_memory(np.asarray(kept), np.asarray(value_of(tf, variable))), "no copy is made to keep it"
    change(variable)
    assert variable.numpy().any()
    assert not np.asarray(kept).any()
"""


LARGE = """
import json, statistics, sys, time
import numpy as np
import tensorflow as tf
from am.checkpoints.uri import open_store
from tf_jobs.learner import snapshot_of, value_of
from pathlib import Path

folder = Path(sys.argv[1])
store = open_store(str(folder / "store"))
variables = [tf.Variable(tf.random.normal([633_000])) for _ in range(60)]
changes = [tf.random.normal([633_000]) for _ in variables]

@tf.function
def step():
    for variable, change in zip(variables, changes):
        variable.assign_sub(change)
    return tf.reduce_sum(variables[0][:10])

def timed(work):
    begun_s = time.perf_counter()
    result = work()
    return time.perf_counter() - begun_s, result

usual_s = statistics.median(timed(lambda: step().numpy())[0] for _ in range(20))
kept_s, beyond_s, written_s = [], [], []
for time_ in range(7):
    seconds, kept = timed(lambda: {str(place): value_of(tf, each) for place, each in enumerate(variables)})
    kept_s.append(seconds)
    beyond_s.append(timed(lambda: step().numpy())[0] - usual_s)
    written_s.append(timed(lambda: store.save("j", time_, snapshot_of(kept)(folder), {}))[0])
    del kept
    step().numpy()
stood_still_s = statistics.median(kept_s) + max(0.0, statistics.median(beyond_s))
print(json.dumps({"stood_still_s": stood_still_s, "written_s": statistics.median(written_s)}))
"""


def test_a_large_state_is_kept_in_a_small_part_of_the_time_to_write_it(tmp_path):
    """152 MB: to keep it, and the copy that the next step then makes of what it writes to, all in place."""
    command = [sys.executable, "-c", LARGE, str(tmp_path)]
    done = subprocess.run(
        command, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, check=True, text=True, stdout=subprocess.PIPE
    )
    told = json.loads(done.stdout)
    assert 0.0 < told["stood_still_s"] < 0.2 * told["written_s"]


def test_what_is_kept_for_a_checkpoint_is_as_it_was_whatever_steps_write_in_place():
    """It is the variable's own buffer, which TensorFlow must not write to while we hold it."""
    subprocess.run([sys.executable, "-c", IN_PLACE], check=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("program", "at_most"),
    [("digits_lstm", 0.1), ("digits_dense", 0.1), ("text_transformer", 0.15), ("text_lstm", 0.25)],
)
def test_training_stalls_for_a_small_part_of_the_writing(program, at_most, tmp_path):
    """Twice what docs/elastic.md tells and more: how fast a disk is, and what else runs, changes from run to run."""
    assert 0.0 < share_of_writing(tmp_path, program) < at_most
