"""Who may import whom (ARCHITECTURE.md): read from the source, so that an import inside a function counts too."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("themis", "rm_plugin", "am", "submarine_client", "tf_jobs", "themis_cli", "themis_lab")

# For each package or room of a package, the modules of ours beside itself that it may import; a name covers everything
# below it. What is listed as a room of its own does not belong to the package around it.
ALLOWED = {
    "themis": (),
    "themis.hadoop": ("themis",),
    "rm_plugin": ("themis",),
    "rm_plugin.policies.allox": ("themis",),
    "rm_plugin.policies.oef": ("themis", "rm_plugin.solvers"),
    "am": ("themis",),
    "tf_jobs": ("themis", "am.checkpoints"),
    "submarine_client": ("themis", "tf_jobs.catalog", "tf_jobs.dealing", "tf_jobs.tables_reader"),
    "themis_lab.devcluster": ("themis",),
    "themis_lab.testbed": ("themis", "submarine_client", "themis_lab.devcluster"),
    "themis_lab.simulator": ("themis", "rm_plugin", "am", "tf_jobs.tables_reader"),
    "themis_lab.paper": (
        "themis",
        "rm_plugin",
        "am",
        "submarine_client",
        "tf_jobs.tables_reader",
        "themis_lab.testbed",
        "themis_lab.simulator",
    ),
    "themis_lab.audit": ("themis", "rm_plugin", "am", "themis_lab.simulator"),
    "themis_lab.bench": (
        "themis",
        "rm_plugin",
        "am",
        "tf_jobs.tables_reader",
        "tf_jobs.process_age",
        "tf_jobs.tensorflow_setup",
        "submarine_client",
        "themis_lab.simulator",
        "themis_lab.testbed",
        "themis_lab.devcluster",
        "themis_lab.paper.allox",
    ),
    "themis_lab": (),
    "themis_cli": ("themis", "rm_plugin", "am", "submarine_client", "tf_jobs", "themis_lab"),
}

# Within a package, the modules (by the beginning of their names) that alone may import what the table above allows.
HADOOP = "themis.hadoop"
ONLY_FROM = {
    ("am", HADOOP): ("am.checkpoints.hdfs", "am.journal_hdfs", "am.log_archive_hdfs", "am.runtimes.yarn"),
    ("rm_plugin", HADOOP): ("rm_plugin.engines.yarn", "rm_plugin.engines.remote_logs"),
    ("themis_lab", HADOOP): ("themis_lab.bench.checkpoint_", "themis_lab.devcluster"),
    ("themis", HADOOP): (HADOOP,),
}

# Packages that only an extra installs, and the modules (by the beginning of their names) that alone may import them.
# Any other package is a dependency of pyproject.toml.
EXTRAS = {
    "cryptography": ("rm_plugin.service.certificates",),
    "cvxpy": ("themis_lab.bench.oef_peers",),
    "docker": ("themis.docker_host",),
    "ecos": ("themis_lab.bench.oef_peers",),
    "gurobipy": ("rm_plugin.solvers.gurobi",),
    "hdfs": ("themis.hadoop.webhdfs",),
    "jpype": ("themis.hadoop.",),
    "keras": ("tf_jobs.keras_",),
    "optuna": ("am.tuners.optuna_",),
    "pandas": ("submarine_client.client",),
    "requests": ("themis.docker_host", "themis.hadoop.webhdfs"),
    "tensorflow": ("tf_jobs.keras_elastic", "tf_jobs.tensorflow_setup"),
    "urllib3": ("themis.docker_host", "themis.hadoop.webhdfs"),
}
# The packages whose distribution, as pyproject.toml names it, has another name, and the one that brings them.
DISTRIBUTIONS = {"google": "protobuf", "grpc": "grpcio", "pydantic_core": "pydantic", "yaml": "PyYAML"}

# Pure: they decide on values alone. Reading text is theirs, reading files and clocks is not.
PURE = (
    "rm_plugin.arbiter",
    "rm_plugin.policies",
    "rm_plugin.solvers",
    "am.agent",
    "am.tuners",
    "am.profiler",
    "am.app_view",
    "am.jobs.bid_division",
    "am.jobs.exchange",
    "am.jobs.fault_policy",
    "am.jobs.finish_time_bound",
    "am.jobs.gpu_division",
    "am.jobs.lazy_mapping",
    "am.jobs.planner",
    "am.jobs.pool",
    "am.jobs.requirements",
    "am.jobs.stragglers",
    "am.page.status_document",
    "rm_plugin.service.claims",
    "rm_plugin.service.web.round_record",
    "rm_plugin.service.web.round_words",
    "themis_lab.audit",
    "themis_lab.paper.allox.driver",
    "themis_lab.paper.allox.policies",
    "themis_lab.paper.oef.driver",
    "themis_lab.simulator.compare",
    "themis_lab.simulator.explain",
    "themis_lab.simulator.metrics",
    "themis_lab.simulator.json_codec",
    "themis_lab.simulator.recording",
    "themis_lab.simulator.workloads.interchangeable",
    "themis.apps",
    "themis.bids",
    "themis.choices",
    "themis.cluster",
    "themis.durations",
    "themis.errors",
    "themis.event_words",
    "themis.events",
    "themis.fluid_cluster",
    "themis.fluid_tree",
    "themis.json_fields",
    "themis.json_merge_patch",
    "themis.leases",
    "themis.lifecycle",
    "themis.placement",
    "themis.rho",
    "themis.speeds",
    "themis.sums",
    "themis.web.elements",
    "themis.web.formatting",
)
IMPURE = {"asyncio", "grpc", "logging", "multiprocessing", "os", "psutil", "socket", "sqlite3", "subprocess"}
IMPURE |= {"datetime", "secrets", "tempfile", "threading", "time", "uuid"}
# What a pure folder holds that is not pure, and why.
EXCEPTIONS = {
    "themis.web.formatting": {"datetime"},  # writes a given time as text, and reads no clock
    "am.profiler.event_folder": {"os", "time"},  # lists folders with the types of entries, and no longer than it may
    "am.profiler.follower": {"os"},  # reads growing files; beside listing folders the one I/O of the profiler
}
# Modules that import modules by names from a table, and what the table names. The test cannot read such a name.
NAMES_FROM_TABLES = {
    "themis": "the modules of the kernel that define its public names",
    "themis_cli.reproduce_command": "a module of `themis_lab.paper`, from its registry",
    "themis_lab.paper.registry": "modules of `themis_lab.paper`",
}
# Types of containers that can change. One that lives in a module or a class is a cache.
CHANGEABLE = {"bytearray", "Counter", "defaultdict", "deque", "dict", "list", "OrderedDict", "set"}
CHANGEABLE |= {"WeakKeyDictionary", "WeakSet", "WeakValueDictionary"}
# A solver has a time limit, so it may look at a clock.
TIMED = ("rm_plugin.solvers",)


@cache
def sources():
    """Syntax tree by module name, of every package of ours."""
    trees = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            if not name.endswith(("_pb2", "_pb2_grpc")):
                trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


@cache
def imports(module):
    """Every module that this one imports, anywhere in it; `from a import b` counts as a.b where that is a module."""
    return frozenset(imports_of(sources()[module], module))


def imports_of(tree, module):
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: write imports out in full"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in sources() else node.module)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("import_module", "__import__"):
            name = named_module(node.args[0])
            assert name or module in NAMES_FROM_TABLES, f"{module}: {ast.unparse(node)} hides what it imports"
            found |= {name} - {""}
    return found


def last_name(function):
    """`deque` of `deque`, `collections.deque` and `deque[int]`."""
    return ast.unparse(function).partition("[")[0].rpartition(".")[2]


def named_module(argument):
    """The module that an expression names, or the package if the end is known at run time only; "" if all of it is."""
    if isinstance(argument, ast.Constant):
        return argument.value
    while isinstance(argument, ast.BinOp):
        argument = argument.left
    if isinstance(argument, ast.JoinedStr):
        argument = argument.values[0]
    return argument.value.rpartition(".")[0] if isinstance(argument, ast.Constant) else ""


def within(module, roots):
    return any(module == root or module.startswith(f"{root}.") for root in roots)


def modules_of(*roots):
    return [module for module in sources() if within(module, roots)]


def test_the_tables_name_existing_modules():
    for name in (*PURE, *EXCEPTIONS, *(name for names in ALLOWED.values() for name in names)):
        assert modules_of(name), f"{name} is gone"
    assert {name.partition(".")[0] for name in ALLOWED} == set(PACKAGES)
    assert len(set(PURE)) == len(PURE), "PURE names a module twice"


def room_of(module):
    """The longest name of the table that covers a module."""
    return max((room for room in ALLOWED if within(module, (room,))), key=len)


@pytest.mark.parametrize("room", ALLOWED)
def test_rooms_import_only_those_before_them(room):
    allowed = (room, *ALLOWED[room])
    wrong = [
        f"{module} imports {name}"
        for module in modules_of(room)
        if room_of(module) == room
        for name in sorted(imports(module))
        if within(name, PACKAGES) and not within(name, allowed)
    ]
    assert not wrong


@pytest.mark.parametrize(("package", "allowed"), ONLY_FROM)
def test_restricted_packages_have_only_allowed_importers(package, allowed):
    roots = ONLY_FROM[package, allowed]
    importers = [module for module in modules_of(package) if any(within(name, (allowed,)) for name in imports(module))]
    assert importers, f"{package} no longer imports {allowed}"
    assert not [module for module in importers if not module.startswith(roots)]


def test_every_other_package_is_a_dependency_or_stays_in_its_adapter():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = {re.split(r"[>=<]", dependency)[0] for dependency in project["dependencies"]}
    known = {*sys.stdlib_module_names, *PACKAGES}
    imported = {(name.partition(".")[0], module) for module in sources() for name in imports(module)}
    foreign = {(name, module) for name, module in imported if name not in known}
    assert EXTRAS.keys() <= {name for name, _ in foreign}
    wrong = [
        f"{module} imports {name}"
        for name, module in sorted(foreign)
        if DISTRIBUTIONS.get(name, name) not in required and not module.startswith(EXTRAS.get(name, ("-",)))
    ]
    assert not wrong


def test_no_package_of_the_product_imports_tests_or_tools():
    for module in sources():
        assert not any(within(name, ("tests", "tools")) for name in imports(module)), module


@pytest.mark.parametrize("root", PURE)
def test_pure_parts_have_no_clock_io_or_logging(root):
    wrong = [
        f"{module} imports {name}"
        for module in modules_of(root)
        for name in sorted(imports(module))
        if name.split(".")[0] in IMPURE - EXCEPTIONS.get(module, set()) - ({"time"} if within(module, TIMED) else set())
    ]
    assert not wrong


def test_the_exceptions_are_needed():
    for module, names in EXCEPTIONS.items():
        assert names <= {name.split(".")[0] for name in imports(module)}, module


@pytest.mark.parametrize("call", ['import_module("am." + x)', 'importlib.import_module(f"am.{x}")', '__import__("am")'])
def test_an_import_at_run_time_counts_as_one_of_the_named_package(call):
    assert imports_of(ast.parse(f"def f(x):\n    {call}"), "rm_plugin.engines") == {"am"}


@pytest.mark.parametrize("call", ["import_module(name)", '__import__(f"{package}.jobs")', "import_module(NAMES[0])"])
def test_an_import_that_hides_its_package_fails(call):
    with pytest.raises(AssertionError, match="hides what it imports"):
        imports_of(ast.parse(call), "rm_plugin.engines")


def test_names_from_tables_are_needed():
    for module in NAMES_FROM_TABLES:
        calls = [node for node in ast.walk(sources()[module]) if isinstance(node, ast.Call)]
        names = [named_module(node.args[0]) for node in calls if last_name(node.func) == "import_module"]
        assert "" in names, module


def caches(tree):
    """Functions that a cache decorates, and containers of a module or class that something could change.

    A table with entries may stay: `X: Mapping[..] = {..}`. An empty container has no use unless it changes, and an
    annotation `dict`, `list` or `set` says that it may.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {ast.unparse(each).partition("(")[0].rpartition(".")[2] for each in node.decorator_list}
            if decorators & {"cache", "lru_cache"}:
                yield node.name
    for scope in ast.walk(tree):
        for node in scope.body if isinstance(scope, ast.Module | ast.ClassDef) else ():
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                called = last_name(node.value.func) if isinstance(node.value, ast.Call) else ""
                annotated = last_name(node.annotation) if isinstance(node, ast.AnnAssign) else ""
                empty = ast.unparse(node.value) in ("{}", "[]")
                if called == "field" or (empty and is_default_of_value(scope, node)):
                    continue
                if empty or called in {"cache", "lru_cache", *CHANGEABLE} or annotated in CHANGEABLE:
                    yield ast.unparse(node)


def is_default_of_value(scope, node):
    """Whether this is the default of a field of a `Value`, of which msgspec gives each object a copy."""
    frozen = isinstance(scope, ast.ClassDef) and any(keyword.arg == "frozen" for keyword in scope.keywords)
    return frozen and isinstance(node, ast.AnnAssign) and last_name(node.annotation) != "ClassVar"


@pytest.mark.parametrize(
    "text",
    [
        "@functools.lru_cache(maxsize=9)\ndef f(): pass",
        "seen = {}",
        "seen = WeakKeyDictionary()",
        "seen = weakref.WeakValueDictionary()",
        "seen = collections.OrderedDict()",
        "seen: Counter[str] = Counter[str]()",
        "seen = deque(maxlen=9)",
        "seen: dict[str, int] = {'a': 1}",
        "class A:\n    seen: dict = {}",
        "class A:\n    seen: ClassVar[Mapping[str, int]] = defaultdict(int)",
        "class A(Value, frozen=True):\n    seen = {}",
        "class A(Value, frozen=True):\n    seen: ClassVar[Mapping[str, int]] = {}",
        "class A:\n    class B:\n        seen = set()",
    ],
)
def test_a_cache_of_a_module_or_class_is_found(text):
    assert list(caches(ast.parse(text)))


@pytest.mark.parametrize(
    "text",
    [
        "TABLE: Mapping[str, int] = {'a': 1}",
        "def f():\n    seen = {}",
        "class A:\n    seen: dict = field(default_factory=dict)",
        "class A(Value, frozen=True):\n    seen: Mapping[str, int] = {}",
        "class A:\n    def __init__(self):\n        self.seen = {}",
    ],
)
def test_what_an_object_or_call_holds_is_no_cache(text):
    assert not list(caches(ast.parse(text)))


def test_pure_parts_remember_nothing_in_modules():
    """What is remembered belongs to an object, and lives as long as that."""
    found = {module: set(caches(sources()[module])) for module in modules_of(*PURE)}
    assert not {module: names for module, names in found.items() if names}


@pytest.mark.parametrize("root", PURE)
def test_pure_parts_draw_only_from_a_random_of_their_own(root):
    """`random.Random(seed)` is an argument like any other; the module's functions share hidden state."""
    for module in modules_of(root):
        for node in ast.walk(sources()[module]):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "random":
                assert node.attr == "Random", f"{module} line {node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == "random":
                assert [alias.name for alias in node.names] == ["Random"], f"{module} line {node.lineno}"
            if isinstance(node, ast.Attribute) and ast.unparse(node).startswith(("np.random", "numpy.random")):
                assert node.attr in ("random", "Generator", "default_rng"), f"{module} line {node.lineno}"


@pytest.mark.parametrize("root", PURE)
def test_pure_parts_open_no_files(root):
    for module in modules_of(root):
        if module in EXCEPTIONS:
            continue
        calls = [node.func for node in ast.walk(sources()[module]) if isinstance(node, ast.Call)]
        functions = {call.id for call in calls if isinstance(call, ast.Name)}
        methods = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        assert not functions & {"open", "print", "input"}, module
        assert not methods & {"read_text", "write_text", "read_bytes", "write_bytes"}, module


def test_no_module_imports_itself_through_others():
    """Not in a function, nor for type hints alone: modules that need each other are one, whenever they are loaded."""
    graph = {module: sorted(imports(module) & sources().keys()) for module in sources()}
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            path.append(module)
            for name in graph[module]:
                visit(name)
            path.pop()
            done.add(module)

    for module in graph:
        visit(module)


def test_folders_that_import_each_other_are_known():
    """Two folders that import each other are one, whatever their names. A folder and its subfolder are one already.

    For example, the ladder in `rm_plugin.solvers` calls `rm_plugin.solvers.exact`, which imports `kinds` from above.
    """
    packages = {name for name in sources() if len(modules_of(name)) > 1}
    folders = {module: module if module in packages else module.rpartition(".")[0] for module in sources()}
    edges = {
        (folders[module], folders[name])
        for module in sources()
        for name in imports(module) & sources().keys()
        if not within(folders[module], (folders[name],)) and not within(folders[name], (folders[module],))
    }
    assert sorted((one, two) for one, two in edges if one < two and (two, one) in edges) == KNOWN_MUTUAL


# Rounds are played by the arbiter under a policy's port, whose values are the arbiter's.
KNOWN_MUTUAL = [("rm_plugin.arbiter", "rm_plugin.policies")]


def test_every_package_is_listed_for_installation():
    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for package in PACKAGES:
        folders = {path.parent for path in (ROOT / package).rglob("*.py")}
        for folder in sorted(folders):
            name = ".".join(folder.relative_to(ROOT).parts)
            assert f'"{name}"' in listed, f"{name} is not in pyproject.toml"
            assert (folder / "__init__.py").is_file(), f"{name} has no __init__.py"
