"""Copy the results of `themis reproduce` into a page of docs/explanation, below its last hand-written line.

python tools/write_reproduction.py FOLDER [PAGE]

If there is a page PAGE-details, the sections of the single experiments go there, and PAGE keeps what is before them.

FOLDER is what `themis reproduce all --out` wrote, or that of another paper. PAGE is the page's name without its ending,
`reproduction` by default, or for example `reproduction-oef`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "explanation"
FIGURES = ROOT / "docs" / "figures"
MARK = "<!-- below: tools/write_reproduction.py -->\n"

_EXPERIMENTS = "## The experiments\n"
_FIGURE = re.compile(r"^(!\[.*\]\()(\w+\.png\))$", re.MULTILINE)


def main(arguments: list[str]) -> int:
    """Write the page; returns the exit code."""
    name = arguments[1] if len(arguments) == 2 else "reproduction"
    folder, page = Path(*arguments[:1]), PAGES / f"{name}.md"
    if len(arguments) not in (1, 2) or not (folder / "summary.md").is_file() or not page.is_file():
        sys.stderr.write("write_reproduction.py: name the folder that `themis reproduce --out` wrote, and a page\n")
        return 2
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    for _, rest in _FIGURE.findall(summary):
        name = rest.removesuffix(")")
        # A palette is enough for lines and bars, and a third of the size. Median cut, the default, favours colours of
        # many pixels: thin lines would get the colours of others.
        with Image.open(folder / name) as figure:
            palette = figure.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE)
            palette.save(FIGURES / name, optimize=True)
    _, _, body = summary.partition("\n\n")
    body = _FIGURE.sub(r"\1../figures/\2", body)
    details = page.with_stem(f"{page.stem}-details")
    if details.is_file():
        body, _, sections = body.partition(_EXPERIMENTS)
        _write_below_mark(details, _EXPERIMENTS + sections)
        body = body.rstrip() + "\n"
    _write_below_mark(page, body)
    return 0


def _write_below_mark(page: Path, body: str) -> None:
    frame = page.read_text(encoding="utf-8").partition(MARK)[0]
    page.write_text(frame + MARK + "\n" + body, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
