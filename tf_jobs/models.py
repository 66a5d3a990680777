"""Networks as parameter shapes and forward passes, which are functions of named tensors; and networks for images.

TensorFlow is an argument, so this module imports quickly. All parameters of a model are in one flat vector: one
collective sums its gradient, and one array is its checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tf_jobs.data import CLASSES, SIDE
from themis.values import Value

Tensors = Mapping[str, Any]
Forward = Callable[[Any, Tensors, Any, Any], Any]


class Model(Value, frozen=True, kw_only=True):
    """One network.

    Attributes:
        shapes: Shape of each named parameter; weights have two dimensions or more, biases one.
        hidden: Width of the layer that dropout acts on.
        forward: (tensorflow, parameters, inputs, dropout mask [n, hidden] or None) to logits: [n, 10] of images
            [n, 8, 8], and [n, places, characters] of characters [n, places].
    """

    shapes: Mapping[str, tuple[int, ...]]
    hidden: int
    forward: Forward

    @property
    def sizes(self) -> list[int]:
        """The number of values of each parameter, in order."""
        return [int(np.prod(shape)) for shape in self.shapes.values()]

    def initial(self, seed: int) -> NDArray[np.float32]:
        """Draw the initial flat vector: He's normal scale for weights, zero biases (He et al., ICCV'15)."""
        random = np.random.default_rng((seed, 1))
        pieces = [
            random.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[:-1])) if len(shape) > 1 else np.zeros(shape)
            for shape in self.shapes.values()
        ]
        return np.concatenate([piece.ravel() for piece in pieces]).astype(np.float32)

    def unpack(self, tf: Any, flat: Any) -> Tensors:
        """Return the named parameters of a flat vector."""
        pieces = tf.split(flat, self.sizes)
        return {
            name: tf.reshape(piece, shape) for (name, shape), piece in zip(self.shapes.items(), pieces, strict=True)
        }


def convolutional(filters: int, hidden: int) -> Model:
    """Two convolutions with pooling, and a dense layer."""
    quarter = (SIDE // 4) ** 2 * 2 * filters
    shapes = {
        "conv1": (3, 3, 1, filters),
        "conv1_bias": (filters,),
        "conv2": (3, 3, filters, 2 * filters),
        "conv2_bias": (2 * filters,),
        "dense": (quarter, hidden),
        "dense_bias": (hidden,),
        **_head(hidden),
    }

    def forward(tf: Any, p: Tensors, images: Any, mask: Any) -> Any:
        x = images[..., tf.newaxis]
        for layer in ("conv1", "conv2"):
            x = tf.nn.relu(tf.nn.conv2d(x, p[layer], strides=1, padding="SAME") + p[f"{layer}_bias"])
            x = tf.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID")
        x = tf.nn.relu(tf.reshape(x, (-1, quarter)) @ p["dense"] + p["dense_bias"])
        return _logits(p, x, mask)

    return Model(shapes=shapes, hidden=hidden, forward=forward)


def dense(hidden: int) -> Model:
    """One dense layer."""
    shapes = {"dense": (SIDE * SIDE, hidden), "dense_bias": (hidden,), **_head(hidden)}

    def forward(tf: Any, p: Tensors, images: Any, mask: Any) -> Any:
        x = tf.nn.relu(tf.reshape(images, (-1, SIDE * SIDE)) @ p["dense"] + p["dense_bias"])
        return _logits(p, x, mask)

    return Model(shapes=shapes, hidden=hidden, forward=forward)


def recurrent(hidden: int) -> Model:
    """An LSTM that reads an image row by row (Hochreiter and Schmidhuber, 1997)."""
    shapes = {"gates": (SIDE + hidden, 4 * hidden), "gates_bias": (4 * hidden,), **_head(hidden)}

    def forward(tf: Any, p: Tensors, images: Any, mask: Any) -> Any:
        state = memory = tf.zeros((tf.shape(images)[0], hidden))
        for row in range(SIDE):
            state, memory = lstm_cell(tf, p, images[:, row], state, memory)
        return _logits(p, state, mask)

    return Model(shapes=shapes, hidden=hidden, forward=forward)


def lstm_cell(tf: Any, p: Tensors, inputs: Any, state: Any, memory: Any) -> tuple[Any, Any]:
    """One step of an LSTM: state and memory after it has read `inputs`."""
    gates = tf.concat([inputs, state], axis=1) @ p["gates"] + p["gates_bias"]
    take, forget, give, fresh = tf.split(gates, 4, axis=1)
    # A forget gate that starts open lets gradients through (Gers et al., 2000).
    memory = tf.sigmoid(forget + 1.0) * memory + tf.sigmoid(take) * tf.tanh(fresh)
    return tf.sigmoid(give) * tf.tanh(memory), memory


def _head(hidden: int) -> dict[str, tuple[int, ...]]:
    return {"logits": (hidden, CLASSES), "logits_bias": (CLASSES,)}


def _logits(p: Tensors, hidden_units: Any, mask: Any) -> Any:
    kept = hidden_units if mask is None else hidden_units * mask
    return kept @ p["logits"] + p["logits_bias"]
