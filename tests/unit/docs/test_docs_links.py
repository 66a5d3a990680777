"""Documents name only what there is: links, files, commands, and no place of the machine that they were written on."""

import re

import pytest
from documents import PAGES, ROOT, anchors, blocks, code, commands, table_rows, text_of

from submarine_client.job_flags import parse_flags
from submarine_client.parser import build_parser as submarine_parser
from themis.config.cluster_file import load_cluster
from themis.config.examples import ExampleKind, file_or_example
from themis.config.rm_settings import load_rm_settings
from themis_cli.main import build_parser as themis_parser

FOLDERS = "themis|rm_plugin|am|submarine_client|themis_cli|tf_jobs|testbed|conf|docs|tests|tools"
IN_PROJECT = re.compile(rf"(?:{FOLDERS})/[\w./-]*")
CONF = re.compile(r"\bconf/[\w./-]+\.yaml")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# The unit for systemd names /opt/themis, so the guide that installs it does too.
PLACES = re.compile(r"(?<![\w.])/(?:work|home|root|tmp|usr|opt(?!/themis\b))/\S*")
OTHER_COMMANDS = {".", "docker", "python", "source"}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    for target in LINK.findall(text_of(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        # The site has pages, not folders.
        assert there.is_file(), target
        if anchor:
            assert anchor in anchors(there.resolve().relative_to(ROOT)), target


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_files_of_the_project_exist(page):
    text = text_of(page)
    named = [part for part in code(text) if IN_PROJECT.fullmatch(part)] + CONF.findall(text)
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_place_of_one_machine_is_named(page):
    assert PLACES.findall(text_of(page)) == []


def shown_commands():
    for page in PAGES:
        for console in blocks(page, "console"):
            for command in commands(console):
                yield pytest.param(command.words, id=f"{page}: {command.line[:60]}")


@pytest.mark.parametrize("words", list(shown_commands()))
def test_commands_are_well_formed(words):
    name, *rest = words
    if name == "make":
        targets = [word for word in rest if "=" not in word]
        variables = [word.partition("=")[0] for word in rest if "=" in word]
        assert all(re.search(rf"^{target}:", MAKEFILE, flags=re.M) for target in targets), targets
        assert all(re.search(rf"^{variable} *\?=", MAKEFILE, flags=re.M) for variable in variables), variables
    elif name == "themis":
        assert themis_parser().parse_args(rest).run is not None
    elif name == "submarine":
        assert submarine_parser().parse_args(rest).handler is not None
        if rest[:2] == ["job", "run"]:
            parse_flags(rest[2:])
    else:
        assert name in OTHER_COMMANDS


def test_every_term_of_the_glossary_is_where_it_says():
    rows = [row for page_rows in glossary_tables() for row in page_rows]
    assert len(rows) > 50
    for term, _, _, where in rows:
        name, path = code(where)
        assert re.search(rf"\b{re.escape(name)}\b", (ROOT / path).read_text(encoding="utf-8")), term


def glossary_tables():
    text = text_of("docs/reference/glossary.md")
    for part in re.split(r"^## ", text, flags=re.M)[1:]:
        yield [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in part.splitlines()
            if line.startswith("| ") and not line.startswith("| term")
        ]


def test_every_decision_is_listed_and_has_its_parts():
    listed = [re.search(r"\(([^)]+)\)", row[0])[1] for row in table_rows("docs/decisions/README.md", "record")]
    records = sorted(path.name for path in (ROOT / "docs/decisions").glob("[0-9]*.md"))
    assert listed == records
    for name in records:
        text = text_of(f"docs/decisions/{name}")
        assert text.startswith(f"# {name[:4]}: ")
        parts = re.findall(r"^\*\*(\w+)\.\*\*", text, flags=re.M)
        assert parts == ["Context", "Decision", "Alternatives", "Consequences"], name


def test_the_settings_that_documents_start_with_are_sound():
    """`themis rm start -c conf/themis.yaml` is shown, but no test runs it: its port is one for all."""
    settings = load_rm_settings(ROOT / "conf" / "themis.yaml")
    assert load_cluster(file_or_example(settings.cluster, ExampleKind.CLUSTER)).gpus == 64
