"""JSON of the store reads back as Python's own module reads it, whatever is in it."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from rm_plugin.service.store_json import from_json, to_json

# Halves of surrogate pairs included: an app may write anything.
TEXTS = st.text(st.characters(exclude_categories=())) | st.just("null")
NUMBERS = st.integers() | st.floats()
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def as_read(value):
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    return [as_read(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_json_reads_back_as_the_standard_module_reads_it(value):
    text, usual = to_json(value), json.dumps(as_read(value))
    assert repr(from_json(text)) == repr(json.loads(text)) == repr(json.loads(usual)) == repr(from_json(usual))
