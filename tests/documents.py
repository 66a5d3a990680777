"""The project's documents, read for tests: their blocks, the commands in them, their tables and headings."""

import re
import shlex
from pathlib import Path

from themis.values import Value

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(
    sorted(
        path.relative_to(ROOT)
        for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("tf_jobs/**/*.md"))
    )
)
_BLOCK = re.compile(r"(?:^<!-- ([^>]*) -->\n)?^```(\w+)\n(.*?)^```$", flags=re.M | re.S)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_OF_THIS_MACHINE = r"\d+(?:\.\d+)? s, \d+ MiB"


class Block(Value, frozen=True):
    """A fenced block; `mark` is the HTML comment on the line before it."""

    page: Path
    mark: str
    language: str
    body: str


class Command(Value, frozen=True):
    """A line after `$ ` in a console block, continuations joined, and the lines shown below it."""

    line: str
    shown: tuple[str, ...]

    @property
    def words(self):
        return shlex.split(self.line)


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page, language=None):
    found = [Block(Path(page), mark or "", name, body) for mark, name, body in _BLOCK.findall(text_of(page))]
    return [block for block in found if language in (None, block.language)]


def block(page, mark):
    """The one block of a page with that mark."""
    (found,) = [each for each in blocks(page) if each.mark == mark]
    return found


def commands(console):
    """The commands of a console block, in order."""
    found = []
    for line in console.body.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], []])
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1][0] = found[-1][0][:-1] + line.strip()
        else:
            assert found, f"{console.page}: output before any command: {line}"
            found[-1][1].append(line)
    return [Command(line, tuple(shown)) for line, shown in found]


def missing(shown, output):
    """The first line shown that the output lacks, or None.

    Lines must come in the order shown, others may stand between. Any number stands for any number, any run of blanks
    for any other, and `..` for anything.
    """
    lines = iter(output.splitlines())
    for line in shown:
        pattern = re.compile(".*".join(map(_loose, line.strip().split(".."))))
        if line.strip() != ".." and not any(pattern.fullmatch(actual.strip()) for actual in lines):
            return line
    return None


def whole(shown, output):
    """Whether the output is what is shown, every figure but seconds and memory (`0.25 s, 47 MiB`).

    A line `..` stands for any lines, `..` within one for anything, any run of blanks for any other; no other line may
    be there.
    """
    return _pieces(shown, output, _exact) is not None


def brought_up(shown, output):
    """Return the shown lines with the figures of the output. Returns None unless they differ in numbers only."""
    found = _pieces(shown, output, _loose)
    if found is None:
        return None
    fresh = []
    for line in shown:
        own = [next(found) for _ in line.strip().split("..")] if line.strip() != ".." else [line.strip()]
        fresh.append(line[: len(line) - len(line.lstrip())] + "..".join(own).rstrip())
    return fresh


def _pieces(shown, output, pattern_of):
    """Return the pieces of all shown lines, split at `..`, as in the output. Returns None if one is missing."""
    patterns = []
    for line in shown:
        pieces = ".*?".join(f"({pattern_of(piece)})" for piece in line.strip().split(".."))
        patterns.append(r"(?:.*\n)*?" if line.strip() == ".." else rf"[ \t]*{pieces}[ \t]*\n")
    found = re.fullmatch("".join(patterns), output)
    return found and iter(found.groups())


def table_rows(page, heading):
    """Rows of the table whose head begins with that cell, each a list of cells."""
    rows, within = [], False
    for line in text_of(page).splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and cells[0] == heading:
            within = True
        elif within and line.startswith("|"):
            rows += [] if set(cells[0]) <= {"-"} else [cells]
        elif within:
            break
    assert rows, f"{page} has no table of {heading}"
    return rows


def code(text):
    """Whatever stands between backticks, in order."""
    return re.findall(r"`([^`]+)`", text)


def anchors(page):
    """The anchors that GitHub gives a page's headings."""
    without_code = _BLOCK.sub("", text_of(page))
    titles = re.findall(r"^#+ (.+)$", without_code, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _loose(piece):
    piece = re.escape(_NUMBER.sub("0", piece))
    return re.sub(r"0", r"[-+.\\de]+", re.sub(r"(\\ )+", r"\\s+", piece))


def _exact(piece):
    figures = re.split(rf"({_OF_THIS_MACHINE})", piece)
    return _OF_THIS_MACHINE.join(re.sub(r"(\\ )+", r"[ ]+", re.escape(each)) for each in figures[::2])
