"""Convert the app's page state to a JSON document. Pure.

A key that REST and the commands have too (`themis.wire.app_document`) has the same meaning here. The documents differ,
because the app master does not know what the ResourceManager computes: times, GPU time, estimates and `rho`.
"""

from __future__ import annotations

from am.page.state import AmPageState, JobRow
from themis.web.formatting import finite


def status_document(state: AmPageState) -> dict[str, object]:
    """Return the document that docs/reference/web.md describes."""
    return {
        "app_id": state.app_id,
        "name": state.name,
        "tuner": state.tuner,
        "attempt": state.attempt,
        "now_s": state.now_s,
        "progress": finite(state.progress),
        "rho_themis": finite(state.rho),
        "phase": state.phase,
        "phases": state.phases,
        "best_job": state.best or None,
        "metric": {"name": state.metric, "lines_seen": state.lines_seen, "lines_read": state.lines_read},
        "folder": str(state.folder),
        "jobs": [_job(job) for job in state.jobs],
        "leases": [
            {
                "lease_id": lease.lease_id,
                "gpu": lease.gpu,
                "state": lease.state,
                "expires_at_s": lease.expires_at_s,
            }
            for lease in state.leases
        ],
    }


def _job(job: JobRow) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "state": job.state,
        "iteration": job.iteration,
        "target_iteration": job.target_iteration,
        "loss": finite(job.loss),
        "accuracy": finite(job.accuracy),
        "gpus": len(job.gpus.split()),
        "gpu_names": job.gpus.split(),
        "restarts": job.restarts,
        "hyper_parameters": {
            name: finite(value) if isinstance(value, float) else value for name, value in job.hyper_parameters.items()
        },
        "health": job.health or None,
        "tracked_run": job.tracked_run or None,
        "slowdown": {
            each.level: {"factor": each.factor, "intervals": each.intervals, "spread": each.spread}
            for each in job.slowdown
        },
        "speeds": {each.device: {"speed": each.speed, "measured": each.measured} for each in job.speeds},
    }
