"""Puts the tables and figures that `themis reproduce` left into docs/reproduction.md, below its last hand-written line.

    python tools/write_reproduction.py FOLDER [FOLDER ..]

Of an experiment that several folders hold the first counts.
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from simulator.experiments.registry import MODULES

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
FIGURES = ROOT / "docs" / "figures"
MARK = "<!-- below: tools/write_reproduction.py -->\n"


def main(folders: list[str]) -> int:
    """Write the page; returns the exit code."""
    if not folders:
        sys.stderr.write("write_reproduction.py: name the folders that `themis reproduce --out` wrote\n")
        return 2
    FIGURES.mkdir(exist_ok=True)
    parts = []
    for name in MODULES:
        found = next((Path(folder) for folder in folders if (Path(folder) / f"{name}.md").is_file()), None)
        if found is None:
            sys.stderr.write(f"write_reproduction.py: no folder has {name}\n")
            continue
        # A palette is enough for lines and bars, and a third of the size.
        with Image.open(found / f"{name}.png") as figure:
            figure.convert("RGB").quantize(128).save(FIGURES / f"{name}.png", optimize=True)
        text = (found / f"{name}.md").read_text(encoding="utf-8")
        parts.append(text.replace("## ", "### ", 1).replace(f"]({name}.png)", f"](figures/{name}.png)"))
    frame = PAGE.read_text(encoding="utf-8").partition(MARK)[0]
    PAGE.write_text(frame + MARK + "\n" + "\n".join(parts), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
