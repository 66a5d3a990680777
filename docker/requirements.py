"""Write what pyproject.toml requires as files for pip: `requirements.py PYPROJECT FOLDER TENSORFLOW [EXTRA..]`.

`run.txt` holds what programs need at run time, with the extras named (none: those of the stack) and with TENSORFLOW for
whatever TensorFlow is named there; `build.txt` what building our wheel needs.
"""

import re
import sys
import tomllib
from pathlib import Path

EXTRAS = ("tf", "hdfs", "yarn", "optuna")


def main(pyproject: str, folder: str, tensorflow: str, *extras: str) -> None:
    """Write both files."""
    read = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))
    project = read["project"]
    optional = project["optional-dependencies"]
    needed = [*project["dependencies"], *(each for name in extras or EXTRAS for each in optional[name])]
    needed = [re.sub(r"^tensorflow-cpu", tensorflow, each) for each in needed]
    target = Path(folder)
    target.mkdir(parents=True)
    (target / "run.txt").write_text("\n".join(needed) + "\n", encoding="utf-8")
    (target / "build.txt").write_text("\n".join(read["build-system"]["requires"]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
