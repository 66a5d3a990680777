"""Run a mix: start the ResourceManager, submit apps as they arrive, follow the run, and stop everything."""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml
from rich.console import Console

from submarine_client.connection import Connection
from themis.cluster import Cluster
from themis.config.cluster_file import load_cluster
from themis.config.rm_settings import RmSettings
from themis.errors import ThemisError, UnreachableError
from themis.values import Value
from themis.wire import themis_pb2 as pb
from themis.wire.app_status import has_ended
from themis_lab.testbed.collector import Collector
from themis_lab.testbed.engines import EngineSetting, running_engine
from themis_lab.testbed.environment import environment
from themis_lab.testbed.facts import Ending, RunFacts, write_facts
from themis_lab.testbed.interruption import Interruption
from themis_lab.testbed.live import Display, Snapshot
from themis_lab.testbed.mix import Arrival, Mix, Setup, arrivals, rm_settings
from themis_lab.testbed.rm_process import RmFailedError, RmProcess, rm_command
from themis_lab.testbed.run_folder import RunFolder
from themis_lab.testbed.sampler import ProcessSampler
from themis_lab.testbed.statuses import write_statuses

TICK_S = 0.2
POLL_S = 1.0
SAMPLE_S = 2.0
CALL_TIMEOUT_S = 5.0
SILENCE_LIMIT_S = 20.0
"""A ResourceManager that does not answer for this long has failed, even if its process exists."""
SETTLE_S = 1.0
SETTLE_LIMIT_S = 8.0


class RunPlan(Value, frozen=True, kw_only=True):
    """The plan of a run: cluster and settings, arrivals, policy and seed."""

    setup: Setup
    arriving: tuple[Arrival, ...]
    policy: str
    seed: int
    cluster: Cluster
    engine: str = "local"


def plan_run(mix: Mix, policy: str, seed: int | None, engine: str = "local") -> RunPlan:
    """Read everything that a mix names, so that errors show before anything starts. Raises InputError."""
    return RunPlan(
        setup=mix,
        arriving=arrivals(mix),
        policy=policy,
        seed=mix.seed if seed is None else seed,
        cluster=load_cluster(mix.cluster),
        engine=engine,
    )


def drive(
    plan: RunPlan,
    folder: RunFolder,
    console: Console,
    interruption: Interruption,
    command: Callable[[Path], Sequence[str]] = rm_command,
) -> RunFacts:
    """Run a plan in a folder. It leaves the events, the apps' statuses and the facts there, and no process.

    Args:
        plan: The run.
        folder: An empty folder.
        console: Shows the progress.
        interruption: Checked at every step.
        command: Returns the command that starts the ResourceManager, given the path of its settings.

    Raises:
        InputError: The ResourceManager refuses an app or its settings.
    """
    with running_engine(plan.engine, plan.cluster, folder, console) as engine:
        return _drive(plan, folder, console, interruption, command, engine)


def _drive(
    plan: RunPlan,
    folder: RunFolder,
    console: Console,
    interruption: Interruption,
    command: Callable[[Path], Sequence[str]],
    engine: EngineSetting,
) -> RunFacts:
    _write_settings(plan, folder, engine)
    begun_s, made_with = time.monotonic(), environment()
    run_id = uuid.uuid4().hex
    process = RmProcess(command(folder.settings), run_id, folder.log, engine.environment)
    sampler = ProcessSampler(run_id)
    trouble = ""
    left_over: tuple[int, ...] = ()
    try:
        ending = _Run(plan, folder, console, interruption, process, sampler).play()
    except (RmFailedError, UnreachableError) as error:
        ending, trouble = Ending.RM_FAILED, str(error)
    finally:
        left_over = process.stop(interruption.urgent)
    facts = RunFacts(
        mix=plan.setup.name,
        policy=plan.policy,
        engine=plan.engine,
        seed=plan.seed,
        time_scale=plan.setup.time_scale,
        expected_apps=len(plan.arriving),
        ending=ending,
        wall_s=time.monotonic() - begun_s,
        time_limit_s=plan.setup.time_limit_s,
        processes=sampler.peaks,
        left_over=left_over,
        trouble=trouble,
        environment=made_with,
    )
    write_facts(folder.facts, facts)
    return facts


class _Run:
    """The part of a run during which the ResourceManager exists."""

    def __init__(
        self,
        plan: RunPlan,
        folder: RunFolder,
        console: Console,
        interruption: Interruption,
        process: RmProcess,
        sampler: ProcessSampler,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._console = console
        self._interruption = interruption
        self._process = process
        self._sampler = sampler
        self._waiting = list(plan.arriving)
        self._begun_s = time.monotonic()
        self._answered_s = self._begun_s
        self._app_ids: list[str] = []
        self._apps: tuple[pb.AppStatus, ...] = ()
        self._cluster = pb.ClusterStatus()

    def play(self) -> Ending:
        """Continue until the run ends, and return why."""
        address = self._process.wait_for_address(self._folder.state / "address", self._interruption.requested)
        if not address:
            return Ending.INTERRUPTED
        with Connection(address, timeout_s=CALL_TIMEOUT_S) as client:
            collector = Collector(lambda: Connection(address, timeout_s=CALL_TIMEOUT_S), self._folder.events)
            try:
                client.wait_until_ready(CALL_TIMEOUT_S)
                self._begun_s = self._answered_s = time.monotonic()
                with Display(self._console) as display:
                    ending = self._until_end(client, display)
                if ending is not Ending.INTERRUPTED:
                    # Leases of the last app are still being released, and a round may be in progress.
                    collector.drain(SETTLE_S, SETTLE_LIMIT_S)
                    self._keep_statuses(client)
            except (RmFailedError, UnreachableError):
                write_statuses(self._folder.apps, self._apps)
                raise
            finally:
                collector.close()
        return ending

    def _until_end(self, client: Connection, display: Display) -> Ending:
        next_poll_s = next_sample_s = 0.0
        while True:
            if self._interruption.requested():
                return Ending.INTERRUPTED
            self._process.check()
            elapsed_s = time.monotonic() - self._begun_s
            self._submit_due(client, elapsed_s)
            if elapsed_s >= next_sample_s:
                self._sampler.sample()
                next_sample_s = elapsed_s + SAMPLE_S
            if elapsed_s >= next_poll_s:
                self._poll(client)
                next_poll_s = elapsed_s + POLL_S
                display.show(self._snapshot(elapsed_s))
            if not self._waiting and self._all_ended():
                return Ending.ALL_ENDED
            if elapsed_s > self._plan.setup.time_limit_s:
                return Ending.TIME_LIMIT
            time.sleep(TICK_S)

    def _submit_due(self, client: Connection, elapsed_s: float) -> None:
        while self._waiting and self._waiting[0].at_s <= elapsed_s:
            arrival = self._waiting.pop(0)
            self._app_ids.append(client.submit(arrival.spec))

    def _poll(self, client: Connection) -> None:
        """Fetch the state. A ResourceManager that does not answer is asked again for a while."""
        try:
            self._apps, self._cluster = client.list(), client.cluster()
            self._answered_s = time.monotonic()
        except UnreachableError:
            if time.monotonic() - self._answered_s > SILENCE_LIMIT_S:
                raise

    def _all_ended(self) -> bool:
        ended = {app.app_id for app in self._apps if has_ended(app)}
        return ended.issuperset(self._app_ids)

    def _keep_statuses(self, client: Connection) -> None:
        """Keep the last known status of every app."""
        last = {app.app_id: app for app in self._apps}
        kept = []
        for app_id in self._app_ids:
            try:
                kept.append(client.show(app_id))
            except ThemisError:
                if app_id in last:
                    kept.append(last[app_id])
        write_statuses(self._folder.apps, kept)

    def _snapshot(self, elapsed_s: float) -> Snapshot:
        return Snapshot(
            elapsed_s=elapsed_s,
            apps=self._apps,
            cluster=self._cluster,
            expected=len(self._plan.arriving),
            processes=self._sampler.newest_count,
        )


def _write_settings(plan: RunPlan, folder: RunFolder, engine: EngineSetting) -> RmSettings:
    """Copy the cluster and the settings into the run's folder, so that it can be read without the mix."""
    shutil.copyfile(plan.setup.cluster, folder.cluster)
    settings = rm_settings(
        plan.setup,
        policy=plan.policy,
        seed=plan.seed,
        cluster=folder.cluster,
        state_dir=folder.state,
        engine=engine.settings,
    )
    # Relative to the folder, which may be moved.
    inside = {"cluster": folder.cluster.name, "state_dir": folder.state.name}
    text = yaml.safe_dump(settings.model_dump(mode="json") | inside, sort_keys=False)
    folder.settings.write_text(f"# Written by the testbed for the mix {plan.setup.name}.\n{text}", encoding="utf-8")
    return settings
