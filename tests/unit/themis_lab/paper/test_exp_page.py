"""tools/write_reproduction.py: the page has a hand-written frame and the results of `themis reproduce all`."""

import importlib.util

import pytest
from documents import ROOT
from PIL import Image

FRAME = "# Title\n\nBy hand.\n\n"


@pytest.fixture
def tool(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("write_reproduction", ROOT / "tools" / "write_reproduction.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(tool, "FIGURES", tmp_path / "figures")
    tool.PAGE.write_text(FRAME + tool.MARK + "\nolder numbers\n", encoding="utf-8")
    return tool


def test_results_below_the_mark_are_replaced_and_figures_copied(tool, tmp_path):
    made = tmp_path / "made"
    made.mkdir()
    Image.new("RGB", (4, 4), "red").save(made / "fig0.png")
    (made / "summary.md").write_text("# Reproduction\n\nHow.\n\n## In short\n\n![a [b]](fig0.png)\n", encoding="utf-8")

    for _ in range(2):
        assert tool.main([str(made)]) == 0
        page = FRAME + tool.MARK + "\nHow.\n\n## In short\n\n![a [b]](../figures/fig0.png)\n"
        assert tool.PAGE.read_text(encoding="utf-8") == page
    with Image.open(tool.FIGURES / "fig0.png") as figure:
        assert figure.convert("RGB").getpixel((1, 1)) == (255, 0, 0)


def test_folder_without_summary_exits_with_2(tool, tmp_path, capsys):
    assert tool.main([str(tmp_path)]) == tool.main([]) == 2
    assert capsys.readouterr().err.count("name the folder that `themis reproduce all --out` wrote") == 2


def test_page_has_one_mark_and_no_numbers_above_it(tool):
    text = (ROOT / "docs" / "explanation" / "reproduction.md").read_text(encoding="utf-8")
    assert text.count(tool.MARK) == 1
    assert "max rho" not in text.partition(tool.MARK)[0].lower()
