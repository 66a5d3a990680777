"""Tables that claim to hold all of something do: keys, settings, variables, log lines, checks, imports."""

import importlib.util
import re

import pytest
from documents import ROOT, block, code, table_rows, text_of
from log_lines import parse_line
from pydantic import BaseModel

from am.jobs.environment import JobIncarnation, task_environment
from am.profiler.records import Record
from am.runtimes.port import TaskLaunch
from am.runtimes.task_process import own_environment
from rm_plugin.policies.registry import POLICIES
from rm_plugin.solvers.registry import SOLVERS
from submarine_client.job_app import RESERVED
from submarine_client.programs import check_program
from tf_jobs import exit_codes
from themis.cluster import GpuId, Level
from themis.config.cluster_file import load_cluster
from themis.config.group_file import GroupFile, build_app
from themis.config.loader import fit, parse_yaml
from themis.config.placeholders import GIVEN_BY_APP_MASTER
from themis.config.rm_settings import RmSettings
from themis.config.tuner_settings import TUNERS
from themis.config.validation_errors import models_in
from themis.wire import themis_pb2 as pb
from themis_lab.testbed.app_report import RHO_DEFINITIONS, app_report, best_model
from themis_lab.testbed.audit import audit
from themis_lab.testbed.audit_values import AuditInput, AuditLimits
from themis_lab.testbed.facts import Ending, RunFacts
from themis_lab.testbed.mix import Mix
from themis_lab.testbed.report import build_report
from themis_lab.testbed.run_record import RunRecord

APPS, TESTBED, ARCHITECTURE = "docs/reference/group-files.md", "docs/how-to/testbed.md", "ARCHITECTURE.md"
GROUPS = ("group: program", "group: command; file: own.yaml")
CODE_GROUPS = ("group: files; file: travelling.yaml", "group: files; file: packages.yaml")
SMALL = ROOT / "conf/clusters/small-8.yaml"


# ---- docs/reference/group-files.md ----------------------------------------------------------------------------------


def keys_of(model, prefix=""):
    """Every key of a schema, dotted; a user's own names are left out of the path."""
    for name, entry in model.model_fields.items():
        yield prefix + name
        for section in models_in(entry.annotation):
            yield from keys_of(section, f"{prefix}{name}.")


def used_keys(model, data, prefix=""):
    for name, value in data.items():
        if name not in model.model_fields:
            continue
        yield prefix + name
        for section in models_in(model.model_fields[name].annotation):
            if isinstance(value, dict):
                mine = section.model_fields.keys() & value.keys()
                parts = [value] if mine else [part for part in value.values() if isinstance(part, dict)]
                for part in parts:
                    yield from used_keys(section, part, f"{prefix}{name}.")


@pytest.mark.parametrize("mark", GROUPS)
def test_the_group_files_shown_are_valid(mark):
    file = fit(GroupFile, parse_yaml(block(APPS, mark).body, mark), mark)
    assert len(check_program(build_app(file, mark), mark).jobs) > 1


def test_the_group_files_shown_hold_every_key():
    used = {
        key
        for mark in (*GROUPS, *CODE_GROUPS)
        for key in used_keys(GroupFile, parse_yaml(block(APPS, mark).body, mark))
    }
    assert set(keys_of(GroupFile)) - used == set()


def test_values_that_are_called_defaults_are():
    file = fit(GroupFile, {"name": "a", "program": "b"}, "the defaults")
    defaults = {name: value for section in sections_of(file) for name, value in section}
    claimed = re.findall(r"^ *(\w+): (.+?) +# default(?:;.*)?$", block(APPS, GROUPS[0]).body, flags=re.M)
    assert len(claimed) >= 7
    for name, value in claimed:
        assert parse_yaml(f"{name}: {value}", name)[name] == defaults[name], name


def sections_of(section):
    yield section
    for _, value in section:
        if isinstance(value, BaseModel):
            yield from sections_of(value)


def test_tuners_and_their_settings_are_all_there():
    assert [code(row[0])[0] for row in table_rows(APPS, "tuner")] == list(TUNERS)
    for name, tuner in TUNERS.items():
        if tuner.settings:
            rows = table_rows(APPS, f"setting of `{name}`")
            assert [code(row[0])[0] for row in rows] == list(tuner.settings)


def test_placeholders_are_all_there():
    named = [name.strip("%") for row in table_rows(APPS, "placeholder") for name in code(row[0])]
    assert sorted(named) == sorted(GIVEN_BY_APP_MASTER)


def test_variables_of_tasks_are_all_there():
    named = {name for row in table_rows(APPS, "variable") for name in code(row[0])}
    assert named == set(variables_of_a_task())
    assert all(f"`{name}`" in text_of(APPS) for name in RESERVED)


def variables_of_a_task():
    gpus = (GpuId("m0", 0), GpuId("m0", 1))
    gang = JobIncarnation(
        app_id="a",
        job_id="j",
        incarnation=1,
        gpus=tuple((gpu,) for gpu in gpus),
        addresses=("h:1", "h:2"),
        level=Level.MACHINE,
        checkpoint_uri="c",
        job_dir="d",
        threads=(2, 2),
        most_tasks=2,
        environment={"MLFLOW_TRACKING_URI": "http://m", "WANDB_PROJECT": "p"},
        tracked_run="0" * 32,
    )
    launch = TaskLaunch(
        app_id="a",
        job_id="j",
        task_index=0,
        incarnation=1,
        command="true",
        gpus=gpus[:1],
        working_dir=ROOT,
        log_path=ROOT,
    )
    given = {**task_environment(gang, 0), **own_environment(launch, "run")}
    return {name: value for name, value in given.items() if name not in gang.environment}


def test_every_kind_of_log_line_is_shown_and_every_line_shown_is_read():
    records = [parse_line(line) for line in block(APPS, "log lines").body.splitlines()]
    assert None not in records
    kinds = set(Record.__args__)
    shown = {type(record) for record in records}
    # A metric is read if it is declared. A loss without a step is read, but no use to anyone who writes a program; what
    # was left out is no line, and that
    # an incarnation begins is for the app master to say. Libraries of trackers write the lines of their runs.
    assert {kind.__name__ for kind in kinds - shown} == {"Begun", "LossOnly", "Metric", "Skipped", "TrackedRun"}


def test_exit_codes_in_the_page_match_the_contract():
    named = [row[0] for row in table_rows(APPS, "exit code")]
    wanted = [exit_codes.EXIT_DONE, exit_codes.EXIT_CHECKPOINTED, exit_codes.EXIT_USAGE]
    assert named[:3] == [str(each) for each in wanted]


# ---- docs/how-to/testbed.md -----------------------------------------------------------------------------------------


def empty_run():
    facts = RunFacts(
        mix="m",
        policy="themis",
        seed=0,
        time_scale=1,
        expected_apps=0,
        ending=Ending.ALL_ENDED,
        wall_s=0,
        time_limit_s=1,
    )
    return RunRecord(
        events=(), apps=(), settings=RmSettings(cluster=SMALL), cluster=load_cluster(SMALL), facts=facts, histories={}
    )


def empty_audit():
    return audit(AuditInput(events=(), gpus=(), limits=AuditLimits(lease_s=1, grace_s=1, round_s=1)))


def test_keys_of_the_report_are_all_there():
    report = build_report(empty_run(), empty_audit())
    text = text_of(TESTBED)
    top = text[text.index("## report.json") : text.index("| key of an app")]
    assert {name for line in top.splitlines() if line.startswith("| `") for name in code(line.split("|")[1])} == set(
        report
    )
    for name in ("cluster", "overheads", "empty_bids", "utilisation", "invariants", "processes"):
        assert all(f"`{key}`" in top for key in report[name]), name


def test_keys_of_a_mix_are_all_there():
    assert {name for row in table_rows(TESTBED, "key") for name in code(row[0])} == set(Mix.model_fields)


def test_keys_of_an_app_are_all_there():
    app = app_report(pb.AppStatus(), (), (), (), 0.0, {})
    named = {name for row in table_rows(TESTBED, "key of an app") for name in code(row[0])}
    assert named == set(app)
    best = best_model(pb.AppStatus(best="j", jobs=[pb.JobStatus(job_id="j")]), ())
    meanings = " ".join(row[1] for row in table_rows(TESTBED, "key of an app"))
    assert all(f"`{name}`" in meanings for name in (*best, *RHO_DEFINITIONS))


def test_checks_of_the_audit_are_all_there():
    assert [row[0] for row in table_rows(TESTBED, "check")] == list(empty_audit().checks)


# ---- ARCHITECTURE.md ------------------------------------------------------------------------------------------------


def test_the_table_of_imports_is_the_one_that_is_tested():
    spec = importlib.util.spec_from_file_location("import_rules", ROOT / "tests/unit/test_imports.py")
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    written = {code(row[0])[0]: set(code(row[2])) for row in table_rows(ARCHITECTURE, "package")}
    assert written == {package: set(allowed) for package, allowed in rules.ALLOWED.items()}


def test_adapters_with_names_are_all_there():
    adapters = {row[0]: code(row[2]) for row in table_rows(ARCHITECTURE, "port")}
    assert adapters["Policy"] == list(POLICIES)
    assert adapters["WinnerDetermination"] == list(SOLVERS)
    assert adapters["Tuner"] == list(TUNERS)


def test_ports_are_where_they_are_said_to_be():
    for name, where, _ in table_rows(ARCHITECTURE, "port"):
        source = (ROOT / code(where)[0]).read_text(encoding="utf-8")
        assert re.search(rf"^class {name}\(Protocol\):", source, flags=re.M), name
