"""Recordings of runs as JSON lines: a header with the whole input, a line per round, a line per app, and an end.

The same input gives the same bytes, since wall times are left out. `themis replay` runs the input of a recording under
another policy.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import astuple, replace

from themis.errors import InputError, UnknownNameError
from themis.rho import SCHEDULE_DEFINITIONS
from themis.values import Value
from themis_lab.simulator.clusters import check_size
from themis_lab.simulator.json_codec import Decoder, plain
from themis_lab.simulator.record import AppOutcome, Counts, RoundRecord, RunRecord
from themis_lab.simulator.runs import LieChoice, Run
from themis_lab.simulator.settings import Settings
from themis_lab.simulator.workload import Curve, LossCurve, Workload
from themis_lab.simulator.workloads.mix import ReplayedCurve

VERSION = 1
FORMAT = "themis recording"

CURVES = (LossCurve, ReplayedCurve)
_CHOICES: Mapping[type, tuple[type, ...]] = {Curve: CURVES}
_MAX_FIGURE = 1e100
"""The maximum of every figure of a run, so that sums of squares stay finite."""

_NOT_COUNTED = ("bid_s", "auction_s")
_OF_THE_END = ("policy", "cluster", "cluster_gpus", "workload", "seed", "makespan_s", "leased_share", "running_share")


class Recording(Value, frozen=True, kw_only=True):
    """The input of a run and its record. Wall times are not recorded: they are 0."""

    run: Run
    record: RunRecord


def recording_lines(run: Run, record: RunRecord) -> Iterator[str]:
    """Yield the lines of a recording, each with its newline."""
    yield _line("header", {"format": FORMAT, "version": VERSION, **_input(run)})
    for round_ in record.rounds:
        yield _line("round", _round(round_))
    for app in record.apps:
        yield _line("app", plain(app))
    counts = {key: value for key, value in plain(record.counts).items() if key not in _NOT_COUNTED}
    yield _line("end", {**{key: getattr(record, key) for key in _OF_THE_END}, "counts": counts})


def parse_recording(text: str, source: str) -> Recording:
    """Parse a recording: the inverse of `recording_lines`.

    Args:
        text: The content of the file.
        source: The name of the file, for errors.

    Raises:
        InputError: The text is no recording, is of another version, damaged or truncated. The message names the line.
    """
    lines = [_parsed(line, f"{source}, line {n}") for n, line in enumerate(text.splitlines(), start=1)]
    header = lines[0] if lines else {}
    if header.get("format") != FORMAT:
        remedy = "recordings are written by themis simulate --record FILE"
        raise InputError(f"{source} is no recording of a run", value=header.get("format"), remedy=remedy)
    if header.get("version") != VERSION:
        remedy = f"this version reads recordings of version {VERSION}; make it again"
        raise InputError(f"{source} is a recording of another version", value=header.get("version"), remedy=remedy)
    if lines[-1].get("line") != "end":
        raise InputError(f"{source} is cut short: it has no end", remedy="make the recording again")
    _check_order(lines, source)
    decoder = Decoder(_CHOICES)
    run = _run(decoder, header, f"{source}, line 1")
    rounds, apps = (_restored_lines(decoder, lines, kind, source) for kind in ("round", "app"))
    record = _record(decoder, lines[-1], rounds, apps, f"{source}, line {len(lines)}")
    _check_agreement(run, header, record, source)
    _check_whole(run, record, source)
    return Recording(run=run, record=replace(record, cluster_cpu_nodes=run.settings.cluster.cpu_nodes))


_ORDER = ("header", "round", "app", "end")


def _check_order(lines: Sequence[Mapping[str, Any]], source: str) -> None:
    """Check the order of the lines: a header, the rounds, the apps, an end."""
    reached = round_id = 0
    for number, line in enumerate(lines, start=1):
        kind, place = line.get("line"), f"{source}, line {number}"
        if kind not in _ORDER:
            raise UnknownNameError(f"kind of {place}", str(kind), _ORDER)
        step = _ORDER.index(kind)
        # There is one header and one end; there may be no round.
        if step < reached or (step == reached and number > 1 and kind in ("header", "end")):
            raise InputError(f"{place} is out of its place", value=kind, remedy="make the recording again")
        if kind == "round":
            before, round_id = round_id, line.get("round_id", 0)
            if not isinstance(round_id, int) or round_id <= before:
                raise InputError(f"{place}: rounds must be in their order", value=round_id, remedy="make it again")
        reached = step


def _check_agreement(run: Run, header: Mapping[str, Any], record: RunRecord, source: str) -> None:
    """Raise InputError if header, settings and end differ in what was run: the file was edited in one place only."""
    stated = {
        "policy": (run.settings.policy, header.get("policy"), record.policy),
        "seed": (run.settings.seed, header.get("seed"), record.seed),
        "cluster": (run.settings.cluster.name, record.cluster),
        "GPUs of the cluster": (run.settings.cluster.gpus, record.cluster_gpus),
        "workload": (run.workload.name, record.workload),
    }
    for what, values in stated.items():
        if any(value != values[0] for value in values):
            raise InputError(
                f"{source} is damaged: its header, settings and end differ in the {what}",
                value=values,
                remedy="make it again",
            )


def _check_whole(run: Run, record: RunRecord, source: str) -> None:
    """Check the number of lines. A missing line would go unnoticed, and figures would cover some apps only."""
    wanted = {app.name for app in run.workload.apps}
    found = [app.name for app in record.apps]
    strange = sorted(wanted ^ set(found)) or sorted({name for name in found if found.count(name) > 1})
    if strange:
        raise InputError(f"{source} is damaged: apps are missing or there twice", value=strange, remedy="make it again")
    if len(record.rounds) != record.counts.rounds:
        counted = (len(record.rounds), record.counts.rounds)
        raise InputError(f"{source} is damaged: rounds are missing", value=counted, remedy="make it again")
    if not 0.0 <= record.makespan_s < _MAX_FIGURE:
        raise InputError(f"{source} is damaged: the makespan", value=record.makespan_s, remedy="make it again")
    for app in record.apps:
        measured = [value for value in astuple(app) if isinstance(value, float)]
        # Recordings of earlier versions lack the definitions of the fluid cluster.
        known: dict[str, float] = {**dict.fromkeys(SCHEDULE_DEFINITIONS, math.nan), **app.rho}
        figures = [*known.values(), *measured]
        negative = app.ended_at_s < app.submitted_at_s or app.gpu_time_s < 0.0 or app.running_gpu_s < 0.0
        if negative or not all(abs(figure) < _MAX_FIGURE for figure in figures):
            raise InputError(f"{source} is damaged: figures of app {app.name}", value=figures, remedy="make it again")


def _round(round_: RoundRecord) -> dict[str, Any]:
    """Return a round's content. `later_ends_s` is only written if leases are staggered."""
    content: dict[str, Any] = plain(round_)
    if not round_.later_ends_s:
        del content["later_ends_s"]
    return content


def _input(run: Run) -> dict[str, Any]:
    """Return the header's content. `gaps` of the workload are only written if there are any."""
    workload = plain(run.workload, CURVES)
    if not run.workload.gaps:
        del workload["gaps"]
    return {
        "policy": run.settings.policy,
        "seed": run.settings.seed,
        "settings": plain(run.settings),
        "error": run.error,
        "lies": plain(run.lies),
        "workload": workload,
    }


def _run(decoder: Decoder, header: Mapping[str, Any], place: str) -> Run:
    for key in ("settings", "workload", "error", "lies"):
        if key not in header:
            raise InputError(f"{place}: the header lacks a key", value=key)
    if not isinstance(header["lies"], list):
        raise InputError(f"{place}: lies must be a list", value=header["lies"])
    lies = [decoder.restored(LieChoice, lie, f"{place}: lies") for lie in header["lies"]]
    settings = decoder.restored(Settings, header["settings"], f"{place}: settings")
    check_size(len(settings.cluster.machines), settings.cluster.gpus, settings.cluster.name)
    return Run(
        workload=decoder.restored(Workload, header["workload"], f"{place}: workload"),
        settings=settings,
        error=decoder.restored(float, header["error"], f"{place}: error"),
        lies=tuple(lies),
    )


def _restored_lines(decoder: Decoder, lines: list[dict[str, Any]], kind: str, source: str) -> list[Any]:
    made: type[Any] = RoundRecord if kind == "round" else AppOutcome
    found = []
    for number, line in enumerate(lines, start=1):
        if line.get("line") == kind:
            content = {key: value for key, value in line.items() if key != "line"}
            found.append(decoder.restored(made, content, f"{source}, line {number}"))
    return found


def _record(
    decoder: Decoder, end: Mapping[str, Any], rounds: list[RoundRecord], apps: list[AppOutcome], place: str
) -> RunRecord:
    lacking = [key for key in (*_OF_THE_END, "counts") if key not in end]
    if lacking or not apps:
        raise InputError(f"{place}: the end of the recording lacks a key", value=lacking or "apps")
    content = {key: end[key] for key in _OF_THE_END}
    record = decoder.restored(RunRecord, {**content, "apps": [], "counts": plain(Counts())}, place)
    counts = decoder.restored(Counts, end["counts"], f"{place}: counts")
    return replace(record, apps=tuple(apps), rounds=tuple(rounds), counts=counts)


def _line(kind: str, content: Mapping[str, Any]) -> str:
    return json.dumps({"line": kind, **content}, allow_nan=False, separators=(",", ":")) + "\n"


def _parsed(line: str, place: str) -> dict[str, Any]:
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is no JSON", value=str(error), remedy="is it a recording, and whole?") from None
    if not isinstance(content, dict):
        raise InputError(f"{place} is no JSON object", value=type(content).__name__)
    return content
