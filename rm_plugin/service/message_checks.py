"""Checks messages of app masters and names that clients give, before anything changes.

Every message of a session goes through `check_message` or `check_registration`. A client may send anything:
kinds and states must be known, names and ids the app's own, numbers finite and bounded, lists and texts bounded. Values
of the kernel check themselves as they are made of messages (`themis.wire.values`); a specification is checked by
`admission`. A refused message costs its sender that message.

Free text that only people read (a reason, diagnostics) is cut, not refused: an app that ends must be able to say so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence, Sized

from rm_plugin.service.entries import AppEntry
from themis.attempt_proof import proves
from themis.cluster import Cluster, Level
from themis.errors import InputError
from themis.events import EMITTERS, Emitter
from themis.lifecycle import APP_LIFECYCLE, AppState, JobState
from themis.wire import themis_pb2 as pb

MAX_NUMBER = 1e30
"""Larger numbers of seconds or GPU seconds are nonsense, and sums of them could be infinite."""
MAX_NAME_CHARS = 200
MAX_PATH_CHARS = 4_096
MAX_TEXT_CHARS = 10_000
"""Free text is cut here."""
MAX_DETAIL_CHARS = 1_000_000
MAX_DETAIL_DEPTH = 8
MAX_VIEW_BYTES = 1_000_000
MAX_PARTS = 200_000
"""Gangs and machines of all rows of a bid together."""
MAX_ROWS = 10_000
MAX_BID_ROWS = 1_000
"""Rows of a bid for each device type. Agents send at most 700, and each row takes the auction time."""
MAX_LEASES = 100_000
MAX_RHOS = 32
MAX_PARAMETERS = 1_000
MAX_CLOCK_LEAD_S = 86_400.0
"""An app master's clock may be ahead of ours by a day, in seconds."""

MAX_DEVICE_TYPES = 1_000
MAX_CURVE_POINTS = 128
"""Most points of a loss curve. App masters send at most 64."""

_JOB_STATES = frozenset(JobState)
_ENDS = frozenset((AppState.FINISHED, AppState.FAILED, AppState.KILLED, AppState.PAUSED))
_LEVELS = frozenset(level.label for level in Level)


def check_greeting(message: pb.Greeting, app: AppEntry) -> None:
    """Raise InputError if an attempt needs no proof of the ResourceManager: it is over, or its nonce is invalid."""
    check_not_over(message.attempt, app)
    _check_name("nonce", message.nonce)


def check_not_over(attempt: int, app: AppEntry) -> None:
    """Raise InputError if an attempt of an app is over."""
    if not app.is_admitted or attempt < app.attempt or (app.resting_view and attempt == app.attempt):
        raise InputError("this attempt is over", value=f"{app.app_id} attempt {attempt}")


def check_registration(message: pb.Register, app: AppEntry, newest_attempt: int) -> None:
    """Raise InputError if an attempt may not open a session: wrong token, no or old attempt, or invalid fields.

    Args:
        message: The registration.
        app: The app that it names.
        newest_attempt: The newest attempt that the engine has started.
    """
    if not proves(message.token, app.token_sha256):
        raise InputError("the token is not this app's", value=app.app_id)
    check_not_over(message.attempt, app)
    if message.attempt > newest_attempt:
        raise InputError("the engine has not started this attempt", value=f"{app.app_id} attempt {message.attempt}")
    if message.attempt == app.registered_attempt and app.registered_pid not in (0, message.pid):
        raise InputError("another process is this attempt's app master", value=f"process {message.pid}")
    if app.state is not AppState.RUNNING and not APP_LIFECYCLE.allows(app.state, AppState.RUNNING):
        raise InputError("the app was not started yet", value=f"{app.app_id} is {app.state}")
    _check_count("pid", message.pid)
    _check_few("held_lease_ids", message.held_lease_ids, MAX_LEASES)
    _check_name("engine_id", message.engine_id)
    _check_line("page_url", message.page_url)
    # The pages link to it, and the ResourceManager fetches logs from there.
    if message.page_url and not message.page_url.startswith(("http://", "https://")):
        raise InputError("page_url must be an address of HTTP", value=message.page_url)


def check_message(message: pb.AmMessage, app: AppEntry, attempt: int, cluster: Cluster, now_s: float) -> None:
    """Raise InputError for an invalid message of a session. Long free text in the message is cut.

    Args:
        message: Any message after the registration.
        app: The session's app.
        attempt: The session's attempt.
        cluster: All machines, lost ones included.
        now_s: The present time, in seconds since the epoch.
    """
    body = message.WhichOneof("body")
    check = _CHECKS.get(body)
    if check is None:
        raise InputError("not a message that an open session takes", value=body)
    if message.id < 1:
        raise InputError("a message's id must be 1 or more", value=message.id)
    if attempt != app.attempt:
        raise InputError("the session is of an attempt that is over", value=attempt)
    check(getattr(message, body), app, cluster, now_s)


def check_reference(name: str, what: str = "app") -> str:
    """Return the id or name of an app or a job as a client gave it; one that none can have raises InputError.

    The search for the known name that is nearest to a very long one would take minutes.
    """
    _check_name(what, name)
    return name


def check_states(names: Sequence[str]) -> frozenset[AppState]:
    """Return the states that a client asks for; an unknown one raises InputError."""
    for name in names:
        if name not in AppState.__members__:
            raise InputError("unknown state of an app", value=name, remedy="known: " + ", ".join(AppState))
    return frozenset(map(AppState, names))


def read_detail(message: pb.JobEvent) -> Mapping[str, object]:
    """Return the detail of a job event with its job id. Raises InputError if it is not plain, bounded JSON."""
    if len(message.detail) > MAX_DETAIL_CHARS:
        raise InputError("the detail of a job event is too long", value=len(message.detail))
    try:
        detail = json.loads(message.detail or "{}")
    except (ValueError, RecursionError) as error:
        raise InputError("the detail of a job event is no JSON", value=type(error).__name__) from None
    if not isinstance(detail, dict):
        raise InputError("the detail of a job event must be a JSON object", value=message.kind)
    _check_json(detail, MAX_DETAIL_DEPTH)
    if detail.get("job_id", message.job_id) != message.job_id:
        raise InputError("the detail of a job event names another job", value=detail["job_id"])
    return {"job_id": message.job_id, **detail} if message.job_id else detail


# ---- bodies ---------------------------------------------------------------------------------------------------------


def _check_rho(message: pb.RhoReport, app: AppEntry, cluster: Cluster, _now_s: float) -> None:
    _check_number("rho", message.rho, infinite=True)
    _check_number("t_shared_s", message.t_shared_s, infinite=True)
    _check_number("t_ideal_s", message.t_ideal_s, infinite=True)
    _check_number("restart_s", message.restart_s)
    _check_few("demands", message.demands, len(app.shapes))
    _check_few("phases_left", message.phases_left, MAX_ROWS)
    for demand in message.demands:
        _check_job(demand.job_id, app)
        most_gpus = app.shapes[demand.job_id].demand_max_gpus
        _check_count("max_gpus", demand.max_gpus, most=most_gpus)
        _check_number("work_left_gpu_s", demand.work_left_gpu_s)
        _check_number("faster_than", demand.faster_than, infinite=True)
        _check_allocation(demand.held, cluster)
        _check_few("speeds", demand.speeds, MAX_DEVICE_TYPES)
        for device, speed in demand.speeds.items():
            _check_name("device type", device)
            _check_number(f"speed on {device}", speed)
        _check_few("samples", demand.samples, MAX_DEVICE_TYPES)
        for sample in demand.samples:
            _check_name("device type", sample.device)
            for number in (sample.first_work_gpu_s, sample.first_s, sample.second_work_gpu_s, sample.second_s):
                _check_number(f"sample on {sample.device}", number)
        slowdown = demand.slowdown
        for factor in (slowdown.slot, slowdown.machine, slowdown.rack, slowdown.cluster):
            _check_number("slowdown", factor)
        if demand.HasField("forecast"):
            forecast = demand.forecast
            for number in (forecast.drop, forecast.scale, forecast.power, forecast.serial_iteration_s):
                _check_number("forecast", number)
            _check_number("forecast.floor", abs(forecast.floor))
    for phase in message.phases_left:
        _check_number("work_gpu_s", phase.work_gpu_s)
        _check_number("longest_gpu_s", phase.longest_gpu_s)


def _check_bid(message: pb.Bid, _app: AppEntry, cluster: Cluster, _now_s: float) -> None:
    _check_number("empty_value", message.empty_value)
    _check_number("prepare_ms", message.prepare_ms)
    _check_count("rows_dropped", message.rows_dropped)
    _check_few("rows", message.rows, MAX_BID_ROWS * max(1, len(cluster.gpus_by_device)))
    parts = 0
    for row in message.rows:
        _check_number("value", row.value)
        parts += len(row.gangs) + len(row.pinned.counts) + sum(len(gang.counts) for gang in row.pinned_gangs)
        # A solver looks at each gang of a row.
        gpus = sum(gang.gpus * gang.count for gang in row.gangs)
        for gang in row.gangs:
            if gang.device:
                _check_name("device type", gang.device)
        if not 0 <= gpus <= cluster.gpus:
            raise InputError("a row of a bid asks for more GPUs than there are", value=gpus)
        for allocation in (row.pinned, *row.pinned_gangs):
            _check_allocation(allocation, cluster)
    if parts > MAX_PARTS:
        raise InputError("the rows of a bid hold too many gangs", value=parts, remedy=f"at most {MAX_PARTS}")


def _check_release(message: pb.Release, _app: AppEntry, _cluster: Cluster, _now_s: float) -> None:
    _check_few("lease_ids", message.lease_ids, MAX_LEASES)
    message.reason = _cut(message.reason)
    _check_count("headroom_gpus", message.headroom_gpus)


def _check_heartbeat(message: pb.Heartbeat, app: AppEntry, _cluster: Cluster, _now_s: float) -> None:
    _check_number("progress", message.progress, most=1.0)
    _check_count("phase", message.phase)
    _check_count("phases", message.phases)
    _check_count("unmet_gpus", message.unmet_gpus)
    message.unmet_gpus = min(message.unmet_gpus, app.spec.demand_max_gpus)
    _check_count("headroom_gpus", message.headroom_gpus)
    _check_line("checkpoint_uri", message.checkpoint_uri)
    _check_best(message.best, app)
    _check_jobs(message.jobs, app)
    _check_declaration(message.declaration)
    _check_phases(message.phases_left)
    _check_number("restart_s", message.restart_s)
    _check_curves(message.loss_curves, app)


def _check_job_event(message: pb.JobEvent, app: AppEntry, _cluster: Cluster, now_s: float) -> None:
    if EMITTERS.get(message.kind) is not Emitter.APP_MASTER:
        raise InputError("not a kind of event that an app master may emit", value=message.kind)
    if message.job_id:
        _check_job(message.job_id, app)
    # 0 stands for the time at which it comes.
    _check_number("time_s", message.time_s, most=now_s + MAX_CLOCK_LEAD_S)
    detail = read_detail(message)
    state = detail.get("state")
    if message.kind == "job_state" and not (isinstance(state, str) and state in _JOB_STATES):
        raise InputError("unknown state of a job", value=state)


def _check_finish(message: pb.Finish, app: AppEntry, _cluster: Cluster, _now_s: float) -> None:
    # A finish that is sent again after the app ended changes nothing and is acknowledged.
    if message.state not in _ENDS:
        raise InputError("not a state in which an app ends", value=message.state)
    if message.state == AppState.PAUSED and app.is_active and not app.leave_reason:
        raise InputError("only its user pauses an app", value=app.app_id)
    if app.is_active and not APP_LIFECYCLE.allows(app.state, AppState(message.state)):
        raise InputError(f"an app that is {app.state} cannot end so", value=message.state)
    message.diagnostics = _cut(message.diagnostics)
    _check_few("rho", message.rho, MAX_RHOS)
    for name, rho in message.rho.items():
        _check_name("definition of rho", name)
        _check_number("rho", rho, infinite=True, unknown=True)
    _check_best(message.best, app)
    _check_line("best_checkpoint", message.best_checkpoint)
    _check_jobs(message.jobs, app)
    _check_declaration(message.declaration)
    _check_curves(message.loss_curves, app)


def _check_rest(message: pb.Rest, _app: AppEntry, _cluster: Cluster, _now_s: float) -> None:
    # The agent host checks what it says.
    if not 0 < len(message.view) <= MAX_VIEW_BYTES:
        raise InputError("the view of an app that rests is empty or too long", value=len(message.view))


def _check_declaration(message: pb.Declaration) -> None:
    _check_number("cluster_time_s", message.cluster_time_s)
    _check_number("share_demand", message.share_demand, most=1.0)
    _check_phases(message.phases)


def _check_phases(phases: Sequence[pb.FluidPhase]) -> None:
    _check_few("phases", phases, MAX_ROWS)
    for phase in phases:
        _check_number("time_s", phase.time_s)
        _check_number("gpus", phase.gpus)
        if not phase.gpus:
            raise InputError("a phase needs GPUs", value=phase.gpus)


_CHECKS: Mapping[str | None, Callable[..., None]] = {
    "rho": _check_rho,
    "bid": _check_bid,
    "release": _check_release,
    "heartbeat": _check_heartbeat,
    "job_event": _check_job_event,
    "finish": _check_finish,
    "rest": _check_rest,
}


# ---- parts ----------------------------------------------------------------------------------------------------------


def _check_jobs(jobs: Sequence[pb.JobStatus], app: AppEntry) -> None:
    _check_few("jobs", jobs, len(app.shapes))
    if len({job.job_id for job in jobs}) < len(jobs):
        raise InputError("a job is listed twice")
    for job in jobs:
        _check_job(job.job_id, app)
        if job.state not in _JOB_STATES:
            raise InputError("unknown state of a job", value=job.state)
        for what in ("iteration", "target_iteration", "restarts", "gpus"):
            _check_count(what, getattr(job, what), most=2**63)
        _check_number("iteration_s", job.iteration_s)
        # Losses and accuracies come from the user's program and may be NaN.
        _check_few("hyper_parameters", job.hyper_parameters, MAX_PARAMETERS)
        _check_few("speeds", job.speeds, MAX_DEVICE_TYPES)
        for device in (job.device, *[each.device for each in job.speeds]):
            _check_name("device type", device)
        for each in job.speeds:
            _check_number(f"speed on {each.device}", each.speed)
        _check_few("slowdown", job.slowdown, len(_LEVELS))
        for level in job.slowdown:
            if level.level not in _LEVELS:
                raise InputError("unknown locality level", value=level.level)
            _check_number("slowdown", level.factor)
            _check_number("spread", level.spread)
        job.health = _cut(job.health)
        job.tracked_run = _cut(job.tracked_run)


def _check_curves(curves: Sequence[pb.LossCurve], app: AppEntry) -> None:
    _check_few("loss curves", curves, len(app.shapes))
    for curve in curves:
        _check_job(curve.job_id, app)
        _check_few("points of a loss curve", curve.iterations, MAX_CURVE_POINTS)
        if len(curve.iterations) != len(curve.losses):
            raise InputError("a loss curve needs an iteration for each loss", value=len(curve.losses))
        if list(curve.iterations) != sorted(curve.iterations) or not all(map(math.isfinite, curve.losses)):
            raise InputError("a loss curve has increasing iterations and finite losses", value=curve.job_id)


def _check_best(job_id: str, app: AppEntry) -> None:
    if job_id:
        _check_job(job_id, app)


def _check_job(job_id: str, app: AppEntry) -> None:
    if job_id not in app.shapes:
        raise InputError("not a job of this app", value=job_id)


def _check_allocation(allocation: pb.Allocation, cluster: Cluster) -> None:
    machines = cluster.rack_of
    for count in allocation.counts:
        # The app may not know yet that a machine left. Its answer is refused, and the next round asks again.
        if count.machine_id not in machines:
            raise InputError("a machine that the cluster does not have", value=count.machine_id)
        _check_count("gpus", count.gpus, most=cluster.machine(count.machine_id).gpus)


def _check_number(
    what: str, value: float, *, most: float = MAX_NUMBER, infinite: bool = False, unknown: bool = False
) -> None:
    """Raise InputError unless a number is from 0 to `most`, or is an allowed infinity or NaN."""
    if not (0.0 <= value <= most or (infinite and value == math.inf) or (unknown and math.isnan(value))):
        raise InputError(f"{what} must be a number from 0 to {most:g}", value=value)


def _check_count(what: str, value: int, *, most: int = 2**31) -> None:
    if not 0 <= value <= most:
        raise InputError(f"{what} must be from 0 to {most}", value=value)


def _check_few(what: str, items: Sized, most: int) -> None:
    if len(items) > most:
        raise InputError(f"too many {what}", value=len(items), remedy=f"at most {most}")


def _check_name(what: str, text: str) -> None:
    if len(text) > MAX_NAME_CHARS or not text.isprintable():
        remedy = f"use at most {MAX_NAME_CHARS} characters that can be shown"
        raise InputError(f"unusable {what}", value=text, remedy=remedy)


def _check_line(what: str, text: str) -> None:
    if len(text) > MAX_PATH_CHARS or not text.isprintable():
        remedy = f"use at most {MAX_PATH_CHARS} characters that can be shown"
        raise InputError(f"unusable {what}", value=text, remedy=remedy)


def _check_json(value: object, depth: int) -> None:
    """Raise InputError for JSON that cannot be shown: nested too deeply, or with text that cannot be encoded."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError("a text holds half a surrogate pair", value=value) from None
        return
    parts: Collection[object] = ()
    if isinstance(value, dict):
        parts = (*value.keys(), *value.values())
    elif isinstance(value, list):
        parts = value
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InputError("an integer is too large", value=value)
    if parts and not depth:
        raise InputError("the detail of a job event is nested too deeply", remedy=f"at most {MAX_DETAIL_DEPTH} levels")
    for part in parts:
        _check_json(part, depth - 1)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + " .. (cut)"
