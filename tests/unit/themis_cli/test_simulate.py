"""`themis simulate` and `themis replay`: output, recordings, and refused input."""

import argparse
import json
import os
import subprocess
import sys

import pytest
from documents import ROOT

from rm_plugin.policies.registry import POLICIES
from themis.choices import (
    Bidders,
    BidValues,
    BundleRule,
    EmptyBundle,
    GangPlacement,
    LeaseEnds,
    LeftoverOrder,
    Rounding,
)
from themis.rho import FLUID_DEFINITIONS
from themis_cli import simulate_command
from themis_cli.main import main
from themis_cli.simulate_progress import Progress, span
from themis_cli.simulate_recording import opened_recording
from themis_cli.simulate_table import ROWS
from themis_lab.simulator import recording
from themis_lab.simulator.clusters import cluster_named
from themis_lab.simulator.metrics import MEASURED
from themis_lab.simulator.runs import Run, make_run
from themis_lab.simulator.settings import NodeOutage, Settings
from themis_lab.simulator.workloads.registry import workload_named

ON = ("--cluster", "4x2", "--workload", "w1-small", "--apps", "3", "--scale", "40")
QUICK = ("simulate", "--policy", "themis", *ON)
MIX = ("simulate", "--policy", "themis", "--workload", str(ROOT / "conf/testbed/small.yaml"))


@pytest.fixture
def printed(capsys):
    def call(*arguments):
        code = main(arguments)
        return code, capsys.readouterr()

    return call


@pytest.fixture
def document(printed):
    def call(*arguments):
        code, out = printed(*arguments, "--json")
        assert code == 0, out.err
        return json.loads(out.out)

    return call


def deterministic(document):
    return {key: value for key, value in document.items() if key not in MEASURED}


# ---- simulate -------------------------------------------------------------------------------------------------------


def test_run_prints_one_document(document):
    found = document(*QUICK)
    assert (found["policy"], found["cluster"], found["workload"], found["seed"]) == ("themis", "4x2", "w1-small", 1)
    assert len(found["apps"]) == 3
    assert set(found["max_rho"]) == set(found["apps"][0]["rho"])
    assert found["invariants"]["checks"] == found["rounds"] > 0
    assert found["invariants"]["violations"] == []
    assert min(found["wall_s"], found["peak_memory_mb"], found["makespan_s"], found["events"]) > 0


def test_output_depends_on_seed_only(document):
    one, two, other = document(*QUICK), document(*QUICK), document(*QUICK, "--seed", "2")
    assert deterministic(one) == deterministic(two)
    assert deterministic(one)["apps"] != deterministic(other)["apps"]


def test_several_policies_share_one_document(document, printed):
    both = document(*QUICK, "--policy", "tiresias")
    assert both["policies"] == ["themis", "tiresias"]
    assert [run["policy"] for run in both["runs"]] == ["themis", "tiresias"]
    assert [row["policy"] for row in both["rows"]] == ["themis", "tiresias"]
    assert deterministic(both["runs"][0]) == deterministic(document(*QUICK))
    _, out = printed(*QUICK, "--policy", "tiresias")
    assert out.out.splitlines()[0].split() == ["of", "the", "run", "themis", "tiresias"]


def test_seeds_give_same_median_and_spread_for_any_processes(document):
    one, two = (document(*QUICK, "--seeds", "3", "--jobs", jobs) for jobs in ("1", "2"))
    assert [deterministic(run) for run in one["runs"]] == [deterministic(run) for run in two["runs"]]
    assert one["metrics"] == two["metrics"]
    assert one["seeds"] == [1, 2, 3]
    worst = sorted(run["max_rho"]["themis"] for run in one["runs"])
    assert one["metrics"]["themis"]["max_rho.themis"] == {"min": worst[0], "median": worst[1], "max": worst[2]}


def test_default_output_is_tables(printed):
    code, out = printed(*QUICK)
    lines = out.out.splitlines()
    assert code == 0
    assert lines[0].split()[:4] == ["app", "model", "jobs", "rho"]
    assert [line for line in lines if line.startswith("max rho ")]
    # A sentence for each definition that ranks policies.
    assert [f"  {name}: {name.sentence}" in lines for name in FLUID_DEFINITIONS] == [True] * 3
    assert "w1-small on 4x2 (8 GPUs), seed 1" in out.out


def test_table_has_figures_of_document(document):
    found = document(*QUICK)
    for _, key, _ in ROWS:
        value = found
        for part in key.split(".", 2) if key.startswith("by_definition") else key.split("."):
            value = value[part]
        assert value is None or value >= 0


def test_every_setting_has_an_option():
    parser = options_of("simulate")
    values = {action.dest: action.choices for action in parser._actions if action.choices}
    for dest, kind in (
        ("lease_ends", LeaseEnds), ("bundle_rule", BundleRule), ("empty_bundle", EmptyBundle), ("rounding", Rounding),
        ("bidders", Bidders), ("values", BidValues), ("leftovers", LeftoverOrder), ("gang_placement", GangPlacement),
    ):  # fmt: skip
        assert values[dest] == [each.value for each in kind]


def options_of(name):
    commands = argparse.ArgumentParser().add_subparsers()
    simulate_command.add_to(commands)
    return commands.choices[name]


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (("--lease-s", "300", "--lead-s", "9"), lambda run: (run.leases.duration_s, run.leases.checkpoint_lead_s)),
        (("--lease-ends", "staggered"), lambda run: run.leases.ends),
        (("--f", "0.5"), lambda run: run.rounds.f),
        (("--rounding", "nearest"), lambda run: run.rounds.rounding),
        (("--bidders", "pressed"), lambda run: run.rounds.bidders),
        (("--values", "slack"), lambda run: run.rounds.values),
        (("--leftovers", "shortest"), lambda run: run.rounds.leftovers),
        (("--gang-placement", "blind"), lambda run: run.rounds.gang_placement),
        (("--tenant-of", "queue"), lambda run: run.rounds.tenant_of),
        (("--tenant-weight", "ann:2", "--tenant-weight", "team:b:0.5"), lambda run: run.rounds.tenant_weights),
        (("--placer", "plain"), lambda run: run.rounds.placer),
        (("--cap-demand",), lambda run: run.rounds.cap_demand),
        (("--profiling-runs",), lambda run: run.rounds.profiling_runs),
        (("--alpha", "0.5"), lambda run: run.rounds.alpha),
        (("--late-order", "oldest"), lambda run: run.rounds.late_order),
        (("--preemption-margin", "0.5"), lambda run: run.rounds.preemption_margin),
        (("--no-payments",), lambda run: run.rounds.payments),
        (("--bundle-rule", "idle_then_share"), lambda run: run.bundle_rule),
        (("--empty-bundle", "lexicographic"), lambda run: run.rounds.empty_bundle),
        (("--solver", "highs"), lambda run: run.solver),
        (("--checkpoint-s", "1", "--restore-s", "2", "--container-s", "3"), lambda run: run.costs),
        (("--outage", "m01:60:120"), lambda run: run.outages),
    ],
)
def test_options_set_the_settings(options, where):
    parser = options_of("simulate")
    usual, chosen = (
        simulate_command.planned(parser.parse_args([*QUICK[1:], *more]))[0].settings for more in ((), options)
    )
    assert where(chosen) != where(usual)


@pytest.fixture
def with_colons(tmp_path):
    """Write a cluster file with the machines row:00 and row:01."""
    group = "{count: 2, prefix: 'row:', slots: [2], racks: [r0]}"
    path = tmp_path / "colons.yaml"
    path.write_text(f"name: colons\ndevices: {{gpu: {{kind: gpu}}}}\nmachines: [{group}]\n", encoding="utf-8")
    return str(path)


def test_outage_accepts_machine_id_with_colons(with_colons, printed):
    options = [*QUICK[1:], "--cluster", with_colons, "--outage", "row:01:60:120"]
    (run,) = simulate_command.planned(options_of("simulate").parse_args(options))
    assert run.settings.outages == (NodeOutage(machine_id="row:01", lost_at_s=60.0, back_at_s=120.0),)
    code, out = printed(*QUICK, "--cluster", with_colons, "--outage", "row:1:60:120")
    assert (code, out.err) == (2, "themis: unknown machine: 'row:1'; did you mean 'row:01'?\n")


def test_errors_and_lies_apply_to_agents(document):
    honest = deterministic(document(*QUICK))
    assert deterministic(document(*QUICK, "--error", "0")) == honest
    assert deterministic(document(*QUICK, "--error", "0.5", "--lie", "app-00:throughout:3")).keys() == honest.keys()


def test_testbed_mix_sets_cluster_lease_f_and_seed(document):
    parser = options_of("simulate")
    (run,) = simulate_command.planned(parser.parse_args(MIX[1:]))
    assert (run.settings.leases.duration_s, run.settings.leases.checkpoint_lead_s) == (5.0, 1.0)
    assert (run.settings.rounds.f, run.settings.seed, run.settings.cluster.gpus) == (0.8, 2, 8)
    assert run.settings.costs.container_s == 1.0
    (other,) = simulate_command.planned(parser.parse_args([*MIX[1:], "--lease-s", "8", "--seed", "5", "--f", "0"]))
    assert (other.settings.leases.duration_s, other.settings.seed, other.settings.rounds.f) == (8.0, 5, 0.0)
    found = document(*MIX)
    assert [app["name"] for app in found["apps"]] == ["digits-small", "small-search", "small-pair"]


def test_mix_of_jobs_for_an_unknown_device_type_is_refused(printed):
    hybrid = str(ROOT / "conf/testbed/hybrid.yaml")
    code, out = printed("simulate", "--policy", "drf", "--workload", hybrid, "--cluster", "mixed-3")
    assert code == 2
    assert out.err.startswith("themis: unknown device type in estimate.speed of job job-00: 'gpu'")


@pytest.mark.parametrize("auction", ["", "5", "x", "[[1]]", "{f: 2}"])
def test_mix_with_invalid_auction_is_refused(printed, tmp_path, auction):
    text = (
        (ROOT / "conf/testbed/small.yaml")
        .read_text()
        .replace("auction: {f: 0.8, time_limit_s: 2}", f"auction: {auction}")
    )
    for folder in ("apps", "../clusters"):
        text = text.replace(f" {folder}/", f" {ROOT / 'conf' / 'testbed' / folder}/")
    mix = tmp_path / "mix.yaml"
    mix.write_text(text)
    code, out = printed("simulate", "--policy", "drf", "--workload", str(mix))
    assert (code, out.out) == (2, "")
    assert out.err.startswith("themis: ")
    assert "auction of the mix small" in out.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--policy", "thmis"), "unknown policy: 'thmis'; did you mean 'themis'?"),
        (("--cluster", "tesbed"), "unknown cluster: 'tesbed'; did you mean 'testbed'?"),
        (("--cluster", "4y2"), "malformed cluster: '4y2'; write MACHINESxGPUS"),
        (("--workload", "w3"), "unknown workload: 'w3'; known: "),
        (("--workload", "no.yaml"), "cannot read no.yaml"),
        (("--workload", "philly"), "unknown option of workload philly: 'apps'; known: none"),
        (("--lease-s", "0"), "--lease-s must be above 0, and a century at most: 0.0"),
        (("--lease-s", "nan"), "--lease-s must be above 0, and a century at most: nan"),
        (("--lease-s", "1e308"), "--lease-s must be above 0, and a century at most: 1e+308"),
        (("--lead-s", "600"), "the lead must be shorter than the lease: 'lead 600 s, lease 600 s'; change --lead-s"),
        (("--f", "1.5"), "--f must lie in 0 to 1: 1.5"),
        (("--preemption-margin", "-1"), "--preemption-margin must lie in 0 to 1: -1.0"),
        (("--error", "1"), "--error must be 0 or more and less than 1: 1.0"),
        (("--seeds", "0"), "--seeds must be 1 to 10,000: 0"),
        (("--seeds", "10000000"), "--seeds must be 1 to 10,000: 10000000"),
        (("--restore-s", "1e300"), "--restore-s must be 0 to a day: 1e+300"),
        (("--container-s", "86401"), "--container-s must be 0 to a day: 86401.0"),
        (("--option", "job_divisor=1e-300"), "an app would have too many jobs: "),
        (("--option", "stretch=1e300"), "an app cannot arrive more than a century later: "),
        (("--scale", "1e300"), "a job needs iterations, and each of them time: a femtosecond or more: "),
        (("--lie", "app-00:work:1e308"), "the factor of a lie must be from 1/1,000,000 to 1,000,000: 1e+308; 1 is"),
        (("--jobs", "0"), "--jobs must be 1 or more: 0"),
        (("--solver", "exat"), "unknown solver: 'exat'; did you mean 'exact'?"),
        (("--bundle-rule", "lexicographic"), "add --empty-bundle lexicographic"),
        (("--outage", "m9:0:5"), "unknown machine: 'm9'"),
        (("--outage", "m01:9:5"), "an outage must end after it begins: 'm01:9:5'; write seconds: MACHINE:FROM:TO"),
        (("--outage", "m01"), "--outage does not parse: 'm01'; write MACHINE:FROM:TO"),
        (("--outage", "m00:0:10:20"), "--outage does not parse: 'm00:0:10:20'; write MACHINE:FROM:TO"),
        (("--lie", "app-00:rows:x"), "the factor of --lie must be a finite number: 'x'"),
        (("--lie", "app-00:rows:1_0"), "the factor of --lie must be a finite number: '1_0'"),
        (("--outage", "m01:1:1_0"), " must be a finite number: '1_0'"),
        (("--option", "job_divisor=1_0"), " must be a number: '1_0'"),
        (("--lie", "app-00:row:2"), "unknown lie: 'row'; did you mean 'rows'?"),
        (("--outage", "m01:-5:10"), "an outage cannot begin before the run: 'm01:-5:10'; FROM is 0 or more"),
        (("--cluster", "99999999x8"), "too many machines in a cluster: '99999999x8'; at most 100000"),
        (("--cluster", "9x99999999"), "too many GPUs in a cluster: '9x99999999'; at most 100000"),
        (("--option", "apps=4"), "option apps of the workload is given twice: ['"),
        (("--lie", "app-09:rows:2"), "unknown app: 'app-09'; known: app-00, app-01"),
        (("--tenant-weight", "ann:2"), "tenant (user): 'ann'"),
        (("--tenant-weight", "ann"), "--tenant-weight does not parse: 'ann'; write TENANT:WEIGHT"),
        (("--tenant-weight", "ann:x"), "WEIGHT of --tenant-weight must be a finite number: 'x'"),
        (("--tenant-weight", "ann:inf"), "WEIGHT of --tenant-weight must be a finite number: 'inf'"),
        (("--tenant-weight", "ann:0"), "the weight of ann must be a finite number above 0: 0.0"),
        (("--option", "rigid"), "--option does not parse: 'rigid'; write NAME=VALUE"),
        (("--explain", "app-09"), "unknown app: 'app-09'; known: app-00, app-01"),
        (("--seeds", "2", "--explain", "app-00"), "--explain and --record are of one run: '2 runs'; name one --policy"),
        (("--record", "no/such/folder/file"), "cannot write the recording: 'no/such/folder/file'"),
        (("--record", ""), "cannot write the recording: '.'; it is a folder"),
        (("--record", "/"), "cannot write the recording: '/'; it is a folder"),
        (("--record", "/dev/stdout"), "cannot write the recording: '/dev/stdout'; it is no plain file"),
        (("--record", "/dev/null"), "cannot write the recording: '/dev/null'; it is no plain file"),
    ],
)
def test_wrong_input_error_has_remedy(printed, options, expected):
    code, out = printed(*QUICK, *options)
    assert code == 2
    assert expected in out.err
    assert out.out == ""


def test_workload_without_cluster_runs_on_testbed(document):
    small = ("--workload", "w1-small", "--apps", "2", "--scale", "80")
    assert document("simulate", "--policy", "srtf", *small)["cluster"] == "testbed"


def test_all_policies_give_a_row_each_and_ratios_with_best_policy_first(document):
    found = document("simulate", "--policy", "all", *ON, "--seeds", "2", "--first-seed", "5")
    assert [(row["policy"], row["seed"]) for row in found["rows"]] == [(p, s) for p in POLICIES for s in (5, 6)]
    for row, run in zip(found["rows"], found["runs"], strict=True):
        assert row["max_rho"] == run["max_rho"]
        assert row["share_over_1"]["fluid"] == run["by_definition"]["fluid"]["share_over_1"]
        assert row["completion_s"]["mean"] == run["completion_s"]["mean"]
        assert (row["gpu_time_s"], row["restarts"]) == (run["gpu_time_s"], run["restarts"])
    assert {ratio["policy"] for ratio in found["ratios"]} == set(POLICIES)
    medians = [ratio["median"] for ratio in found["ratios"]]
    assert medians == sorted(medians)


def test_many_policies_have_a_row_each_that_fits_100_columns(printed):
    _, out = printed("simulate", "--policy", "all", *ON)
    lines = out.out.splitlines()
    rows = lines[1 : lines.index("medians; --json has all figures")]
    assert lines[0].split()[:3] == ["policy", "max", "rho"]
    assert [row.split()[0] for row in rows] == list(POLICIES)
    assert max(map(len, lines[: len(rows) + 1])) <= 100


def test_all_policies_without_one_that_can_run_the_workload_give_its_error(printed):
    code, out = printed("simulate", "--policy", "all", *ON, "--checkpoint-s", "1000")
    assert (code, out.out) == (2, "")
    assert "writing a checkpoint takes longer" in out.err


# ---- explain --------------------------------------------------------------------------------------------------------


def test_explain_lists_every_round_of_app(printed, document):
    code, out = printed(*QUICK, "--explain", "app-01")
    found = document(*QUICK, "--explain", "app-01")["explained"]
    assert code == 0
    assert out.out.splitlines()[0] == f"app-01: {len(found['rounds'])} rounds"
    assert out.out.count("\n  no more: ") == len(found["rounds"])
    for each in found["rounds"]:
        assert each["why"]
        assert (each["payment"] is None) == (each["bid"] is None)


MIXED = ("simulate", "--cluster", "hybrid", "--workload", "conf/testbed/hybrid.yaml")


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("allox", ("  tenant: ", "  progress: ", "  time by type: ")),
        ("oef", ("  tenant: ", "  speedups: ", "  fair share: ", "  owed: ")),
    ],
)
def test_explain_has_what_the_policy_says_of_the_app(printed, document, policy, said):
    words = (*MIXED, "--policy", policy, "--explain", "digits-cpu")
    _, out = printed(*words)
    assert all(f"\n{label}" in out.out for label in said)
    assert "rho nan" not in out.out
    rounds = document(*words)["explained"]["rounds"]
    assert rounds[0]["policy"][0][0] == "Tenant"


def test_explain_adds_nothing_for_a_policy_that_explains_nothing(document):
    assert "policy" not in document(*QUICK, "--explain", "app-01")["explained"]["rounds"][0]


def test_table_counts_gpus_and_cpu_nodes(printed, document):
    _, out = printed(*MIXED, "--policy", "fair_finish")
    found = document(*MIXED, "--policy", "fair_finish")
    assert (found["cluster_gpus"], found["cluster_cpu_nodes"]) == (16, 8)
    assert " on hybrid (8 GPUs and 8 CPU nodes), seed " in out.out


# ---- record and replay ----------------------------------------------------------------------------------------------


def test_recording_is_reproducible_and_replayable(document, printed, tmp_path):
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    found = document(*QUICK, "--record", str(one))
    printed(*QUICK, "--record", str(two))
    assert one.read_bytes() == two.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.jsonl", "two.jsonl"]
    replayed = document("replay", str(one), "--policy", "themis", "--policy", "tiresias")
    assert deterministic(replayed["recorded"]) == deterministic(found)
    assert deterministic(replayed["replayed"][0]) == deterministic(found)
    tiresias = document("simulate", "--policy", "tiresias", *ON)
    assert deterministic(replayed["replayed"][1]) == deterministic(tiresias)
    _, out = printed("replay", str(one), "--policy", "tiresias")
    assert out.out.splitlines()[0].split() == ["of", "the", "run", "recorded:", "themis", "tiresias"]


def test_replay_changes_only_given_choice(document, tmp_path):
    path = tmp_path / "run.jsonl"
    document(*QUICK, "--f", "0.5", "--container-s", "60", "--record", str(path))
    replayed = document("replay", str(path), "--lease-s", "300")
    (found,) = replayed["replayed"]
    wanted = document(*QUICK, "--f", "0.5", "--container-s", "60", "--lease-s", "300")
    assert deterministic(found) == deterministic(wanted)


def test_replay_adds_lies_and_outages(document, printed, tmp_path):
    path, kept = tmp_path / "run.jsonl", ("--lie", "app-00:rows:2", "--outage", "m01:60:120")
    added = ("--lie", "app-01:rho:3", "--outage", "m02:90:300", "--outage", "m01:120:200")
    document(*QUICK, *kept, "--record", str(path))
    (found,) = document("replay", str(path), *added)["replayed"]
    assert deterministic(found) == deterministic(document(*QUICK, *kept, *added))
    assert deterministic(found) != deterministic(document(*QUICK, *added))
    code, out = printed("replay", str(path), "--outage", "m01:100:200")
    assert (code, "a machine cannot be lost while it is unavailable: 'm01:100:200'" in out.err) == (2, True)
    code, out = printed("replay", str(path), "--lie", "app-00:rho:3")
    assert (code, out.err) == (2, "themis: an app can have one lie only: 'app-00'\n")


def test_file_that_is_no_recording_is_refused(printed, tmp_path):
    path = tmp_path / "file"
    path.write_text('{"a": 1}\n')
    code, out = printed("replay", str(path), "--policy", "themis")
    assert code == 2
    assert "is no recording of a run" in out.err
    assert printed("replay", str(tmp_path), "--policy", "themis")[0] == 2
    assert printed("replay", str(tmp_path / "none"), "--policy", "themis")[0] == 2


def test_recording_is_written_to_target_of_link(printed, tmp_path):
    real, link = tmp_path / "real.jsonl", tmp_path / "link.jsonl"
    link.symlink_to(real)
    assert printed(*QUICK, "--record", str(link))[0] == 0
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8").startswith("{")
    assert sorted(tmp_path.iterdir()) == [link, real]


def test_recording_refuses_path_that_is_no_plain_file(printed, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    code, out = printed(*QUICK, "--record", str(pipe))
    assert (code, out.out) == (2, "")
    assert "it is no plain file" in out.err
    assert pipe.is_fifo()


def test_concurrent_recordings_leave_one_whole_file(tmp_path):
    path, mine = tmp_path / "run.jsonl", tmp_path / "run.jsonl.part"
    mine.write_text("somebody's own", encoding="utf-8")
    with opened_recording(path) as one, opened_recording(path) as other:
        cluster = cluster_named("testbed")
        workload = workload_named("w1-small", 1, cluster, apps=1, scale=100.0)
        run = Run(workload=workload, settings=Settings(cluster=cluster, record_rounds=True))
        record = make_run(run)
        one(run, record)
        whole = path.read_bytes()
        other(run, record)
    assert path.read_bytes() == whole
    assert sorted(tmp_path.iterdir()) == [path, mine]
    assert mine.read_text(encoding="utf-8") == "somebody's own"


def test_run_is_printed_if_recording_fails_for_lack_of_space(monkeypatch, printed, tmp_path):
    def full(*_):
        raise OSError(27, "File too large")

    monkeypatch.setattr(recording, "recording_lines", full)
    path = tmp_path / "run.jsonl"
    code, out = printed(*QUICK, "--record", str(path))
    assert code == 2
    assert "themis" in out.out
    assert f"cannot write the recording: '{path}'; File too large" in out.err
    assert list(tmp_path.iterdir()) == []


def test_interrupted_recording_leaves_no_file(monkeypatch, tmp_path, printed):
    monkeypatch.setattr("themis_cli.simulate_running.make_run", interrupt)
    code, out = printed(*QUICK, "--record", str(tmp_path / "run.jsonl"))
    assert (code, out.err) == (3, "themis: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def interrupt(*_):
    raise KeyboardInterrupt


# ---- progress and start ---------------------------------------------------------------------------------------------


def test_virtual_time_is_formatted_for_people():
    assert span(3661.9) == "01:01:01"
    assert span(2 * 86400 + 59) == "2 d 00:00:59"


def test_progress_without_terminal_is_an_occasional_line(capsys, monkeypatch):
    with Progress(4) as progress:
        progress.run_made(1, 4)
        progress.watch_apart(7, 20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("themis_cli.simulate_progress._PRINTED_EVERY_S", 0.0)
    with Progress(4) as progress:
        progress.run_made(1, 4)
        progress.watch_apart(7, 20)
    assert capsys.readouterr().err == "simulate: 1 of 4 runs, 7 of 20 apps\n"


def test_run_skips_slow_imports():
    program = (
        "import sys; from themis_cli.main import main; code = main(sys.argv[1:]);"
        "slow = {'pydantic', 'grpc', 'rich', 'matplotlib', 'yaml'} & sys.modules.keys();"
        "sys.exit(code or (f'imported: {slow}' if slow else 0))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *QUICK, "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
