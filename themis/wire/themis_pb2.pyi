from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GpuCount(_message.Message):
    __slots__ = ("machine_id", "gpus")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    gpus: int
    def __init__(self, machine_id: _Optional[str] = ..., gpus: _Optional[int] = ...) -> None: ...

class Allocation(_message.Message):
    __slots__ = ("counts",)
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    counts: _containers.RepeatedCompositeFieldContainer[GpuCount]
    def __init__(self, counts: _Optional[_Iterable[_Union[GpuCount, _Mapping]]] = ...) -> None: ...

class Slowdown(_message.Message):
    __slots__ = ("slot", "machine", "rack", "cluster")
    SLOT_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    slot: float
    machine: float
    rack: float
    cluster: float
    def __init__(self, slot: _Optional[float] = ..., machine: _Optional[float] = ..., rack: _Optional[float] = ..., cluster: _Optional[float] = ...) -> None: ...

class Scalar(_message.Message):
    __slots__ = ("text", "integer", "number", "flag")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    flag: bool
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ..., flag: _Optional[bool] = ...) -> None: ...

class JobShape(_message.Message):
    __slots__ = ("tasks", "min_tasks", "gpus_per_task")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    MIN_TASKS_FIELD_NUMBER: _ClassVar[int]
    GPUS_PER_TASK_FIELD_NUMBER: _ClassVar[int]
    tasks: int
    min_tasks: int
    gpus_per_task: int
    def __init__(self, tasks: _Optional[int] = ..., min_tasks: _Optional[int] = ..., gpus_per_task: _Optional[int] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("job_id", "hyper_parameters", "shape", "iterations_total", "speed_by_device")
    class HyperParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...
    class SpeedByDeviceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    HYPER_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SPEED_BY_DEVICE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    hyper_parameters: _containers.MessageMap[str, Scalar]
    shape: JobShape
    iterations_total: int
    speed_by_device: _containers.ScalarMap[str, float]
    def __init__(self, job_id: _Optional[str] = ..., hyper_parameters: _Optional[_Mapping[str, Scalar]] = ..., shape: _Optional[_Union[JobShape, _Mapping]] = ..., iterations_total: _Optional[int] = ..., speed_by_device: _Optional[_Mapping[str, float]] = ...) -> None: ...

class TunerSpec(_message.Message):
    __slots__ = ("name", "settings")
    class SettingsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _containers.MessageMap[str, Scalar]
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Mapping[str, Scalar]] = ...) -> None: ...

class ProgramSpec(_message.Message):
    __slots__ = ("name", "command", "arguments", "environment", "framework", "code_sha256", "python", "requirements")
    class ArgumentsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...
    class EnvironmentEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    FRAMEWORK_FIELD_NUMBER: _ClassVar[int]
    CODE_SHA256_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    REQUIREMENTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    command: str
    arguments: _containers.MessageMap[str, Scalar]
    environment: _containers.ScalarMap[str, str]
    framework: str
    code_sha256: str
    python: str
    requirements: str
    def __init__(self, name: _Optional[str] = ..., command: _Optional[str] = ..., arguments: _Optional[_Mapping[str, Scalar]] = ..., environment: _Optional[_Mapping[str, str]] = ..., framework: _Optional[str] = ..., code_sha256: _Optional[str] = ..., python: _Optional[str] = ..., requirements: _Optional[str] = ...) -> None: ...

class TaskResources(_message.Message):
    __slots__ = ("memory_mb", "vcores")
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    VCORES_FIELD_NUMBER: _ClassVar[int]
    memory_mb: int
    vcores: int
    def __init__(self, memory_mb: _Optional[int] = ..., vcores: _Optional[int] = ...) -> None: ...

class Estimate(_message.Message):
    __slots__ = ("serial_iteration_s", "slowdown")
    SERIAL_ITERATION_S_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    serial_iteration_s: float
    slowdown: Slowdown
    def __init__(self, serial_iteration_s: _Optional[float] = ..., slowdown: _Optional[_Union[Slowdown, _Mapping]] = ...) -> None: ...

class AppSpec(_message.Message):
    __slots__ = ("name", "user", "queue", "tuner", "program", "jobs", "resources", "estimate", "checkpoint_every", "checkpoint_uri", "keep_checkpoints", "max_task_restarts", "seed", "replay", "peer_wait_s", "metric", "max_runtime_s", "max_iterations", "priority")
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TUNER_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_EVERY_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    MAX_TASK_RESTARTS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    PEER_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNTIME_S_FIELD_NUMBER: _ClassVar[int]
    MAX_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    user: str
    queue: str
    tuner: TunerSpec
    program: ProgramSpec
    jobs: _containers.RepeatedCompositeFieldContainer[JobSpec]
    resources: TaskResources
    estimate: Estimate
    checkpoint_every: int
    checkpoint_uri: str
    keep_checkpoints: int
    max_task_restarts: int
    seed: int
    replay: bool
    peer_wait_s: float
    metric: MetricSpec
    max_runtime_s: float
    max_iterations: int
    priority: int
    def __init__(self, name: _Optional[str] = ..., user: _Optional[str] = ..., queue: _Optional[str] = ..., tuner: _Optional[_Union[TunerSpec, _Mapping]] = ..., program: _Optional[_Union[ProgramSpec, _Mapping]] = ..., jobs: _Optional[_Iterable[_Union[JobSpec, _Mapping]]] = ..., resources: _Optional[_Union[TaskResources, _Mapping]] = ..., estimate: _Optional[_Union[Estimate, _Mapping]] = ..., checkpoint_every: _Optional[int] = ..., checkpoint_uri: _Optional[str] = ..., keep_checkpoints: _Optional[int] = ..., max_task_restarts: _Optional[int] = ..., seed: _Optional[int] = ..., replay: _Optional[bool] = ..., peer_wait_s: _Optional[float] = ..., metric: _Optional[_Union[MetricSpec, _Mapping]] = ..., max_runtime_s: _Optional[float] = ..., max_iterations: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class MetricSpec(_message.Message):
    __slots__ = ("name", "mode", "regex", "unwanted")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    REGEX_FIELD_NUMBER: _ClassVar[int]
    UNWANTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    mode: str
    regex: str
    unwanted: bool
    def __init__(self, name: _Optional[str] = ..., mode: _Optional[str] = ..., regex: _Optional[str] = ..., unwanted: _Optional[bool] = ...) -> None: ...

class Machine(_message.Message):
    __slots__ = ("machine_id", "rack_id", "slots", "device", "cpus", "memory_mb")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    RACK_ID_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    rack_id: str
    slots: _containers.RepeatedScalarFieldContainer[int]
    device: str
    cpus: int
    memory_mb: int
    def __init__(self, machine_id: _Optional[str] = ..., rack_id: _Optional[str] = ..., slots: _Optional[_Iterable[int]] = ..., device: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_mb: _Optional[int] = ...) -> None: ...

class DeviceType(_message.Message):
    __slots__ = ("name", "kind", "memory_mb", "speed", "emulated")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    EMULATED_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    memory_mb: int
    speed: float
    emulated: bool
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., memory_mb: _Optional[int] = ..., speed: _Optional[float] = ..., emulated: _Optional[bool] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("name", "machines", "devices")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MACHINES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    name: str
    machines: _containers.RepeatedCompositeFieldContainer[Machine]
    devices: _containers.RepeatedCompositeFieldContainer[DeviceType]
    def __init__(self, name: _Optional[str] = ..., machines: _Optional[_Iterable[_Union[Machine, _Mapping]]] = ..., devices: _Optional[_Iterable[_Union[DeviceType, _Mapping]]] = ...) -> None: ...

class Gang(_message.Message):
    __slots__ = ("gpus", "within", "count", "unit_gpus", "device")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    WITHIN_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    UNIT_GPUS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    gpus: int
    within: int
    count: int
    unit_gpus: int
    device: str
    def __init__(self, gpus: _Optional[int] = ..., within: _Optional[int] = ..., count: _Optional[int] = ..., unit_gpus: _Optional[int] = ..., device: _Optional[str] = ...) -> None: ...

class BidRow(_message.Message):
    __slots__ = ("value", "gangs", "pinned", "pinned_gangs")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    GANGS_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    PINNED_GANGS_FIELD_NUMBER: _ClassVar[int]
    value: float
    gangs: _containers.RepeatedCompositeFieldContainer[Gang]
    pinned: Allocation
    pinned_gangs: _containers.RepeatedCompositeFieldContainer[Allocation]
    def __init__(self, value: _Optional[float] = ..., gangs: _Optional[_Iterable[_Union[Gang, _Mapping]]] = ..., pinned: _Optional[_Union[Allocation, _Mapping]] = ..., pinned_gangs: _Optional[_Iterable[_Union[Allocation, _Mapping]]] = ...) -> None: ...

class LossForecast(_message.Message):
    __slots__ = ("floor", "drop", "scale", "power", "iteration", "serial_iteration_s")
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    SERIAL_ITERATION_S_FIELD_NUMBER: _ClassVar[int]
    floor: float
    drop: float
    scale: float
    power: float
    iteration: int
    serial_iteration_s: float
    def __init__(self, floor: _Optional[float] = ..., drop: _Optional[float] = ..., scale: _Optional[float] = ..., power: _Optional[float] = ..., iteration: _Optional[int] = ..., serial_iteration_s: _Optional[float] = ...) -> None: ...

class SampleTimes(_message.Message):
    __slots__ = ("device", "first_work_gpu_s", "first_s", "second_work_gpu_s", "second_s", "memory_mb")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FIRST_WORK_GPU_S_FIELD_NUMBER: _ClassVar[int]
    FIRST_S_FIELD_NUMBER: _ClassVar[int]
    SECOND_WORK_GPU_S_FIELD_NUMBER: _ClassVar[int]
    SECOND_S_FIELD_NUMBER: _ClassVar[int]
    MEMORY_MB_FIELD_NUMBER: _ClassVar[int]
    device: str
    first_work_gpu_s: float
    first_s: float
    second_work_gpu_s: float
    second_s: float
    memory_mb: float
    def __init__(self, device: _Optional[str] = ..., first_work_gpu_s: _Optional[float] = ..., first_s: _Optional[float] = ..., second_work_gpu_s: _Optional[float] = ..., second_s: _Optional[float] = ..., memory_mb: _Optional[float] = ...) -> None: ...

class GangDemand(_message.Message):
    __slots__ = ("job_id", "min_gpus", "max_gpus", "unit_gpus", "slowdown", "work_left_gpu_s", "held", "forecast", "faster_than", "speeds", "samples", "measured")
    class SpeedsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    MIN_GPUS_FIELD_NUMBER: _ClassVar[int]
    MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    UNIT_GPUS_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    WORK_LEFT_GPU_S_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    FORECAST_FIELD_NUMBER: _ClassVar[int]
    FASTER_THAN_FIELD_NUMBER: _ClassVar[int]
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    SAMPLES_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    min_gpus: int
    max_gpus: int
    unit_gpus: int
    slowdown: Slowdown
    work_left_gpu_s: float
    held: Allocation
    forecast: LossForecast
    faster_than: float
    speeds: _containers.ScalarMap[str, float]
    samples: _containers.RepeatedCompositeFieldContainer[SampleTimes]
    measured: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_id: _Optional[str] = ..., min_gpus: _Optional[int] = ..., max_gpus: _Optional[int] = ..., unit_gpus: _Optional[int] = ..., slowdown: _Optional[_Union[Slowdown, _Mapping]] = ..., work_left_gpu_s: _Optional[float] = ..., held: _Optional[_Union[Allocation, _Mapping]] = ..., forecast: _Optional[_Union[LossForecast, _Mapping]] = ..., faster_than: _Optional[float] = ..., speeds: _Optional[_Mapping[str, float]] = ..., samples: _Optional[_Iterable[_Union[SampleTimes, _Mapping]]] = ..., measured: _Optional[_Iterable[str]] = ...) -> None: ...

class PhaseLeft(_message.Message):
    __slots__ = ("jobs", "work_gpu_s", "longest_gpu_s", "gang_gpus")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    WORK_GPU_S_FIELD_NUMBER: _ClassVar[int]
    LONGEST_GPU_S_FIELD_NUMBER: _ClassVar[int]
    GANG_GPUS_FIELD_NUMBER: _ClassVar[int]
    jobs: int
    work_gpu_s: float
    longest_gpu_s: float
    gang_gpus: int
    def __init__(self, jobs: _Optional[int] = ..., work_gpu_s: _Optional[float] = ..., longest_gpu_s: _Optional[float] = ..., gang_gpus: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("lease_id", "machine_id", "gpu_index", "expires_at_s", "state", "job_id", "granted_at_s")
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    GPU_INDEX_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_S_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GRANTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    lease_id: int
    machine_id: str
    gpu_index: int
    expires_at_s: float
    state: str
    job_id: str
    granted_at_s: float
    def __init__(self, lease_id: _Optional[int] = ..., machine_id: _Optional[str] = ..., gpu_index: _Optional[int] = ..., expires_at_s: _Optional[float] = ..., state: _Optional[str] = ..., job_id: _Optional[str] = ..., granted_at_s: _Optional[float] = ...) -> None: ...

class AmMessage(_message.Message):
    __slots__ = ("id", "register", "rho", "bid", "release", "heartbeat", "job_event", "finish", "rest", "greeting")
    ID_FIELD_NUMBER: _ClassVar[int]
    REGISTER_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    BID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    JOB_EVENT_FIELD_NUMBER: _ClassVar[int]
    FINISH_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    GREETING_FIELD_NUMBER: _ClassVar[int]
    id: int
    register: Register
    rho: RhoReport
    bid: Bid
    release: Release
    heartbeat: Heartbeat
    job_event: JobEvent
    finish: Finish
    rest: Rest
    greeting: Greeting
    def __init__(self, id: _Optional[int] = ..., register: _Optional[_Union[Register, _Mapping]] = ..., rho: _Optional[_Union[RhoReport, _Mapping]] = ..., bid: _Optional[_Union[Bid, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., job_event: _Optional[_Union[JobEvent, _Mapping]] = ..., finish: _Optional[_Union[Finish, _Mapping]] = ..., rest: _Optional[_Union[Rest, _Mapping]] = ..., greeting: _Optional[_Union[Greeting, _Mapping]] = ...) -> None: ...

class Greeting(_message.Message):
    __slots__ = ("app_id", "attempt", "nonce")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    attempt: int
    nonce: str
    def __init__(self, app_id: _Optional[str] = ..., attempt: _Optional[int] = ..., nonce: _Optional[str] = ...) -> None: ...

class Register(_message.Message):
    __slots__ = ("app_id", "attempt", "token", "held_lease_ids", "pid", "page_url", "engine_id", "has_code")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    HELD_LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    PAGE_URL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    HAS_CODE_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    attempt: int
    token: str
    held_lease_ids: _containers.RepeatedScalarFieldContainer[int]
    pid: int
    page_url: str
    engine_id: str
    has_code: bool
    def __init__(self, app_id: _Optional[str] = ..., attempt: _Optional[int] = ..., token: _Optional[str] = ..., held_lease_ids: _Optional[_Iterable[int]] = ..., pid: _Optional[int] = ..., page_url: _Optional[str] = ..., engine_id: _Optional[str] = ..., has_code: _Optional[bool] = ...) -> None: ...

class RhoReport(_message.Message):
    __slots__ = ("round_id", "rho", "t_shared_s", "t_ideal_s", "demands", "phases_left", "restart_s", "provisional")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    T_SHARED_S_FIELD_NUMBER: _ClassVar[int]
    T_IDEAL_S_FIELD_NUMBER: _ClassVar[int]
    DEMANDS_FIELD_NUMBER: _ClassVar[int]
    PHASES_LEFT_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    rho: float
    t_shared_s: float
    t_ideal_s: float
    demands: _containers.RepeatedCompositeFieldContainer[GangDemand]
    phases_left: _containers.RepeatedCompositeFieldContainer[PhaseLeft]
    restart_s: float
    provisional: bool
    def __init__(self, round_id: _Optional[int] = ..., rho: _Optional[float] = ..., t_shared_s: _Optional[float] = ..., t_ideal_s: _Optional[float] = ..., demands: _Optional[_Iterable[_Union[GangDemand, _Mapping]]] = ..., phases_left: _Optional[_Iterable[_Union[PhaseLeft, _Mapping]]] = ..., restart_s: _Optional[float] = ..., provisional: _Optional[bool] = ...) -> None: ...

class Declaration(_message.Message):
    __slots__ = ("phases", "cluster_time_s", "share_demand")
    PHASES_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_TIME_S_FIELD_NUMBER: _ClassVar[int]
    SHARE_DEMAND_FIELD_NUMBER: _ClassVar[int]
    phases: _containers.RepeatedCompositeFieldContainer[FluidPhase]
    cluster_time_s: float
    share_demand: float
    def __init__(self, phases: _Optional[_Iterable[_Union[FluidPhase, _Mapping]]] = ..., cluster_time_s: _Optional[float] = ..., share_demand: _Optional[float] = ...) -> None: ...

class FluidPhase(_message.Message):
    __slots__ = ("time_s", "gpus")
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    time_s: float
    gpus: float
    def __init__(self, time_s: _Optional[float] = ..., gpus: _Optional[float] = ...) -> None: ...

class Bid(_message.Message):
    __slots__ = ("round_id", "empty_value", "rows", "rows_dropped", "prepare_ms")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    EMPTY_VALUE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_DROPPED_FIELD_NUMBER: _ClassVar[int]
    PREPARE_MS_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    empty_value: float
    rows: _containers.RepeatedCompositeFieldContainer[BidRow]
    rows_dropped: int
    prepare_ms: float
    def __init__(self, round_id: _Optional[int] = ..., empty_value: _Optional[float] = ..., rows: _Optional[_Iterable[_Union[BidRow, _Mapping]]] = ..., rows_dropped: _Optional[int] = ..., prepare_ms: _Optional[float] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("lease_ids", "reason", "no_room", "headroom_gpus")
    LEASE_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NO_ROOM_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_GPUS_FIELD_NUMBER: _ClassVar[int]
    lease_ids: _containers.RepeatedScalarFieldContainer[int]
    reason: str
    no_room: bool
    headroom_gpus: int
    def __init__(self, lease_ids: _Optional[_Iterable[int]] = ..., reason: _Optional[str] = ..., no_room: _Optional[bool] = ..., headroom_gpus: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("progress", "jobs", "phase", "phases", "unmet_gpus", "best", "declaration", "checkpoint_uri", "phases_left", "restart_s", "loss_curves", "headroom_gpus", "provisional")
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    UNMET_GPUS_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    PHASES_LEFT_FIELD_NUMBER: _ClassVar[int]
    RESTART_S_FIELD_NUMBER: _ClassVar[int]
    LOSS_CURVES_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_GPUS_FIELD_NUMBER: _ClassVar[int]
    PROVISIONAL_FIELD_NUMBER: _ClassVar[int]
    progress: float
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    phase: int
    phases: int
    unmet_gpus: int
    best: str
    declaration: Declaration
    checkpoint_uri: str
    phases_left: _containers.RepeatedCompositeFieldContainer[FluidPhase]
    restart_s: float
    loss_curves: _containers.RepeatedCompositeFieldContainer[LossCurve]
    headroom_gpus: int
    provisional: bool
    def __init__(self, progress: _Optional[float] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., phase: _Optional[int] = ..., phases: _Optional[int] = ..., unmet_gpus: _Optional[int] = ..., best: _Optional[str] = ..., declaration: _Optional[_Union[Declaration, _Mapping]] = ..., checkpoint_uri: _Optional[str] = ..., phases_left: _Optional[_Iterable[_Union[FluidPhase, _Mapping]]] = ..., restart_s: _Optional[float] = ..., loss_curves: _Optional[_Iterable[_Union[LossCurve, _Mapping]]] = ..., headroom_gpus: _Optional[int] = ..., provisional: _Optional[bool] = ...) -> None: ...

class LossCurve(_message.Message):
    __slots__ = ("job_id", "iterations", "losses")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    iterations: _containers.RepeatedScalarFieldContainer[int]
    losses: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, job_id: _Optional[str] = ..., iterations: _Optional[_Iterable[int]] = ..., losses: _Optional[_Iterable[float]] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "state", "iteration", "target_iteration", "loss", "accuracy", "has_loss", "has_accuracy", "restarts", "gpus", "iteration_s", "hyper_parameters", "health", "slowdown", "device", "speeds", "lines_seen", "lines_read", "pace_known", "tracked_run")
    class HyperParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Scalar
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Scalar, _Mapping]] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    TARGET_ITERATION_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_FIELD_NUMBER: _ClassVar[int]
    HAS_LOSS_FIELD_NUMBER: _ClassVar[int]
    HAS_ACCURACY_FIELD_NUMBER: _ClassVar[int]
    RESTARTS_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    ITERATION_S_FIELD_NUMBER: _ClassVar[int]
    HYPER_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    SLOWDOWN_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SPEEDS_FIELD_NUMBER: _ClassVar[int]
    LINES_SEEN_FIELD_NUMBER: _ClassVar[int]
    LINES_READ_FIELD_NUMBER: _ClassVar[int]
    PACE_KNOWN_FIELD_NUMBER: _ClassVar[int]
    TRACKED_RUN_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    state: str
    iteration: int
    target_iteration: int
    loss: float
    accuracy: float
    has_loss: bool
    has_accuracy: bool
    restarts: int
    gpus: int
    iteration_s: float
    hyper_parameters: _containers.MessageMap[str, Scalar]
    health: str
    slowdown: _containers.RepeatedCompositeFieldContainer[LevelSlowdown]
    device: str
    speeds: _containers.RepeatedCompositeFieldContainer[DeviceSpeed]
    lines_seen: int
    lines_read: int
    pace_known: bool
    tracked_run: str
    def __init__(self, job_id: _Optional[str] = ..., state: _Optional[str] = ..., iteration: _Optional[int] = ..., target_iteration: _Optional[int] = ..., loss: _Optional[float] = ..., accuracy: _Optional[float] = ..., has_loss: _Optional[bool] = ..., has_accuracy: _Optional[bool] = ..., restarts: _Optional[int] = ..., gpus: _Optional[int] = ..., iteration_s: _Optional[float] = ..., hyper_parameters: _Optional[_Mapping[str, Scalar]] = ..., health: _Optional[str] = ..., slowdown: _Optional[_Iterable[_Union[LevelSlowdown, _Mapping]]] = ..., device: _Optional[str] = ..., speeds: _Optional[_Iterable[_Union[DeviceSpeed, _Mapping]]] = ..., lines_seen: _Optional[int] = ..., lines_read: _Optional[int] = ..., pace_known: _Optional[bool] = ..., tracked_run: _Optional[str] = ...) -> None: ...

class DeviceSpeed(_message.Message):
    __slots__ = ("device", "speed", "measured")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    SPEED_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    device: str
    speed: float
    measured: bool
    def __init__(self, device: _Optional[str] = ..., speed: _Optional[float] = ..., measured: _Optional[bool] = ...) -> None: ...

class LevelSlowdown(_message.Message):
    __slots__ = ("level", "factor", "intervals", "spread")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FACTOR_FIELD_NUMBER: _ClassVar[int]
    INTERVALS_FIELD_NUMBER: _ClassVar[int]
    SPREAD_FIELD_NUMBER: _ClassVar[int]
    level: str
    factor: float
    intervals: int
    spread: float
    def __init__(self, level: _Optional[str] = ..., factor: _Optional[float] = ..., intervals: _Optional[int] = ..., spread: _Optional[float] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("job_id", "kind", "time_s", "detail")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    kind: str
    time_s: float
    detail: str
    def __init__(self, job_id: _Optional[str] = ..., kind: _Optional[str] = ..., time_s: _Optional[float] = ..., detail: _Optional[str] = ...) -> None: ...

class Rest(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: bytes
    def __init__(self, view: _Optional[bytes] = ...) -> None: ...

class Finish(_message.Message):
    __slots__ = ("state", "diagnostics", "rho", "jobs", "best", "best_checkpoint", "declaration", "loss_curves")
    class RhoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STATE_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    BEST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    DECLARATION_FIELD_NUMBER: _ClassVar[int]
    LOSS_CURVES_FIELD_NUMBER: _ClassVar[int]
    state: str
    diagnostics: str
    rho: _containers.ScalarMap[str, float]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    best: str
    best_checkpoint: str
    declaration: Declaration
    loss_curves: _containers.RepeatedCompositeFieldContainer[LossCurve]
    def __init__(self, state: _Optional[str] = ..., diagnostics: _Optional[str] = ..., rho: _Optional[_Mapping[str, float]] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., best: _Optional[str] = ..., best_checkpoint: _Optional[str] = ..., declaration: _Optional[_Union[Declaration, _Mapping]] = ..., loss_curves: _Optional[_Iterable[_Union[LossCurve, _Mapping]]] = ...) -> None: ...

class RmMessage(_message.Message):
    __slots__ = ("id", "registered", "ask_rho", "offer", "leases", "acknowledge", "shut_down", "cluster", "ask_rest", "proof")
    ID_FIELD_NUMBER: _ClassVar[int]
    REGISTERED_FIELD_NUMBER: _ClassVar[int]
    ASK_RHO_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    SHUT_DOWN_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ASK_REST_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    id: int
    registered: Registered
    ask_rho: AskRho
    offer: Offer
    leases: LeaseUpdate
    acknowledge: Acknowledge
    shut_down: ShutDown
    cluster: ClusterUpdate
    ask_rest: AskRest
    proof: Proof
    def __init__(self, id: _Optional[int] = ..., registered: _Optional[_Union[Registered, _Mapping]] = ..., ask_rho: _Optional[_Union[AskRho, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., leases: _Optional[_Union[LeaseUpdate, _Mapping]] = ..., acknowledge: _Optional[_Union[Acknowledge, _Mapping]] = ..., shut_down: _Optional[_Union[ShutDown, _Mapping]] = ..., cluster: _Optional[_Union[ClusterUpdate, _Mapping]] = ..., ask_rest: _Optional[_Union[AskRest, _Mapping]] = ..., proof: _Optional[_Union[Proof, _Mapping]] = ...) -> None: ...

class Proof(_message.Message):
    __slots__ = ("proof",)
    PROOF_FIELD_NUMBER: _ClassVar[int]
    proof: str
    def __init__(self, proof: _Optional[str] = ...) -> None: ...

class Registered(_message.Message):
    __slots__ = ("spec", "cluster", "submitted_at_s", "now_s", "lease_s", "checkpoint_lead_s", "grace_s", "heartbeat_s", "time_scale", "leases", "active_apps", "contention", "bundle_rule", "app_id", "gpus_available", "task_log_mb", "code")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_LEAD_S_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    TIME_SCALE_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_APPS_FIELD_NUMBER: _ClassVar[int]
    CONTENTION_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_RULE_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    GPUS_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    TASK_LOG_MB_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    spec: AppSpec
    cluster: Cluster
    submitted_at_s: float
    now_s: float
    lease_s: float
    checkpoint_lead_s: float
    grace_s: float
    heartbeat_s: float
    time_scale: float
    leases: LeaseUpdate
    active_apps: int
    contention: float
    bundle_rule: str
    app_id: str
    gpus_available: int
    task_log_mb: int
    code: bytes
    def __init__(self, spec: _Optional[_Union[AppSpec, _Mapping]] = ..., cluster: _Optional[_Union[Cluster, _Mapping]] = ..., submitted_at_s: _Optional[float] = ..., now_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., checkpoint_lead_s: _Optional[float] = ..., grace_s: _Optional[float] = ..., heartbeat_s: _Optional[float] = ..., time_scale: _Optional[float] = ..., leases: _Optional[_Union[LeaseUpdate, _Mapping]] = ..., active_apps: _Optional[int] = ..., contention: _Optional[float] = ..., bundle_rule: _Optional[str] = ..., app_id: _Optional[str] = ..., gpus_available: _Optional[int] = ..., task_log_mb: _Optional[int] = ..., code: _Optional[bytes] = ...) -> None: ...

class AskRho(_message.Message):
    __slots__ = ("round_id", "now_s", "deadline_s", "contention", "active_apps")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    CONTENTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_APPS_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    now_s: float
    deadline_s: float
    contention: float
    active_apps: int
    def __init__(self, round_id: _Optional[int] = ..., now_s: _Optional[float] = ..., deadline_s: _Optional[float] = ..., contention: _Optional[float] = ..., active_apps: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("round_id", "now_s", "deadline_s", "lease_s", "free", "contention", "active_apps")
    ROUND_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    FREE_FIELD_NUMBER: _ClassVar[int]
    CONTENTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_APPS_FIELD_NUMBER: _ClassVar[int]
    round_id: int
    now_s: float
    deadline_s: float
    lease_s: float
    free: _containers.RepeatedCompositeFieldContainer[OfferedMachine]
    contention: float
    active_apps: int
    def __init__(self, round_id: _Optional[int] = ..., now_s: _Optional[float] = ..., deadline_s: _Optional[float] = ..., lease_s: _Optional[float] = ..., free: _Optional[_Iterable[_Union[OfferedMachine, _Mapping]]] = ..., contention: _Optional[float] = ..., active_apps: _Optional[int] = ...) -> None: ...

class OfferedMachine(_message.Message):
    __slots__ = ("machine_id", "free_slots")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    FREE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    free_slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, machine_id: _Optional[str] = ..., free_slots: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaseUpdate(_message.Message):
    __slots__ = ("version", "leases")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    version: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, version: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Acknowledge(_message.Message):
    __slots__ = ("of_id", "now_s", "contention", "active_apps", "heartbeat_s")
    OF_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    CONTENTION_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_APPS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_S_FIELD_NUMBER: _ClassVar[int]
    of_id: int
    now_s: float
    contention: float
    active_apps: int
    heartbeat_s: float
    def __init__(self, of_id: _Optional[int] = ..., now_s: _Optional[float] = ..., contention: _Optional[float] = ..., active_apps: _Optional[int] = ..., heartbeat_s: _Optional[float] = ...) -> None: ...

class AskRest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ShutDown(_message.Message):
    __slots__ = ("reason", "pause")
    REASON_FIELD_NUMBER: _ClassVar[int]
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    pause: bool
    def __init__(self, reason: _Optional[str] = ..., pause: _Optional[bool] = ...) -> None: ...

class ClusterUpdate(_message.Message):
    __slots__ = ("cluster", "gpus_available")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    GPUS_AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    cluster: Cluster
    gpus_available: int
    def __init__(self, cluster: _Optional[_Union[Cluster, _Mapping]] = ..., gpus_available: _Optional[int] = ...) -> None: ...

class HostRequest(_message.Message):
    __slots__ = ("cluster", "enter", "leave", "ask_rho", "offer", "app_ids", "contentions")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ENTER_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    ASK_RHO_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    APP_IDS_FIELD_NUMBER: _ClassVar[int]
    CONTENTIONS_FIELD_NUMBER: _ClassVar[int]
    cluster: Registered
    enter: _containers.RepeatedCompositeFieldContainer[HostedApp]
    leave: _containers.RepeatedScalarFieldContainer[str]
    ask_rho: AskRho
    offer: Offer
    app_ids: _containers.RepeatedScalarFieldContainer[str]
    contentions: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, cluster: _Optional[_Union[Registered, _Mapping]] = ..., enter: _Optional[_Iterable[_Union[HostedApp, _Mapping]]] = ..., leave: _Optional[_Iterable[str]] = ..., ask_rho: _Optional[_Union[AskRho, _Mapping]] = ..., offer: _Optional[_Union[Offer, _Mapping]] = ..., app_ids: _Optional[_Iterable[str]] = ..., contentions: _Optional[_Iterable[float]] = ...) -> None: ...

class HostedApp(_message.Message):
    __slots__ = ("app_id", "spec", "submitted_at_s", "view")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    spec: AppSpec
    submitted_at_s: float
    view: bytes
    def __init__(self, app_id: _Optional[str] = ..., spec: _Optional[_Union[AppSpec, _Mapping]] = ..., submitted_at_s: _Optional[float] = ..., view: _Optional[bytes] = ...) -> None: ...

class HostReply(_message.Message):
    __slots__ = ("entered", "rho", "t_shared_s", "t_ideal_s", "bids", "failed")
    ENTERED_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    T_SHARED_S_FIELD_NUMBER: _ClassVar[int]
    T_IDEAL_S_FIELD_NUMBER: _ClassVar[int]
    BIDS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    entered: _containers.RepeatedCompositeFieldContainer[FirstReport]
    rho: _containers.RepeatedScalarFieldContainer[float]
    t_shared_s: _containers.RepeatedScalarFieldContainer[float]
    t_ideal_s: _containers.RepeatedScalarFieldContainer[float]
    bids: bytes
    failed: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, entered: _Optional[_Iterable[_Union[FirstReport, _Mapping]]] = ..., rho: _Optional[_Iterable[float]] = ..., t_shared_s: _Optional[_Iterable[float]] = ..., t_ideal_s: _Optional[_Iterable[float]] = ..., bids: _Optional[bytes] = ..., failed: _Optional[_Iterable[str]] = ...) -> None: ...

class FirstReport(_message.Message):
    __slots__ = ("app_id", "report", "heartbeat", "problem")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    report: RhoReport
    heartbeat: Heartbeat
    problem: str
    def __init__(self, app_id: _Optional[str] = ..., report: _Optional[_Union[RhoReport, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("spec", "code")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    spec: AppSpec
    code: bytes
    def __init__(self, spec: _Optional[_Union[AppSpec, _Mapping]] = ..., code: _Optional[bytes] = ...) -> None: ...

class SubmitReply(_message.Message):
    __slots__ = ("app_id", "runs_on", "page_url")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    RUNS_ON_FIELD_NUMBER: _ClassVar[int]
    PAGE_URL_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    runs_on: str
    page_url: str
    def __init__(self, app_id: _Optional[str] = ..., runs_on: _Optional[str] = ..., page_url: _Optional[str] = ...) -> None: ...

class ValidateReply(_message.Message):
    __slots__ = ("summary",)
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    summary: str
    def __init__(self, summary: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("states", "limit", "after", "reasons")
    STATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    after: str
    reasons: bool
    def __init__(self, states: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., reasons: _Optional[bool] = ...) -> None: ...

class ListReply(_message.Message):
    __slots__ = ("apps", "next", "total", "now_s")
    APPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    apps: _containers.RepeatedCompositeFieldContainer[AppStatus]
    next: str
    total: int
    now_s: float
    def __init__(self, apps: _Optional[_Iterable[_Union[AppStatus, _Mapping]]] = ..., next: _Optional[str] = ..., total: _Optional[int] = ..., now_s: _Optional[float] = ...) -> None: ...

class ShowRequest(_message.Message):
    __slots__ = ("app_id", "environment")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    ENVIRONMENT_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    environment: bool
    def __init__(self, app_id: _Optional[str] = ..., environment: _Optional[bool] = ...) -> None: ...

class KillRequest(_message.Message):
    __slots__ = ("app_id", "reason")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    reason: str
    def __init__(self, app_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class PauseRequest(_message.Message):
    __slots__ = ("app_id", "reason")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    reason: str
    def __init__(self, app_id: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeRequest(_message.Message):
    __slots__ = ("app_id",)
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    def __init__(self, app_id: _Optional[str] = ...) -> None: ...

class ExplanationLine(_message.Message):
    __slots__ = ("label", "text")
    LABEL_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    label: str
    text: str
    def __init__(self, label: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class Seconds(_message.Message):
    __slots__ = ("median", "low", "high")
    MEDIAN_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    median: float
    low: float
    high: float
    def __init__(self, median: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ...) -> None: ...

class AppEstimate(_message.Message):
    __slots__ = ("first_gpu_s", "end_s")
    FIRST_GPU_S_FIELD_NUMBER: _ClassVar[int]
    END_S_FIELD_NUMBER: _ClassVar[int]
    first_gpu_s: Seconds
    end_s: Seconds
    def __init__(self, first_gpu_s: _Optional[_Union[Seconds, _Mapping]] = ..., end_s: _Optional[_Union[Seconds, _Mapping]] = ...) -> None: ...

class AppWaiting(_message.Message):
    __slots__ = ("reason", "rank", "of", "ahead")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    AHEAD_FIELD_NUMBER: _ClassVar[int]
    reason: str
    rank: int
    of: int
    ahead: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, reason: _Optional[str] = ..., rank: _Optional[int] = ..., of: _Optional[int] = ..., ahead: _Optional[_Iterable[str]] = ...) -> None: ...

class AppStatus(_message.Message):
    __slots__ = ("app_id", "name", "user", "queue", "state", "tuner", "program", "replay", "submitted_at_s", "started_at_s", "finished_at_s", "progress", "rho", "gpus", "gpu_time_s", "attempts", "diagnostics", "best", "jobs", "final_rho", "spec", "leases", "phase", "phases", "best_checkpoint", "folder", "page_url", "engine_id", "waits_for", "explanation", "checkpoint_uri", "archive", "device_noun", "waiting", "estimate", "hosted", "app_page_url", "gpus_unmet", "jobs_total", "demand_max_gpus")
    class FinalRhoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    TUNER_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    FINISHED_AT_S_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPU_TIME_S_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    DIAGNOSTICS_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    FINAL_RHO_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PHASES_FIELD_NUMBER: _ClassVar[int]
    BEST_CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    PAGE_URL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_ID_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_URI_FIELD_NUMBER: _ClassVar[int]
    ARCHIVE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NOUN_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    HOSTED_FIELD_NUMBER: _ClassVar[int]
    APP_PAGE_URL_FIELD_NUMBER: _ClassVar[int]
    GPUS_UNMET_FIELD_NUMBER: _ClassVar[int]
    JOBS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DEMAND_MAX_GPUS_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    name: str
    user: str
    queue: str
    state: str
    tuner: str
    program: str
    replay: bool
    submitted_at_s: float
    started_at_s: float
    finished_at_s: float
    progress: float
    rho: float
    gpus: int
    gpu_time_s: float
    attempts: int
    diagnostics: str
    best: str
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    final_rho: _containers.ScalarMap[str, float]
    spec: AppSpec
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    phase: int
    phases: int
    best_checkpoint: str
    folder: str
    page_url: str
    engine_id: str
    waits_for: str
    explanation: _containers.RepeatedCompositeFieldContainer[ExplanationLine]
    checkpoint_uri: str
    archive: str
    device_noun: str
    waiting: AppWaiting
    estimate: AppEstimate
    hosted: bool
    app_page_url: str
    gpus_unmet: int
    jobs_total: int
    demand_max_gpus: int
    def __init__(self, app_id: _Optional[str] = ..., name: _Optional[str] = ..., user: _Optional[str] = ..., queue: _Optional[str] = ..., state: _Optional[str] = ..., tuner: _Optional[str] = ..., program: _Optional[str] = ..., replay: _Optional[bool] = ..., submitted_at_s: _Optional[float] = ..., started_at_s: _Optional[float] = ..., finished_at_s: _Optional[float] = ..., progress: _Optional[float] = ..., rho: _Optional[float] = ..., gpus: _Optional[int] = ..., gpu_time_s: _Optional[float] = ..., attempts: _Optional[int] = ..., diagnostics: _Optional[str] = ..., best: _Optional[str] = ..., jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., final_rho: _Optional[_Mapping[str, float]] = ..., spec: _Optional[_Union[AppSpec, _Mapping]] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., phase: _Optional[int] = ..., phases: _Optional[int] = ..., best_checkpoint: _Optional[str] = ..., folder: _Optional[str] = ..., page_url: _Optional[str] = ..., engine_id: _Optional[str] = ..., waits_for: _Optional[str] = ..., explanation: _Optional[_Iterable[_Union[ExplanationLine, _Mapping]]] = ..., checkpoint_uri: _Optional[str] = ..., archive: _Optional[str] = ..., device_noun: _Optional[str] = ..., waiting: _Optional[_Union[AppWaiting, _Mapping]] = ..., estimate: _Optional[_Union[AppEstimate, _Mapping]] = ..., hosted: _Optional[bool] = ..., app_page_url: _Optional[str] = ..., gpus_unmet: _Optional[int] = ..., jobs_total: _Optional[int] = ..., demand_max_gpus: _Optional[int] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("app_id", "after_sequence", "follow")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    after_sequence: int
    follow: bool
    def __init__(self, app_id: _Optional[str] = ..., after_sequence: _Optional[int] = ..., follow: _Optional[bool] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("sequence", "time_s", "kind", "app_id", "detail")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time_s: float
    kind: str
    app_id: str
    detail: str
    def __init__(self, sequence: _Optional[int] = ..., time_s: _Optional[float] = ..., kind: _Optional[str] = ..., app_id: _Optional[str] = ..., detail: _Optional[str] = ...) -> None: ...

class LogsRequest(_message.Message):
    __slots__ = ("app_id", "job_id", "follow", "tail_lines")
    APP_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    app_id: str
    job_id: str
    follow: bool
    tail_lines: int
    def __init__(self, app_id: _Optional[str] = ..., job_id: _Optional[str] = ..., follow: _Optional[bool] = ..., tail_lines: _Optional[int] = ...) -> None: ...

class LogChunk(_message.Message):
    __slots__ = ("source", "text")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    source: str
    text: str
    def __init__(self, source: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatus(_message.Message):
    __slots__ = ("cluster", "policy", "gpus", "gpus_leased", "active_apps", "rounds", "time_scale", "lease_s", "now_s", "nodes", "user", "is_admin")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_LEASED_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_APPS_FIELD_NUMBER: _ClassVar[int]
    ROUNDS_FIELD_NUMBER: _ClassVar[int]
    TIME_SCALE_FIELD_NUMBER: _ClassVar[int]
    LEASE_S_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    IS_ADMIN_FIELD_NUMBER: _ClassVar[int]
    cluster: Cluster
    policy: str
    gpus: int
    gpus_leased: int
    active_apps: int
    rounds: int
    time_scale: float
    lease_s: float
    now_s: float
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    user: str
    is_admin: bool
    def __init__(self, cluster: _Optional[_Union[Cluster, _Mapping]] = ..., policy: _Optional[str] = ..., gpus: _Optional[int] = ..., gpus_leased: _Optional[int] = ..., active_apps: _Optional[int] = ..., rounds: _Optional[int] = ..., time_scale: _Optional[float] = ..., lease_s: _Optional[float] = ..., now_s: _Optional[float] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., user: _Optional[str] = ..., is_admin: _Optional[bool] = ...) -> None: ...

class RmStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RmStatus(_message.Message):
    __slots__ = ("version", "host", "pid", "started_at_s", "now_s", "engine", "policy", "state_dir", "store_trouble", "engine_trouble", "apps_running", "apps_waiting", "nodes", "limits", "standbys", "certificate_expires_at_s")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STARTED_AT_S_FIELD_NUMBER: _ClassVar[int]
    NOW_S_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    STATE_DIR_FIELD_NUMBER: _ClassVar[int]
    STORE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_TROUBLE_FIELD_NUMBER: _ClassVar[int]
    APPS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    APPS_WAITING_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    STANDBYS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_EXPIRES_AT_S_FIELD_NUMBER: _ClassVar[int]
    version: str
    host: str
    pid: int
    started_at_s: float
    now_s: float
    engine: str
    policy: str
    state_dir: str
    store_trouble: str
    engine_trouble: str
    apps_running: int
    apps_waiting: int
    nodes: _containers.RepeatedCompositeFieldContainer[NodeStatus]
    limits: _containers.RepeatedScalarFieldContainer[str]
    standbys: _containers.RepeatedScalarFieldContainer[str]
    certificate_expires_at_s: float
    def __init__(self, version: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., started_at_s: _Optional[float] = ..., now_s: _Optional[float] = ..., engine: _Optional[str] = ..., policy: _Optional[str] = ..., state_dir: _Optional[str] = ..., store_trouble: _Optional[str] = ..., engine_trouble: _Optional[str] = ..., apps_running: _Optional[int] = ..., apps_waiting: _Optional[int] = ..., nodes: _Optional[_Iterable[_Union[NodeStatus, _Mapping]]] = ..., limits: _Optional[_Iterable[str]] = ..., standbys: _Optional[_Iterable[str]] = ..., certificate_expires_at_s: _Optional[float] = ...) -> None: ...

class NodeStatus(_message.Message):
    __slots__ = ("machine_id", "state", "gpus", "gpus_leased", "gpus_closed", "last_lease_end_s", "gpus_free")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GPUS_FIELD_NUMBER: _ClassVar[int]
    GPUS_LEASED_FIELD_NUMBER: _ClassVar[int]
    GPUS_CLOSED_FIELD_NUMBER: _ClassVar[int]
    LAST_LEASE_END_S_FIELD_NUMBER: _ClassVar[int]
    GPUS_FREE_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    state: str
    gpus: int
    gpus_leased: int
    gpus_closed: int
    last_lease_end_s: float
    gpus_free: int
    def __init__(self, machine_id: _Optional[str] = ..., state: _Optional[str] = ..., gpus: _Optional[int] = ..., gpus_leased: _Optional[int] = ..., gpus_closed: _Optional[int] = ..., last_lease_end_s: _Optional[float] = ..., gpus_free: _Optional[int] = ...) -> None: ...

class StopRequest(_message.Message):
    __slots__ = ("keep_apps",)
    KEEP_APPS_FIELD_NUMBER: _ClassVar[int]
    keep_apps: bool
    def __init__(self, keep_apps: _Optional[bool] = ...) -> None: ...

class DrainRequest(_message.Message):
    __slots__ = ("machine_id", "drained")
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAINED_FIELD_NUMBER: _ClassVar[int]
    machine_id: str
    drained: bool
    def __init__(self, machine_id: _Optional[str] = ..., drained: _Optional[bool] = ...) -> None: ...

class AddUserRequest(_message.Message):
    __slots__ = ("user", "valid_s")
    USER_FIELD_NUMBER: _ClassVar[int]
    VALID_S_FIELD_NUMBER: _ClassVar[int]
    user: str
    valid_s: float
    def __init__(self, user: _Optional[str] = ..., valid_s: _Optional[float] = ...) -> None: ...

class AddUserReply(_message.Message):
    __slots__ = ("token",)
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    token: str
    def __init__(self, token: _Optional[str] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersReply(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserStatus]
    def __init__(self, users: _Optional[_Iterable[_Union[UserStatus, _Mapping]]] = ...) -> None: ...

class UserStatus(_message.Message):
    __slots__ = ("user", "is_admin", "created_at_s", "expires_at_s", "created_by", "queues")
    USER_FIELD_NUMBER: _ClassVar[int]
    IS_ADMIN_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_S_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_S_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    user: str
    is_admin: bool
    created_at_s: float
    expires_at_s: float
    created_by: str
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, user: _Optional[str] = ..., is_admin: _Optional[bool] = ..., created_at_s: _Optional[float] = ..., expires_at_s: _Optional[float] = ..., created_by: _Optional[str] = ..., queues: _Optional[_Iterable[str]] = ...) -> None: ...

class RevokeUserRequest(_message.Message):
    __slots__ = ("user",)
    USER_FIELD_NUMBER: _ClassVar[int]
    user: str
    def __init__(self, user: _Optional[str] = ...) -> None: ...

class RevokeUserReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReloadReply(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: int
    def __init__(self, queues: _Optional[int] = ...) -> None: ...

class UsageRequest(_message.Message):
    __slots__ = ("month",)
    MONTH_FIELD_NUMBER: _ClassVar[int]
    month: str
    def __init__(self, month: _Optional[str] = ...) -> None: ...

class UsageReply(_message.Message):
    __slots__ = ("rows",)
    ROWS_FIELD_NUMBER: _ClassVar[int]
    rows: _containers.RepeatedCompositeFieldContainer[UsageRow]
    def __init__(self, rows: _Optional[_Iterable[_Union[UsageRow, _Mapping]]] = ...) -> None: ...

class UsageRow(_message.Message):
    __slots__ = ("month", "user", "queue", "device", "gpu_s")
    MONTH_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    GPU_S_FIELD_NUMBER: _ClassVar[int]
    month: str
    user: str
    queue: str
    device: str
    gpu_s: float
    def __init__(self, month: _Optional[str] = ..., user: _Optional[str] = ..., queue: _Optional[str] = ..., device: _Optional[str] = ..., gpu_s: _Optional[float] = ...) -> None: ...
