"""How long training stands still for a checkpoint, by the logs of real programs that save to a real folder."""

import functools
import importlib.util
import json
import math
import os
import re
import statistics
import subprocess
import sys

import pytest
from log_lines import parse_line

from am.profiler.records import CheckpointSaved

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("the real programs need the extra 'tf'", allow_module_level=True)
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(300)]

TRIES = 2
"""Times that a measure may be taken. Others may have the cores meanwhile; what we do ourselves is there each time."""

COPIED = re.compile(r"INFO:themis:copied iteration = (\d+), stalled = (\S+)")


def best_of(measure, below, folder):
    """The least of a few measures, each in a folder of its own; the first that is below the limit ends it."""
    found = []
    while len(found) < TRIES and not (found and found[-1] < below):
        (place := folder / f"try-{len(found)}").mkdir()
        found.append(measure(place))
    return min(found)


def share_of_writing(folder, program):
    """Mean seconds that training stood still for each of ten checkpoints, over those that a thread wrote one for.

    Infinite where fewer than three were written beside training, too few for a mean.
    """
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
    output = subprocess.run(command, env=environment, check=True, text=True, stderr=subprocess.PIPE).stderr
    stalls = {int(iteration): float(seconds) for iteration, seconds in COPIED.findall(output)}
    records = [parse_line(line) for line in output.splitlines()]
    writes = {record.iteration: record.seconds for record in records if isinstance(record, CheckpointSaved)}
    assert len(stalls) == 10
    # The last is of the program's end, which nothing goes on beside. Where a write takes longer than twenty iterations
    # a newer state takes the place of one that waits.
    del writes[210]
    assert writes.keys() <= stalls.keys()
    if len(writes) < 3:
        return math.inf
    return statistics.mean(stalls.values()) / statistics.mean(writes.values())


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
for time_ in range(5):
    seconds, kept = timed(lambda: {str(place): value_of(tf, each) for place, each in enumerate(variables)})
    kept_s.append(seconds)
    beyond_s.append(timed(lambda: step().numpy())[0] - usual_s)
    written_s.append(timed(lambda: store.save("j", time_, snapshot_of(kept)(folder), {}))[0])
    del kept
    step().numpy()
stood_still_s = statistics.median(kept_s) + max(0.0, statistics.median(beyond_s))
print(json.dumps({"stood_still_s": stood_still_s, "written_s": statistics.median(written_s)}))
"""


BESIDE = """
import json, statistics, sys, threading, time
import tensorflow as tf
from am.checkpoints.uri import open_store
from tf_jobs.learner import snapshot_of, value_of
from pathlib import Path

folder = Path(sys.argv[1])
store = open_store(str(folder / "store"))
variables = [tf.Variable(tf.random.normal([633_000])) for _ in range(60)]
changes = [tf.random.normal([633_000]) for _ in variables]
square = tf.random.normal([700, 700])

@tf.function
def writes():
    for variable, change in zip(variables, changes):
        variable.assign_sub(change)
    return tf.reduce_sum(variables[0][:10])

@tf.function
def computes():
    found = square
    for _ in range(6):
        found = tf.tanh(found @ square)
    return tf.reduce_sum(found)

def timed(step):
    begun_s = time.perf_counter()
    step().numpy()
    return time.perf_counter() - begun_s

def beside_a_write(step, number):
    alone_s = [timed(step) for _ in range(10)]
    begun_s, steps = time.perf_counter(), 0
    kept = {str(place): value_of(tf, each) for place, each in enumerate(variables)}
    writer = threading.Thread(target=lambda: store.save("j", number, snapshot_of(kept)(folder), {}))
    writer.start()
    while writer.is_alive():
        step().numpy()
        steps += 1
    seconds = time.perf_counter() - begun_s
    store.prune("j", 1)
    usual_s = statistics.median(alone_s + [timed(step) for _ in range(10)])
    return {"write_s": seconds, "step_s": usual_s, "beside_s": seconds / steps, "lost": 1.0 - steps * usual_s / seconds}

medians = {}
for place, step in enumerate((writes, computes)):
    timed(step)
    runs = [beside_a_write(step, 10 * place + number) for number in range(5)]
    medians[step.python_function.__name__] = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
print(json.dumps(medians))
"""


def most_lost_beside_a_write(folder):
    """The greater of the shares of their pace that both kinds of steps lose beside a write."""
    return max(reported["lost"] for reported in steps_beside_a_write(folder).values())


def share_of_keeping(folder):
    """Seconds that training stands still for 152 MB, over those that writing them takes; medians of five."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", LARGE, str(folder)]
    output = json.loads(subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout)
    assert output["stood_still_s"] > 0.0
    return output["stood_still_s"] / output["written_s"]


def steps_beside_a_write(folder):
    """Medians of five writes of 152 MB, for steps that write to all of it and for some that only compute.

    Seconds from keeping the state to the end of the write, of a step alone and of one beside it, and the share of that
    time that training loses, with what keeping and copying cost: 1 less (steps done then, each as long as one alone).
    """
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", BESIDE, str(folder)]
    return json.loads(subprocess.run(command, env=environment, check=True, text=True, stdout=subprocess.PIPE).stdout)


def test_a_large_write_slows_training_by_less_than_the_limit(tmp_path):
    """0.4 was seen, on two cores that were busy with other things. A write that kept others waiting would take all."""
    assert best_of(most_lost_beside_a_write, 0.7, tmp_path) < 0.7


def test_a_large_state_is_kept_in_a_small_part_of_the_time_to_write_it(tmp_path):
    """152 MB: to keep it, and the copy that the next step then makes of what it writes to, all in place."""
    assert best_of(share_of_keeping, 0.1, tmp_path) < 0.1


def test_a_snapshot_is_not_changed_by_later_steps():
    """It is the variable's own buffer, which TensorFlow must not write to while we hold it."""
    subprocess.run([sys.executable, "-c", IN_PLACE], check=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""})


@pytest.mark.parametrize(
    ("program", "at_most"),
    [
        ("digits_cnn", 0.1),
        ("text_lstm", 0.15),
        *(
            pytest.param(program, 0.1, marks=pytest.mark.nightly)
            for program in ("digits_lstm", "digits_dense", "text_transformer")
        ),
    ],
)
def test_training_stalls_for_a_small_part_of_the_writing(program, at_most, tmp_path):
    """A tenth is the aim. `text_lstm` was seen at 0.08, too near for a machine that is busy with other things."""
    assert 0.0 < best_of(functools.partial(share_of_writing, program=program), at_most, tmp_path) < at_most
