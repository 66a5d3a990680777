import dataclasses
import importlib
import pickle
import pkgutil

import pytest
from msgspec import field

import am
import rm_plugin
import themis
import themis_lab.simulator
from themis.values import Value, remembered


class Point(Value, frozen=True, dict=True, kw_only=True):
    x: int
    y: int = 0
    names: dict[str, str] = field(default_factory=dict)

    @remembered
    def seen(self) -> list[int]:
        """Both."""
        return [self.x, self.y]


class Other(Value, frozen=True, kw_only=True):
    x: int


class TestValues:
    def test_dataclasses_replaces_lists_and_unfolds_them(self):
        point = dataclasses.replace(Point(x=1, names={"a": "b"}), y=2)
        assert point == Point(x=1, y=2, names={"a": "b"})
        assert [each.name for each in dataclasses.fields(point)] == ["x", "y", "names"]
        assert dataclasses.asdict(point) == {"x": 1, "y": 2, "names": {"a": "b"}}

    def test_fields_tell_types_and_defaults(self):
        x, y, names = dataclasses.fields(Point)
        assert (x.type, x.default, y.default) == (int, dataclasses.MISSING, 0)
        assert (names.default, names.default_factory) == (dataclasses.MISSING, dict)

    def test_each_class_has_fields_of_its_own(self):
        assert [each.name for each in dataclasses.fields(Other)] == ["x"]
        assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "names"]

    def test_they_do_not_change(self):
        with pytest.raises(AttributeError):
            Point(x=1).x = 2

    def test_values_of_two_classes_are_never_equal(self):
        assert Point(x=1) != Other(x=1)

    def test_they_travel_between_processes(self):
        assert pickle.loads(pickle.dumps(Point(x=3, y=4))) == Point(x=3, y=4)


class TestRemembered:
    def test_it_is_worked_out_once_for_each_value(self):
        one, two = Point(x=1, y=2), Point(x=3)
        assert one.seen is one.seen
        assert (one.seen, two.seen) == ([1, 2], [3, 0])

    def test_what_is_remembered_is_no_part_of_the_value(self):
        one = Point(x=1, y=2)
        assert one.seen
        assert one == Point(x=1, y=2)
        assert dataclasses.replace(one, x=5).seen == [5, 2]

    def test_the_class_shows_its_words(self):
        assert Point.seen.__doc__ == "Both."


def subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.fixture(scope="module")
def shipped():
    """Every such class of the project."""
    packages = (am, rm_plugin, themis_lab.simulator, themis)
    for package in packages:
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.rpartition(".")[2] not in ("main", "__main__"):
                importlib.import_module(module.name)
    names = tuple(package.__name__ for package in packages)
    return {kind for kind in subclasses(Value) if kind.__module__.startswith(names)}


class TestEveryClass:
    def test_no_default_is_a_field_of_dataclasses(self, shipped):
        # `dataclasses.field(default_factory=..)` would be the default itself, and no type checker tells.
        assert len(shipped) > 20
        defaults = [(kind.__name__, default) for kind in shipped for default in kind.__struct_defaults__]
        assert [name for name, default in defaults if isinstance(default, dataclasses.Field)] == []

    def test_all_are_frozen(self, shipped):
        assert [kind.__name__ for kind in shipped if not kind.__struct_config__.frozen] == []
