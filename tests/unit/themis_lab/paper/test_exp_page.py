"""tools/write_reproduction.py: the page has a hand-written frame and the results of `themis reproduce all`."""

import importlib.util

import pytest
from documents import ROOT
from PIL import Image

PAGES = ("reproduction", "reproduction-allox", "reproduction-oef", "choosing-a-policy")
FRAME = "# Title\n\nBy hand.\n\n"


@pytest.fixture
def tool(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("write_reproduction", ROOT / "tools" / "write_reproduction.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "PAGES", tmp_path)
    monkeypatch.setattr(tool, "FIGURES", tmp_path / "figures")
    for name in PAGES:
        (tmp_path / f"{name}.md").write_text(FRAME + tool.MARK + "\nolder numbers\n", encoding="utf-8")
    return tool


@pytest.mark.parametrize("page", PAGES)
def test_results_below_the_mark_are_replaced_and_figures_copied(tool, tmp_path, page):
    made = tmp_path / "made"
    made.mkdir()
    Image.new("RGB", (4, 4), "red").save(made / "fig0.png")
    (made / "summary.md").write_text("# Reproduction\n\nHow.\n\n## In short\n\n![a [b]](fig0.png)\n", encoding="utf-8")

    for _ in range(2):
        assert tool.main([str(made), *([] if page == "reproduction" else [page])]) == 0
        text = FRAME + tool.MARK + "\nHow.\n\n## In short\n\n![a [b]](../figures/fig0.png)\n"
        assert (tmp_path / f"{page}.md").read_text(encoding="utf-8") == text
    with Image.open(tool.FIGURES / "fig0.png") as figure:
        assert figure.convert("RGB").getpixel((1, 1)) == (255, 0, 0)


def test_sections_of_experiments_go_to_the_page_of_details(tool, tmp_path):
    (tmp_path / "reproduction-details.md").write_text(FRAME + tool.MARK + "\nolder numbers\n", encoding="utf-8")
    made = tmp_path / "made"
    made.mkdir()
    Image.new("RGB", (4, 4), "red").save(made / "fig0.png")
    text = "# R\n\nHow.\n\n## In short\n\nA table.\n\n## The experiments\n\n### fig0\n\n![a](fig0.png)\n"
    (made / "summary.md").write_text(text, encoding="utf-8")

    for _ in range(2):
        assert tool.main([str(made)]) == 0
        page, details = ((tmp_path / f"{name}.md").read_text() for name in ("reproduction", "reproduction-details"))
        assert page == FRAME + tool.MARK + "\nHow.\n\n## In short\n\nA table.\n"
        assert details == FRAME + tool.MARK + "\n## The experiments\n\n### fig0\n\n![a](../figures/fig0.png)\n"


def test_folder_without_summary_exits_with_2(tool, tmp_path, capsys):
    assert tool.main([str(tmp_path)]) == tool.main([]) == 2
    assert capsys.readouterr().err.count("name the folder that `themis reproduce --out` wrote, and a page") == 2


@pytest.mark.parametrize("page", (*PAGES, "reproduction-details"))
def test_page_has_one_mark(tool, page):
    text = (ROOT / "docs" / "explanation" / f"{page}.md").read_text(encoding="utf-8")
    assert text.count(tool.MARK) == 1


@pytest.mark.parametrize("page", (*PAGES[:3], "reproduction-details"))
def test_page_of_a_paper_has_no_results_above_its_mark(tool, page):
    text = (ROOT / "docs" / "explanation" / f"{page}.md").read_text(encoding="utf-8")
    # The live testbed's results are no results of `themis reproduce`, so they stand above the mark.
    above = text.partition(tool.MARK)[0].partition("## The simulator against the live testbed")[0]
    assert "max rho" not in above.lower()
