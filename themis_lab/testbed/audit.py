"""The audit: whether a run kept its promises, judged from its events only. Pure."""

from __future__ import annotations

from themis_lab.testbed.audit_fairness import check_fluid_rho
from themis_lab.testbed.audit_idle import check_idle_gpus, check_idle_leases
from themis_lab.testbed.audit_leases import check_lease_ends
from themis_lab.testbed.audit_ownership import (
    check_bound_leases,
    check_leases_per_gpu,
    check_tasks_per_gpu,
    check_tasks_within_leases,
)
from themis_lab.testbed.audit_progress import check_history, check_progress, check_targets
from themis_lab.testbed.audit_rounds import check_rounds
from themis_lab.testbed.audit_values import AuditInput, AuditResult, Findings


def audit(run: AuditInput) -> AuditResult:
    """Check a run.

    Every check is independent of the code that made the decisions: it reads events and what the tasks wrote. Only the
    fluid fair cluster is shared (`themis.fluid_cluster`), which is tested against a brute-force simulation.
    """
    findings = Findings(run.start_s)
    for check in (
        check_leases_per_gpu,
        check_tasks_per_gpu,
        check_tasks_within_leases,
        check_bound_leases,
        check_idle_gpus,
        check_idle_leases,
        check_lease_ends,
        check_progress,
        check_targets,
        check_history,
        check_rounds,
        check_fluid_rho,
    ):
        check(run, findings)
    return findings.result()
