"""Records of runs and rounds made by hand."""

from themis.rho import RhoDefinition
from themis_lab.simulator.record import AppOutcome, BidRecord, Counts, RoundRecord, RunRecord


def app(name, **changed):
    given = {
        "name": name,
        "model": "resnet50",
        "jobs": 1,
        "submitted_at_s": 0.0,
        "first_gpu_at_s": 0.0,
        "ended_at_s": 100.0,
        "rho": {definition.value: 1.0 for definition in RhoDefinition},
        "bound": 0.5,
        "gpu_time_s": 100.0,
        "running_gpu_s": 90.0,
        "ideal_gpu_s": 90.0,
        "placement_score": 1.0,
        "restarts": 0,
        "checkpoints": 1,
        "lost_gpu_s": 0.0,
        "contention": 1.0,
    }
    return AppOutcome(**{**given, **changed})


def record(apps, **changed):
    given = {
        "policy": "themis",
        "cluster": "testbed",
        "cluster_gpus": 64,
        "workload": "w1-small",
        "seed": 1,
        "apps": tuple(apps),
        "counts": Counts(),
        "makespan_s": 100.0,
        "leased_share": 0.5,
        "running_share": 0.4,
    }
    return RunRecord(**{**given, **changed})


def bid(rows=3):
    return BidRecord(rows=rows, rows_dropped=0, empty_value=0.5, best_value=0.9)


def played(**changed):
    """A round: a is worst and bids with b, c is not asked; six GPUs are free and each app could use four."""
    given = {
        "round_id": 7,
        "now_s": 600.0,
        "reasons": ("lease end",),
        "free": {"m0": 4, "m1": 2},
        "renewable": {},
        "kept": {},
        "rho": {"a": 3.0, "b": 2.0, "c": 1.0},
        "demand_gpus": {"a": 4, "b": 4, "c": 4},
        "asked": ("a", "b"),
        "bids": {"a": bid(), "b": bid()},
        "proportional": {"a": {"m0": 4}},
        "shares": {"a": 0.5, "b": 1.0},
        "granted": {"a": {"m0": 2}},
        "leftovers": {"c": {"m0": 2, "m1": 2}},
        "lease_end_s": 1200.0,
        "status": "optimal",
    }
    return RoundRecord(**{**given, **changed})
