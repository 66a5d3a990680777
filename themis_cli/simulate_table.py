"""Tables of run documents: the metrics of the runs, one column per policy, and the apps of a single run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from themis.rho import FLUID_DEFINITIONS, HEADLINE, SCHEDULE_DEFINITIONS
from themis_lab.simulator.compare import RANKED_BY, Spread, completion_ratios, fairness_ratios, spreads_of
from themis_lab.simulator.metrics import DEFINITION, Document

_PLAIN_COLUMNS = 120
_HOUR_S = 3600.0
_IN_HOURS_FROM_S = 1000.0


def _plain(value: float) -> str:
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < _IN_HOURS_FROM_S else f"{seconds / _HOUR_S:.2f} h"


def _whole(value: float) -> str:
    return f"{value:,.0f}"


_BY_SCHEDULE = "*"
"""Marks rows by a definition whose ideal depends on the schedule."""

_NOTE = "\n".join(
    (
        f"rho is the time to the end over an ideal time, by the definition {HEADLINE} where no other is named:",
        *(f"  {name}: {name.sentence}" for name in FLUID_DEFINITIONS),
        f"{_BY_SCHEDULE} the schedule changes this ideal itself, so it cannot rank policies",
    )
)

ROWS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("max rho", f"max_rho.{HEADLINE}", _plain),
    ("median rho", f"by_definition.{HEADLINE}.median", _plain),
    ("95th percentile of rho", f"by_definition.{HEADLINE}.p95", _plain),
    ("apps with rho > 1", f"by_definition.{HEADLINE}.share_over_1", _percent),
    ("apps with rho > 1.05", f"by_definition.{HEADLINE}.share_over_1.05", _percent),
    ("Jain's index", f"by_definition.{HEADLINE}.jain", _plain),
    *((f"max rho, {name}", f"max_rho.{name}", _plain) for name in FLUID_DEFINITIONS if name is not HEADLINE),
    *((f"max rho, {name} {_BY_SCHEDULE}", f"max_rho.{name}", _plain) for name in SCHEDULE_DEFINITIONS),
    (f"largest bound of rho, themis {_BY_SCHEDULE}", "bound", _plain),
    ("mean completion", "completion_s.mean", _time),
    ("95th completion", "completion_s.p95", _time),
    ("makespan", "makespan_s", _time),
    ("GPU time", "gpu_time_s", _time),
    ("mean placement score", "placement_score.mean", _plain),
    ("cluster leased", "utilisation.leased", _percent),
    ("cluster running", "utilisation.running", _percent),
    ("longest wait for a GPU", "longest_wait_s", _time),
    ("restarts", "restarts", _whole),
    ("rounds", "rounds", _whole),
    ("GPUs by leftovers", "auctions.share_of_gpus_by_leftovers", _percent),
    ("wins to nothing", "auctions.wins_to_nothing", _whole),
    ("auctions unproven", "auctions.unproven", _whole),
)
"""Metrics of the table: name, dotted key, and format."""

_MAIN: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("max rho", f"max_rho.{HEADLINE}", _plain),
    ("median", f"by_definition.{HEADLINE}.median", _plain),
    ("95th", f"by_definition.{HEADLINE}.p95", _plain),
    ("rho > 1", f"by_definition.{HEADLINE}.share_over_1", _percent),
    ("completion", "completion_s.mean", _time),
    ("makespan", "makespan_s", _time),
    ("GPU time", "gpu_time_s", _time),
    ("restarts", "restarts", _whole),
)
"""Those of them that have room beside each other."""


def print_tables(documents: Sequence[Document]) -> None:
    """Print the metrics, one column per policy. For a single run print its apps too."""
    policies = dict.fromkeys(str(document["policy"]) for document in documents)
    columns = {name: [each for each in documents if each["policy"] == name] for name in policies}
    console = _console()
    if len(documents) == 1:
        console.print(_apps(documents[0]))
        console.print()
    figures = _figures(columns)
    unbounded = console.options.update(width=sys.maxsize)
    if console.measure(figures, options=unbounded).maximum <= console.width:
        console.print(figures)
    else:
        console.print(_by_policy(columns))
        console.print(Text("medians; --json has all figures"))
    if len(columns) > 1:
        console.print()
        console.print(_ratios(documents))
    console.print(Text(_below(documents)), soft_wrap=True)


def print_columns(columns: Mapping[str, Sequence[Document]]) -> None:
    """Print the metrics of documents by column heading."""
    console = _console()
    console.print(_figures(columns))
    console.print(Text(_NOTE), soft_wrap=True)


def print_completions(recorded: Document, replayed: Document) -> None:
    """Print the completion times of two runs of the same apps, and their ratios."""
    ratios = completion_ratios(recorded, replayed)
    times_s = {app["name"]: app["completion_s"] for app in replayed["apps"]}
    table = Table(box=None, pad_edge=False)
    table.add_column("completion of app")
    for heading in ("recorded", "replayed", "ratio"):
        table.add_column(heading, justify="right")
    for app in recorded["apps"]:
        name = app["name"]
        if name in ratios["by_app"]:
            cells = (_time(app["completion_s"]), _time(times_s[name]), f"{ratios['by_app'][name]:.2f}")
            table.add_row(name, *(Text(cell) for cell in cells))
    console = _console()
    console.print()
    console.print(table)
    if ratios["median"] is not None:
        spread = f"{ratios['min']:.2f} .. {ratios['max']:.2f}"
        console.print(Text(f"replayed over recorded: median {ratios['median']:.3f} ({spread})"), soft_wrap=True)


def _console() -> Console:
    # Without a terminal rich assumes 80 columns, too few for the table of apps.
    return Console(highlight=False, width=None if sys.stdout.isatty() else _PLAIN_COLUMNS)


def _ratios(documents: Sequence[Document]) -> Table:
    """How far each policy is from the best other one."""
    table = Table(box=None, pad_edge=False)
    table.add_column(f"max rho over the best other policy's, the worse of {' and '.join(RANKED_BY)}")
    for heading in ("median", "worst"):
        table.add_column(heading, justify="right")
    for ratio in fairness_ratios(documents):
        table.add_row(Text(ratio["policy"]), Text(_plain(ratio["median"])), Text(_plain(ratio["worst"])))
    return table


def _apps(document: Document) -> Table:
    by_schedule = (f"{DEFINITION}{_BY_SCHEDULE}", f"bound{_BY_SCHEDULE}")
    headings = ("app", "model", "jobs", "rho", *by_schedule, "completion", "GPU time", "placement", "queueing")
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate((*headings, "restarts")):
        table.add_column(heading, justify="left" if place < 2 else "right", overflow="fold")
    for app in document["apps"]:
        table.add_row(*(Text(cell) for cell in _cells(app)))
    return table


def _cells(app: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        app["name"],
        app["model"],
        str(app["jobs"]),
        _plain(app["rho"][HEADLINE]),
        _plain(app["rho"][DEFINITION]),
        _plain(app["bound"]),
        _time(app["completion_s"]),
        _time(app["gpu_time_s"]),
        _plain(app["placement_score"]),
        _time(app["queueing_s"]),
        str(app["restarts"]),
    )


def _figures(columns: Mapping[str, Sequence[Document]]) -> Table:
    spreads = [spreads_of(documents) for documents in columns.values()]
    table = Table(box=None, pad_edge=False)
    table.add_column("of the run")
    for name in columns:
        table.add_column(Text(name), justify="right", overflow="fold")
    for title, key, write in ROWS:
        table.add_row(title, *(Text(_spread(column.get(key), write)) for column in spreads))
    return table


def _by_policy(columns: Mapping[str, Sequence[Document]]) -> Table:
    """The main figures, a row per policy, for more policies than there is room for columns."""
    table = Table(box=None, pad_edge=False)
    table.add_column("policy")
    for heading, _, _ in _MAIN:
        table.add_column(heading, justify="right")
    for name, documents in columns.items():
        spreads = spreads_of(documents)
        table.add_row(Text(name), *(Text(_median(spreads.get(key), write)) for _, key, write in _MAIN))
    return table


def _median(spread: Spread | None, write: Callable[[float], str]) -> str:
    return "-" if spread is None or spread["median"] is None else write(spread["median"])


def _spread(spread: Spread | None, write: Callable[[float], str]) -> str:
    if spread is None or spread["median"] is None or spread["min"] is None or spread["max"] is None:
        return "-"
    median = write(spread["median"])
    if spread["min"] == spread["max"]:
        return median
    return f"{median} ({write(spread['min'])} .. {write(spread['max'])})"


def _below(documents: Sequence[Document]) -> str:
    first = documents[0]
    seeds = list(dict.fromkeys(document["seed"] for document in documents))
    of_seeds = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}: median (least .. largest)"
    checks = sum(document["invariants"]["checks"] for document in documents)
    broken = sum(len(document["invariants"]["violations"]) for document in documents)
    wall_s = sum(document["wall_s"] for document in documents)
    memory = max(document["peak_memory_mb"] for document in documents)
    return (
        f"{first['workload']} on {first['cluster']} ({_devices(first)}), {of_seeds}\n{_NOTE}\n"
        f"{checks} checks of invariants, {broken} violations; {wall_s:.2f} s, {memory:.0f} MiB"
    )


def _devices(document: Document) -> str:
    """The size of the cluster. Of its devices some may be CPU nodes."""
    cpu_nodes = document.get("cluster_cpu_nodes", 0)
    counts = {"GPU": document["cluster_gpus"] - cpu_nodes, "CPU node": cpu_nodes}
    return " and ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)
