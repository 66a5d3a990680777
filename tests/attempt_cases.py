"""One attempt of an app in this process: the app master's own parts over tasks in memory, for tests."""

import asyncio

from agent_cases import cluster_of

from am.app import App
from am.jobs.job_runner import JobRunner
from am.journal import Journal
from am.log_watch import LogWatch
from am.runtimes.memory import MemoryRuntime
from themis.apps import AppSpec, JobShape, JobSpec, ProgramSpec, TunerSpec
from themis.clock import VirtualClock
from themis.cluster import GpuId
from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message, cluster_to_message

JOBS = ("j0", "j1", "j2", "j3")
SLOT = {job_id: GpuId("m0", place) for place, job_id in enumerate(JOBS)}


class Attempt:
    """One attempt of an app, with the app master's own parts; tasks are in memory and log what a test writes."""

    def __init__(
        self,
        folder,
        *,
        restarts=3,
        tuner="successive_halving",
        iterations=60,
        jobs=JOBS,
        tasks=1,
        environment=None,
        **more,
    ):
        settings = {"phases": "4x10,2x20,1x30"} if tuner == "successive_halving" else {}
        spec = AppSpec(
            user="user",
            name="x",
            tuner=TunerSpec(name=tuner, settings=settings),
            program=ProgramSpec(name="", command="train", environment=environment or {}),
            jobs=tuple(
                JobSpec(job_id=job_id, iterations_total=iterations, shape=JobShape(tasks=tasks)) for job_id in jobs
            ),
            max_task_restarts=restarts,
            **more,
        )
        self.clock = VirtualClock(50.0)
        self.path = folder / "journal.jsonl"
        self.journal = Journal(self.path)
        registered = pb.Registered(
            app_id="app-1",
            spec=app_to_message(spec),
            cluster=cluster_to_message(cluster_of((4,))),
            now_s=1000.0,
            lease_s=600.0,
            grace_s=1.0,
            active_apps=1,
            contention=1.0,
            bundle_rule="continuation",
        )
        self.app = App(registered, folder, str(folder), self.journal, self.clock)
        self.seen = []
        emit = lambda kind, job_id, detail: self.seen.append((kind, job_id, dict(detail)))  # noqa: E731
        self.watch = LogWatch(self.app, emit, lambda: None)
        self.watch.catch_up()
        self.runtime = MemoryRuntime()
        self.runner = JobRunner(self.app, self.runtime, emit, self.watch.drain, lambda: None, lambda gpus, why: None)

    @property
    def jobs(self):
        return self.app.search.jobs

    async def start(self, *job_ids):
        for job_id in job_ids:
            self.jobs[job_id].folder.mkdir(parents=True, exist_ok=True)
            shape = self.jobs[job_id].spec.shape
            gpus = tuple(SLOT.values())[: shape.tasks] if shape.tasks > 1 else (SLOT[job_id],)
            self.runner.start(self.jobs[job_id], gpus)
            while not self.jobs[job_id].handles:
                await asyncio.sleep(0)

    def log(self, job_id, *losses, first=1):
        with self.jobs[job_id].log_path.open("a") as file:
            for step, loss in enumerate(losses, first):
                file.write(f"INFO:tensorflow:loss = {loss}, step = {step} (1.000 sec)\n")
        self.look()

    def look(self, seconds=1):
        """What the app master's loop does once a second."""
        for _ in range(seconds):
            self.clock.advance_to(self.clock.now_s() + 1.0)
            self.watch.poll()
            self.runner.handle_faults()

    async def ended(self, job_id):
        """Wait until the incarnation is settled."""
        async with asyncio.timeout(60.0):
            while self.jobs[job_id].running:
                await asyncio.sleep(0.001)

    def run(self, job_id, *lines):
        """Run a job to its end, with exit code 0; its log has these lines."""

        async def scenario():
            await self.start(job_id)
            with self.jobs[job_id].log_path.open("a") as file:
                file.write("".join(f"{line}\n" for line in lines))
            self.look()
            self.jobs[job_id].handles[0].end(0)
            await self.ended(job_id)

        asyncio.run(scenario())

    def job_records(self):
        """How many records of jobs the journal holds by now."""
        return self.path.read_text().count('{"job":{')

    def details(self, kind):
        return [(job_id, detail) for name, job_id, detail in self.seen if name == kind]
