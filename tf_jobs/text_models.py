"""Language models by character: an LSTM, and a transformer."""

from __future__ import annotations

from typing import Any

import numpy as np

from tf_jobs.models import Model, Tensors, lstm_cell

EPSILON = 1e-5


def recurrent(characters: int, places: int, hidden: int) -> Model:
    """An LSTM of one layer that reads a text character by character (Hochreiter and Schmidhuber, 1997)."""
    shapes = {
        "characters": (characters, hidden),
        "gates": (2 * hidden, 4 * hidden),
        "gates_bias": (4 * hidden,),
        **_head(hidden, characters),
    }

    def forward(tf: Any, p: Tensors, inputs: Any, mask: Any) -> Any:
        read = tf.gather(p["characters"], inputs)
        state = memory = tf.zeros((tf.shape(inputs)[0], hidden))
        states = []
        for place in range(places):
            state, memory = lstm_cell(tf, p, read[:, place], state, memory)
            states.append(state)
        return _logits(tf, p, tf.stack(states, axis=1), mask)

    return Model(shapes=shapes, hidden=hidden, forward=forward)


def transformer(characters: int, places: int, hidden: int, layers: int, heads: int) -> Model:
    """A decoder with pre-layer normalisation (Vaswani et al., NeurIPS'17; Xiong et al., ICML'20, for the norms)."""
    width = max(1, hidden // heads)
    shapes: dict[str, tuple[int, ...]] = {"characters": (characters, hidden), "places": (places, hidden)}
    for layer in range(layers):
        shapes |= {
            f"{layer}.norm1": (2 * hidden,),
            f"{layer}.attend": (hidden, 3 * heads * width),
            f"{layer}.attended": (heads * width, hidden),
            f"{layer}.norm2": (2 * hidden,),
            f"{layer}.dense": (hidden, 4 * hidden),
            f"{layer}.dense_bias": (4 * hidden,),
            f"{layer}.out": (4 * hidden, hidden),
            f"{layer}.out_bias": (hidden,),
        }
    shapes |= {"norm": (2 * hidden,), **_head(hidden, characters)}
    later = np.triu(np.full((places, places), -1e9, dtype=np.float32), 1)

    def attention(tf: Any, p: Tensors, layer: int, x: Any) -> Any:
        joined = tf.reshape(x @ p[f"{layer}.attend"], (-1, places, 3, heads, width))
        query, key, value = tf.unstack(tf.transpose(joined, (2, 0, 3, 1, 4)))
        scores = tf.matmul(query, key, transpose_b=True) / np.float32(np.sqrt(width)) + later
        mixed = tf.transpose(tf.nn.softmax(scores) @ value, (0, 2, 1, 3))
        return tf.reshape(mixed, (-1, places, heads * width)) @ p[f"{layer}.attended"]

    def dense(tf: Any, p: Tensors, layer: int, x: Any) -> Any:
        inner = tf.nn.gelu(x @ p[f"{layer}.dense"] + p[f"{layer}.dense_bias"])
        return inner @ p[f"{layer}.out"] + p[f"{layer}.out_bias"]

    def forward(tf: Any, p: Tensors, inputs: Any, mask: Any) -> Any:
        x = tf.gather(p["characters"], inputs) + p["places"]
        for layer in range(layers):
            x += attention(tf, p, layer, _norm(tf, x, p[f"{layer}.norm1"]))
            x += dense(tf, p, layer, _norm(tf, x, p[f"{layer}.norm2"]))
        return _logits(tf, p, _norm(tf, x, p["norm"]), mask)

    return Model(shapes=shapes, hidden=hidden, forward=forward)


def _norm(tf: Any, x: Any, parameters: Any) -> Any:
    """Layer normalisation (Ba et al., 2016); parameters begin at zero, so the scale is 1 plus its own."""
    scale, shift = tf.split(parameters, 2)
    mean, variance = tf.nn.moments(x, axes=[-1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + EPSILON) * (1.0 + scale) + shift


def _head(hidden: int, characters: int) -> dict[str, tuple[int, ...]]:
    return {"logits": (hidden, characters), "logits_bias": (characters,)}


def _logits(tf: Any, p: Tensors, hidden_units: Any, mask: Any) -> Any:
    """Use one mask for all positions of a sample (Gal and Ghahramani, NIPS'16)."""
    kept = hidden_units if mask is None else hidden_units * tf.expand_dims(mask, 1)
    return kept @ p["logits"] + p["logits_bias"]
