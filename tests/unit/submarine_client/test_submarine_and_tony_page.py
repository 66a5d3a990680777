"""Each row of docs/how-to/submarine-and-tony.md does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml
from documents import text_of

from submarine_client.job_app import build_job_app, notes
from submarine_client.job_commands import read_options
from submarine_client.job_flags import FLAGS
from submarine_client.tony import TONY_FLAGS
from themis.errors import CombinedError, InputError

PAGE = "docs/how-to/submarine-and-tony.md"
ROW = re.compile(r"\| `(.+?)` \| (\w+) \| (.+) \|")
BASE = {
    "name": "j",
    "input_path": "/data",
    "worker_resources": "memory=1G,gpu=1",
    "worker_launch_cmd": "sh -c true",
}
BASE_YAML = {
    "spec": {"name": "j"},
    "configs": {"input_path": "/data"},
    "roles": {"worker": {"resources": "memory=1G,gpu=1", "launch_cmd": "sh -c true"}},
}


def rows(mark: str) -> list[tuple[str, str, str]]:
    section = text_of(PAGE).partition(f"<!-- {mark} -->")[2].partition("<!-- end -->")[0]
    return [match.groups() for line in section.splitlines() if (match := ROW.fullmatch(line))]


def outcome(words: list[str], ignored: str) -> str:
    """Build the job; `ignored` is what a note of an ignored flag begins with."""
    try:
        options = read_options(words)
        build_job_app(options, words)
    except InputError as error:
        for each in error.errors if isinstance(error, CombinedError) else [error]:
            assert each.remedy, f"no remedy: {each}"
        return "refused"
    return "ignored" if any(note.startswith(ignored) for note in notes(options)) else "works"


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print('x')\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("a b\n")
    (tmp_path / "python").write_text("#!/bin/sh\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")


@pytest.mark.parametrize(("example", "promised", "here"), [*rows("flags"), *rows("flags of TonY")])
def test_flag_has_the_outcome_of_its_row(example: str, promised: str, here: str) -> None:
    words = shlex.split(example)
    given = {word.lstrip("-") for word in words if word.startswith("-")}
    base = [word for name, value in BASE.items() if name not in given for word in (f"--{name}", value)]
    first = words[0].lstrip("-")
    setting = words[1].partition("=")[0] if first == "conf" else ""
    assert outcome([*base, *words], f"--{first} {setting}".rstrip() + " is ignored") == promised
    assert here


@pytest.mark.parametrize(("example", "promised", "here"), rows("keys"))
def test_key_has_the_outcome_of_its_row(example: str, promised: str, here: str, tmp_path: Path) -> None:
    merged = {section: {**values} for section, values in BASE_YAML.items()}
    for section, values in yaml.safe_load(example).items():
        for key, value in values.items():
            known = merged.setdefault(section, {}).get(key)
            merged[section][key] = {**known, **value} if isinstance(known, dict) else value
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(merged))
    assert outcome(["-f", "job.yaml"], "nothing") == promised
    assert here


def test_page_has_every_flag() -> None:
    examples = " ".join(example for example, _, _ in (*rows("flags"), *rows("flags of TonY")))
    named = set(re.findall(r"(?<!\S)--?(\w+)", examples))
    ours = {flag.name for flag in FLAGS} - {"f", "rm", "ca", "version", "h", "help"}
    assert named - {"steps"} == ours | set(TONY_FLAGS)
