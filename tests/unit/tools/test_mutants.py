"""Which mutants of a module are made, and that the same seed draws the same ones."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look it up, and the tools import each other.
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


load("mutant_forks")
MUTANTS = load("mutants")

MARKERS = "[pytest]\nmarkers =\n    slow\n    hadoop\n    stack\n    docker\n"

SOURCE = '''"""A module."""
LIMIT: float = 2.5


def most(values, at_least=1):
    """Return 1 if 2 > 1."""
    for value in values:
        if value is None:
            continue
        LOG.info("%d", 7)
        values.pop()
        if not value or value < at_least:
            raise ValueError(f"{value + 1} is not 3")
    return max(value for value in values if value)
'''


def changed():
    source = SOURCE.encode()
    found = MUTANTS.mutants_of("module.py", source)
    return [(mutant.line, mutant.old, mutant.new) for mutant in found]


def test_every_part_with_behaviour_is_changed_and_no_text_for_people_and_no_limit():
    assert changed() == [
        (5, "1", "2"),
        (8, "value is None", "value is not None"),
        (9, "continue", "break"),
        (11, "values.pop()", "pass"),
        (12, "not value or value < at_least", "(not value and value < at_least)"),
        (12, "not value", "bool(value)"),
        (12, "not value or value < at_least", "not (not value or value < at_least)"),
        (12, "value < at_least", "value <= at_least"),
        (14, "max(value for value in values if value)", "None"),
        (14, "max", "min"),
        (14, "value", "True"),
    ]


def test_mutant_changes_its_part_only():
    source = SOURCE.encode()
    for mutant in MUTANTS.mutants_of("module.py", source):
        after = mutant.applied_to(source)
        assert after.replace(mutant.new.encode(), mutant.old.encode(), 1) == source or mutant.new in SOURCE
        assert len(after) == len(source) - len(mutant.old) + len(mutant.new)


def test_same_seed_draws_the_same_mutants_of_rooms_in_turn():
    drawn = MUTANTS.draw(ROOT, ("payments", "jobs"), 20, 3)
    assert drawn == MUTANTS.draw(ROOT, ("payments", "jobs"), 20, 3)
    assert drawn != MUTANTS.draw(ROOT, ("payments", "jobs"), 20, 4)
    assert [room for room, _ in drawn] == ["payments", "jobs"] * 10
    assert {mutant.path for room, mutant in drawn if room == "payments"} == set(MUTANTS.ROOMS["payments"].modules)
    assert len({mutant.path for room, mutant in drawn if room == "jobs"}) == 10


def test_forks_try_mutants_on_the_tests_that_call_the_changed_function(tmp_path, monkeypatch):
    source = "def half(number):\n    return number / 2\n\n\ndef third(number):\n    return number / 3\n"
    (tmp_path / "am").mkdir()
    (tmp_path / "am/module.py").write_text(source)
    (tmp_path / "tools").mkdir()
    shutil.copy2(ROOT / "tools/mutant_forks.py", tmp_path / "tools")
    (tmp_path / "test_it.py").write_text(
        "from am.module import half\n\n\ndef test_it():\n    assert half(4) == 2\n"
        "\n\ndef test_weakly():\n    assert half(0) == 0\n"
    )
    (tmp_path / "pytest.ini").write_text(MARKERS)
    monkeypatch.setitem(MUTANTS.ROOMS, "small", MUTANTS.Room(modules=("am/*.py",), tests=("test_*.py",)))
    mutants = MUTANTS.mutants_of("am/module.py", source.encode())
    found = list(MUTANTS.in_forks(tmp_path, "small", mutants, 60.0))
    expected = ["killed" if mutant.line == 2 else "undecided" for mutant in mutants]
    assert [each["result"] for each in found] == expected
    assert {"killed", "undecided"} == set(expected)
    assert {each["test"] for each in found} == {"test_it.py::test_it", ""}


@pytest.mark.parametrize(
    ("test", "result"), [("assert half(4) == 2", "killed"), ("pass", "SURVIVED"), ("while True: half(4)", "time out")]
)
def test_mutant_survives_only_if_all_tests_pass(tmp_path, monkeypatch, test, result):
    (tmp_path / "module.py").write_text("def half(number):\n    return number * 2\n")
    (tmp_path / "test_it.py").write_text(f"from module import half\n\n\ndef test_it():\n    {test}\n")
    (tmp_path / "pytest.ini").write_text(MARKERS)
    limit_s = 5.0 if result == "time out" else 60.0
    assert MUTANTS.tried(tmp_path, ["test_it.py"], limit_s) == result
