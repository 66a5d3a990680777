"""What an event of the log says, as one sentence for people: for pages, commands and the report. Pure.

Example: `tasks_ended` with `{"job_id": "lr-0.1", "gpus": ["m0/0", "m0/1"], "requested": true, "iteration": 40}` is
`lr-0.1 stopped on 2 GPUs as requested; its newest checkpoint is of iteration 40`.

App masters write the details of their events, another version may have written any of them, and other users see a part
only. So a sentence leaves out what its detail lacks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from themis.events import UNREADABLE
from themis.lifecycle import AppState, JobState
from themis.web.formatting import counted, duration, number, percent

_NAMED = 3
"""Names that a sentence lists before it only counts the others."""


class _Detail:
    """The detail of an event, read without trust. What is missing is an empty text, None or 0."""

    def __init__(self, detail: Mapping[str, object], time_s: float, noun: str) -> None:
        self._detail, self._time_s, self.noun = detail, time_s, noun

    def text(self, name: str, unknown: str = "") -> str:
        value = self._detail.get(name)
        return str(value) if isinstance(value, str | int | float) and value != "" else unknown

    def worded(self, name: str, words: str) -> str:
        """`words` with the text in place of `{}`, if the detail has it."""
        text = self.text(name)
        return words.replace("{}", text) if text else ""

    def figure(self, name: str) -> float | None:
        value = self._detail.get(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def whole(self, name: str) -> int:
        value = self._detail.get(name)
        return value if isinstance(value, int) else len(value) if isinstance(value, list | dict) else 0

    def is_true(self, name: str) -> bool:
        return self._detail.get(name) is True

    def names(self, name: str) -> Sequence[str]:
        value = self._detail.get(name)
        return [str(each) for each in value if each is not None] if isinstance(value, list | dict) else []

    @property
    def job(self) -> str:
        return self.text("job_id", "A job")

    @property
    def machine(self) -> str:
        return self.worded("machine_id", "Machine {}") or "A machine"

    @property
    def gpus(self) -> str:
        """The GPUs of the event: `GPU m0/0`, `2 GPUs (m0/0, m0/1)`."""
        names = self.names("gpus") or self.names("gpu") or [name for name in (self.text("gpu"),) if name]
        if len(names) == 1:
            return f"{self.noun} {names[0]}"
        return counted(len(names), self.noun) + _listed(names, " ({})") if names else f"{self.noun}s"

    def count(self, name: str) -> str:
        """A number of GPUs with its noun."""
        return counted(self.whole(name), self.noun)

    @property
    def why(self) -> str:
        """The reason, behind a colon."""
        return self.worded("reason", ": {}") or self.worded("diagnostics", ": {}")

    @property
    def by(self) -> str:
        return self.worded("user", " by {}")

    @property
    def ends(self) -> str:
        """When a lease ends, counted from the event."""
        if job := self.text("job_id"):
            return f" until {job} ends"
        end_s = self.figure("expires_at_s")
        return "" if end_s is None or end_s <= self._time_s else f" for {duration(end_s - self._time_s)}"

    def after(self, name: str, words: str) -> str:
        """`words` with a duration in place of `{}`, if the detail has it."""
        seconds = self.figure(name)
        return "" if seconds is None else words.format(duration(seconds))

    def at(self, name: str, words: str, *, digits: int = 3) -> str:
        """`words` with a number in place of `{}`, if the detail has it."""
        value = self._detail.get(name)
        if isinstance(value, int):
            return words.format(value)
        return "" if not isinstance(value, float) else words.format(number(value, digits))


def sentence(kind: str, detail: Mapping[str, object], time_s: float = 0.0, noun: str = "GPU") -> str:
    """Return an event as one sentence, without a full stop. A kind that is not known shows its detail.

    Args:
        kind: One of `themis.events.EMITTERS`.
        detail: Its detail, which may lack anything.
        time_s: When it happened, in seconds since the epoch.
        noun: What a device of the cluster is called.
    """
    words = SENTENCES.get(kind)
    if words is None:
        return f"{kind} {json.dumps(detail, ensure_ascii=False)}"
    return words(_Detail(detail, time_s, noun))


def _listed(names: Sequence[str], words: str) -> str:
    """`words` with the first names in place of `{}`; empty without names."""
    more = len(names) - _NAMED
    text = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return words.replace("{}", text) if names else ""


# ---- apps and their app masters -------------------------------------------------------------------------------------

_APP_STATES: Mapping[str, str] = {
    AppState.SUBMITTED: "The app waits to be admitted",
    AppState.ACCEPTED: "The app was accepted, and takes part in rounds",
    AppState.RUNNING: "The app runs",
    AppState.PAUSED: "The app is paused: nothing of it runs",
    AppState.FINISHED: "The app has finished",
    AppState.FAILED: "The app failed",
    AppState.KILLED: "The app was killed",
}


def _app_state(detail: _Detail) -> str:
    state = detail.text("state", "unknown")
    return _APP_STATES.get(state, f"The app is in state {state}") + detail.why


def _app_submitted(detail: _Detail) -> str:
    by = f"{detail.text('by')} for {detail.text('user')}" if detail.text("by") else detail.text("user")
    jobs = detail.whole("jobs")
    search = f": {counted(jobs, 'job')}, at most {detail.count('demand_max_gpus')} at once" if jobs else ""
    return f"{detail.text('name', 'The app')} was submitted{f' by {by}' if by else ''}{search}"


def _attempt(detail: _Detail) -> str:
    return f"The app master{detail.at('attempt', ' of attempt {}')}"


def _user_acted(detail: _Detail) -> str:
    user, action = detail.text("user", "An administrator"), detail.text("action")
    of = detail.text("of", "a user")
    kept = ", and the apps went on" if detail.is_true("keep_apps") else ""
    return {
        "user_added": f"{user} gave {of} a token",
        "user_revoked": f"{user} revoked the tokens of {of}",
        "stopped": f"{user} stopped the ResourceManager{kept}",
        "queues_reloaded": f"{user} changed the queues",
        "logs_read": f"The administrator {user} read the app's logs",
        "environment_read": f"The administrator {user} read the app's environment variables",
    }.get(action, f"{user} did: {action or 'an unknown thing'}")


# ---- rounds ---------------------------------------------------------------------------------------------------------


def _round(detail: _Detail) -> str:
    return f"Round{detail.at('round_id', ' {}')}"


def _round_reported(detail: _Detail) -> str:
    absent = _listed(detail.names("absent"), "; no answer came from {}")
    return f"{_round(detail)}: {counted(detail.whole('rho'), 'app')} reported rho{absent}"


def _round_bids(detail: _Detail) -> str:
    absent = _listed(detail.names("absent"), "; none came from {}")
    return f"{_round(detail)}: {counted(detail.whole('bids'), 'bid')} arrived{absent}"


def _round_granted(detail: _Detail) -> str:
    apps = {*detail.names("auction"), *detail.names("leftovers")}
    left = f"; {detail.count('usable_left')} that some app could use stayed free" if detail.whole("usable_left") else ""
    return f"{_round(detail)} gave {detail.noun}s to {counted(len(apps), 'app')}{left}"


# ---- leases ---------------------------------------------------------------------------------------------------------


def _lease_released(detail: _Detail) -> str:
    if detail.is_true("reserved"):
        return f"The app does not get {detail.gpus}, which it had won{detail.why}"
    return f"The app gave back {detail.gpus}{detail.why}"


# ---- jobs -----------------------------------------------------------------------------------------------------------

_JOB_STATES: Mapping[str, str] = {
    JobState.WAITING: "waits",
    JobState.STARTING: "starts",
    JobState.RUNNING: "runs",
    JobState.CHECKPOINTING: "saves a checkpoint and stops",
    JobState.PHASE_DONE: "is done with this phase of the search",
    JobState.FINISHED: "has finished",
    JobState.STOPPED: "was stopped by the tuner",
    JobState.FAILED: "failed",
    JobState.KILLED: "was killed",
}


def _job_state(detail: _Detail) -> str:
    state = detail.text("state", "unknown")
    return f"{detail.job} {_JOB_STATES.get(state, f'is in state {state}')}"


def _tasks_started(detail: _Detail) -> str:
    tasks, at = detail.whole("tasks"), detail.whole("iteration")
    resumes = f", from iteration {at}" if at else ""
    return f"{detail.job} was started on {detail.gpus}{f' as {tasks} tasks' if tasks > 1 else ''}{resumes}"


def _tasks_ended(detail: _Detail) -> str:
    saved = detail.at("iteration", "; its newest checkpoint is of iteration {}") if detail.whole("iteration") else ""
    if detail.is_true("requested"):
        return f"{detail.job} stopped on {detail.gpus} as requested{saved}"
    codes = sorted(set(detail.names("exit_codes")))
    exits = "" if not codes or codes == ["0"] else _listed(codes, ", with exit code {}")
    return f"{detail.job} ended on {detail.gpus}{exits}{saved}"


def _job_progress(detail: _Detail) -> str:
    pace = detail.after("iteration_s", ", {} an iteration")
    return f"{detail.job} is at iteration {detail.whole('iteration')}{detail.at('loss', ', loss {}')}{pace}"


def _validation(detail: _Detail) -> str:
    accuracy = detail.figure("accuracy")
    measured = detail.at("loss", ", loss {}") + (f", accuracy {percent(accuracy)}" if accuracy is not None else "")
    return f"{detail.job} was validated at iteration {detail.whole('iteration')}{measured}"


def _checkpoint(detail: _Detail) -> str:
    took = detail.after("seconds", " in {}")
    return f"{detail.job} saved a checkpoint of iteration {detail.whole('iteration')}{took}"


def _resize(detail: _Detail) -> str:
    before, after = detail.whole("from_gpus"), detail.count("to_gpus")
    change = f"went from {before} to {after}" if before != detail.whole("to_gpus") else f"moved to {after} elsewhere"
    return f"{detail.job} {change}{detail.after('seconds', '; that cost it {}')}"


def _metric_unread(detail: _Detail) -> str:
    seen = f"{counted(detail.whole('lines_seen'), 'line')} seen, none understood"
    return (
        f"{detail.job} has logged no metric that can be read: {seen}{detail.worded('first_line', '; first line: {}')}"
    )


def _tuner(detail: _Detail) -> str:
    phases = detail.whole("phases")
    phase = f"phase {min(detail.whole('phase') + 1, phases)} of {phases}" if phases else "the search"
    stopped = detail.whole("stopped")
    ended = f", {stopped} stopped" if stopped else ""
    best = detail.worded("best", "; the best so far is {}")
    return f"The tuner is in {phase}: {counted(detail.whole('running'), 'job')} to run{ended}{best}"


def _archived(detail: _Detail) -> str:
    apps = detail.whole("apps")
    what = f"Events of {counted(apps, 'ended app')}" if apps else f"Old events ({detail.whole('events')})"
    return f"{what} left the log for the archive"


SENTENCES: Mapping[str, Callable[[_Detail], str]] = {
    "events_archived": _archived,
    "code_removed": lambda it: f"Removed {counted(it.whole('archives'), 'archive')} of code that no app has any more",
    "rm_started": lambda it: (
        f"The ResourceManager started{' again' if it.is_true('recovered') else ''}, with {it.count('gpus')}"
        f"{it.worded('policy', ' under {}')}"
    ),
    "app_submitted": _app_submitted,
    "app_state": _app_state,
    "app_kill_wanted": lambda it: f"The app is to be killed{it.by}{it.why}",
    "app_pause_wanted": lambda it: f"The app is to be paused{it.by}{it.why}",
    "app_resumed": lambda it: f"The app was resumed{it.by}",
    "am_started": lambda it: f"{_attempt(it)} was started",
    "am_registered": lambda it: f"{_attempt(it)} is connected",
    "am_lost": lambda it: f"{_attempt(it)} was lost{it.why}",
    "am_rested": lambda it: f"{_attempt(it)} ended, because the app held no {it.noun}s for long",
    "machine_joined": lambda it: f"{it.machine} joined with {it.count('gpus')}",
    "machine_lost": lambda it: f"{it.machine} is lost{it.why}",
    "machine_back": lambda it: f"{it.machine} is back",
    "machine_drained": lambda it: f"{it.machine} was closed{it.by}: it gets no new work",
    "machine_opened": lambda it: f"{it.machine} was opened again{it.by}",
    "user_acted": _user_acted,
    "round_started": lambda it: f"{_round(it)} began{_listed(it.names('reasons'), ': {}')}",
    "round_reported": _round_reported,
    "round_offered": lambda it: f"{_round(it)} offers {it.noun}s to {counted(it.whole('apps'), 'app')}",
    "round_bids": _round_bids,
    "round_auctioned": lambda it: f"{_round(it)}: the auction among {counted(it.whole('bidders'), 'app')} was solved",
    "round_granted": _round_granted,
    "round_ended": lambda it: f"{_round(it)} ended{it.worded('outcome', ': {}')}",
    "lease_reserved": lambda it: f"The app won {it.gpus}, which another app has yet to give back",
    "lease_granted": lambda it: f"The app got {it.gpus}{it.ends}",
    "lease_renewed": lambda it: f"The app keeps {it.gpus}{it.ends}{'' if it.text('job_id') else it.why}",
    "lease_expiring": lambda it: f"The app has to give back {it.gpus}: it did not win the next lease",
    "lease_released": _lease_released,
    "lease_revoked": lambda it: f"The app lost {it.gpus}{it.why}",
    UNREADABLE: lambda it: f"An event cannot be read: {it.text('problem', 'its row is damaged')}",
    "job_state": _job_state,
    "tasks_started": _tasks_started,
    "tasks_ended": _tasks_ended,
    "first_step": lambda it: f"{it.job} made its first step{it.after('since_start_s', ' {} after its start')}",
    "start_cut_short": lambda it: f"{it.job} was stopped before its first step{it.after('seconds', ', after {}')}",
    "stop_unsaved": lambda it: (
        f"{it.job} stopped without a new checkpoint, and will start again at iteration {it.whole('iteration')}"
    ),
    "checkpoint": _checkpoint,
    "checkpoint_failed": lambda it: (
        f"{it.job} could not save its checkpoint of iteration {it.whole('iteration')}{it.why}"
    ),
    "job_progress": _job_progress,
    "validation": _validation,
    "job_stalled": lambda it: f"{it.job} makes no progress{it.after('waited_s', ': no iteration for {}')}",
    "job_diverged": lambda it: f"{it.job} diverged: its loss is no number since iteration {it.whole('iteration')}",
    "job_restarted": lambda it: f"{it.job} is started again{it.why}",
    "job_given_up": lambda it: f"{it.job} is given up{it.why}",
    "metric_unread": _metric_unread,
    "resize": _resize,
    "tuner": _tuner,
}
"""The sentence of every kind of event."""
