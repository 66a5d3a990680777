import ast
import dataclasses
import importlib
import pickle
import pkgutil
from pathlib import Path
from typing import Generic, TypeVar

import msgspec
import pytest
from msgspec.structs import replace

import am
import rm_plugin
import submarine_client
import tf_jobs
import themis
import themis_cli
import themis_lab
from themis.values import Value, cached_property, repr_without

T = TypeVar("T")


class Point(Value, frozen=True, dict=True, kw_only=True):
    x: int
    y: int = 0
    names: dict[str, str] = msgspec.field(default_factory=dict)

    @cached_property
    def both(self) -> list[int]:
        """Both."""
        return [self.x, self.y]


class Other(Value, frozen=True, kw_only=True):
    x: int


class Box(Value, Generic[T], frozen=True):
    content: T


class Login(Value, frozen=True, kw_only=True):
    user: str
    token: str

    __repr__ = repr_without("token")


class TestValue:
    def test_a_field_cannot_be_assigned(self):
        with pytest.raises(AttributeError):
            Point(x=1).x = 2

    def test_a_copy_may_differ_in_a_field(self):
        assert replace(Point(x=1, names={"a": "b"}), y=2) == Point(x=1, y=2, names={"a": "b"})

    def test_values_of_two_classes_are_never_equal(self):
        assert Point(x=1) != Other(x=1)

    def test_equal_values_hash_equally(self):
        assert {Other(x=1): "found"}[Other(x=1)] == "found"

    def test_a_pickled_value_comes_back_equal(self):
        assert pickle.loads(pickle.dumps(Point(x=3, y=4))) == Point(x=3, y=4)

    def test_a_pattern_matches_fields(self):
        match Box(Point(x=1, y=2)):
            case Box(Point(x=1, y=y)):
                assert y == 2
            case _:
                pytest.fail("no match")

    def test_a_hidden_field_is_not_in_the_repr(self):
        assert repr(Login(user="ada", token="secret")) == "Login(user='ada')"


class TestRemembered:
    def test_a_property_is_computed_once_per_value(self):
        one, two = Point(x=1, y=2), Point(x=3)
        assert one.both is one.both
        assert (one.both, two.both) == ([1, 2], [3, 0])

    def test_equality_and_copies_ignore_the_result(self):
        one = Point(x=1, y=2)
        assert one.both
        assert one == Point(x=1, y=2)
        assert replace(one, x=5).both == [5, 2]

    def test_the_class_shows_its_docstring(self):
        assert Point.both.__doc__ == "Both."


def decorators(package):
    """Every decorator of a class in the package, as text, with the class's name."""
    for path in sorted(Path(package.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield from ((f"{path.name}: {node.name}", ast.unparse(each)) for each in node.decorator_list)


# Read, not imported: some modules import TensorFlow.
@pytest.mark.parametrize("package", [am, rm_plugin, submarine_client, tf_jobs, themis, themis_cli, themis_lab])
def test_no_class_is_a_frozen_dataclass(package):
    assert [name for name, decorator in decorators(package) if "frozen=True" in decorator] == []


def subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.fixture(scope="module")
def shipped():
    """Every `Value` of the packages that import without TensorFlow."""
    packages = (am, rm_plugin, submarine_client, themis, themis_lab)
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in ("main", "__main__"):
                importlib.import_module(module.name)
    names = tuple(f"{package.__name__}." for package in packages)
    return {kind for kind in subclasses(Value) if kind.__module__.startswith(names)}


class TestEveryValue:
    def test_it_is_frozen(self, shipped):
        assert len(shipped) > 200
        assert [kind.__qualname__ for kind in shipped if not kind.__struct_config__.frozen] == []

    def test_no_default_is_a_field_of_dataclasses(self, shipped):
        # `dataclasses.field(default_factory=..)` would be the default itself, and no type checker objects.
        for kind in shipped:
            assert not any(isinstance(default, dataclasses.Field) for default in kind.__struct_defaults__), kind

    def test_a_class_with_cached_properties_has_a_dict(self, shipped):
        for kind in shipped:
            if any(isinstance(each, cached_property) for each in vars(kind).values()):
                assert kind.__struct_config__.dict, kind
