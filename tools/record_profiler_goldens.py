"""Record what TensorFlow and Keras write, for the profiler's tests: `python tools/record_profiler_goldens.py [FOLDER]`.

Every file comes from a real run of the installed TensorFlow: Keras' bars and lines, event files of Keras' TensorBoard
callback, of `tf.summary` and of the session hooks that Estimators log with, and a run of a program of ours. Half a
minute on one core; `tf.summary` wants the package `tensorboard` beside TensorFlow, which nothing else here needs.

Run by an interpreter that has TensorFlow 2.15, the last with Estimators and Keras 2, it records what these write, and
nothing else: `pip install tensorflow-cpu==2.15.1` in an environment of its own. What cannot be run any more at all is
written by hand: `tests/golden/profiler/SOURCES.md` says which.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "profiler"
LAST_WITH_ESTIMATORS = "2.15."
EXAMPLES, FEATURES, BATCH = 640, 8, 16
STEP_S = 0.02
LONGEST_RECORD_BYTES = 16_000
STEPS = 40
"""Steps that the session hooks and `tf.summary` record."""


def main() -> int:
    """Run everything and write the files; returns the exit code."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else OUT
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras

    random = np.random.default_rng(7)
    examples = random.normal(size=(EXAMPLES, FEATURES)).astype("float32")
    data = (examples, (examples.sum(axis=1) > 0).astype("float32"))
    keras.utils.set_random_seed(7)
    out.mkdir(parents=True, exist_ok=True)
    if tf.__version__.startswith(LAST_WITH_ESTIMATORS):
        bars(keras, data, out / "keras2_bars.log")
        lines(keras, data, out / "keras2_lines.log")
        estimator_log(tf, data, out)
        return 0
    keras_logs(keras, data, out)
    keras_events(keras, data, out)
    summary_events(tf, out)
    hook_log(tf, out)
    own_log(out)
    return 0


def model(keras: Any, rate: float = 0.1) -> Any:
    """A small classifier."""
    layers = [keras.Input((FEATURES,)), keras.layers.Dense(4, "relu"), keras.layers.Dense(1, "sigmoid")]
    made = keras.Sequential(layers)
    made.compile(keras.optimizers.SGD(rate), "binary_crossentropy", metrics=["accuracy"])
    return made


def bars(keras: Any, data: Any, path: Path) -> None:
    """Bars of training with validation, and of an evaluation."""
    x, y = data
    # Keras draws a bar at most twenty times a second, so that quick steps would show none.
    slow = keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_, **__: time.sleep(STEP_S))
    with said(path):
        made = model(keras)
        made.fit(x, y, batch_size=BATCH, epochs=3, verbose=1, validation_split=0.2, callbacks=[slow])
        made.evaluate(x, y, batch_size=BATCH, verbose=1)


def lines(keras: Any, data: Any, path: Path) -> Any:
    """The same with a line an epoch; returns the model."""
    x, y = data
    with said(path):
        made = model(keras)
        made.fit(x, y, batch_size=BATCH, epochs=3, verbose=2, validation_split=0.2)
        made.evaluate(x, y, batch_size=BATCH, verbose=2)
    return made


def keras_logs(keras: Any, data: Any, out: Path) -> None:
    """Bars, lines, a length not known at first, a resumed run and a diverged one."""
    x, y = data
    bars(keras, data, out / "keras_bars.log")
    made = lines(keras, data, out / "keras_lines.log")
    with said(out / "keras_resumed.log"):
        made.fit(x, y, batch_size=BATCH, initial_epoch=3, epochs=5, verbose=2)
    with said(out / "keras_unknown.log"):
        model(keras).fit(endless(x, y), epochs=2, verbose=1)
    with said(out / "keras_nan.log"):
        made = model(keras)
        made.compile(keras.optimizers.SGD(1e30), "mean_squared_error")
        made.fit(x, y + float("nan"), batch_size=BATCH, epochs=2, verbose=2)


def endless(x: Any, y: Any) -> Any:
    """A data set that does not know its length."""
    import tensorflow as tf

    def batches() -> Iterator[Any]:
        for start in range(0, EXAMPLES, BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    shapes = (tf.TensorSpec((None, FEATURES), tf.float32), tf.TensorSpec((None,), tf.float32))
    return tf.data.Dataset.from_generator(batches, output_signature=shapes)


def keras_events(keras: Any, data: Any, out: Path) -> None:
    """Event files of the TensorBoard callback, by batch and by epoch."""
    x, y = data
    for name, often in (("keras_batch_events", 5), ("keras_epoch_events", "epoch")):
        folder = fresh(out / name)
        board = keras.callbacks.TensorBoard(
            str(folder), update_freq=often, write_graph=False, write_steps_per_second=often != "epoch"
        )
        model(keras).fit(x, y, batch_size=BATCH, epochs=2, verbose=0, validation_split=0.2, callbacks=[board])
        rename(folder)


def summary_events(tf: Any, out: Path) -> None:
    """Event files of a loop that calls `tf.summary.scalar`: scalars as tensors."""
    folder = fresh(out / "summary_events")
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default():
        for step in range(1, STEPS + 1):
            tf.summary.scalar("learning_rate", 0.1, step=step)
            tf.summary.scalar("loss", 2.0 / step, step=step)
            tf.summary.histogram("weights", tf.random.stateless_normal((100,), (7, step)), step=step)
    writer.close()
    rename(folder)


def hook_log(tf: Any, out: Path) -> None:
    """The session hooks of Estimators: their log lines, and event files with plain values."""
    v1 = tf.compat.v1
    folder = fresh(out / "hook_events")
    scratch = tempfile.mkdtemp()
    with logged(tf, out / "hooks.log", scratch), tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=3.0)
        loss = tf.square(weight - 1.0, name="loss")
        step = v1.train.get_or_create_global_step()
        train = v1.train.GradientDescentOptimizer(0.05).minimize(loss, step)
        v1.summary.scalar("loss", loss)
        hooks = [
            v1.train.StopAtStepHook(STEPS),
            v1.train.StepCounterHook(10, output_dir=str(folder)),
            v1.train.LoggingTensorHook({"loss": loss, "step": step}, every_n_iter=10),
            v1.train.SummarySaverHook(10, output_dir=str(folder), summary_op=v1.summary.merge_all()),
            v1.train.CheckpointSaverHook(scratch, save_steps=20),
        ]
        with v1.train.SingularMonitoredSession(hooks) as session:
            while not session.should_stop():
                session.run(train)
    shutil.rmtree(scratch)
    rename(folder)


def estimator_log(tf: Any, data: Any, out: Path) -> None:
    """An Estimator that is trained and evaluated, stops, and goes on from its checkpoint."""
    v1, estimator = tf.compat.v1, tf.estimator
    x, y = data[0], data[1].astype("int64")

    def batches() -> Any:
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).shuffle(EXAMPLES, seed=7).repeat().batch(BATCH)

    def held_out() -> Any:
        return tf.data.Dataset.from_tensor_slices(({"x": x}, y)).batch(BATCH)

    scratch = tempfile.mkdtemp()
    config = estimator.RunConfig(
        model_dir=scratch, tf_random_seed=7, log_step_count_steps=20, save_summary_steps=20, save_checkpoints_steps=60
    )
    columns = [v1.feature_column.numeric_column("x", shape=(FEATURES,))]
    evaluation = estimator.EvalSpec(held_out, steps=None, start_delay_secs=0, throttle_secs=0)
    with logged(tf, out / "estimator_2_15.log", scratch):
        for steps in (120, 200):
            classifier = estimator.DNNClassifier([8], columns, config=config)
            estimator.train_and_evaluate(classifier, estimator.TrainSpec(batches, max_steps=steps), evaluation)
    folder = fresh(out / "estimator_events")
    for path in sorted(Path(scratch).rglob("events.out.tfevents.*")):
        into = folder / path.parent.relative_to(scratch)
        into.mkdir(exist_ok=True)
        without_graphs(tf, path, into / path.name)
    shutil.rmtree(scratch)
    rename(folder)


def without_graphs(tf: Any, path: Path, into: Path) -> None:
    """The records of an event file but for the long ones: graphs are most of an Estimator's."""
    with tf.io.TFRecordWriter(str(into)) as writer:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            if len(record) <= LONGEST_RECORD_BYTES:
                writer.write(record)


def own_log(out: Path) -> None:
    """A program of ours that stops and goes on."""
    command = [sys.executable, "-m", "tf_jobs.digits_dense", "--learning_rate", "0.1", "--log_every", "10"]
    with tempfile.TemporaryDirectory() as scratch, (out / "themis.log").open("wb") as log:
        own = {"THEMIS_JOB_ID": "golden", "THEMIS_CHECKPOINT_URI": "checkpoints", "THEMIS_JOB_DIR": scratch}
        environment = {**os.environ, **own, "PYTHONPATH": str(OUT.parents[2])}
        for target in ("40", "60"):
            run = [*command, "--iterations", target]
            subprocess.run(run, stdout=log, stderr=log, check=True, env=environment, cwd=scratch)


def fresh(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def rename(folder: Path) -> None:
    """Names without this machine's name, in the order of the files' own names."""
    for path in sorted(folder.rglob("events.out.tfevents.*")):
        time_s, _, rest = path.name.removeprefix("events.out.tfevents.").partition(".")
        suffix = ".v2" if rest.endswith(".v2") else ""
        path.rename(path.with_name(f"events.out.tfevents.{time_s}.host{suffix}"))


@contextlib.contextmanager
def logged(tf: Any, path: Path, scratch: str) -> Iterator[None]:
    """Write TensorFlow's log within this context to a file, as on standard error, without this machine's folders."""
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.INFO)
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    tf.get_logger().addHandler(handler)
    yield
    tf.get_logger().removeHandler(handler)
    text = log.getvalue().replace(scratch, "model").replace(str(OUT.parents[2]), "themis")
    path.write_text(text.replace(str(Path(tf.__file__).parents[1]), "site-packages"), encoding="utf-8")


@contextlib.contextmanager
def said(path: Path) -> Iterator[None]:
    """Write everything printed within this context to a file."""
    with path.open("w", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
        yield


if __name__ == "__main__":
    sys.exit(main())
