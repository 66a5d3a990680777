"""What is made from code is up to date: run `python tools/generate_docs.py` when it is not."""

import importlib.util
import subprocess
import sys

import pytest
from documents import ROOT, text_of

from themis.lifecycle import LIFECYCLES


def load_generator():
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools" / "generate_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize(("page", "text"), GENERATOR.pages().items(), ids=map(str, GENERATOR.pages()))
def test_it_is_up_to_date(page, text):
    assert text_of(page) == text


def test_every_lifecycle_is_drawn_and_every_state_explained():
    page = GENERATOR.lifecycles_page()
    for lifecycle in LIFECYCLES:
        assert lifecycle.to_mermaid() in page
        assert set(GENERATOR.STATES[lifecycle.name]) == set(lifecycle.table)


def test_a_stale_table_is_replaced_and_the_rest_is_left_alone():
    stale = "before\n<!-- generated: programs -->\nold\n<!-- end -->\nafter\n"
    fresh = GENERATOR.with_programs(stale)
    assert "old" not in fresh
    assert fresh.startswith("before\n<!-- generated: programs -->\n")
    assert fresh.endswith("\n<!-- end -->\nafter\n")
    assert GENERATOR.with_programs(fresh) == fresh


def test_the_command_writes_below_the_folder_that_it_is_given(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "generate_docs.py"), "--into", str(tmp_path)]
    subprocess.run(command, check=True, cwd=ROOT, timeout=30)
    for page, text in GENERATOR.pages().items():
        assert (tmp_path / page).read_text(encoding="utf-8") == text
