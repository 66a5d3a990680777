"""The tables of the report's page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from themis.event_words import sentence
from themis.rho import HEADLINE
from themis.web.elements import MOST_COLUMNS
from themis_lab.testbed.app_report import RHO_DEFINITIONS
from themis_lab.testbed.outcome import shown
from themis_lab.testbed.report import Report
from themis_lab.testbed.run_record import RunRecord

_TROUBLES = frozenset(
    (
        *("am_lost", "machine_lost", "machine_back", "lease_revoked"),
        *("checkpoint_failed", "stop_unsaved", "metric_unread"),
        *("job_stalled", "job_diverged", "job_restarted", "job_given_up"),
    )
)
_MAX_TROUBLES = 100

Cell = tuple[str, str]
"""The HTML of a table cell, and its class."""


def apps_table(report: Report, colours: Mapping[str, str]) -> str:
    """A row per app. `colours` are by app id."""
    heads = (
        "app",
        "kind",
        "tuner",
        "state",
        "jobs",
        f"rho, {HEADLINE}",
        "GPU s",
        "placement",
        "resizes",
        "restarts",
        "waited s",
        "took s",
    )
    rows = [
        [
            (chip(colours[app["app_id"]]) + text(app["name"]), ""),
            (kind_label(app["kind"]), ""),
            (text(app["tuner"]), ""),
            (text(app["state"]), "" if app["state"] == "FINISHED" else "bad"),
            *_numbers(
                (app["jobs"], 0),
                (app["rho"][HEADLINE], 2),
                (app["gpu_time_s"], 0),
                (app["placement_score"], 2),
                (app["resizes"], 0),
                (app["restarts"], 0),
                (app["queueing_s"], 1),
                (app["completion_s"], 1),
            ),
        ]
        for app in report["apps"]
    ]
    return table(heads, rows, first_number=4)


def devices_table(report: Report) -> str:
    """A row per device type: how much of it was used, and by which apps. Empty on a cluster of one type."""
    devices, used = report["cluster"]["devices"], report["utilisation"]["by_device"]
    if len(devices) < 2:
        return ""
    rows = []
    for name, device in devices.items():
        share = used.get(name, {"leased": None, "running": None})
        seconds = {app["name"]: app["gpu_time_s_by_device"].get(name, 0.0) for app in report["apps"]}
        largest = sorted(((count, app) for app, count in seconds.items() if count >= 0.5), reverse=True)
        rows.append(
            [
                (text(name), ""),
                (kind_of_device(device), ""),
                (text(", ".join(f"{app} {count:,.0f} s" for count, app in largest) or "-"), ""),
                *_numbers((device["count"], 0), (device["speed"], 2)),
                (percent(share["leased"]), "number"),
                (percent(share["running"]), "number"),
            ]
        )
    heads = ("type", "kind", "device seconds by app", "devices", "speed", "leased", "running")
    return table(heads, rows, first_number=3)


def speeds_table(report: Report) -> str:
    """A row per app: its user, and its speed on each device type. Empty on a cluster of one type."""
    devices = list(report["cluster"]["devices"])
    if len(devices) < 2:
        return ""
    rows = [
        [(text(app["name"]), ""), (text(app["user"]), ""), *(_speed(app["speeds"], device) for device in devices)]
        for app in report["apps"]
    ]
    return table(("app", "user", *devices), rows, first_number=2)


def _speed(speeds: Mapping[str, Mapping[str, Any]], device: str) -> Cell:
    if not speeds:
        return "-", "number"
    if device not in speeds:
        return "cannot run", "number dim"
    known = speeds[device]
    return f"{known['speed']:.3g}{', measured' if known['measured'] else ''}", "number"


def tenants_table(report: Report) -> str:
    """A row per tenant: device seconds of its fair share and of its leases, by type. Empty without shares."""
    names = {app["app_id"]: app["name"] for app in report["apps"]}
    devices = list(report["cluster"]["devices"])
    rows = [
        [
            (text(tenant), ""),
            (text(", ".join(names.get(app_id, app_id) for app_id in entry["apps"])), ""),
            *_numbers(
                *((entry[measure].get(device, 0.0), 0) for device in devices for measure in ("share_s", "leased_s"))
            ),
        ]
        for tenant, entry in report["tenants"].items()
    ]
    heads = ("tenant", "apps", *(f"{device} {what} s" for device in devices for what in ("share", "leased")))
    return table(heads, rows, first_number=2) if rows else ""


def kind_of_device(device: Mapping[str, Any]) -> str:
    """What devices of a type are, in words."""
    if device["kind"] == "cpu":
        return "CPU node"
    return "emulated GPU" if device["emulated"] else "GPU"


def best_table(report: Report) -> str:
    """The best model of each real app. Empty without any."""
    rows = []
    for app in report["apps"]:
        best = app["best"]
        if best is None or app["kind"] != "real":
            continue
        parameters = ", ".join(f"{name} = {value}" for name, value in best["hyper_parameters"].items())
        rows.append(
            [
                (text(app["name"]), ""),
                (text(best["job_id"]), ""),
                (text(parameters), ""),
                (f"<code>{text(best['checkpoint'] or '-')}</code>", "path"),
                *_numbers((best["accuracy"], 4), (best["loss"], 4), (best["iteration"], 0)),
            ]
        )
    heads = ("app", "job", "hyper-parameters", "checkpoint", "accuracy", "loss", "iteration")
    return table(heads, rows, first_number=4) if rows else ""


def rho_table(report: Report) -> str:
    """Finish-time fairness by all definitions."""
    rows = [
        [(text(app["name"]), ""), *_numbers(*((app["rho"][name], 2) for name in RHO_DEFINITIONS))]
        for app in report["apps"]
    ]
    rows.append([("<b>largest</b>", ""), *_numbers(*((report["max_rho"][name], 2) for name in RHO_DEFINITIONS))])
    return table(("app", *RHO_DEFINITIONS), rows, first_number=1)


def overheads_table(report: Report) -> str:
    """Costs of decisions and restarts."""
    rows = [
        [(text(name), ""), *_numbers((values["median"], 2), (values["p95"], 2), (values["count"], 0))]
        for name, values in report["overheads"].items()
    ]
    return table(("what", "median", "95th", "count"), rows, first_number=1)


def audit_table(report: Report) -> str:
    """Every check, and every violation."""
    violations: Sequence[str] = report["invariants"]["violations"]
    rows = []
    for check, cases in report["invariants"]["checks"].items():
        bad = sum(line.startswith(f"{check}: ") for line in violations)
        verdict = ("nothing to look at", "dim") if not cases else ("holds", "") if not bad else ("violated", "bad")
        rows.append([(text(check), ""), verdict, *_numbers((cases, 0), (bad, 0))])
    listed = "".join(f'<p class="failure">{text(line)}</p>' for line in violations[:50])
    return table(("check", "verdict", "cases", "violations"), rows, first_number=2) + listed


def troubles_table(record: RunRecord) -> str:
    """A row per event that reports trouble, as a sentence; at most the first hundred. Empty if there was none."""
    names = {app.app_id: app.name for app in record.apps}
    began_s = min((event.time_s for event in record.events if event.kind == "app_submitted"), default=0.0)
    troubles = [event for event in record.events if event.kind in _TROUBLES]
    rows = [
        [
            *_numbers((event.time_s - began_s, 1)),
            (text(names.get(event.app_id, "")), ""),
            (text(sentence(event.kind, event.detail, event.time_s)), ""),
        ]
        for event in troubles[:_MAX_TROUBLES]
    ]
    if more := len(troubles) - len(rows):
        rows.append([("", ""), ("", ""), (f"and {more} more, in events.jsonl", "")])
    return table(("at s", "app", "what"), rows, first_number=9) if rows else ""


def facts_table(report: Report) -> str:
    """All other facts."""
    processes, bids, measured = report["processes"], report["empty_bids"], report["invariants"]["measured"]
    made_with = report["environment"]
    facts = {
        "ending": report["ending"],
        "seed": report["seed"],
        "time scale of replayed jobs": f"{report['time_scale']:g}",
        "lease": f"{report['lease_s']:g} s",
        "cluster": "{machines} machines on {racks} racks".format(**report["cluster"]),
        "GPU time leased, and running tasks": " and ".join(
            percent(report["utilisation"][name]) for name in ("leased", "running")
        ),
        "leased but idle": f"{measured.get('leased_but_idle_gpu_s', 0.0):,.0f} GPU s",
        "GPUs that came as leftovers": percent(report["share_of_gpus_by_leftovers"]),
        "bids": f"{bids['bids']}, {bids['empty']} empty, {bids['cut']} cut, {bids['absent']} not sent in time",
        "processes at most": processes["peak_count"],
        "memory at most": f"{processes['peak_pss_bytes'] / 2**30:.1f} GiB, shared pages divided among their users; "
        f"{processes['peak_rss_bytes'] / 2**30:.1f} GiB with them counted for each",
        "machine": "not known" if not made_with else "{cpus} CPUs, a load of {load_1min:g} before".format(**made_with),
        "made with": "not known" if not made_with else "code {code}, Python {python}".format(**made_with),
    }
    return table(("", ""), [[(text(name), ""), (text(value), "")] for name, value in facts.items()], first_number=9)


def table(heads: Iterable[str], rows: Iterable[Sequence[Cell]], *, first_number: int) -> str:
    """A table whose columns are numbers from `first_number` on. A wide one is stacked as those of the pages are."""
    names = [text(name) for name in heads]
    head = "".join(
        f'<th class="{"number" if index >= first_number else ""}">{name}</th>' for index, name in enumerate(names)
    )
    body = ""
    for row in rows:
        cells = zip(names, row, strict=True)
        body += "<tr>" + "".join(f'<td class="{kind}" data-head="{name}">{cell}</td>' for name, (cell, kind) in cells)
        body += "</tr>"
    kind = "scroll" if len(names) <= MOST_COLUMNS else "scroll stacked"
    return f'<div class="{kind}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _numbers(*values: tuple[Any, int]) -> list[Cell]:
    return [(shown(value, digits), "number") for value, digits in values]


def kind_label(kind: str) -> str:
    """Whether an app is real or replayed."""
    return f'<span class="kind {kind}">{"real" if kind == "real" else "replayed"}</span>'


def chip(colour: str) -> str:
    """A patch in an app's colour."""
    return f'<span class="chip" style="background:{colour}"></span>'


def percent(share: float | None) -> str:
    """A share of 1 for readers."""
    return "-" if share is None else f"{100 * share:.0f} %"


def text(value: object) -> str:
    """Any value as escaped HTML text."""
    return html.escape(str(value))
