"""Brings the figures of a page's examples up to date: `python tests/write_examples.py docs/explanation/simulator.md`.

Blocks marked `run: exact` are run in a folder of their own, and each figure shown becomes the one that is printed in
its place. An example that prints other lines than it shows is left as it is, and named: someone has to look at it.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from documents import ROOT, blocks, brought_up, commands

EXACT = "run: exact"


def main(pages):
    """Rewrite the pages, named from the project's folder; the number of examples that could not be is the exit code."""
    strange = 0
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "conf").symlink_to(ROOT / "conf")
            for block in blocks(page, "console"):
                if block.mark == EXACT:
                    strange += sum(not rewrite(ROOT / page, command, folder) for command in commands(block))
    return strange


def rewrite(page, command, folder):
    """Run one example and bring it up to date; whether it could be."""
    line = f"{sys.executable} -m themis_cli {command.line.removeprefix('themis ')}"
    printed = subprocess.run(line, shell=True, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    fresh = brought_up(command.shown, printed)
    if fresh is None:
        sys.stderr.write(f"{page.name}: other lines than shown: {command.line}\n{printed}\n")
        return False
    before, after = ("\n".join([f"$ {command.line}", *shown]) for shown in (command.shown, fresh))
    page.write_text(page.read_text(encoding="utf-8").replace(before, after, 1), encoding="utf-8")
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
