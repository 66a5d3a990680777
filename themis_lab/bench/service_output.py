"""The result of `bench service` as a table for readers and as a document for programs."""

from __future__ import annotations

from msgspec import to_builtins

from themis_lab.bench.service_run import Quantiles, Result, ServiceBenchPlan

EMULATION = "emulated: GPUs, machines and app masters; the ResourceManager, gRPC, REST, store and agents are real"


def document(result: Result) -> dict[str, object]:
    """The JSON document (docs/reference/benchmarks.md)."""
    values: dict[str, object] = to_builtins(result)
    return values


def table(plan: ServiceBenchPlan, result: Result) -> str:
    """One line for each figure."""
    apps = plan.apps + plan.waiting
    lines = [
        (f"{apps} apps of {plan.gang_gpus} GPUs, {plan.gpus} GPUs", f"{result.registered} apps registered"),
        ("submissions a second", f"{result.submissions_per_s:.0f}"),
        ("registered after", f"{result.registered_s:.1f} s, {result.registered_cpu_s:.1f} s of CPU"),
        ("reports in time", "-" if result.reports_in_time is None else f"{100 * result.reports_in_time:.1f} %"),
        ("rounds", str(result.rounds)),
        ("round", _shown(result.round_s)),
        *[(f"  its {step}", _shown(times)) for step, times in result.steps_s.items()],
        ("heartbeat", _shown(result.heartbeat_s)),
        ("REST", _shown(result.rest_s)),
        ("list", _shown(result.list_s)),
        ("cores used", f"{result.cpu_share:.2f}, auctions {result.worker_cpu_share:.2f}"),
        ("peak memory", f"{result.rss_mb:.0f} MB, its other processes {result.worker_rss_mb:.0f} MB"),
        ("start from the store", f"{result.start_s:.1f} s, {result.start_cpu_s:.1f} s of CPU"),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join([*[f"{name.ljust(width)}  {value}" for name, value in lines], EMULATION])


def _shown(times: Quantiles) -> str:
    if times.p50 is None or times.p99 is None:
        return "-"
    return f"{1e3 * times.p50:.0f} ms, p99 {1e3 * times.p99:.0f} ms"
