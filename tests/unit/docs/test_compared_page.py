"""docs/explanation/compared.md: each feature names tests that exist, and each tool has its column."""

import ast
import functools

import pytest
from documents import ROOT, code, text_of

PAGE = "docs/explanation/compared.md"
HEAD = ["Themis", "Submarine", "TonY", "Determined", "Ray Tune", "Kueue", "tests"]


def tables():
    """The tables of features, each a list of rows, the head first."""
    parts = [part.partition("<!-- end -->")[0] for part in text_of(PAGE).split("<!-- features -->")[1:]]
    lines = [[line for line in part.splitlines() if line.startswith("|")] for part in parts]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in table] for table in lines]


ROWS = [row for _head, _line, *rows in tables() for row in rows]


@functools.cache
def node_ids_of(path):
    """The tests of a file as pytest names them, those of a class with the class."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        of_class = isinstance(node, ast.ClassDef)
        prefix = f"{node.name}::" if of_class else ""
        functions = node.body if of_class else [node]
        found |= {prefix + each.name for each in functions if isinstance(each, ast.FunctionDef)}
    return found


def test_every_table_has_a_column_for_each_tool():
    assert [table[0] for table in tables()] == [HEAD] * 3


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_feature_names_tests_that_exist(row):
    assert len(row) == len(HEAD)
    assert all(row)
    names = code(row[-1])
    assert names
    for name in names:
        path, _, test = name.partition("::")
        assert test.rpartition("::")[2].startswith("test_")
        assert test in node_ids_of(path)
