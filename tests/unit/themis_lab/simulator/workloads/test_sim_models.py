"""The paper's models: their table, how they are drawn, and which are strict about placement."""

from collections import Counter
from random import Random

import pytest

from themis.errors import InputError, UnknownNameError
from themis_lab.simulator.workloads.models import (
    CATEGORY_SHARES,
    DATA,
    draw_models,
    model_named,
    read_models,
    shared_out,
)


def test_the_models_match_table_4_of_the_paper():
    kinds = {}
    for model in read_models().values():
        kinds.setdefault(model.category, []).append(model.name)
    assert kinds == {
        "cv": ["inception3", "alexnet", "resnet50", "vgg16", "vgg19"],
        "nlp": ["bi-att-flow", "language model", "gnmt", "transformer"],
        "speech": ["wavenet", "deepspeech"],
    }
    assert set(kinds) == set(CATEGORY_SHARES)


def test_unmeasured_models_name_their_basis_and_reason():
    for model in read_models().values():
        assert model.basis in ("measured", "stand-in", "assumed")
        assert bool(model.reason) == (model.basis != "measured")


def test_vgg_is_strict_and_resnet_is_not():
    assert model_named("vgg16").strict
    assert model_named("vgg19").strict
    assert not model_named("resnet50").strict
    with pytest.raises(UnknownNameError, match="did you mean 'vgg1"):
        model_named("vgg17")


def test_the_mix_is_met_as_nearly_as_whole_apps_allow():
    drawn = Counter(model.category for model in draw_models(85, Random(3)))
    assert drawn == {"cv": 9, "nlp": 51, "speech": 25}
    assert len({model.name for model in draw_models(400, Random(3))}) == len(read_models())


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_a_share_of_strict_models(share):
    assert sum(model.strict for model in draw_models(40, Random(3), share)) == round(share * 40)


def test_models_strict_at_a_share_are_strict_at_a_larger_one():
    few, many = draw_models(40, Random(3), 0.2), draw_models(40, Random(3), 0.6)
    assert all(one == other for one, other in zip(few, many, strict=True) if one.strict or not other.strict)


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_outside_0_to_1(share):
    with pytest.raises(InputError):
        draw_models(4, Random(3), share)


def test_sharing_out_gives_exactly_as_many():
    assert shared_out({"a": 1.0, "b": 1.0, "c": 1.0}, 7) == ["a", "a", "a", "b", "b", "c", "c"]
    assert shared_out({"a": 0.0, "b": 1.0}, 3) == ["b", "b", "b"]


def test_shipped_tables_are_small_and_name_their_sources():
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 100_000
    reported = (DATA / "SOURCES.md").read_text(encoding="utf-8")
    assert all(path.name in reported for path in DATA.glob("*.csv"))
    assert "CC BY 4.0" in reported
