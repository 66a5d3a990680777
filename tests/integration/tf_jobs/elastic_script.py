"""The Keras script of docs/tutorials/keras.md, made elastic by the changed lines that the page shows."""

import re

from documents import block

PAGE = "docs/explanation/elastic.md"
TUTORIAL = "docs/tutorials/keras.md"


def changed_lines(plain, diff):
    """The script as the diff changes it, and how many lines that takes away or adds, whichever is more."""
    script, changes = plain, 0
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE)[1:]:
        lines = hunk.splitlines(keepends=True)
        old = "".join(line[1:] for line in lines if line[0] in " -")
        assert script.count(old) == 1
        script = script.replace(old, "".join(line[1:] for line in lines if line[0] in " +"))
        changes += max(sum(line[0] == sign for line in lines) for sign in "+-")
    return script, changes


def documented_script():
    return changed_lines(block(TUTORIAL, "file: train.py").body, block(TUTORIAL, "changed lines").body)
