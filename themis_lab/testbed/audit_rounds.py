"""Rounds are well-formed: each ends, grants only free GPUs, and asks the apps that the fairness knob selects."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import zip_longest

from themis.choices import Bidders
from themis_lab.testbed.audit_values import AuditInput, AuditLimits, Findings
from themis_lab.testbed.rounds import RoundTrail, granted_by_machine, granted_gpus, round_trails

ENDS = "each round ends once, before the next begins"
WITHIN_FREE = "a round gives only what is free"
PAYMENTS = "a payment share lies in [0, 1]"
PAYMENT_TAKES = "a payment only takes away"
BIDDERS_WIN = "only apps that were asked win the auction"
WORST_ASKED = "the worst ceil((1 - f) N) apps are asked"
LEASES_GRANTED = "leases are what the round granted"

THEMIS = "themis"


def check_rounds(run: AuditInput, findings: Findings) -> None:
    """Check every round by its own events."""
    findings.announce(ENDS, WITHIN_FREE, PAYMENTS, PAYMENT_TAKES, BIDDERS_WIN, WORST_ASKED, LEASES_GRANTED)
    trails = round_trails(run.events)
    _check_ends(trails, run, findings)
    for trail in trails:
        _check_free(trail, findings)
        _check_auction(trail, findings)
        if run.limits.policy == THEMIS:
            _check_asked(trail, run.limits, findings)
    _check_leases(trails, run, findings)


def _check_ends(trails: Sequence[RoundTrail], run: AuditInput, findings: Findings) -> None:
    for trail, follower in zip_longest(trails, trails[1:]):
        ends = trail.count("round_ended")
        # The run may end during the very last round.
        going_on = follower is None and ends == 0 and run.end_s - trail.start_s <= run.limits.round_s
        text = f"round {trail.round_id} has {ends} ends"
        findings.look(ENDS, ends == 1 or going_on, text)
        if ends and follower is not None:
            last, first = trail.events[-1], follower.events[0]
            text = f"round {follower.round_id} begins while round {trail.round_id} goes on"
            findings.look(ENDS, last.sequence < first.sequence, text)


def _check_free(trail: RoundTrail, findings: Findings) -> None:
    if not trail.count("round_granted"):
        return
    free = trail.detail("round_started").get("free", {})
    given: Counter[str] = Counter()
    for (_, machine), gpus in granted_by_machine(trail.detail("round_granted")).items():
        given[machine] += gpus
    over = {machine: gpus for machine, gpus in sorted(given.items()) if gpus > free.get(machine, 0)}
    text = f"round {trail.round_id} gives {over} where only { {machine: free.get(machine, 0) for machine in over} } is"
    findings.look(WITHIN_FREE, not over, text)


def _check_auction(trail: RoundTrail, findings: Findings) -> None:
    auctioned, granted = trail.detail("round_auctioned"), trail.detail("round_granted")
    for app_id, share in auctioned.get("payments", {}).items():
        text = f"round {trail.round_id} has {app_id} keep a share of {share}"
        # A product of many factors may exceed 1 by rounding errors.
        findings.look(PAYMENTS, -1e-9 <= float(share) <= 1.0 + 1e-9, text)
    if not auctioned or not granted:
        return
    asked = set(trail.detail("round_offered").get("apps", ()))
    before = granted_gpus({"auction": auctioned.get("proportional_fair", {})}, "auction")
    for app_id, gpus in granted_gpus(granted, "auction").items():
        text = f"{app_id} won {gpus} GPUs in round {trail.round_id} though it was not asked"
        findings.look(BIDDERS_WIN, app_id in asked, text)
        text = f"{app_id} keeps {gpus} GPUs in round {trail.round_id} of {before[app_id]} that it won"
        findings.look(PAYMENT_TAKES, gpus <= before[app_id], text)


def _check_asked(trail: RoundTrail, limits: AuditLimits, findings: Findings) -> None:
    """Check that a round asked the worst ceil((1 - f) N) apps that want GPUs, where N is the number that answered.

    Under `bidders: pressed` only the number of apps is checked, since events do not say how late each app is.
    """
    if not trail.count("round_offered"):
        return
    reported = trail.detail("round_reported")
    rho = {str(app): float(value) for app, value in reported.get("rho", {}).items()}
    with_demand = [app for app in rho if int(reported.get("demand_gpus", {}).get(app, 0)) > 0]
    asked = [str(app) for app in trail.detail("round_offered").get("apps", ())]
    # 1 - 0.8 is 0.19999999999999996: without rounding, five apps would count as less than a fifth of themselves.
    share = 1.0 if limits.bidders is Bidders.ALL else 1.0 - limits.f
    places = max(1, math.ceil(round(share * len(rho), 9)))
    wanted = min(places, len(with_demand))
    text = f"round {trail.round_id} asks {len(asked)} of {len(with_demand)} apps with a demand, not {wanted}"
    findings.look(WORST_ASKED, len(asked) == wanted and set(asked) <= set(with_demand), text)
    if limits.bidders is Bidders.PRESSED:
        return
    passed_over = max((rho[app] for app in with_demand if app not in asked), default=-math.inf)
    least = min((rho.get(app, math.inf) for app in asked), default=math.inf)
    text = f"round {trail.round_id} asks an app of rho {least:.3f} and passes over one of {passed_over:.3f}"
    findings.look(WORST_ASKED, passed_over <= least + 1e-9, text)


def _check_leases(trails: Sequence[RoundTrail], run: AuditInput, findings: Findings) -> None:
    """Each lease that a round grants, reserves or renews is in the round's decision."""
    leases: dict[int, dict[tuple[str, str], set[int]]] = defaultdict(lambda: defaultdict(set))
    for event in run.events:
        if event.kind in ("lease_granted", "lease_reserved", "lease_renewed") and event.detail.get("round_id"):
            machine = str(event.detail["gpu"]).rpartition("/")[0]
            leases[int(event.detail["round_id"])][event.app_id, machine].add(int(event.detail["lease_id"]))
    granted = {trail.round_id: granted_by_machine(trail.detail("round_granted")) for trail in trails}
    for round_id, by_place in leases.items():
        for (app_id, machine), ids in by_place.items():
            most = granted.get(round_id, Counter())[app_id, machine]
            text = f"{app_id} has {len(ids)} leases on {machine} by round {round_id}, which granted {most}"
            findings.look(LEASES_GRANTED, len(ids) <= most, text)
