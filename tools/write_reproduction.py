"""Copy the results of `themis reproduce all` into docs/explanation/reproduction.md, below its last hand-written line.

python tools/write_reproduction.py FOLDER
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "reproduction.md"
FIGURES = ROOT / "docs" / "figures"
MARK = "<!-- below: tools/write_reproduction.py -->\n"

_FIGURE = re.compile(r"^(!\[.*\]\()(\w+\.png\))$", re.MULTILINE)


def main(folders: list[str]) -> int:
    """Write the page; returns the exit code."""
    if len(folders) != 1 or not (Path(folders[0]) / "summary.md").is_file():
        sys.stderr.write("write_reproduction.py: name the folder that `themis reproduce all --out` wrote\n")
        return 2
    folder = Path(folders[0])
    summary = (folder / "summary.md").read_text(encoding="utf-8")
    FIGURES.mkdir(exist_ok=True)
    for _, rest in _FIGURE.findall(summary):
        name = rest.removesuffix(")")
        # A palette is enough for lines and bars, and a third of the size.
        with Image.open(folder / name) as figure:
            figure.convert("RGB").quantize(128).save(FIGURES / name, optimize=True)
    frame = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    _, _, body = summary.partition("\n\n")
    PAGE.write_text(frame + MARK + "\n" + _FIGURE.sub(r"\1../figures/\2", body), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
