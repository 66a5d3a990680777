"""The app master's pages as HTML. All links are relative."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from am.page.log_files import CHUNK_BYTES, LogFile
from am.page.state import AmPageState, JobRow
from am.profiler.slowdowns import LevelSlowdown
from themis.lifecycle import JobState
from themis.rho import rho_text
from themis.web.elements import Markup, element, join, link, markup, outside_link, section, table, tiles
from themis.web.formatting import MISSING, assignments, from_now, number, percent
from themis.web.frame import label, page

_READER = element(
    "p",
    "Not signed in: who has the address of this page reads the app and its logs, and changes nothing.",
    class_="reader",
)
"""The secret in the address is the only key. The ResourceManager gives it to the owner and to administrators."""


def app_page(state: AmPageState) -> str:
    """The page `/`."""
    return page(
        f"{state.name} ({state.app_id})",
        _READER,
        element("h1", state.name, " ", element("small", f"{state.app_id}, attempt {state.attempt}")),
        tiles(
            [
                ("progress", percent(state.progress)),
                ("rho, themis", rho_text(state.rho)),
                (f"{state.device_noun}s", len(state.leases)),
                ("phase", f"{state.phase} of {state.phases}" if state.phases else MISSING),
                ("tuner", state.tuner),
            ]
        ),
        section("Jobs", _jobs(state)),
        _tracked_runs(state),
        section(
            "Slowdown by locality",
            _slowdowns(state),
            note="slowdown S: factor on the iteration time when a job's GPUs span this level; 1 means no slowdown",
        ),
        _speeds(state),
        section("Leases", _leases(state)),
        element(
            "p", join((link("logs/", "All logs"), link("status.json", "The same as JSON")), ", "), f"; {state.folder}"
        ),
    )


def logs_page(state: AmPageState, files: Sequence[LogFile]) -> str:
    """The page `/logs/`."""
    rows = [
        (
            file.job_id,
            link(_address("", file.job_id, file.name), file.name),
            f"{file.size_bytes:,}",
            link(_address("", file.job_id, file.name) + f"?offset=-{CHUNK_BYTES}", "its end"),
        )
        for file in files
    ]
    return page(
        f"Logs of {state.name}",
        _READER,
        element("p", link("../", state.name)),
        element("h1", "Logs ", element("small", state.app_id)),
        section("Files", table(("job", "log", "bytes", ""), rows, numbers=("bytes",)) if rows else "None yet."),
    )


def _jobs(state: AmPageState) -> Markup:
    heads = (
        "job",
        "state",
        "iteration",
        state.metric,
        "accuracy",
        "restarts",
        f"{state.device_noun}s",
        "hyper-parameters",
        "log",
    )
    rows = [
        (
            join((job.job_id, label("best")), " ") if job.job_id == state.best else job.job_id,
            _state(job),
            f"{job.iteration}/{job.target_iteration}",
            number(job.loss),
            number(job.accuracy),
            job.restarts or "",
            job.gpus,
            assignments(job.hyper_parameters),
            _log_link(job),
        )
        for job in state.jobs
    ]
    return table(heads, rows, numbers=heads[2:6])


def _state(job: JobRow) -> Markup:
    state = element("span", job.state, class_="bad" if job.state == JobState.FAILED else None)
    return join((state, job.health), ": ") if job.health else state


def _tracked_runs(state: AmPageState) -> Markup:
    """The section with links to the jobs' runs in MLflow or Weights & Biases, if there are any."""
    rows = [(job.job_id, outside_link(job.tracked_run, job.tracked_run)) for job in state.jobs if job.tracked_run]
    return section("Tracked runs", table(("job", "run"), rows)) if rows else markup("")


def _slowdowns(state: AmPageState) -> Markup:
    measured = [job for job in state.jobs if any(each.intervals for each in job.slowdown)]
    if not measured:
        return markup("Not measured yet.")
    heads = ("job", *(each.level for each in measured[0].slowdown))
    return table(heads, [(job.job_id, *map(_factor, job.slowdown)) for job in measured])


def _speeds(state: AmPageState) -> Markup:
    """The section on speeds, if the cluster has several device types."""
    jobs = [job for job in state.jobs if job.speeds]
    if not jobs:
        return markup("")
    devices = list(dict.fromkeys(each.device for job in jobs for each in job.speeds))
    rows = []
    for job in jobs:
        shown = {
            each.device: f"{number(each.speed)} {'measured' if each.measured else 'assumed'}" for each in job.speeds
        }
        rows.append((job.job_id, *[shown.get(device, "cannot run") for device in devices]))
    note = "speed on the device types of the cluster, relative to the reference GPU"
    return section("Speed by device type", table(("job", *devices), rows), note=note)


def _factor(slowdown: LevelSlowdown) -> str:
    source = f"measured by {slowdown.intervals} intervals" if slowdown.intervals else "estimated"
    return f"{number(slowdown.factor)} {source}"


def _log_link(job: JobRow) -> Markup:
    if job.state == JobState.WAITING and not job.iteration:
        return markup("")
    return link(_address("logs/", job.job_id, "task-0.log") + f"?offset=-{CHUNK_BYTES}", "task 0")


def _leases(state: AmPageState) -> Markup:
    if not state.leases:
        return markup("None.")
    rows = [(lease.gpu, lease.state, from_now(lease.expires_at_s, state.now_s)) for lease in state.leases]
    return table(("GPU", "state", "ends"), rows)


def _address(root: str, job_id: str, name: str) -> str:
    # The leading dot keeps browsers from reading a colon in the id as the end of a URL scheme.
    return f"./{root}{quote(job_id, safe='')}/{quote(name, safe='')}"
