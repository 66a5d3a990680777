"""Write the parts of the documentation that are made from code: `python tools/generate_docs.py`, or `--into FOLDER`.

In docs/reference: the whole of lifecycles.md, and tables in commands.md, group-files.md and
workloads.md between two comments each.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import fields

from submarine_client.parser import build_parser as submarine_parser
from tf_jobs.catalog import PROGRAMS, Flag, Program
from tf_jobs.context import LEVELS
from tf_jobs.tables_reader import read_speeds
from themis.config.placeholders import GIVEN_BY_APP_MASTER
from themis.lifecycle import LIFECYCLES, AppState, JobState, LeaseState
from themis_cli.main import build_parser as themis_parser
from themis_lab.simulator.clusters import CLUSTERS, cluster_named
from themis_lab.simulator.workloads.models import read_models
from themis_lab.simulator.workloads.registry import WORKLOADS, workload_named
from themis_lab.simulator.workloads.report import report

ROOT = Path(__file__).resolve().parent.parent
LIFECYCLES_PAGE = Path("docs/reference/lifecycles.md")
APPS_PAGE = Path("docs/reference/group-files.md")
WORKLOADS_PAGE = Path("docs/reference/workloads.md")
COMMANDS_PAGE = Path("docs/reference/commands.md")
ACHIEVED = ("w1", "w2", "w1-small", "w2-small", "philly")
ACHIEVED_SEED = 0
ACHIEVED_GPUS = (64, 168, 256)
_BLOCK = "<!-- generated: {} -->\n"
_END = "<!-- end -->"

_HEAD = """\
# Lifecycles

The states of apps, jobs and leases, and which state may follow which. `tools/generate_docs.py` makes this page from
the transition tables in `themis/lifecycle.py`. The running product checks every change of a state against the same
tables.
"""

_ABOUT: Mapping[str, str] = {
    "app": "An app in the ResourceManager. The names are YARN's. `submarine app show` prints the state.",
    "job": "A job inside its app master. The app master's journal keeps it over attempts.",
    "lease": (
        "A lease of one GPU. It begins RESERVED, or GRANTED if the GPU is free. Renewal in place turns\n"
        "GRANTED into GRANTED with a later end."
    ),
}

STATES: Mapping[str, Mapping[str, str]] = {
    "app": {
        AppState.SUBMITTED: "accepted and stored; no app master yet",
        AppState.ACCEPTED: "it waits for GPUs without an app master, or that was started and has not registered yet",
        AppState.RUNNING: "the app master has registered; the app may hold GPUs or wait for them",
        AppState.PAUSED: "paused by its user: nothing of it runs, and it asks for no GPU, until it is resumed",
        AppState.FINISHED: "the search came to its end; it names the best job, if one is known",
        AppState.FAILED: "every job failed, or the app master was lost too often",
        AppState.KILLED: "ended because its user asked for it",
    },
    "job": {
        JobState.WAITING: "ready to run, without GPUs",
        JobState.STARTING: "it has GPUs, and its tasks are being started: the engine makes room for them",
        JobState.RUNNING: "the processes of its tasks run, whether they have logged a step or not",
        JobState.CHECKPOINTING: "its tasks were asked to stop, and are saving",
        JobState.PHASE_DONE: "at its target of this phase; promotion, or the end of the search, comes next",
        JobState.FINISHED: "it ran in the last phase, to the end",
        JobState.STOPPED: "the tuner stopped it (and resumes it if all others fail), or the search ended without it",
        JobState.FAILED: "given up after too many failures, or at once for a usage error",
        JobState.KILLED: "it had not ended when its app was killed, or ended by force",
    },
    "lease": {
        LeaseState.RESERVED: "won, but the former holder has not released the GPU yet",
        LeaseState.GRANTED: "held by the app until the lease ends",
        LeaseState.EXPIRING: "not renewed: the holder checkpoints, and releases the GPU before its end plus the grace",
        LeaseState.RELEASED: "released by its holder, or ended with its app",
        LeaseState.REVOKED: "taken by force, after the holder's processes were killed",
    },
}


_MODELS = """\
Models that `replay` knows. S within a slot is 1 by definition, S across racks is extrapolated; see
[where the tables come from](../../tf_jobs/tables/SOURCES.md).
"""


def lifecycles_page() -> str:
    """The page docs/reference/lifecycles.md."""
    parts = [_HEAD]
    for lifecycle in LIFECYCLES:
        rows = [(str(state), STATES[lifecycle.name][state]) for state in lifecycle.table]
        figure = f"```mermaid\n{lifecycle.to_mermaid()}```\n"
        title = f"## {lifecycle.name.capitalize()}\n"
        parts += [title, f"{_ABOUT[lifecycle.name]}\n", figure, _table(("state", "meaning"), rows)]
    return "\n".join(parts)


def programs_tables() -> str:
    """The programs of the catalogue: one table of the flags that all have, then one of each program's own."""
    common = [flag for flag in PROGRAMS[0].flags if all(flag in program.flags for program in PROGRAMS)]
    names = {flag.name for flag in common}
    parts = ["Flags of all programs:\n", _flags(common)]
    for program in PROGRAMS:
        what = program.summary[:1].upper() + program.summary[1:]
        kind = "it trains" if program.kind == "real" else "it does not train"
        parts += [f"### `{program.name}`\n", f"{what}; {kind}.\n", _flags(_own(program, names))]
    return "\n".join([*parts, _MODELS, _models()])


def with_programs(page: str) -> str:
    """The page docs/reference/group-files.md with its tables of programs generated again."""
    return with_block(page, "programs", programs_tables())


def commands_tables() -> str:
    """The commands of `submarine` and `themis`, with what their help says of each."""
    parts = []
    for parser in (submarine_parser(), themis_parser()):
        parts += [f"## `{parser.prog}`\n", _table(("command", "what it does"), _commands(parser, parser.prog))]
    return "\n".join(parts)


def _commands(parser: argparse.ArgumentParser, prefix: str) -> Iterator[tuple[str, str]]:
    """A row for every command below a parser that has no commands of its own."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help or "" for each in action._choices_actions}
            for name, below in action.choices.items():
                rows = list(_commands(below, f"{prefix} {name}"))
                yield from rows or [(f"`{prefix} {name}`", about[name])]


def with_workloads(page: str) -> str:
    """The page docs/reference/workloads.md with its tables generated again."""
    tables = {
        "clusters": clusters_table,
        "workloads": workloads_table,
        "workload models": workload_models_table,
        "achieved": achieved_table,
    }
    for name, table in tables.items():
        page = with_block(page, name, table())
    return page


def with_block(page: str, name: str, content: str) -> str:
    """The page with the block of that name generated again; what stands outside its two comments is left alone."""
    begin = _BLOCK.format(name)
    pattern = re.compile(rf"({re.escape(begin)}).*?(\n{re.escape(_END)})", flags=re.S)
    return pattern.sub(lambda match: f"{match[1]}\n{content}{match[2]}", page)


def clusters_table() -> str:
    """The clusters that are known by name."""
    rows = []
    for name, text in CLUSTERS.items():
        cluster = cluster_named(name)
        counts = (cluster.gpus, len(cluster.machines), len(cluster.racks))
        rows.append((f"`{name}`", f"`{text}`", *(str(count) for count in counts)))
    return _table(("cluster", "as text", "GPUs", "machines", "racks"), rows)


def workloads_table() -> str:
    """The workloads that are known by name, and their options with their defaults."""
    rows = []
    for name, entry in WORKLOADS.items():
        defaults = {field.name: field.default for field in fields(entry.options)} | dict(entry.defaults)
        options = ", ".join(f"`{option}={_option(value)}`" for option, value in defaults.items())
        rows.append((f"`{name}`", entry.summary, options))
    return _table(("workload", "what it is", "options and their defaults"), rows)


def workload_models_table() -> str:
    """The models of the paper's mix, and where their speeds come from."""
    rows = [
        (
            model.name,
            model.category,
            f"`{model.measured_as}`",
            model.basis,
            f"{model.slowdown.rack:g}",
            "yes" if model.strict else "no",
            model.reason,
        )
        for model in read_models().values()
    ]
    return _table(("model", "kind", "measured as", "basis", "S: rack", "strict", "why"), rows)


def achieved_table() -> str:
    """What the named workloads achieve of the paper's distributions."""
    cluster = cluster_named("paper-256")
    of_paper: dict[str, str] = {}
    ours: dict[str, dict[str, str]] = {}
    for name in ACHIEVED:
        for row in report(workload_named(name, ACHIEVED_SEED, cluster), ACHIEVED_GPUS):
            of_paper[row.quantity] = "" if row.paper is None else _figure(row.paper)
            ours.setdefault(row.quantity, {})[name] = _figure(row.ours)
    rows = [
        (quantity, of_paper[quantity], *(cells.get(name, "") for name in ACHIEVED)) for quantity, cells in ours.items()
    ]
    return _table(("quantity", "paper", *(f"`{name}`" for name in ACHIEVED)), rows)


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100.0 else f"{value:.3g}"


def _option(value: object) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def pages(root: Path = ROOT) -> dict[Path, str]:
    """Every page that is generated, whole or in part, by its path below the root."""
    apps = (root / APPS_PAGE).read_text(encoding="utf-8")
    workloads = (root / WORKLOADS_PAGE).read_text(encoding="utf-8")
    commands = (root / COMMANDS_PAGE).read_text(encoding="utf-8")
    return {
        COMMANDS_PAGE: with_block(commands, "commands", commands_tables()),
        LIFECYCLES_PAGE: lifecycles_page(),
        APPS_PAGE: with_programs(apps),
        WORKLOADS_PAGE: with_workloads(workloads),
    }


def _models() -> str:
    rows = [
        (f"`{name}`", f"{speed.serial_iteration_time_s:g}", *(f"{speed.slowdown[level]:g}" for level in LEVELS))
        for name, speed in read_speeds().items()
    ]
    return _table(("model", "seconds an iteration on one GPU", *(f"S: {level}" for level in LEVELS)), rows)


def _own(program: Program, common: set[str]) -> list[Flag]:
    return [flag for flag in program.flags if flag.name not in common]


def _flags(flags: Iterable[Flag]) -> str:
    rows = [(f"`{flag.name}`", _default(flag), _allowed(flag), _role(flag), flag.help) for flag in flags]
    return _table(("flag", "default", "allowed", "set by", "meaning"), rows)


def _default(flag: Flag) -> str:
    if flag.default is None:
        return "required"
    return f"`{flag.default}`" if flag.default != "" else "empty"


def _allowed(flag: Flag) -> str:
    if flag.choices:
        return ", ".join(f"`{choice}`" for choice in flag.choices)
    if flag.kind is str:
        return "text"
    kind = "whole number" if flag.kind is int else "number"
    if flag.high < math.inf:
        return f"{kind}, {flag.low:.10g} to {flag.high:.10g}"
    return f"{kind}, {flag.low:.10g} or more" if flag.low > -math.inf else kind


def _role(flag: Flag) -> str:
    if flag.name in GIVEN_BY_APP_MASTER:
        return f"the key `{GIVEN_BY_APP_MASTER[flag.name]}`"
    return "`arguments` or a search" if flag.hyper_parameter else "`arguments`"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(heads)
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Parse the command line and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=ROOT, help="folder to write below; default: the project's")
    into: Path = parser.parse_args().into
    for path, text in pages().items():
        (into / path).parent.mkdir(parents=True, exist_ok=True)
        (into / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
