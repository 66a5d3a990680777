"""Hypothesis strategies for the kernel's values; every value that they draw is one that the kernel accepts."""

import math

from hypothesis import strategies as st

from themis.apps import (
    FRAMEWORKS,
    AppSpec,
    Estimate,
    JobShape,
    JobSpec,
    MetricSpec,
    ProgramSpec,
    Slowdown,
    TaskResources,
    TunerSpec,
)
from themis.bids import AppReport, Bid, BidRow, GangDemand, GangRequest, LossForecast, Offer, PhaseLeft, SampleTimes
from themis.cluster import Allocation, Cluster, DeviceKind, DeviceType, GpuId, Level, Machine
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.speeds import Speeds

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT32 = st.integers(0, 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TIMES = st.floats(0, 4e9)
POSITIVE = st.floats(1e-6, 1e9)
SCALARS = st.one_of(st.booleans(), INT64, st.floats(allow_nan=False), TEXTS)
SETTINGS = st.dictionaries(NAMES, SCALARS, max_size=3)
LEVELS = st.sampled_from(Level)
SLOWDOWNS = st.lists(st.floats(1, 10), min_size=4, max_size=4).map(lambda factors: Slowdown(*sorted(factors)))
ALLOCATIONS = st.dictionaries(NAMES, st.integers(0, 16), max_size=4).map(Allocation.of)

SHAPES = st.builds(
    lambda least, more, unit: JobShape(tasks=least + more, min_tasks=least, gpus_per_task=unit),
    st.integers(1, 8),
    st.integers(0, 8),
    st.integers(1, 8),
)
JOBS = st.builds(
    JobSpec,
    job_id=NAMES,
    hyper_parameters=SETTINGS,
    shape=SHAPES,
    iterations_total=st.integers(1, 2**40),
    speed_by_device=st.dictionaries(NAMES, POSITIVE, max_size=2),
)
PROGRAMS = st.builds(
    lambda named, text, arguments, environment, framework: ProgramSpec(
        name=text if named else "",
        command="" if named else text,
        arguments=arguments,
        environment=environment,
        framework=framework,
    ),
    st.booleans(),
    NAMES,
    SETTINGS,
    st.dictionaries(NAMES, TEXTS, max_size=2),
    st.sampled_from(("", *FRAMEWORKS)),
)
APPS = st.builds(
    AppSpec,
    name=TEXTS,
    user=TEXTS,
    queue=TEXTS,
    tuner=st.builds(TunerSpec, name=TEXTS, settings=SETTINGS),
    program=PROGRAMS,
    jobs=st.lists(JOBS, min_size=1, max_size=4, unique_by=lambda job: job.job_id).map(tuple),
    resources=st.builds(TaskResources, memory_mb=INT32, vcores=INT32),
    estimate=st.builds(Estimate, serial_iteration_s=st.none() | POSITIVE, slowdown=st.none() | SLOWDOWNS),
    checkpoint_every=INT32,
    checkpoint_uri=TEXTS,
    keep_checkpoints=INT32,
    max_task_restarts=INT32,
    peer_wait_s=POSITIVE,
    seed=INT64,
    replay=st.booleans(),
    max_runtime_s=POSITIVE,
    max_iterations=INT32,
    metric=st.builds(MetricSpec, name=TEXTS, mode=st.sampled_from(("min", "max")), regex=TEXTS, wanted=st.booleans()),
)

GANGS = st.builds(
    lambda units, unit, within, count, device: GangRequest(units * unit, within, count, unit, device),
    st.integers(1, 8),
    st.integers(1, 8),
    LEVELS,
    st.integers(1, 32),
    st.sampled_from(("", "gpu", "v100")),
)


def _row(value: float, gangs: list[GangRequest], parts: list[Allocation], together: bool) -> BidRow:
    if not gangs and not any(parts):
        parts = [Allocation.of({"m": 1})]
    pinned = sum(parts, Allocation())
    pinned_gangs = tuple(part for part in parts if part) if pinned and together else ()
    return BidRow(value=value, gangs=tuple(gangs), pinned=pinned, pinned_gangs=pinned_gangs)


ROWS = st.builds(_row, POSITIVE, st.lists(GANGS, max_size=3), st.lists(ALLOCATIONS, max_size=3), st.booleans())
BIDS = st.builds(
    Bid,
    app_id=TEXTS,
    round_id=st.integers(0, 2**40),
    empty_value=st.floats(0, 1e6),
    rows=st.lists(ROWS, max_size=4).map(tuple),
    rows_dropped=INT32,
)


FORECASTS = st.builds(
    LossForecast,
    floor=st.floats(-1e9, 1e9),
    drop=st.floats(0, 1e9),
    scale=POSITIVE,
    power=POSITIVE,
    iteration=st.integers(0, 2**40),
    serial_iteration_s=POSITIVE,
)
PHASES_LEFT = st.builds(
    PhaseLeft,
    jobs=st.integers(1, 2**20),
    work_gpu_s=st.floats(0, 1e12),
    longest_gpu_s=st.floats(0, 1e12),
    gang_gpus=st.integers(1, 2**10),
)


SAMPLES = st.lists(
    st.builds(
        lambda device, work, more_work, at_s, more_s: SampleTimes(
            device=device, work_gpu_s=(work, work + more_work), seconds=(at_s, at_s + more_s)
        ),
        NAMES,
        *[st.floats(1e-3, 1e6)] * 4,
    ),
    max_size=3,
).map(tuple)


def _demand(job_id, least, more, unit, slowdown, work, held, forecast, speeds, samples, measured) -> GangDemand:
    return GangDemand(
        job_id=job_id,
        min_gpus=least * unit,
        max_gpus=(least + more) * unit,
        unit_gpus=unit,
        slowdown=slowdown,
        work_left_gpu_s=work,
        held=held,
        forecast=forecast,
        speeds=Speeds.of(speeds.items()),
        samples=samples,
        measured=measured,
    )


DEMANDS = st.builds(
    _demand,
    NAMES,
    st.integers(1, 4),
    st.integers(0, 4),
    st.integers(1, 4),
    SLOWDOWNS,
    st.floats(0, 1e12),
    ALLOCATIONS,
    st.none() | FORECASTS,
    st.dictionaries(NAMES, POSITIVE, max_size=3),
    SAMPLES,
    st.lists(NAMES, max_size=3).map(tuple),
)
REPORTS = st.builds(
    AppReport,
    app_id=TEXTS,
    round_id=st.integers(0, 2**40),
    rho=st.floats(0, math.inf),
    t_shared_s=st.floats(0, math.inf),
    t_ideal_s=POSITIVE,
    demands=st.lists(DEMANDS, max_size=3, unique_by=lambda demand: demand.job_id).map(tuple),
    phases_left=st.lists(PHASES_LEFT, max_size=3).map(tuple),
    restart_s=st.floats(0, 1e6),
    provisional=st.booleans(),
)


def _offer(slots, **rest) -> Offer:
    return Offer(free=Allocation.of({machine: sum(counts) for machine, counts in slots.items()}), slots=slots, **rest)


OFFERS = st.builds(
    _offer,
    st.dictionaries(NAMES, st.lists(st.integers(0, 8), min_size=1, max_size=4).map(tuple), max_size=4),
    round_id=st.integers(0, 2**40),
    now_s=TIMES,
    deadline_s=TIMES,
    lease_s=POSITIVE,
    contention=st.floats(1, 1e3),
    active_apps=st.integers(0, 1000),
)

MACHINES = st.builds(
    Machine,
    machine_id=NAMES,
    rack_id=NAMES,
    slots=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    device=NAMES,
    cpus=st.integers(1, 128),
    memory_mb=INT32,
)
DEVICES = st.lists(
    st.builds(
        DeviceType,
        name=NAMES,
        kind=st.sampled_from(DeviceKind),
        memory_mb=INT32,
        speed=POSITIVE,
        emulated=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda device: device.name,
).map(lambda devices: {device.name: device for device in devices})
CLUSTERS = st.builds(
    Cluster,
    name=TEXTS,
    machines=st.lists(MACHINES, min_size=1, max_size=5, unique_by=lambda machine: machine.machine_id).map(tuple),
    devices=DEVICES,
)

LEASES = st.builds(
    Lease,
    lease_id=st.integers(0, 2**62),
    gpu=st.builds(GpuId, NAMES, st.integers(0, 64)),
    app_id=st.just("app"),
    granted_at_s=st.just(0.0),
    expires_at_s=TIMES,
    state=st.sampled_from(LeaseState),
    job_id=st.one_of(st.just(""), NAMES),
)
