"""The report of a run for readers: one HTML page without external files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from themis.rho import HEADLINE, RhoDefinition
from themis.web.elements import element, facts
from themis_lab.testbed import plots
from themis_lab.testbed.colours import app_colours
from themis_lab.testbed.outcome import by_engine, failed_conditions, shown
from themis_lab.testbed.page_style import STYLE
from themis_lab.testbed.page_tables import (
    apps_table,
    audit_table,
    best_table,
    chip,
    devices_table,
    facts_table,
    kind_label,
    kind_of_device,
    overheads_table,
    percent,
    rho_table,
    speeds_table,
    tenants_table,
    text,
    troubles_table,
)
from themis_lab.testbed.report import Report
from themis_lab.testbed.run_record import RunRecord


def write_page(path: Path, record: RunRecord, report: Report) -> None:
    """Build the page and write it."""
    path.write_text(page(record, report), encoding="utf-8")


def page(record: RunRecord, report: Report) -> str:
    """The whole page."""
    colours = app_colours(app.app_id for app in record.apps)
    several = len(report["cluster"]["devices"]) > 1
    sections = [
        _heading(report),
        _figure(
            "Devices by app and type" if several else "GPUs by app",
            f"Leased {'devices' if several else 'GPUs'}, stacked. Rest the pointer on an area for its app.",
            plots.occupancy(record, colours),
        ),
        _legend(report, colours),
        _figure("Fairness over time", _RHO_NOTE, plots.rho_over_time(record, report, colours)),
        _figure("Fairness at completion", _FINAL_NOTE, plots.final_rho(report, colours)),
        _figure("What the real apps learn", _LOSS_NOTE, plots.loss_curves(record)),
        _figure(
            "Leases",
            f"A row a {'device' if several else 'GPU'}, machines apart, coloured by app.",
            plots.gantt(record, colours),
        ),
        _legend(report, colours),
        _section(
            "Best models",
            best_table(report),
            note="Real apps were trained by TensorFlow; the accuracy is on held-out data.",
        ),
        _section("Tenants and shares", tenants_table(report), note=_TENANTS_NOTE),
        _section("Device types", devices_table(report), note=_DEVICES_NOTE),
        _section("Speeds", speeds_table(report), note=_SPEEDS_NOTE),
        _section("Apps", apps_table(report, colours), note=_APPS_NOTE),
        _section("Finish-time fairness by definition", _DEFINITIONS + rho_table(report), note=_DEFINITIONS_NOTE),
        _section("What went wrong", troubles_table(record), note=_TROUBLES_NOTE),
        _section("Overheads", overheads_table(report)),
        _section("Audit", audit_table(report), note=_AUDIT_NOTE),
        _section("The run", facts_table(report)),
    ]
    return html_page(f"{report['mix']}: {report['policy']}", sections)


def html_page(title: str, sections: Iterable[str]) -> str:
    """An HTML page of these sections in the reports' style. Empty sections are omitted."""
    return _PAGE.format(title=text(title), style=STYLE, body="\n".join(part for part in sections if part))


_RHO_NOTE = (
    "Rho as reported in each round, logarithmic; the dot is rho at completion. Both are by "
    f"<code>{RhoDefinition.THEMIS}</code>, the definition that the auction uses; its ideal depends on the schedule. "
    "Real apps are drawn heavier."
)
_FINAL_NOTE = (
    f"By the definition <code>{HEADLINE}</code>: the time to the end over {HEADLINE.sentence}. "
    "Filled bars are real apps, hatched ones replayed."
)
_DEFINITIONS_NOTE = "Never compare across definitions. Each is the time to the end over an ideal time:"
_DEFINITIONS = facts(
    (element("code", each), f"{each.sentence}{' (depends on the schedule)' if each.depends_on_schedule else ''}")
    for each in RhoDefinition
)
_LOSS_NOTE = "Training loss of each job, logarithmic. A curve that ends early was stopped by its tuner."
_TENANTS_NOTE = (
    "Device seconds by type: of the fair share that the policy computed, and of the leases. A tenant leases less where "
    "its jobs can use no more, and more where others leave devices."
)
_DEVICES_NOTE = (
    "Leased and running are shares of the type's time from the first submission to the last end of an app. "
    "A CPU node is one device."
)
_SPEEDS_NOTE = (
    "Speed of each app's jobs by device type, in units of the reference GPU: the app's own statement or that of the "
    "type, unless it was measured."
)
_APPS_NOTE = (
    "Seconds are real ones. Placement is the mean of 1/S over the GPU time of an app's tasks: 1 is as fast as on one "
    "slot. Waiting is the time until the first GPU."
)
_TROUBLES_NOTE = "Seconds since the first submission. What a run injects on purpose is here too."
_AUDIT_NOTE = (
    "Judged from the events of the run, and from what tasks wrote themselves, not by the code that decided. "
    "A check that looked at no case says nothing."
)
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def _heading(report: Report) -> str:
    cluster, failed = report["cluster"], failed_conditions(report)
    real = [app["name"] for app in report["apps"] if app["kind"] == "real"]
    replayed = len(report["apps"]) - len(real)
    emulated = _devices(cluster)
    verb = "trains" if len(real) == 1 else "train"
    trained = f"<b>{text(', '.join(real))}</b> {verb} with TensorFlow. " if real else "No app trains. "
    replay = (
        f"The other {replayed} apps are <b>replayed</b>: their jobs follow measured speeds, {report['time_scale']:g} "
        "times faster than they were measured, and recorded loss curves."
    )
    verdict = "passed" if not failed else "failed"
    tiles = [
        (f"max rho, {HEADLINE}", shown(report["max_rho"][HEADLINE], 2)),
        ("apps", str(len(report["apps"]))),
        ("rounds", str(report["rounds"])),
        (
            "GPU time leased" if len(cluster["devices"]) < 2 else "device time leased",
            percent(report["utilisation"]["leased"]),
        ),
        ("wall time", f"{report['wall_s']:.0f} s"),
        ("violations", str(len(report["invariants"]["violations"]))),
    ]
    return (
        f"<header><h1>{text(report['mix'])} "
        f"<small>under {text(report['policy'])} on {text(cluster['name'])}{by_engine(report['engine'])}</small> "
        f'<span class="verdict {verdict}">{verdict}</span></h1>'
        f"<p>{emulated}{trained}{replay if replayed else ''}</p>"
        + "".join(f'<p class="failure">{text(line)}</p>' for line in failed[:20])
        + '<dl class="tiles">'
        + "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
        + "</dl></header>"
    )


def _devices(cluster: dict[str, Any]) -> str:
    """What the cluster has, and whether it is real."""
    if len(cluster["devices"]) < 2:
        if cluster["emulated"]:
            return (
                f"All {cluster['gpus']} GPUs are <b>emulated</b>: leases are real, cards are not; tasks run on CPUs. "
            )
        return f"The cluster has {cluster['gpus']} GPUs. "
    counts = [
        f"{device['count']} {kind_of_device(device)}{'s' if device['count'] > 1 else ''} of type <b>{text(name)}</b>"
        for name, device in cluster["devices"].items()
    ]
    emulated = any(device["emulated"] for device in cluster["devices"].values())
    cards = " Leases of emulated GPUs are real, cards are not; tasks run on CPUs." if emulated else ""
    return f"The cluster has {', '.join(counts)}.{cards} "


def _legend(report: Report, colours: plots.Colours) -> str:
    chips = "".join(
        f"<li>{chip(colours[app['app_id']])}{text(app['name'])}{kind_label(app['kind'])}</li>" for app in report["apps"]
    )
    return f'<ul class="legend">{chips}</ul>'


def _figure(title: str, note: str, svg: str) -> str:
    return _section(title, f"<figure>{svg}</figure>", note=note) if svg else ""


def _section(title: str, content: str, note: str = "") -> str:
    if not content:
        return ""
    return f"<section><h2>{title}</h2>{f'<p>{note}</p>' if note else ''}{content}</section>"
