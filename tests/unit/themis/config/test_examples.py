"""Example files are found by name wherever a path to one is taken."""

from pathlib import Path

import pytest

from themis.config.examples import ExampleKind, examples, examples_folder, file_or_example
from themis.errors import UnknownNameError

ROOT = Path(__file__).resolve().parents[4]


def test_packaged_examples_are_the_files_of_conf():
    assert examples_folder().resolve() == ROOT / "conf"
    names = {"hadoop-10", "hadoop-hybrid", "hybrid", "hybrid-12", "mixed-3", "rtx-12", "small-8", "testbed-64"}
    assert set(examples(ExampleKind.CLUSTER)) == names


@pytest.mark.parametrize("kind", ExampleKind)
def test_every_kind_has_examples(kind):
    assert examples(kind)


def test_name_is_an_example():
    assert file_or_example("small", ExampleKind.MIX).samefile(ROOT / "conf/testbed/small.yaml")


@pytest.mark.parametrize("text", ["small.yaml", "mixes/small", "/small"])
def test_path_stays_a_path(text):
    assert file_or_example(text, ExampleKind.MIX) == Path(text)


def test_file_wins_over_example_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "small").write_text("name: mine\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert file_or_example("small", ExampleKind.MIX) == Path("small")


def test_unknown_name_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'smal'; did you mean 'small'"):
        file_or_example("smal", ExampleKind.MIX)
