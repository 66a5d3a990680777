"""The page `/apps/ID`: one app, its jobs and leases, why it waits, what happened to it."""

from __future__ import annotations

import math
from urllib.parse import quote

from rm_plugin.arbiter.estimates import Interval
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.store import StoredEvent
from rm_plugin.service.web.actions import verbs_for
from rm_plugin.service.web.documents import explanation_of, newest_round
from rm_plugin.service.web.page_state import PageState, jobs_of
from rm_plugin.service.web.parts import AppNames, app_state
from rm_plugin.service.web.stream import app_mark
from themis.config.tuner_settings import gpus_at_once
from themis.event_words import sentence
from themis.leases import Lease
from themis.lifecycle import JobState
from themis.rho import HEADLINE, RhoDefinition, rho_text
from themis.web.elements import Markup, element, facts, join, link, outside_link, section, table, tiles, valued
from themis.web.formatting import MISSING, assignments, duration, from_now, moment, number, percent
from themis.web.frame import chart, label, page
from themis.web.static_files import ACTIONS_SCRIPT, LOGS_SCRIPT, TABLES_SCRIPT
from themis.wire import themis_pb2 as pb
from themis.wire.values import scalars_from_messages

MAX_JOBS = 300
MAX_LEASES = 300
_SENTENCE_LETTERS = 400
_LOSSES_NOTE = "Each point is the mean of some values in a row. A click on a job in the legend hides its curve."
_PARAMETERS_NOTE = "A line is a job; it ends at its newest value, the least at the bottom. The legend has its values."
_TIMELINE_NOTE = "Above the jobs, below the GPUs that were leased. Drag to zoom, double-click to go back."
_RHO_NOTE = "The time to the end over an ideal time. Never compare across definitions."
_ESTIMATE_NOTE = "If no app arrives and no machine is lost. The interval holds four times in five."


def app_page(page_state: PageState, entry: AppEntry) -> str:
    """The page as text."""
    names = AppNames(page_state, root="../")
    is_private = not page_state.controls(entry)
    return page(
        f"{entry.spec.name} ({entry.app_id})",
        element("p", link("../", "Cluster")),
        element("h1", entry.spec.name, " ", element("small", entry.app_id)),
        _tiles(page_state, entry),
        _actions(page_state, entry),
        element("p", id="action-note", role="status", data_keep=""),
        section("App", _facts(page_state, entry)),
        *(() if is_private else _explanation(page_state, entry)),
        *(() if is_private else _waiting(page_state, names, entry)),
        *(() if is_private else _estimate(page_state, entry)),
        *_charts(entry, is_private=is_private),
        section("Jobs", *_jobs(page_state, entry)),
        *_tracked_runs(entry),
        *_leases(page_state, entry),
        *_final_rho(page_state, entry),
        *((_another_users(),) if is_private else (_logs(entry), _events(page_state, entry))),
        charts_from="../static/",
        scripts=(ACTIONS_SCRIPT, LOGS_SCRIPT, TABLES_SCRIPT),
        stream=f"{_source(entry)}/stream?after={quote(app_mark(page_state.manager, entry))}",
    )


def _tiles(page_state: PageState, entry: AppEntry) -> Markup:
    phase = f"{min(entry.heartbeat.phase + 1, entry.heartbeat.phases)} of {entry.heartbeat.phases}"
    return tiles(
        [
            ("state", app_state(page_state, entry)),
            ("progress", percent(entry.progress)),
            (f"rho, {HEADLINE}", rho_text(page_state.rho(entry))),
            (page_state.devices_label, page_state.gpus_held(entry)),
            (f"{page_state.device_noun} time", duration(page_state.gpu_time_s(entry))),
            ("phase", phase if entry.heartbeat.phases else MISSING),
        ]
    )


def _actions(page_state: PageState, entry: AppEntry) -> Markup:
    """Buttons for what the reader may do with the app now; empty for one who may not."""
    may = page_state.controls(entry) and page_state.action_token
    buttons = [
        element("button", verb.capitalize(), type="button", data_verb=verb, class_="danger" if verb == "kill" else None)
        for verb in (verbs_for(entry) if may else ())
    ]
    return element(
        "div",
        *buttons,
        class_="actions",
        data_token=page_state.action_token if buttons else "",
        data_source=f"{_source(entry)}/",
        data_app=f"{entry.spec.name} ({entry.app_id})",
    )


def _source(entry: AppEntry) -> str:
    """Where the app is in REST, as seen from its page."""
    return f"../api/v1/apps/{quote(entry.app_id, safe='')}"


def _facts(page_state: PageState, entry: AppEntry) -> Markup:
    spec = entry.spec
    program = spec.program.name or spec.program.command
    return facts(
        [
            ("User, queue", f"{spec.user}, {page_state.manager.app_masters.launches.queue(entry)}"),
            ("Program", join((program, label("replayed")), " ") if spec.replay else program),
            ("Tuner", f"{spec.tuner.name} {assignments(spec.tuner.settings)}".removesuffix(f" {MISSING}")),
            ("Jobs", f"{len(spec.jobs)}, at most {gpus_at_once(spec)} {page_state.device_noun}s at once"),
            ("Metric", entry.spec.metric.summary if entry.spec.metric.declared else ""),
            ("Speed by device type", _speeds(entry)),
            ("Submitted", moment(entry.submitted_at_s)),
            (f"First {page_state.device_noun}", moment(entry.started_at_s) if entry.started_at_s else ""),
            ("Ended", moment(entry.finished_at_s) if entry.finished_at_s else ""),
            ("Why", entry.diagnostics),
            ("Best job", entry.best_job),
            ("Checkpoint", entry.finish.best_checkpoint),
            ("Attempts", entry.attempt),
            ("Its events", page_state.manager.archive_path(entry)),
            ("Folder", str(page_state.manager.folder(entry.app_id)) if page_state.controls(entry) else ""),
            ("In the engine", entry.engine_id),
            ("Its own page", outside_link(entry.page_url, entry.page_url) if entry.page_url else ""),
        ]
    )


def _final_rho(page_state: PageState, entry: AppEntry) -> list[Markup]:
    """Rho at the end by each definition, with what it compares with."""
    final = page_state.manager.final_rho(entry)
    rows = []
    for name in (each for each in RhoDefinition if each in final):
        by_schedule = " (depends on the schedule)" if name.depends_on_schedule else ""
        rows.append((name, rho_text(final[name]), f"{name.sentence}{by_schedule}"))
    shown = table(("definition", "rho", "ideal"), rows, numbers=("rho",))
    return [section("Finish-time fairness by definition", shown, note=_RHO_NOTE)] if rows else []


def _speeds(entry: AppEntry) -> str:
    """The speeds of the app's jobs, measured ones first; before a report those that it states. Empty without any."""
    known: dict[str, str] = {}
    for job in jobs_of(entry):
        for each in job.speeds:
            if each.measured or each.device not in known:
                known[each.device] = f"{number(each.speed)}{' (measured)' if each.measured else ''}"
    stated = {device: number(speed) for device, speed in entry.spec.jobs[0].speed_by_device.items()}
    return ", ".join(f"{device} {speed}" for device, speed in (known or stated).items())


def _explanation(page_state: PageState, entry: AppEntry) -> list[Markup]:
    rows: list[tuple[str, object]] = list(explanation_of(page_state, entry))
    return [section("Its share", facts(rows), note=f"As the policy {page_state.policy} sees it.")] if rows else []


def _waiting(page_state: PageState, names: AppNames, entry: AppEntry) -> list[Markup]:
    waiting = page_state.manager.estimates.waiting(entry)
    if waiting is None:
        return []
    wanted = entry.heartbeat.unmet_gpus
    rows: list[tuple[str, object]] = [
        ("Could use", f"{wanted} more" if wanted else ""),
        ("Because", waiting.reason),
        ("Its place", f"{waiting.rank} of {waiting.of} that could use more" if waiting.rank else ""),
        ("Ahead of it", names.listed(waiting.ahead) if waiting.ahead else ""),
        ("Newest round", newest_round(page_state, entry)),
    ]
    return [section(f"Why it has no more {page_state.device_noun}s", facts(rows))]


def _estimate(page_state: PageState, entry: AppEntry) -> list[Markup]:
    estimate = page_state.manager.estimates.estimate(entry)
    if estimate is None:
        return []
    waits = not page_state.gpus_held(entry)
    rows: list[tuple[str, object]] = [
        (page_state.devices_label, _interval(estimate.first_gpu_s) if waits else ""),
        ("End", _interval(estimate.end_s)),
    ]
    return [section("What it may expect", facts(rows), note=_ESTIMATE_NOTE)]


def _interval(interval: Interval) -> str:
    if math.isnan(interval.median):
        return "unknown, because a job has an unknown pace or is past its target"
    if not math.isfinite(interval.median):
        return "not in sight"
    return f"in about {duration(interval.median)} (80 %: {duration(interval.low)} to {duration(interval.high)})"


def _charts(entry: AppEntry, *, is_private: bool) -> list[Markup]:
    if is_private:
        return []
    source, charts = _source(entry), []
    if entry.loss_curves:
        title = entry.spec.metric.title if entry.spec.metric.declared else "Losses"
        drawn = chart("losses", f"{source}/losses", f"{title} of the jobs over their iterations")
        charts.append(section(title, drawn, note=_LOSSES_NOTE))
    if len(entry.spec.jobs) > 1 and any(job.hyper_parameters for job in entry.spec.jobs):
        name = f"hyper-parameters and newest {entry.spec.metric.title} of each job, an axis for each"
        drawn = chart("parameters", source, name)
        charts.append(section("Hyper-parameters", drawn, note=_PARAMETERS_NOTE))
    if entry.attempt:
        drawn = chart("timeline", f"{source}/timeline", "when each job ran, and when each GPU was leased")
        charts.append(section("Time line", drawn, note=_TIMELINE_NOTE))
    return charts


def _logs(entry: AppEntry) -> Markup:
    """The logs, which a script fills in; without scripts a link to their list."""
    source = f"{_source(entry)}/logs"
    tools = (
        element("label", "Log ", element("select", id="log-choice")),
        element("label", element("input", type="checkbox", checked="" if not entry.ended else None), " Follow"),
        element("a", "Its first megabyte", href=source),
    )
    return section(
        "Logs",
        element(
            "div",
            element("div", *tools, class_="tools"),
            element("p", element("noscript", link(source, "The list of logs"))),
            element("pre", tabindex="0", role="log", aria_live="off", aria_label="end of the log"),
            class_="logs",
            id="logs",
            data_keep="",
            data_source=source,
        ),
    )


def _jobs(page_state: PageState, entry: AppEntry) -> list[Markup]:
    devices = page_state.devices_label
    scores = (entry.spec.metric.title, "accuracy")
    heads = ("job", "state", "iteration", *scores, devices, "s/iteration", "restarts", "hyper-parameters")
    jobs, best = list(jobs_of(entry)), entry.best_job
    submitted = {job.job_id: job.hyper_parameters for job in entry.spec.jobs}
    rows = [
        (
            join((job.job_id, label("best")), " ") if job.job_id == best else job.job_id,
            _job_state(job),
            valued(f"{job.iteration}/{job.target_iteration}", job.iteration),
            number(job.loss if job.has_loss else None),
            number(job.accuracy if job.has_accuracy else None),
            join((job.gpus, label(job.device)), " ") if job.gpus and job.device else job.gpus or "",
            number(job.iteration_s or None),
            job.restarts or "",
            assignments(scalars_from_messages(job.hyper_parameters) or submitted.get(job.job_id, {})),
        )
        for job in jobs[:MAX_JOBS]
    ]
    more = [element("p", f"and {len(jobs) - MAX_JOBS} more")] if len(jobs) > MAX_JOBS else []
    return [table(heads, rows, numbers=heads[2:8], sort_as="jobs"), *more]


def _tracked_runs(entry: AppEntry) -> list[Markup]:
    """Links to the runs of the jobs in MLflow or Weights & Biases."""
    rows = [(job.job_id, outside_link(job.tracked_run, job.tracked_run)) for job in jobs_of(entry) if job.tracked_run]
    more = [element("p", f"and {len(rows) - MAX_JOBS} more")] if len(rows) > MAX_JOBS else []
    return [section("Tracked runs", table(("job", "run"), rows[:MAX_JOBS]), *more)] if rows else []


def _job_state(job: pb.JobStatus) -> Markup:
    state = element("span", job.state or MISSING, class_="bad" if job.state == JobState.FAILED else None)
    return join((state, job.health), ": ") if job.health else state


def _end(lease: Lease, now_s: float) -> str:
    """When a lease ends. A bound one is renewed until its job ends."""
    return f"with job {lease.job_id}" if lease.job_id else from_now(lease.expires_at_s, now_s)


def _leases(page_state: PageState, entry: AppEntry) -> list[Markup]:
    leases = page_state.leases_of(entry)
    if not leases:
        return []
    rows = [
        (str(lease.gpu), lease.state, _end(lease, page_state.now_s), lease.renewals) for lease in leases[:MAX_LEASES]
    ]
    more = [element("p", f"and {len(leases) - MAX_LEASES} more")] if len(leases) > MAX_LEASES else []
    return [
        section(
            "Leases", table((page_state.device_noun, "state", "ends", "renewals"), rows, numbers=("renewals",)), *more
        )
    ]


def _another_users() -> Markup:
    sign_in = link("../login", "sign in with a token")
    text = ("Only its user and administrators see its events, jobs and settings: ", sign_in, ".")
    return section("Another user's app", element("p", *text))


def _events(page_state: PageState, entry: AppEntry) -> Markup:
    events = page_state.event_index.events_of(entry.app_id)
    noun = page_state.device_noun
    rows = [(element("span", moment(event.time_s), class_="when"), _sentence(event, noun)) for event in events]
    address = f"../api/v1/events?app={entry.app_id}"
    everything = element("p", link(address, "All events as JSON"))
    note = "Newest first, without the progress of jobs."
    return section("Newest events", table(("when", "what"), rows), everything, note=note)


def _sentence(event: StoredEvent, noun: str) -> str:
    text = sentence(event.kind, event.detail, event.time_s, noun)
    return text if len(text) <= _SENTENCE_LETTERS else text[:_SENTENCE_LETTERS] + " .."
