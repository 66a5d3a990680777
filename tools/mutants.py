"""Change the core modules one small step at a time, and report which changes their tests notice.

`python tools/mutants.py [--number N] [--seed S] [--room ROOM ..]` draws N mutants, equally many of each room and of
each module in it, and runs tests of the room on each until one fails. A mutant survives if all of them pass. It is a
hole in the tests, or equivalent: no input shows the difference. The same seed and the same sources give the same
mutants. `--module PATH ..` draws of these modules only, `--only PLACE ..` runs mutants by their names again, and
`--list` only prints them.

The tests run in a copy of the working tree, one at a time with a low priority, first without a mutant. `mutant_forks`
then runs on each mutant those that call the changed function. What other processes call, and what runs at the import,
is not seen there: on such mutants all tests of the room run in a process of their own. A mutant that exceeds the time
limit counts as killed, since it may be an endless loop, and is marked. The exit code is 1 if a smaller share than
`--least` was killed.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from mutant_forks import KILLED, SURVIVED, TIMED_OUT, UNDECIDED

HERE = Path(__file__).resolve().parents[1]

TEST_LIMIT_S = 60
"""Seconds of one test. The suite's own limit would wait too long for an endless loop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Room:
    """Modules and the tests that must notice changes in them, by patterns of paths."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()


_PAYMENTS = ("rm_plugin/arbiter/payments.py", "rm_plugin/arbiter/auction.py", "rm_plugin/arbiter/rounding.py")
_ARBITER_TESTS = (
    "tests/unit/rm_plugin/arbiter/test_*.py",
    "tests/unit/rm_plugin/policies/test_bidding_apps.py",
    "tests/unit/rm_plugin/policies/test_fair_finish.py",
    "tests/unit/rm_plugin/policies/test_users.py",
    "tests/golden/test_nsdi_example.py",
    "tests/property/test_arbiter_undo.py",
    "tests/property/test_auction_properties.py",
    "tests/property/test_lease_table_machine.py",
    "tests/property/test_leftover_properties.py",
    "tests/property/test_market_documents.py",
)
_SERVICE_TESTS = (
    "tests/unit/rm_plugin/service/**/test_*.py",
    "tests/integration/rm_plugin/test_auctioneer.py",
    "tests/property/test_checked_reports.py",
    "tests/property/test_service_messages.py",
)
ROOMS = {
    "arbiter": Room(modules=("rm_plugin/arbiter/*.py",), without=_PAYMENTS, tests=(*_ARBITER_TESTS, *_SERVICE_TESTS)),
    "payments": Room(modules=_PAYMENTS, tests=_ARBITER_TESTS),
    # The memory adapters are the tests' own.
    "service": Room(
        modules=("rm_plugin/service/*.py",), without=("rm_plugin/service/memory_service.py",), tests=_SERVICE_TESTS
    ),
    "jobs": Room(
        modules=("am/jobs/*.py",),
        tests=("tests/unit/am/jobs/test_*.py", "tests/unit/am/test_*.py", "tests/property/test_silent_jobs.py"),
    ),
    "profiler": Room(
        modules=("am/profiler/*.py",),
        tests=(
            "tests/unit/am/profiler/test_*.py",
            "tests/unit/am/test_log_watch.py",
            "tests/unit/am/jobs/test_incarnation_marker.py",
            "tests/golden/test_profiler_goldens.py",
            "tests/property/test_profiler_properties.py",
        ),
    ),
}

_SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Break: ast.Continue, ast.Continue: ast.Break,
}  # fmt: skip
_SWAPPED_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Mutant:
    """A change of one part of a module: `new` in place of the bytes from `start` to `end`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def place(self) -> str:
        """A name that stays the same until the module changes."""
        return f"{self.path}:{self.line}:{self.start}:{self.new.split(chr(10), maxsplit=1)[0]}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {_on_one_line(self.old)}  ->  {_on_one_line(self.new)}"

    def applied_to(self, source: bytes) -> bytes:
        """Return the changed module."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Places(ast.NodeVisitor):
    """Collects the mutants of a module.

    Leaves out text for people, types, what only logs, and numbers of modules and classes, such as limits and defaults:
    a test that pinned them would only repeat them.
    """

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._path, self._source = path, source
        self._functions = 0
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._line_starts = starts

    def _at(self, line: int, column: int) -> int:
        return self._line_starts[line - 1] + column

    def _add(self, node: ast.expr | ast.stmt, new: str) -> None:
        start, end = self._at(node.lineno, node.col_offset), self._at(node.end_lineno or 0, node.end_col_offset or 0)
        old = self._source[start:end].decode()
        if old != new:
            self.found.append(Mutant(path=self._path, line=node.lineno, start=start, end=end, old=old, new=new))

    def _text(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._source.decode(), node) or ast.unparse(node)

    # ---- expressions ----

    def visit_Compare(self, node: ast.Compare) -> None:
        if (other := _SWAPPED.get(type(node.ops[0]))) is not None:
            ops = [other(), *node.ops[1:]]
            self._add(node, ast.unparse(ast.Compare(node.left, ops, node.comparators)))  # type: ignore[arg-type]
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self._add(node, f"({ast.unparse(ast.BoolOp(_SWAPPED[type(node.op)](), node.values))})")  # type: ignore[arg-type]
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        # Sums of texts and unions of types are no arithmetic.
        parts = (node.left, node.right)
        is_text = any(isinstance(part, ast.JoinedStr | ast.Constant) and not _is_number(part) for part in parts)
        if (other := _SWAPPED.get(type(node.op))) is not None and not is_text:
            self._add(node, f"({ast.unparse(ast.BinOp(node.left, other(), node.right))})")  # type: ignore[arg-type]
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._add(node, repr(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _SWAPPED_CALLS:
            self._add(node.func, _SWAPPED_CALLS[node.func.id])
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):
            # The others have this mutant by themselves.
            self._add(test, f"not ({self._text(test)})")

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._add(condition, "True")
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Leave texts for people alone."""

    # ---- statements ----

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._negate(node.test)
            self.generic_visit(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and ast.unparse(node.value) != "None":
            self._add(node.value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and not ast.unparse(value.func).startswith("LOG."):
            self._add(node, "pass")
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Leave the words of errors alone; whether they are raised is in the condition before."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """Leave statements for the type checker alone."""

    # ---- what has no behaviour ----

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_value(node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._visit_value(node.value)

    def _visit_value(self, value: ast.expr) -> None:
        if self._functions or any(isinstance(each, ast.Call) for each in ast.walk(value)):
            self.visit(value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._functions += 1
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._functions -= 1

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(ast.unparse(base).endswith("Protocol") for base in node.bases):
            for statement in node.body:
                self.visit(statement)


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """Return every mutant of a module, in the order of its text. A few may not compile."""
    places = _Places(path, source)
    places.visit(ast.parse(source))
    return sorted(places.found, key=lambda each: (each.start, each.new))


def _compiles(source: bytes, mutant: Mutant) -> bool:
    try:
        compile(mutant.applied_to(source), mutant.path, "exec")
    except SyntaxError:
        return False
    return True


def draw(root: Path, rooms: Sequence[str], number: int, seed: int) -> list[tuple[str, Mutant]]:
    """Draw mutants, with the room of each: one of each room in turn, and in it one of each module in turn."""
    drawn = [list(islice(_of_room(root, room, seed), number)) for room in rooms]
    turns = [(turn, place) for place in range(len(rooms)) for turn in range(len(drawn[place]))]
    return [(rooms[place], drawn[place][turn]) for turn, place in sorted(turns)][:number]


def _of_room(root: Path, room: str, seed: int) -> Iterator[Mutant]:
    rng = random.Random(f"{seed}/{room}")
    names = {str(path.relative_to(root)) for pattern in ROOMS[room].modules for path in root.glob(pattern)}
    modules = []
    for name in sorted(names - set(ROOMS[room].without)):
        source = (root / name).read_bytes()
        found = mutants_of(name, source)
        rng.shuffle(found)
        # Only those that are drawn are compiled: all of them take minutes.
        modules.append(filter(partial(_compiles, source), found))
    rng.shuffle(modules)
    for turn in zip_longest(*modules):
        yield from filter(None, turn)


# ---- running tests --------------------------------------------------------------------------------------------------


def copy_tree(into: Path) -> None:
    """Copy the tracked files and the compiled extensions."""
    listed = subprocess.run(("git", "ls-files", "-z"), cwd=HERE, check=True, capture_output=True).stdout.decode()
    built = [
        str(path.relative_to(HERE)) for name in ("am", "rm_plugin", "themis") for path in (HERE / name).rglob("*.so")
    ]
    for name in [*filter(None, listed.split("\0")), *built]:
        if (HERE / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(HERE / name, into / name)


def tests_of(tree: Path, room: str) -> list[str]:
    """Return the room's test files."""
    return [str(file.relative_to(tree)) for pattern in ROOMS[room].tests for file in sorted(tree.glob(pattern))]


def _pytest(tree: Path, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    command = (
        *(sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"),
        *("--timeout", str(TEST_LIMIT_S), "-m", "not slow and not hadoop and not stack and not docker", *arguments),
    )
    paths = os.pathsep.join((str(tree), str(tree / "tools")))
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def in_forks(tree: Path, room: str, mutants: Sequence[Mutant], limit_s: float) -> Iterator[dict[str, Any]]:
    """Try mutants in forks of one session of all tests of the room. Yields the result of each as soon as it is known.

    See `mutant_forks` for the results.
    """
    orders, results = tree / f"mutants-{room}.json", tree / f"results-{room}.json"
    listed = [
        {
            "path": mutant.path,
            "line": mutant.line,
            "source": mutant.applied_to((tree / mutant.path).read_bytes()).decode(),
        }
        for mutant in mutants
    ]
    orders.write_text(json.dumps(listed), encoding="utf-8")
    results.touch()
    process = _pytest(
        tree,
        *("-p", "mutant_forks", *tests_of(tree, room)),
        MUTANTS=str(orders),
        MUTANTS_RESULTS=str(results),
        MUTANTS_LIMIT_S=str(limit_s),
    )
    try:
        with results.open(encoding="utf-8") as stream:
            for _ in mutants:
                while not (line := stream.readline()).endswith("\n"):
                    stream.seek(stream.tell() - len(line.encode()))
                    if process.poll() is not None:
                        sys.exit(f"the tests of {room} cannot be run on mutants; run `pytest -p mutant_forks` by hand")
                    time.sleep(0.2)
                yield json.loads(line)
    finally:
        _kill_group(process.pid)
        process.wait()


def tried(tree: Path, tests: Sequence[str], limit_s: float) -> str:
    """Run tests in a process of their own until one fails."""
    process = _pytest(tree, "-x", *tests)
    try:
        return KILLED if process.wait(limit_s) else SURVIVED
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    finally:
        # Also what a test has started and left behind.
        _kill_group(process.pid)
        process.wait()


def _kill_group(pid: int) -> None:
    """Kill the process group of a test run, if any of it is left."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _results(
    tree: Path, room: str, mutants: Sequence[Mutant], limit_s: float
) -> Iterator[tuple[Mutant, str, float, str]]:
    """Yield each mutant, its result, the seconds, and the test that killed it if that is known."""
    undecided = []
    for mutant, found in zip(mutants, in_forks(tree, room, mutants, limit_s), strict=True):
        if found["result"] == UNDECIDED:
            undecided.append(mutant)
        else:
            yield mutant, found["result"], found["seconds"], found["test"].rpartition("/")[2]
    # Afterwards, as the forks read the modules.
    for mutant in undecided:
        module, begun_s = tree / mutant.path, time.monotonic()
        source = module.read_bytes()
        module.write_bytes(mutant.applied_to(source))
        try:
            result = tried(tree, tests_of(tree, room), limit_s)
        finally:
            module.write_bytes(source)
        yield mutant, result, time.monotonic() - begun_s, ""


def run(tree: Path, drawn: Sequence[tuple[str, Mutant]], limit_s: float, say: Callable[[str], None]) -> list[Mutant]:
    """Run the tests on each mutant. Returns the survivors."""
    killed: Counter[str] = Counter()
    decided: Counter[str] = Counter()
    survivors = []
    for room in dict.fromkeys(room for room, _ in drawn):
        mutants = [mutant for its, mutant in drawn if its == room]
        for mutant, result, seconds, test in _results(tree, room, mutants, limit_s):
            decided[mutant.path] += 1
            killed[mutant.path] += result != SURVIVED
            if result == SURVIVED:
                survivors.append(mutant)
            say(f"{decided.total():4} {result:8} {seconds:5.0f} s  {mutant}  {test}")
    for module_path, count in decided.items():
        say(f"{module_path:45} {killed[module_path]} of {count} killed")
    say(f"{'all':45} {killed.total()} of {decided.total()} killed: {killed.total() / max(1, decided.total()):.0%}")
    for mutant in survivors:
        say(f"survivor   {mutant}\n           --only '{mutant.place}'")
    return survivors


def _is_in(room: Room, path: str) -> bool:
    return path not in room.without and any(fnmatch(path, pattern) for pattern in room.modules)


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _on_one_line(text: str) -> str:
    short = " ".join(text.split())
    return short if len(short) <= 100 else f"{short[:97]}..."


def main() -> int:
    """Draw mutants and run them."""
    parser = argparse.ArgumentParser(description="mutants of the core modules, and whether their tests notice them")
    parser.add_argument("--number", type=int, default=200, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", nargs="+", choices=tuple(ROOMS), default=tuple(ROOMS))
    parser.add_argument("--module", nargs="+", default=(), metavar="PATH", help="only of these modules")
    parser.add_argument("--only", nargs="+", default=(), metavar="PLACE", help="only these of all mutants")
    parser.add_argument("--limit-s", type=float, default=900.0, help="seconds of one mutant")
    parser.add_argument("--least", type=float, default=0.0, help="share that must be killed")
    parser.add_argument("--list", action="store_true", help="print the mutants and run nothing")
    arguments = parser.parse_args()
    if arguments.module:
        for name, its in ROOMS.items():
            ROOMS[name] = replace(its, modules=tuple(path for path in arguments.module if _is_in(its, path)))
    everything = sys.maxsize if arguments.only else arguments.number
    drawn = draw(HERE, arguments.room, everything, arguments.seed)
    if arguments.only:
        drawn = [(room, mutant) for room, mutant in drawn if mutant.place in arguments.only]
    if arguments.list:
        for room, mutant in drawn:
            _say(f"{room:10} {mutant}")
        return 0
    os.nice(10)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        survivors = run(tree, drawn, arguments.limit_s, _say)
    return int(len(survivors) > (1.0 - arguments.least) * len(drawn))


if __name__ == "__main__":
    sys.exit(main())
