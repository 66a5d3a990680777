"""Instance files of OEF: every wrong field is named, and what can be solved is."""

import copy
import json
import math

import pytest
from oef_cases import solve

from rm_plugin.policies.oef.evaluator import evaluate
from rm_plugin.policies.oef.instance_file import parse_instance, read_instance
from rm_plugin.policies.oef.registry import RULES, rule_named
from rm_plugin.policies.oef.speedup import normalise
from rm_plugin.solvers.highs_linear import HighsModel
from themis.errors import InputError

GOOD = {
    "types": ["k80", "v100"],
    "capacity": [1, 1],
    "tenants": [{"id": "u1", "speedup": [1, 2], "weight": 1}, {"id": "u2", "speedup": [1, 5]}],
}


def changed(*path, to):
    document = copy.deepcopy(GOOD)
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    place[last] = to
    return document


def without(*path):
    document = copy.deepcopy(GOOD)
    *parents, last = path
    place = document
    for key in parents:
        place = place[key]
    del place[last]
    return document


BAD = [
    ([], "instance must be an object"),
    (without("types"), "instance.types"),
    (without("capacity"), "instance.capacity"),
    (without("tenants"), "instance.tenants"),
    (without("tenants", 0, "id"), "instance.tenants[0].id"),
    (without("tenants", 1, "speedup"), "instance.tenants[1].speedup"),
    (changed("types", to="k80"), "instance.types must be a list"),
    (changed("types", to=[]), "instance.types must have"),
    (changed("types", 1, to=7), "instance.types[1] must be a text"),
    (changed("types", 1, to="k80"), "instance.types[1] occurs twice"),
    (changed("types", 1, to=""), "instance.types[1]"),
    (changed("capacity", to=3), "instance.capacity must be a list"),
    (changed("capacity", to=[1]), "instance.capacity must have a number for each of the 2 types"),
    (changed("capacity", 0, to=-1), "instance.capacity[0]"),
    (changed("capacity", 0, to=1.5), "instance.capacity[0]"),
    (changed("capacity", 0, to="1"), "instance.capacity[0]"),
    (changed("capacity", 0, to=True), "instance.capacity[0]"),
    (changed("capacity", 0, to=None), "instance.capacity[0]"),
    (changed("capacity", 0, to=10**400), "instance.capacity[0]"),
    (changed("capacity", 0, to=math.nan), "instance.capacity[0]"),
    (changed("capacity", 0, to=math.inf), "instance.capacity[0]"),
    (changed("capacity", to=[0, 0]), "instance.capacity has no device"),
    (changed("tenants", to={}), "instance.tenants must be a list"),
    (changed("tenants", to=[]), "instance.tenants must have a tenant"),
    (changed("tenants", 0, to="u1"), "instance.tenants[0] must be an object"),
    (changed("tenants", 0, "id", to=1), "instance.tenants[0].id"),
    (changed("tenants", 1, "id", to="u1"), "instance.tenants[1].id occurs twice"),
    (changed("tenants", 0, "speedup", to=2), "instance.tenants[0].speedup must be a list"),
    (changed("tenants", 0, "speedup", to=[1]), "instance.tenants[0].speedup must have"),
    (changed("tenants", 0, "speedup", to=[0, 0]), "instance.tenants[0].speedup is 0 everywhere"),
    (changed("tenants", 0, "speedup", 1, to=-2), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to="2"), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to=math.nan), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to=math.inf), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to=1e300), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to=10**400), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "speedup", 1, to=False), "instance.tenants[0].speedup[1]"),
    (changed("tenants", 0, "weight", to=0), "instance.tenants[0].weight"),
    (changed("tenants", 0, "weight", to=-1), "instance.tenants[0].weight"),
    (changed("tenants", 0, "weight", to=math.nan), "instance.tenants[0].weight"),
    (changed("tenants", 0, "weight", to="1"), "instance.tenants[0].weight"),
    (changed("tenants", 0, "weight", to=None), "instance.tenants[0].weight"),
    (changed("tenants", 0, "weight", to=1e12), "instance.tenants[0].weight"),
    (changed("tenants", 0, "demand", to=0), "instance.tenants[0].demand must be a finite number above 0: 0"),
    (changed("tenants", 0, "demand", to=1e-4), "instance.tenants[0].demand must be a finite number from 0.001"),
    (changed("tenants", 0, "demand", to=-2), "instance.tenants[0].demand"),
    (changed("tenants", 1, "demand", to=math.inf), "instance.tenants[1].demand"),
    (changed("tenants", 0, "demand", to=math.nan), "instance.tenants[0].demand"),
    (changed("tenants", 0, "demand", to="2"), "instance.tenants[0].demand must be a number"),
    (changed("tenants", 0, "demand", to=None), "instance.tenants[0].demand must be a number"),
    (changed("tenants", 0, "demands", to=1), "did you mean 'demand'?"),
    (changed("tenants", 0, "speed_up", to=[1]), "did you mean 'speedup'?"),
    (changed("capacities", to=[1]), "did you mean 'capacity'?"),
    (changed("colour", to=1), "known keys: types, capacity, tenants"),
]


@pytest.mark.parametrize(("document", "said"), BAD)
def test_a_wrong_field_is_named(document, said):
    with pytest.raises(InputError) as caught:
        parse_instance(document)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"types": [], "types": []}', "instance has a key twice"),
    ],
)
def test_malformed_documents_are_refused(content, said):
    with pytest.raises(InputError, match=said):
        read_instance(content, "f.json")


def test_vectors_are_divided_by_their_reference_entry():
    plain = evaluate(parse_instance(GOOD), RULES["cooperative"](HighsModel))
    scaled = changed("tenants", 1, "speedup", to=[40, 200])
    assert evaluate(parse_instance(scaled), RULES["cooperative"](HighsModel)).efficiency == plain.efficiency


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e12, 1e300])
def test_the_unit_of_speedups_does_not_matter(scale):
    document = changed("tenants", 1, "speedup", to=[scale, 5 * scale])
    fair = evaluate(parse_instance(document), RULES["noncooperative"](HighsModel))
    assert fair.efficiency["u2"] == pytest.approx(15 / 7)


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e300, 5e307])
@pytest.mark.parametrize("rule", RULES)
def test_the_unit_of_weights_does_not_matter(rule, scale):
    document = changed("tenants", 0, "weight", to=2 * scale)
    document["tenants"][1]["weight"] = 3 * scale
    small = changed("tenants", 0, "weight", to=2)
    small["tenants"][1]["weight"] = 3
    huge, expected = (evaluate(parse_instance(each), rule_named(rule, HighsModel)) for each in (document, small))
    assert huge.efficiency == pytest.approx(expected.efficiency)


def test_a_speedup_of_0_gets_no_gpu_there_and_voids_the_guarantees():
    document = changed("tenants", 0, "speedup", to=[0, 2])
    for rule in RULES:
        fair = evaluate(parse_instance(document), rule_named(rule, HighsModel))
        if rule != "max_min":
            assert fair.share["u1"][0] == 0 or rule == "gandiva_fair"
        assert "guarantees are void: u1" in fair.speedups.warnings[0]
        assert fair.speedups.reference == 1


def test_a_tenant_without_usable_devices_is_left_out():
    document = changed("tenants", 0, "speedup", to=[1, 0]) | {"capacity": [0, 4]}
    fair = evaluate(parse_instance(document), RULES["noncooperative"](HighsModel))
    assert fair.share == {"u1": (0.0, 0.0), "u2": (0.0, 4.0)}
    assert fair.efficiency == {"u1": 0.0, "u2": 20.0}
    assert any("left out: u1" in warning for warning in fair.speedups.warnings)


def test_no_tenant_can_be_served():
    document = {"types": ["a", "b"], "capacity": [0, 1], "tenants": [{"id": "u", "speedup": [1, 0]}]}
    for rule in RULES:
        assert evaluate(parse_instance(document), rule_named(rule, HighsModel)).share == {"u": (0.0, 0.0)}


def test_a_type_without_devices_gives_nothing():
    for rule in RULES:
        fair = evaluate(parse_instance(changed("capacity", to=[0, 3])), rule_named(rule, HighsModel))
        assert all(share[0] == 0 for share in fair.share.values())
        assert fair.total > 0


def test_falling_speedups_are_kept_and_flagged():
    warnings = normalise(parse_instance(changed("tenants", 0, "speedup", to=[2, 1]))).warnings
    assert warnings == ("speedups fall along the order of types: u1",)


def test_no_common_type_is_flagged():
    document = changed("tenants", 0, "speedup", to=[1, 0])
    document["tenants"][1]["speedup"] = [0, 1]
    assert any("do not compare" in warning for warning in normalise(parse_instance(document)).warnings)


def test_an_instance_may_be_read_from_bytes():
    assert read_instance(json.dumps(GOOD).encode(), "f.json") == parse_instance(GOOD)


def test_the_order_of_tenants_does_not_matter():
    one, other = solve("cooperative", ((1, 2), (1, 3), (1, 5))), solve("cooperative", ((1, 5), (1, 3), (1, 2)))
    assert list(one.share.values()) == list(other.share.values())[::-1]
