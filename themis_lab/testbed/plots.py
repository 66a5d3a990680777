"""The figures of the report: leases, fairness, and the losses of the real apps.

Each is an `svg` element, or an empty text if there is nothing to draw.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from themis.rho import HEADLINE, RhoDefinition
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages
from themis_lab.testbed.events import Event
from themis_lab.testbed.measures import machine_of, number, rho_series
from themis_lab.testbed.report import Report
from themis_lab.testbed.run_record import RunRecord
from themis_lab.testbed.spans import LeaseSpan, lease_spans
from themis_lab.testbed.svg import GRID, INK, house_style, tip, to_svg

Colours = Mapping[str, str]
"""Colour by app id."""

_WIDTH = 9.6
_REAL_WIDTH, _REPLAY_WIDTH = 2.2, 1.1
_LINE_STYLES = ("-", "--", "-.", ":")
"""So lines differ by more than their colour."""


def occupancy(record: RunRecord, colours: Colours) -> str:
    """GPUs by app over time, stacked, with real apps at the bottom and replayed ones above them.

    There is one panel for each device type.
    """
    if not record.apps:
        return ""
    leases = lease_spans(record.events)
    device_of = {machine.machine_id: machine.device for machine in record.cluster.machines}
    types = record.cluster.present_devices
    with house_style():
        figure = Figure(figsize=(_WIDTH, 3.2 if len(types) == 1 else 2.2 * len(types)), layout="constrained")
        panels = figure.subplots(len(types), 1, squeeze=False, sharex=True)[:, 0]
        for axes, device in zip(panels, types, strict=True):
            _draw_occupancy(
                axes, record, [lease for lease in leases if device_of[machine_of(lease.gpu)] == device.name], colours
            )
            count = record.cluster.gpus_by_device[device.name]
            axes.axhline(count, color=INK, linewidth=0.8, linestyle="--")
            axes.set(ylim=(0, count * 1.04), ylabel="GPUs leased" if len(types) == 1 else f"type {device.name}")
        panels[-1].set_xlabel("seconds")
        return to_svg(figure, "occupancy")


def _draw_occupancy(axes: Axes, record: RunRecord, leases: Sequence[LeaseSpan], colours: Colours) -> None:
    start_s, end_s = bounds(record)
    times, counts = leased_over_time(leases, [app.app_id for app in record.apps], start_s, end_s)
    ordered = sorted(record.apps, key=lambda app: app.replay)
    stacks = axes.stackplot(
        times,
        [counts[app.app_id] for app in ordered],
        colors=[colours[app.app_id] for app in ordered],
        step="post",
        linewidth=0,
    )
    for stack, app in zip(stacks, ordered, strict=True):
        stack.set_gid(tip(app.name))
    axes.set_xlim(0, end_s - start_s)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))


def rho_over_time(record: RunRecord, report: Report, colours: Colours) -> str:
    """Rho in each round, and at each app's end (dot), by the definition that the auction uses."""
    start_s, end_s = bounds(record)
    series = rho_series(record.events)
    if not series:
        return ""
    with house_style():
        figure = Figure(figsize=(_WIDTH, 3.4), layout="constrained")
        axes = figure.subplots()
        for index, (app, entry) in enumerate(zip(record.apps, report["apps"], strict=True)):
            points = [(time_s - start_s, value) for time_s, value in series.get(app.app_id, [])]
            width = _REPLAY_WIDTH if app.replay else _REAL_WIDTH
            final = entry["rho"][RhoDefinition.THEMIS]
            if final is not None and app.finished_at_s > 0:
                points.append((app.finished_at_s - start_s, final))
                axes.plot(
                    *points[-1], "o", color=colours[app.app_id], markersize=4.5, gid=tip(f"{app.name}: {final:.2f}")
                )
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    color=colours[app.app_id],
                    linewidth=width,
                    linestyle=_LINE_STYLES[index % len(_LINE_STYLES)],
                    gid=tip(app.name),
                )
        axes.axhline(1.0, color=INK, linewidth=0.9, linestyle="--")
        axes.set(
            xlim=(0, (end_s - start_s) * 1.01),
            xlabel="seconds",
            ylabel=f"rho, {RhoDefinition.THEMIS} (lower is better)",
            yscale="log",
        )
        _plain_log_axis(axes)
        axes.grid(axis="y")
        return to_svg(figure, "rho")


def final_rho(report: Report, colours: Colours) -> str:
    """Rho at completion by app, largest first, by the headline's definition."""
    apps = [app for app in report["apps"] if app["rho"][HEADLINE] is not None]
    apps.sort(key=lambda app: app["rho"][HEADLINE])
    if not apps:
        return ""
    with house_style():
        figure = Figure(figsize=(_WIDTH, 0.6 + 0.24 * max(1, len(apps))), layout="constrained")
        axes = figure.subplots()
        for place, app in enumerate(apps):
            rho = app["rho"][HEADLINE]
            hatch = "" if app["kind"] == "real" else "////"
            colour = colours[app["app_id"]]
            axes.barh(
                place, rho, color=colour if app["kind"] == "real" else "none", edgecolor=colour, hatch=hatch, height=0.7
            )
            axes.annotate(f"{rho:.2f}", (rho, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(range(len(apps)), [app["name"] for app in apps])
        axes.axvline(1.0, color=INK, linewidth=0.9, linestyle="--")
        axes.set(xlabel=f"rho at completion, {HEADLINE} (dashed: fair)")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.08)
        return to_svg(figure, "final")


def gantt(record: RunRecord, colours: Colours) -> str:
    """Every lease: one row per GPU, grouped by machine, in the app's colour. Labels name types if there are several."""
    leases = lease_spans(record.events)
    if not leases:
        return ""
    start_s, end_s = bounds(record)
    rows: dict[str, float] = {}
    centres: list[tuple[float, str]] = []
    place = 0.0
    for machine in record.cluster.machines:
        first = place
        for index in range(machine.gpus):
            rows[f"{machine.machine_id}/{index}"] = place
            place += 1.0
        label = f"{machine.machine_id} {machine.device}" if record.cluster.has_types else machine.machine_id
        centres.append(((first + place - 1.0) / 2, label))
        place += 0.6
    names = {app.app_id: app.name for app in record.apps}
    with house_style():
        figure = Figure(figsize=(_WIDTH, max(1.6, 0.115 * place + 0.5)), layout="constrained")
        axes = figure.subplots()
        for lease in leases:
            begin, end = lease.start_s - start_s, min(lease.end_s, end_s) - start_s
            text = f"{names.get(lease.app_id, lease.app_id)} on {lease.gpu}, {begin:.1f} to {end:.1f} s"
            axes.barh(
                rows[lease.gpu],
                end - begin,
                left=begin,
                height=0.94,
                color=colours.get(lease.app_id, GRID),
                linewidth=0,
            ).patches[0].set_gid(tip(text))
        axes.set_yticks([at for at, _ in centres], [name for _, name in centres], fontsize=7)
        axes.set(xlim=(0, end_s - start_s), ylim=(place - 0.8, -0.8), xlabel="seconds")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x")
        axes.set_axisbelow(True)
        return to_svg(figure, "gantt")


def loss_curves(record: RunRecord) -> str:
    """Training loss of each job of the real apps by iteration. The best job has a thicker line."""
    apps = [app for app in record.apps if not app.replay]
    curves = _losses(record.events)
    if not any(curves.get((app.app_id, job.job_id)) for app in apps for job in app.jobs):
        return ""
    with house_style():
        figure = Figure(figsize=(_WIDTH, 3.0), layout="constrained")
        panels = figure.subplots(1, len(apps), squeeze=False)[0]
        for axes, app in zip(panels, apps, strict=True):
            for index, job in enumerate(app.jobs):
                _draw_curve(axes, curves.get((app.app_id, job.job_id), []), job, index, best=job.job_id == app.best)
            axes.set(title=app.name, xlabel="iteration", yscale="log")
            axes.set_ylabel("training loss")
            _plain_log_axis(axes)
            axes.grid(axis="y")
            axes.legend(frameon=False, fontsize=7, title="learning rate", title_fontsize=7)
        return to_svg(figure, "loss")


def _draw_curve(axes: Axes, points: Sequence[tuple[int, float]], job: pb.JobStatus, index: int, *, best: bool) -> None:
    if not points:
        return
    shades = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#9c6bd3", "#2bb3b1", "#d4a72c", "#ef7fb0")
    rate = scalars_from_messages(job.hyper_parameters).get("learning_rate")
    label = f"{rate:g}" if isinstance(rate, float | int) else job.job_id
    axes.plot(
        *zip(*points, strict=True),
        color=shades[index % len(shades)],
        linestyle=_LINE_STYLES[index % len(_LINE_STYLES)],
        linewidth=2.2 if best else 1.0,
        # A line needs two points.
        marker="o" if len(points) == 1 else None,
        label=f"{label}{' (best)' if best else ''}",
        gid=tip(f"{job.job_id}, {job.state}"),
    )


def _plain_log_axis(axes: Axes) -> None:
    """Label a logarithmic axis by 1, 2, 5 and their powers of ten."""
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _losses(events: Sequence[Event]) -> dict[tuple[str, str], list[tuple[int, float]]]:
    curves: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for event in events:
        if event.kind == "job_progress":
            loss = number(event.detail.get("loss"))
            if math.isfinite(loss) and loss > 0:
                curves[event.app_id, str(event.detail["job_id"])][int(event.detail["iteration"])] = loss
    return {key: sorted(points.items()) for key, points in curves.items()}


def bounds(record: RunRecord) -> tuple[float, float]:
    """The times of the first arrival and of the last event, in seconds since the epoch."""
    times = [event.time_s for event in record.events]
    submitted = [event.time_s for event in record.events if event.kind == "app_submitted"]
    start_s = min(submitted or times, default=0.0)
    return start_s, max(max(times, default=0.0), start_s + 1.0)


def leased_over_time(
    leases: Sequence[LeaseSpan], app_ids: Sequence[str], start_s: float, end_s: float
) -> tuple[list[float], dict[str, list[int]]]:
    """The number of GPUs of each app, at each moment at which one of them changes.

    Returns:
        Moments in seconds from `start_s`, and by app the count at each moment.
    """
    changes: dict[float, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for lease in leases:
        changes[max(lease.start_s, start_s)][lease.app_id] += 1
        changes[min(lease.end_s, end_s)][lease.app_id] -= 1
    times: list[float] = [0.0]
    counts: dict[str, list[int]] = {app_id: [0] for app_id in app_ids}
    for time_s in sorted(changes):
        times.append(time_s - start_s)
        for app_id, series in counts.items():
            series.append(series[-1] + changes[time_s].get(app_id, 0))
    times.append(end_s - start_s)
    for series in counts.values():
        series.append(series[-1])
    return times, counts
