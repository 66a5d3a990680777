"""Import TensorFlow quickly: quiet, one thread per pool on GPUs, and without Keras, which doubles the start-up time."""

from __future__ import annotations

import os
import sys
from typing import Any


def load_tensorflow() -> Any:
    """Return the tensorflow module, set up to use at most one GPU.

    Keras, which these programs do not use, imports scikit-learn, SciPy and Matplotlib. A None in `sys.modules` makes
    the import of a module fail; TensorFlow then works without it.
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
