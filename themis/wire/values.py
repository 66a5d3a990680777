"""Values of the kernel to messages and back. Malformed messages raise InputError, as malformed values do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from themis.apps import (
    DEFAULT_PEER_WAIT_S,
    AppSpec,
    CodeArchive,
    Estimate,
    HyperParameter,
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
from themis.errors import InputError
from themis.fluid_cluster import Declaration, FluidPhase
from themis.leases import Lease
from themis.lifecycle import LeaseState
from themis.speeds import SAME_SPEED, Speeds
from themis.wire import themis_pb2 as pb

ROUND_ANSWERS = ("rho", "bid")
"""What answers a question of a round. An app master never sends it again, so it is not acknowledged."""

# ---- scalars --------------------------------------------------------------------------------------------------------


def scalar_to_message(value: HyperParameter) -> pb.Scalar:
    """A hyper-parameter or setting; booleans before integers, since Python counts them as such."""
    if isinstance(value, bool):
        return pb.Scalar(flag=value)
    if isinstance(value, int):
        return pb.Scalar(integer=value)
    if isinstance(value, float):
        return pb.Scalar(number=value)
    return pb.Scalar(text=value)


def scalar_from_message(message: pb.Scalar) -> HyperParameter:
    """The inverse of scalar_to_message; an empty message is an empty text."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return ""
    value: HyperParameter = getattr(message, kind)
    return value


def scalars_to_messages(values: Mapping[str, HyperParameter]) -> dict[str, pb.Scalar]:
    """A mapping of scalars."""
    return {name: scalar_to_message(value) for name, value in values.items()}


def scalars_from_messages(messages: Mapping[str, pb.Scalar]) -> dict[str, HyperParameter]:
    """The inverse of scalars_to_messages, names in order."""
    return {name: scalar_from_message(messages[name]) for name in sorted(messages)}


# ---- apps -----------------------------------------------------------------------------------------------------------


def slowdown_to_message(slowdown: Slowdown) -> pb.Slowdown:
    """S by level."""
    return pb.Slowdown(slot=slowdown.slot, machine=slowdown.machine, rack=slowdown.rack, cluster=slowdown.cluster)


def slowdown_from_message(message: pb.Slowdown) -> Slowdown:
    """S by level; factors below 1 raise InputError."""
    return Slowdown(message.slot, message.machine, message.rack, message.cluster)


def job_to_message(job: JobSpec) -> pb.JobSpec:
    """A job's specification."""
    shape = job.shape
    return pb.JobSpec(
        job_id=job.job_id,
        hyper_parameters=scalars_to_messages(job.hyper_parameters),
        shape=pb.JobShape(tasks=shape.tasks, min_tasks=shape.min_tasks, gpus_per_task=shape.gpus_per_task),
        iterations_total=job.iterations_total,
        speed_by_device=job.speed_by_device,
    )


def job_from_message(message: pb.JobSpec) -> JobSpec:
    """A job's specification."""
    shape = message.shape
    return JobSpec(
        job_id=message.job_id,
        hyper_parameters=scalars_from_messages(message.hyper_parameters),
        shape=JobShape(tasks=shape.tasks, min_tasks=shape.min_tasks, gpus_per_task=shape.gpus_per_task),
        iterations_total=message.iterations_total,
        speed_by_device=dict(message.speed_by_device),
    )


def _estimate_to_message(estimate: Estimate) -> pb.Estimate:
    message = pb.Estimate()
    if estimate.serial_iteration_s is not None:
        message.serial_iteration_s = estimate.serial_iteration_s
    if estimate.slowdown is not None:
        message.slowdown.CopyFrom(slowdown_to_message(estimate.slowdown))
    return message


def _estimate_from_message(message: pb.Estimate) -> Estimate:
    return Estimate(
        serial_iteration_s=message.serial_iteration_s if message.HasField("serial_iteration_s") else None,
        slowdown=slowdown_from_message(message.slowdown) if message.HasField("slowdown") else None,
    )


def _metric_to_message(metric: MetricSpec) -> pb.MetricSpec | None:
    if metric == MetricSpec():
        return None
    return pb.MetricSpec(name=metric.name, mode=metric.mode, regex=metric.regex, unwanted=not metric.wanted)


def metric_from_message(message: pb.MetricSpec) -> MetricSpec:
    """The metric of a search. An absent message is the default: losses by their names."""
    return MetricSpec(name=message.name, mode=message.mode or "min", regex=message.regex, wanted=not message.unwanted)


def app_to_message(app: AppSpec) -> pb.AppSpec:
    """An app's specification. Of its code only the hash is in it."""
    program = app.program
    return pb.AppSpec(
        name=app.name,
        user=app.user,
        queue=app.queue,
        tuner=pb.TunerSpec(name=app.tuner.name, settings=scalars_to_messages(app.tuner.settings)),
        program=pb.ProgramSpec(
            name=program.name,
            command=program.command,
            arguments=scalars_to_messages(program.arguments),
            environment=program.environment,
            framework=program.framework,
            code_sha256=program.code.sha256 if program.code else "",
            python=program.python,
            requirements=program.requirements,
        ),
        jobs=[job_to_message(job) for job in app.jobs],
        resources=pb.TaskResources(memory_mb=app.resources.memory_mb, vcores=app.resources.vcores),
        estimate=_estimate_to_message(app.estimate),
        checkpoint_every=app.checkpoint_every,
        checkpoint_uri=app.checkpoint_uri,
        keep_checkpoints=app.keep_checkpoints,
        max_task_restarts=app.max_task_restarts,
        peer_wait_s=app.peer_wait_s,
        metric=_metric_to_message(app.metric),
        max_runtime_s=app.max_runtime_s,
        max_iterations=app.max_iterations,
        priority=app.priority,
        seed=app.seed,
        replay=app.replay,
    )


def app_from_message(message: pb.AppSpec) -> AppSpec:
    """An app's specification; whatever its values refuse raises InputError."""
    program = message.program
    return AppSpec(
        name=message.name,
        user=message.user,
        queue=message.queue,
        priority=message.priority,
        tuner=TunerSpec(name=message.tuner.name, settings=scalars_from_messages(message.tuner.settings)),
        program=ProgramSpec(
            name=program.name,
            command=program.command,
            arguments=scalars_from_messages(program.arguments),
            environment=dict(program.environment),
            framework=program.framework,
            code=CodeArchive(sha256=program.code_sha256) if program.code_sha256 else None,
            python=program.python,
            requirements=program.requirements,
        ),
        jobs=tuple(job_from_message(job) for job in message.jobs),
        resources=TaskResources(memory_mb=message.resources.memory_mb, vcores=message.resources.vcores),
        estimate=_estimate_from_message(message.estimate),
        checkpoint_every=message.checkpoint_every,
        checkpoint_uri=message.checkpoint_uri,
        keep_checkpoints=message.keep_checkpoints,
        max_task_restarts=message.max_task_restarts,
        peer_wait_s=message.peer_wait_s or DEFAULT_PEER_WAIT_S,
        metric=metric_from_message(message.metric),
        max_runtime_s=message.max_runtime_s,
        max_iterations=message.max_iterations,
        seed=message.seed,
        replay=message.replay,
    )


# ---- cluster and leases ---------------------------------------------------------------------------------------------


def allocation_to_message(allocation: Allocation) -> pb.Allocation:
    """GPUs by machine."""
    return pb.Allocation(counts=[pb.GpuCount(machine_id=machine, gpus=gpus) for machine, gpus in allocation])


def allocation_from_message(message: pb.Allocation) -> Allocation:
    """GPUs by machine."""
    return Allocation.of((count.machine_id, count.gpus) for count in message.counts)


def cluster_to_message(cluster: Cluster) -> pb.Cluster:
    """A cluster with its device types."""
    machines = [
        pb.Machine(
            machine_id=machine.machine_id,
            rack_id=machine.rack_id,
            slots=machine.slots,
            device=machine.device,
            cpus=machine.cpus,
            memory_mb=machine.memory_mb,
        )
        for machine in cluster.machines
    ]
    devices = [
        pb.DeviceType(
            name=device.name,
            kind=device.kind,
            memory_mb=device.memory_mb,
            speed=device.speed,
            emulated=device.emulated,
        )
        for device in cluster.devices.values()
    ]
    return pb.Cluster(name=cluster.name, machines=machines, devices=devices)


def cluster_from_message(message: pb.Cluster) -> Cluster:
    """A cluster with its device types."""
    machines = tuple(
        Machine(
            machine_id=machine.machine_id,
            rack_id=machine.rack_id,
            slots=tuple(machine.slots),
            device=machine.device,
            cpus=machine.cpus,
            memory_mb=machine.memory_mb,
        )
        for machine in message.machines
    )
    devices = {
        device.name: DeviceType(
            name=device.name,
            kind=DeviceKind(device.kind),
            memory_mb=device.memory_mb,
            speed=device.speed,
            emulated=device.emulated,
        )
        for device in message.devices
    }
    return Cluster(name=message.name, machines=machines, devices=devices)


def lease_to_message(lease: Lease) -> pb.Lease:
    """A lease as its holder sees it."""
    return pb.Lease(
        lease_id=lease.lease_id,
        machine_id=lease.gpu.machine_id,
        gpu_index=lease.gpu.index,
        expires_at_s=lease.expires_at_s,
        state=lease.state,
        job_id=lease.job_id,
        granted_at_s=lease.granted_at_s,
    )


def lease_from_message(message: pb.Lease, app_id: str) -> Lease:
    """A lease of the app `app_id`, as its app master keeps it."""
    if message.state not in LeaseState.__members__:
        raise InputError("unknown state of a lease", value=message.state)
    return Lease(
        lease_id=message.lease_id,
        gpu=GpuId(message.machine_id, message.gpu_index),
        app_id=app_id,
        granted_at_s=message.granted_at_s,
        expires_at_s=message.expires_at_s,
        state=LeaseState(message.state),
        job_id=message.job_id,
    )


# ---- bids -----------------------------------------------------------------------------------------------------------


def row_to_message(row: BidRow) -> pb.BidRow:
    """One row of a bid."""
    gangs = [
        pb.Gang(gpus=gang.gpus, within=gang.within, count=gang.count, unit_gpus=gang.unit_gpus, device=gang.device)
        for gang in row.gangs
    ]
    return pb.BidRow(
        value=row.value,
        gangs=gangs,
        pinned=allocation_to_message(row.pinned),
        pinned_gangs=[allocation_to_message(gang) for gang in row.pinned_gangs],
    )


def row_from_message(message: pb.BidRow) -> BidRow:
    """One row of a bid."""
    gangs = tuple(
        GangRequest(
            gpus=gang.gpus,
            within=_level(gang.within),
            count=gang.count,
            unit_gpus=gang.unit_gpus,
            device=gang.device,
        )
        for gang in message.gangs
    )
    return BidRow(
        value=message.value,
        gangs=gangs,
        pinned=allocation_from_message(message.pinned),
        pinned_gangs=tuple(allocation_from_message(gang) for gang in message.pinned_gangs),
    )


def bid_to_message(bid: Bid, prepare_ms: float) -> pb.Bid:
    """A bid, with the milliseconds that it took to prepare."""
    return pb.Bid(
        round_id=bid.round_id,
        empty_value=bid.empty_value,
        rows=[row_to_message(row) for row in bid.rows],
        rows_dropped=bid.rows_dropped,
        prepare_ms=prepare_ms,
    )


def bid_from_message(message: pb.Bid, app_id: str) -> Bid:
    """The bid of the app `app_id`."""
    return Bid(
        app_id=app_id,
        round_id=message.round_id,
        empty_value=message.empty_value,
        rows=tuple(row_from_message(row) for row in message.rows),
        rows_dropped=message.rows_dropped,
    )


def phases_to_messages(phases: Iterable[FluidPhase]) -> list[pb.FluidPhase]:
    """Phases on the fluid fair cluster."""
    return [pb.FluidPhase(time_s=phase.time_s, gpus=phase.gpus) for phase in phases]


def phases_from_messages(messages: Iterable[pb.FluidPhase]) -> tuple[FluidPhase, ...]:
    """Return the phases. Raises InputError for one without GPUs or of endless time."""
    return tuple(FluidPhase(message.time_s, message.gpus) for message in messages)


def declaration_to_message(declaration: Declaration) -> pb.Declaration:
    """What an app declares to the fluid fair cluster."""
    return pb.Declaration(
        phases=phases_to_messages(declaration.phases),
        cluster_time_s=declaration.cluster_time_s,
        share_demand=declaration.share_demand,
    )


def declaration_from_message(message: pb.Declaration) -> Declaration:
    """Return the declaration. Raises InputError for a phase without GPUs or of endless time."""
    return Declaration(
        phases=phases_from_messages(message.phases),
        cluster_time_s=message.cluster_time_s,
        share_demand=message.share_demand,
    )


def report_to_message(report: AppReport) -> pb.RhoReport:
    """An app's report at the beginning of a round."""
    return pb.RhoReport(
        round_id=report.round_id,
        rho=report.rho,
        t_shared_s=report.t_shared_s,
        t_ideal_s=report.t_ideal_s,
        demands=[_demand_to_message(demand) for demand in report.demands],
        phases_left=[_phase_to_message(phase) for phase in report.phases_left],
        restart_s=report.restart_s,
        provisional=report.provisional,
    )


def report_from_message(message: pb.RhoReport, app_id: str) -> AppReport:
    """Return the report of the app `app_id`. Raises InputError if it has no rho, which is required on the wire."""
    if math.isnan(message.rho):
        raise InputError("rho must be a number of 0 or more, or infinite", value=message.rho)
    return AppReport(
        app_id=app_id,
        round_id=message.round_id,
        rho=message.rho,
        t_shared_s=message.t_shared_s,
        t_ideal_s=message.t_ideal_s,
        demands=tuple(_demand_from_message(demand) for demand in message.demands),
        phases_left=tuple(_phase_from_message(phase) for phase in message.phases_left),
        restart_s=message.restart_s,
        provisional=message.provisional,
    )


def _phase_to_message(phase: PhaseLeft) -> pb.PhaseLeft:
    return pb.PhaseLeft(
        jobs=phase.jobs,
        work_gpu_s=phase.work_gpu_s,
        longest_gpu_s=phase.longest_gpu_s,
        gang_gpus=phase.gang_gpus,
    )


def _phase_from_message(message: pb.PhaseLeft) -> PhaseLeft:
    return PhaseLeft(
        jobs=message.jobs,
        work_gpu_s=message.work_gpu_s,
        longest_gpu_s=message.longest_gpu_s,
        gang_gpus=message.gang_gpus,
    )


def _forecast_to_message(forecast: LossForecast) -> pb.LossForecast:
    return pb.LossForecast(
        floor=forecast.floor,
        drop=forecast.drop,
        scale=forecast.scale,
        power=forecast.power,
        iteration=forecast.iteration,
        serial_iteration_s=forecast.serial_iteration_s,
    )


def _forecast_from_message(message: pb.LossForecast) -> LossForecast:
    return LossForecast(
        floor=message.floor,
        drop=message.drop,
        scale=message.scale,
        power=message.power,
        iteration=message.iteration,
        serial_iteration_s=message.serial_iteration_s,
    )


def _demand_to_message(demand: GangDemand) -> pb.GangDemand:
    return pb.GangDemand(
        job_id=demand.job_id,
        min_gpus=demand.min_gpus,
        max_gpus=demand.max_gpus,
        unit_gpus=demand.unit_gpus,
        slowdown=slowdown_to_message(demand.slowdown),
        work_left_gpu_s=demand.work_left_gpu_s,
        faster_than=demand.faster_than,
        held=allocation_to_message(demand.held),
        forecast=None if demand.forecast is None else _forecast_to_message(demand.forecast),
        speeds=dict(demand.speeds.by_type),
        samples=[
            pb.SampleTimes(
                device=each.device,
                first_work_gpu_s=each.work_gpu_s[0],
                first_s=each.seconds[0],
                second_work_gpu_s=each.work_gpu_s[1],
                second_s=each.seconds[1],
                memory_mb=each.memory_mb,
            )
            for each in demand.samples
        ],
        measured=demand.measured,
    )


def _demand_from_message(message: pb.GangDemand) -> GangDemand:
    return GangDemand(
        job_id=message.job_id,
        min_gpus=message.min_gpus,
        max_gpus=message.max_gpus,
        unit_gpus=message.unit_gpus,
        slowdown=slowdown_from_message(message.slowdown),
        work_left_gpu_s=message.work_left_gpu_s,
        faster_than=message.faster_than,
        held=allocation_from_message(message.held),
        forecast=_forecast_from_message(message.forecast) if message.HasField("forecast") else None,
        speeds=Speeds.of(message.speeds.items()) if message.speeds else SAME_SPEED,
        samples=tuple(
            SampleTimes(
                device=each.device,
                work_gpu_s=(each.first_work_gpu_s, each.second_work_gpu_s),
                seconds=(each.first_s, each.second_s),
                memory_mb=each.memory_mb,
            )
            for each in message.samples
        ),
        measured=tuple(message.measured),
    )


def offer_to_message(offer: Offer) -> pb.Offer:
    """An offer."""
    return pb.Offer(
        round_id=offer.round_id,
        now_s=offer.now_s,
        deadline_s=offer.deadline_s,
        lease_s=offer.lease_s,
        free=[pb.OfferedMachine(machine_id=machine, free_slots=slots) for machine, slots in offer.slots.items()],
        contention=offer.contention,
        active_apps=offer.active_apps,
    )


def offer_from_message(message: pb.Offer) -> Offer:
    """An offer."""
    slots = {machine.machine_id: tuple(machine.free_slots) for machine in message.free}
    return Offer(
        round_id=message.round_id,
        now_s=message.now_s,
        deadline_s=message.deadline_s,
        lease_s=message.lease_s,
        free=Allocation.of({machine: sum(counts) for machine, counts in slots.items()}),
        slots=slots,
        contention=message.contention,
        active_apps=message.active_apps,
    )


def leases_to_message(version: int, leases: Iterable[Lease]) -> pb.LeaseUpdate:
    """Every lease of an app, whole."""
    return pb.LeaseUpdate(version=version, leases=[lease_to_message(lease) for lease in leases])


def _level(number: int) -> Level:
    # An unknown number comes from a newer or a broken peer; Level raises the ValueError that InputError is.
    return Level(number)
