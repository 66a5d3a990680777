"""Run `bench checkpoint`: our HDFS store and plain WebHDFS in turn, on the same files."""

from __future__ import annotations

import os
import random
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import perf_counter

from am.checkpoints.hdfs import open_hdfs_store
from themis.errors import InputError
from themis.hadoop.webhdfs import open_webhdfs
from themis.hadoop.webhdfs_address import configuration_of, resolve, user_name
from themis.hadoop.webhdfs_errors import HdfsUnreachableError
from themis.hadoop.webhdfs_retry import ONCE
from themis.values import Value
from themis_lab.bench.checkpoint_raw import RawHdfs

MB = 1_000_000
MAX_MB = 100_000
_JOB = "bench"


class CheckpointBenchPlan(Value, frozen=True, kw_only=True):
    """The plan of the benchmark.

    Attributes:
        uri: A folder on HDFS. The benchmark writes into a new folder there, and removes it.
        sizes_mb: Sizes of a checkpoint's only file, in MB (10^6 bytes).
        rounds: Number of repetitions; the median counts.
        seed: Seed of the files' content.
        wait_s: How long HDFS may be unavailable, in seconds.
    """

    uri: str
    sizes_mb: Sequence[int] = (10, 100)
    rounds: int = 3
    seed: int = 1
    wait_s: float = 10.0

    def __post_init__(self) -> None:
        if not self.sizes_mb or not all(0 < size <= MAX_MB for size in self.sizes_mb):
            raise InputError("--sizes must be 1 to 100000 MB", value=list(self.sizes_mb))
        if self.rounds < 1:
            raise InputError("--rounds must be 1 or more", value=self.rounds)


class Row(Value, frozen=True, kw_only=True):
    """One size: medians over the rounds, in seconds. Ratios are ours over the plain request's."""

    size_mb: int
    rounds: int
    save_s: float
    put_s: float
    save_ratio: float
    fetch_s: float
    get_s: float
    fetch_ratio: float
    verify_s: float


def run_sizes(plan: CheckpointBenchPlan) -> Iterator[str | Row]:
    """Yield a message before each size, and then its row.

    Raises:
        InputError: A URI that does not resolve.
        ThemisError: HDFS cannot be written, or what comes back is not what was written.
    """
    bench = _Bench(plan)
    try:
        for size_mb in plan.sizes_mb:
            yield f"{size_mb} MB, {plan.rounds} times"
            yield bench.row(size_mb)
    finally:
        bench.close()


class _Bench:
    def __init__(self, plan: CheckpointBenchPlan) -> None:
        self._plan = plan
        self._uri = f"{plan.uri.rstrip('/')}/bench-{uuid.uuid4().hex}"
        self._place = resolve(self._uri, configuration_of())
        self._store = open_hdfs_store(self._uri, wait_s=plan.wait_s)
        self._raw = RawHdfs(self._place, user_name())
        self._folder = tempfile.TemporaryDirectory(prefix="themis-bench-")
        self._iteration = 0

    def row(self, size_mb: int) -> Row:
        source = Path(self._folder.name) / "source"
        _fill(source, size_mb, self._plan.seed)
        rounds = [self._round(source) for _ in range(self._plan.rounds)]
        took = {name: median(each[name] for each in rounds) for name in rounds[0]}
        return Row(
            size_mb=size_mb,
            rounds=len(rounds),
            save_ratio=took["save_s"] / took["put_s"],
            fetch_ratio=took["fetch_s"] / took["get_s"],
            **took,
        )

    def _round(self, source: Path) -> Mapping[str, float]:
        """Measure everything once. The order within a pair alternates, so that caches favour neither."""
        self._iteration += 1
        job = f"{_JOB}-{self._iteration}"
        plain, into = f"{self._place.path}/plain", Path(self._folder.name) / "out"
        into.mkdir(exist_ok=True)

        def save() -> float:
            begun_s = perf_counter()
            self._store.save(job, self._iteration, {"f": source}, {})
            return perf_counter() - begun_s

        def fetch() -> float:
            begun_s = perf_counter()
            self._store.fetch(saved, into)
            return perf_counter() - begun_s

        pairs = [("save_s", save), ("put_s", lambda: self._raw.put_s(plain, source))]
        ordered = pairs[:: 1 if self._iteration % 2 else -1]
        took = {name: measure() for name, measure in ordered}
        (saved,) = self._store.checkpoints(job)
        pairs = [("fetch_s", fetch), ("get_s", lambda: self._raw.get_s(plain, into / "plain"))]
        ordered = pairs[:: 1 if self._iteration % 2 else -1]
        took |= {name: measure() for name, measure in ordered}
        begun_s = perf_counter()
        self._store.is_whole(saved)
        took["verify_s"] = perf_counter() - begun_s
        self._remove(f"{self._place.path}/{job}")
        return took

    def close(self) -> None:
        """Remove the benchmark's files, locally and on HDFS."""
        self._folder.cleanup()
        # If HDFS is unavailable the benchmark has already failed, and its files have to stay.
        with suppress(HdfsUnreachableError):
            self._remove(self._place.path)

    def _remove(self, path: str) -> None:
        hdfs, _ = open_webhdfs(self._uri, rule=ONCE)
        hdfs.delete(path)


def _fill(path: Path, size_mb: int, seed: int) -> None:
    """Write `size_mb` MB that no layer can compress: one random MB, each time after another number."""
    block = random.Random(seed).randbytes(MB - 8)
    with path.open("wb") as stream:
        for number in range(size_mb):
            stream.write(number.to_bytes(8, "big") + block)
        stream.flush()
        os.fsync(stream.fileno())
