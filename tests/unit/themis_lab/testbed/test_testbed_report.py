"""The report and its page: content, and no external resources."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console
from synthetic_run import LIMITS, SampleApp, SyntheticRun

from themis.cluster import DeviceType
from themis.config.defaults import DEFAULT_POLICY
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.errors import InputError
from themis.wire import themis_pb2 as pb
from themis_lab.testbed.audit import audit
from themis_lab.testbed.colours import app_colours
from themis_lab.testbed.events import Event
from themis_lab.testbed.facts import Ending, RunFacts, read_facts, write_facts
from themis_lab.testbed.live import Display, Snapshot, headline, plain_line, table
from themis_lab.testbed.outcome import failed_conditions, print_outcome
from themis_lab.testbed.page import page
from themis_lab.testbed.report import Report, build_report, write_report
from themis_lab.testbed.run_record import RunRecord, audit_input, audit_limits
from themis_lab.testbed.sampler import ProcessPeaks
from themis_lab.testbed.statuses import read_statuses, write_statuses

FACTS = RunFacts(
    mix="tiny",
    policy="themis",
    seed=1,
    time_scale=30.0,
    expected_apps=3,
    ending=Ending.ALL_ENDED,
    wall_s=60.0,
    time_limit_s=90.0,
    processes=ProcessPeaks(count=9, rss_bytes=2**30, pss_bytes=2**29, samples=4),
)
VOID = {"meta", "link", "br", "hr", "img", "path", "use", "rect", "circle", "line"}


@pytest.fixture(scope="module")
def record() -> RunRecord:
    apps = [
        SampleApp(name="trained", jobs=2, tasks=1, iterations=200, replay=False),
        SampleApp(name="one & two <3>", jobs=3, tasks=2, iterations=400, at_s=5.0),
        SampleApp(name="late", jobs=1, tasks=4, iterations=300, at_s=12.0),
    ]
    run = SyntheticRun(apps, seed=4)
    cluster = replace(run.cluster, devices={"gpu": DeviceType(name="gpu", emulated=True)})
    lease = LeaseSettings(duration_s=LIMITS.lease_s, checkpoint_lead_s=2, grace_s=LIMITS.grace_s)
    return RunRecord(
        events=tuple(run.events),
        apps=tuple(run.statuses()),
        settings=RmSettings(cluster=Path("cluster.yaml"), lease=lease),
        cluster=cluster,
        facts=FACTS,
    )


@pytest.fixture(scope="module")
def report(record: RunRecord) -> Report:
    apps = [SampleApp(name="trained", jobs=2, tasks=1, iterations=200, replay=False)]
    return build_report(record, audit(SyntheticRun(apps).audit_input()))


@pytest.fixture(scope="module")
def text(record: RunRecord, report: Report) -> str:
    return page(record, report)


@pytest.fixture(scope="module")
def mixed(record: RunRecord) -> RunRecord:
    """The same run, on a cluster whose first machine is of another type."""
    first, *others = record.cluster.machines
    devices = {**record.cluster.devices, "old": DeviceType(name="old", speed=0.5)}
    cluster = replace(record.cluster, machines=(replace(first, device="old"), *others), devices=devices)
    apps = []
    for app in record.apps:
        status = pb.AppStatus()
        status.CopyFrom(app)
        status.user = "ann"
        if app.replay:
            for job in status.jobs:
                job.speeds.add(device="gpu", speed=1.0)
                job.speeds.add(device="old", speed=0.25, measured=job is status.jobs[-1])
        else:
            status.jobs[0].speeds.add(device="gpu", speed=1.0)
        apps.append(status)
    return replace(record, cluster=cluster, apps=tuple(apps))


def test_report_divides_use_and_speeds_by_device_type(mixed: RunRecord):
    report = build_report(mixed, audit(audit_input(mixed)))
    counts = {name: device["count"] for name, device in report["cluster"]["devices"].items()}
    assert counts == mixed.cluster.gpus_by_device
    by_device = report["utilisation"]["by_device"]
    for name in ("leased", "running"):
        whole = sum(by_device[device][name] * count for device, count in counts.items()) / mixed.cluster.gpus
        assert whole == pytest.approx(report["utilisation"][name])
    for app in report["apps"]:
        assert sum(app["gpu_time_s_by_device"].values()) == pytest.approx(app["gpu_time_s"])
    assert report["apps"][0]["speeds"] == {"gpu": {"speed": 1.0, "measured": False}}
    assert report["apps"][1]["speeds"]["old"] == {"speed": 0.25, "measured": True}


def test_page_shows_device_types(mixed: RunRecord, text: str):
    report = build_report(mixed, audit(audit_input(mixed)))
    shown = page(mixed, report)
    for part in ("Devices by app and type", "Device types", "Speeds", "0.25, measured", "cannot run", "ann"):
        assert part in shown
        assert part not in text
    old, new = mixed.cluster.gpus_by_device["old"], mixed.cluster.gpus_by_device["gpu"]
    assert f"{old} GPUs of type <b>old</b>, {new} emulated GPUs of type <b>gpu</b>" in shown
    console = Console(file=StringIO(), width=200)
    print_outcome(report, [], console)
    assert f"3 apps on {old} old + {new} gpu under themis" in console.file.getvalue()


def test_report_has_documented_keys(report: Report, record: RunRecord):
    promised = (
        "apps max_rho rounds overheads invariants cluster policy time_scale seed wall_s processes "
        "share_of_gpus_by_leftovers empty_bids"
    )
    assert set(promised.split()) <= set(report)
    assert report["cluster"] == {"name": "sample", "gpus": 20, "machines": 6, "racks": 3, "emulated": True} | {
        "devices": {"gpu": {"kind": "gpu", "count": 20, "speed": 1.0, "emulated": True}}
    }
    assert report["utilisation"]["by_device"] == {
        "gpu": {name: report["utilisation"][name] for name in ("leased", "running")}
    }
    assert [app["kind"] for app in report["apps"]] == ["real", "replay", "replay"]
    for app in report["apps"]:
        assert {"tuner", "jobs", "state", "restarts", "resizes", "completion_s", "queueing_s"} <= set(app)
        assert 0 < app["placement_score"] <= 1
        assert app["gpu_time_s"] > 0
    rho = [app["rho"]["themis"] for app in report["apps"]]
    assert report["max_rho"]["themis"] == max(rho)
    best = report["apps"][0]["best"]
    assert {"job_id", "hyper_parameters", "accuracy", "loss", "checkpoint"} <= set(best)
    assert report["rounds"] == sum(event.kind == "round_ended" for event in record.events)
    assert 0 < report["utilisation"]["running"] <= report["utilisation"]["leased"] <= 1


def test_report_is_strict_json(report: Report, tmp_path: Path):
    write_report(tmp_path / "report.json", report)

    def refuse(word: str) -> float:
        raise AssertionError(word)

    loaded = json.loads((tmp_path / "report.json").read_text(), parse_constant=refuse)
    assert loaded["max_rho"] == report["max_rho"]


class Checker(HTMLParser):
    """Checks that all tags are closed, and collects ids and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.addresses.append(value)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def test_page_is_valid_and_self_contained(text: str):
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert len(checker.ids) == len(set(checker.ids))
    assert all(address.startswith("#") and address[1:] in checker.ids for address in checker.addresses)
    assert "<script" not in text
    assert not re.search(r"@import|url\((?!#)", text)


def test_page_states_emulation_and_replay(text: str):
    assert "All 20 GPUs are <b>emulated</b>" in text
    assert "<b>trained</b> trains with TensorFlow" in text
    assert "The other 2 apps are <b>replayed</b>" in text
    assert text.count('class="kind replay"') >= 4


def test_wide_tables_are_stacked_on_narrow_screens(text: str):
    wide = [part for part in text.split('<div class="')[1:] if part.startswith("scroll") and part.count("<th ") > 5]
    assert wide and all(part.startswith("scroll stacked") for part in wide)
    assert '<td class="" data-head="app">' in text


def test_definitions_of_rho_are_a_list(text: str):
    assert "<dt><code>fluid</code></dt><dd>the time on an ideal cluster that all apps share fairly" in text


def test_user_names_are_escaped(text: str):
    assert "one &amp; two &lt;3&gt;" in text
    assert "<3>" not in text


def test_troubles_are_told_in_sentences(record: RunRecord, report: Report, text: str):
    event = Event(
        sequence=10**6, time_s=record.events[0].time_s + 3.0, kind="job_restarted", app_id=record.apps[0].app_id
    )
    lost = replace(event, detail={"job_id": "job-7", "reason": "<gone>"})
    troubled = page(replace(record, events=(*record.events, lost)), report)
    assert "job-7 is started again: &lt;gone&gt;" in troubled
    assert "&lt;gone&gt;" not in text


@pytest.mark.parametrize("title", ["Fairness over time", "What the real apps learn"])
def test_lines_differ_by_more_than_colour(text: str, title: str):
    figure = text.partition(f"<h2>{title}</h2>")[2].partition("</section>")[0]
    # The fair share is dashed too.
    assert len(re.findall("stroke-dasharray", figure)) > 1


def test_page_supports_light_and_dark(text: str):
    assert "prefers-color-scheme: dark" in text
    assert "#010203" not in text
    assert "#040506" not in text
    assert "var(--ink)" in text


def test_page_is_reproducible(record: RunRecord, report: Report, text: str):
    assert page(record, report) == text


def test_run_that_never_began_has_a_page(record: RunRecord):
    facts = replace(FACTS, ending=Ending.RM_FAILED, trouble="it fell over")
    empty = replace(record, events=record.events[:1], apps=(), facts=facts)
    bare = build_report(empty, audit(SyntheticRun([]).audit_input()))
    assert "it fell over" in page(empty, bare)


def test_colours_differ_for_any_number_of_apps():
    colours = app_colours(f"app{number}" for number in range(30))
    assert len(set(colours.values())) == 30
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in colours.values())


# ---- outcome


def test_successful_run_has_no_failed_condition(report: Report):
    assert failed_conditions(report) == []
    text = StringIO()
    print_outcome(report, [], Console(file=text, width=120))
    assert "trained: best model job-01" in text.getvalue()
    assert "3 apps on 20 emulated GPUs under themis" in text.getvalue()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ending": "the time limit was reached"}, "cut short: the time limit"),
        ({"ending": "the time limit was reached"}, "; raise `time_limit_s`"),
        ({"expected_apps": 5}, "2 of 5 apps were never submitted"),
        ({"invariants": {"checks": {}, "violations": ["x: y"], "measured": {}}}, "audit: x: y"),
    ],
)
def test_each_condition_can_fail(report: Report, change: dict, words: str):
    assert any(words in text for text in failed_conditions({**report, **change}))


def test_leftover_processes_fail_run(report: Report):
    processes = {**report["processes"], "left_over": [7]}
    assert failed_conditions({**report, "processes": processes}) == ["processes would not end: [7]"]


@pytest.mark.parametrize("best", [None, {"accuracy": None}])
def test_real_app_without_best_model_fails_run(report: Report, best):
    apps = [{**report["apps"][0], "best": best}, *report["apps"][1:]]
    assert any("names no best model" in text for text in failed_conditions({**report, "apps": apps}))


def test_replayed_app_needs_no_best_model(report: Report):
    apps = [report["apps"][0], *({**app, "best": None} for app in report["apps"][1:])]
    assert failed_conditions({**report, "apps": apps}) == []


# ---- what is kept, and what is shown meanwhile


def test_statuses_read_back(record: RunRecord, tmp_path: Path):
    write_statuses(tmp_path / "apps.json", record.apps)
    assert read_statuses(tmp_path / "apps.json") == record.apps


def test_facts_read_back(tmp_path: Path):
    write_facts(tmp_path / "run.json", FACTS)
    assert read_facts(tmp_path / "run.json") == FACTS


@pytest.mark.parametrize("text", ["", "[]", '{"mix": "x"}'])
def test_invalid_facts_are_refused(tmp_path: Path, text: str):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InputError):
        read_facts(tmp_path / "run.json")


def test_round_bounds_come_from_settings(record: RunRecord):
    limits = audit_limits(record.settings, 0)
    assert limits.round_s == pytest.approx(1.0 + 2.0 + 5.0 + 10.0 + 3.5)
    assert (limits.lease_s, limits.policy, limits.f) == (LIMITS.lease_s, DEFAULT_POLICY, 0.8)


def snapshot() -> Snapshot:
    jobs = [pb.JobStatus(job_id="a", state="RUNNING"), pb.JobStatus(job_id="b", state="STOPPED")]
    running = pb.AppStatus(name="one", state="RUNNING", gpus=3, progress=0.25, rho=1.5, jobs=jobs, phase=1, phases=3)
    ended = pb.AppStatus(name="two", state="FINISHED", replay=True, progress=1.0)
    cluster = pb.ClusterStatus(gpus=64, gpus_leased=3, rounds=7)
    return Snapshot(elapsed_s=12.4, apps=[running, ended], cluster=cluster, expected=5, processes=9)


def test_progress_line_summarises_run():
    line = plain_line(snapshot())
    assert headline(snapshot()) in line
    assert "3 of 64 GPUs leased  round 7  apps 1 ended, 1 active, 3 to come  9 processes" in line
    assert line.endswith("| one 3 GPUs 25%")


def test_progress_table_has_every_app():
    text = StringIO()
    Console(file=text, width=120).print(table(snapshot()))
    one, two = text.getvalue().splitlines()[1:3]
    assert one.split() == ["one", "real", "RUNNING", "2/3", "1", "1/2", "3", "1.50", "25", "%"]
    assert two.split()[:3] == ["two", "replay", "FINISHED"]


def test_progress_without_terminal_is_an_occasional_line():
    text = StringIO()
    with Display(Console(file=text, width=80)) as display:
        for elapsed_s in (0.0, 1.0, 4.9, 5.1, 6.0):
            display.show(replace(snapshot(), elapsed_s=elapsed_s))
    assert len(text.getvalue().splitlines()) == 2


def test_progress_table_on_terminal_is_removed_at_end():
    text = StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    with Display(console) as display:
        display.show(snapshot())
    assert "one" in text.getvalue()
