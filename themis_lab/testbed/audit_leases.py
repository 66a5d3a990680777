"""Every lease ends or is renewed in time, and none outlives its app."""

from __future__ import annotations

import math

from themis_lab.testbed.audit_values import AuditInput, Findings
from themis_lab.testbed.spans import LeaseSpan, is_final, lease_spans

IN_TIME = "a lease ends or is renewed in time"
WITH_APP = "a lease ends with its app"


def check_lease_ends(run: AuditInput, findings: Findings) -> None:
    """No lease continues past its end plus the grace unless it is renewed, nor past its app's end."""
    findings.announce(IN_TIME, WITH_APP)
    ended_s = {event.app_id: event.time_s for event in run.events if is_final(event)}
    bound_s = run.limits.grace_s + run.limits.notice_s
    for lease in lease_spans(run.events):
        _check_expiries(lease, run, findings)
        app_end_s = ended_s.get(lease.app_id, math.inf)
        if app_end_s == math.inf:
            continue
        late = f"{lease.app_id} ended at {findings.at(app_end_s)}, but its lease {lease.lease_id} of {lease.gpu} "
        # A record may end as soon as the last app has ended. So an open lease is late only if its time has passed.
        end_s = min(lease.end_s, math.inf if run.end_s > app_end_s + bound_s else app_end_s)
        end_text = "never ended" if lease.end_s == math.inf else f"ended at {findings.at(lease.end_s)}"
        findings.look(WITH_APP, end_s <= app_end_s + bound_s, late + end_text)
        findings.look(WITH_APP, lease.start_s <= app_end_s, late + f"began at {findings.at(lease.start_s)}")


def _check_expiries(lease: LeaseSpan, run: AuditInput, findings: Findings) -> None:
    next_written_s = [written_s for written_s, _ in lease.expiries[1:]]
    ends_s = [*next_written_s, min(lease.end_s, run.end_s)]
    bound_s = run.limits.grace_s + run.limits.notice_s
    for (_, expires_s), end_s in zip(lease.expiries, ends_s, strict=True):
        text = (
            f"lease {lease.lease_id} of {lease.gpu} by {lease.app_id} was to end at {findings.at(expires_s)} "
            f"and went on until {findings.at(end_s)}"
        )
        findings.look(IN_TIME, end_s <= expires_s + bound_s, text)
