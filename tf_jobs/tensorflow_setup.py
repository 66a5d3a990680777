"""Imports TensorFlow the short way: quiet, one thread a pool on GPUs, and without Keras, which doubles the start-up."""

from __future__ import annotations

import os
import sys
from typing import Any


def load_tensorflow() -> Any:
    """The tensorflow module, ready to build graphs with; one process uses one GPU at most.

    Keras, which these programs do not use, brings scikit-learn, SciPy and Matplotlib with it. A None in `sys.modules`
    is Python's own way to say that a module is not to be had; TensorFlow then goes without.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # oneDNN reorders sums by the shape of the batch, so curves would depend on the number of tasks.
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    for name in ("keras", "tf_keras"):
        if name not in sys.modules:
            sys.modules[name] = None  # type: ignore[assignment]
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    # On a CPU node the whole machine is the job's.
    tf.config.threading.set_intra_op_parallelism_threads(int(os.environ.get("THEMIS_THREADS") or 1))
    tf.config.threading.set_inter_op_parallelism_threads(1)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[:1], "GPU")
    return tf
