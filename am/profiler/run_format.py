"""Lines in which MLflow, Weights & Biases and `themis.report_run` say where the run of a job is."""

from __future__ import annotations

import json
import re

from am.profiler.records import Record, TrackedRun
from themis.reporting import RUN_PREFIX

RUN_STARTS = rb"wandb: [^\n]{0,80}(?:View run|Run data is saved)|\xf0\x9f\x8f\x83 View run|INFO:themis:run "

MAX_RUN_LETTERS = 500

_ADDRESS = re.compile(r"(?:wandb: .{0,20}View run (?:.{1,200} )?at:?|🏃 View run .{1,500} at:) (https?://\S+)")
_OFFLINE = re.compile(r"wandb: Run data is saved locally in (.{0,400}/offline-run-\S{1,300})")
_CREDENTIALS = re.compile(r"(?<=://)[^/?#]*@")


def parse_run(line: str) -> Record | None:
    """Return the address, id or folder of a run. Returns None for any other line.

    Examples: `wandb: 🚀 View run at https://wandb.ai/me/digits/runs/1b2c` and, of a run without a network,
    `wandb: Run data is saved locally in /scratch/wandb/offline-run-20261126_173913-1b2c`.
    """
    run: object = None
    if line.startswith(RUN_PREFIX):
        try:
            run = json.loads(line[len(RUN_PREFIX) :])
        except ValueError:
            return None
    elif match := _ADDRESS.fullmatch(line) or _OFFLINE.fullmatch(line):
        run = match[1]
    if not isinstance(run, str) or not 0 < len(run) <= MAX_RUN_LETTERS:
        return None
    # The address of a tracking server may have its user's password.
    return TrackedRun(run=_CREDENTIALS.sub("", run))
