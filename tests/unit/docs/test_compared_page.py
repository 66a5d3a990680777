"""docs/explanation/compared.md: each feature names a test that exists, and each tool has its column."""

import ast

import pytest
from documents import ROOT, code, text_of

PAGE = "docs/explanation/compared.md"
HEAD = ["Themis", "Submarine", "TonY", "Determined", "Ray Tune", "Kueue", "test"]


def tables():
    """The tables of features, each a list of rows, the head first."""
    parts = [part.partition("<!-- end -->")[0] for part in text_of(PAGE).split("<!-- features -->")[1:]]
    lines = [[line for line in part.splitlines() if line.startswith("|")] for part in parts]
    return [[[cell.strip() for cell in line.strip("|").split("|")] for line in table] for table in lines]


ROWS = [row for _head, _line, *rows in tables() for row in rows]


def names_in(path):
    tree = ast.walk(ast.parse((ROOT / path).read_text()))
    return {node.name for node in tree if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_table_has_a_column_for_each_tool():
    assert [table[0] for table in tables()] == [HEAD] * 3


@pytest.mark.parametrize("row", ROWS, ids=[row[0][:40] for row in ROWS])
def test_feature_names_a_test_that_exists(row):
    assert len(row) == len(HEAD)
    assert all(row)
    (name,) = code(row[-1])
    path, _, test = name.partition("::")
    assert test.startswith("test_")
    assert test in names_in(path)
