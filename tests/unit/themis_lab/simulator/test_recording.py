"""Recordings hold the whole input, give it back, have no wall time in them, and are refused when they are damaged."""

import json
import math

import pytest
from msgspec.structs import replace
from sim_cases import app, cluster, job, settings, workload

from rm_plugin.arbiter.core import LeasePolicy
from tf_jobs.tables_reader import nearest_curve
from themis.apps import TunerSpec
from themis.choices import BundleRule, EmptyBundle, LeaseEnds
from themis.errors import InputError
from themis.rho import RhoDefinition
from themis_lab.simulator.json_codec import Decoder, plain
from themis_lab.simulator.metrics import metrics_of
from themis_lab.simulator.recording import CURVES, parse_recording, recording_lines
from themis_lab.simulator.runs import LieChoice, Run, make_run
from themis_lab.simulator.settings import NodeOutage, Settings
from themis_lab.simulator.workload import Curve, LossCurve
from themis_lab.simulator.workloads.mix import ReplayedCurve

TWO = cluster((2, 2), (2, 2))


def small_run(**others):
    searching = app("b", job("j0", gpus=2), job("j1", gpus=2), at_s=50.0, tuner=TunerSpec(name="successive_halving"))
    apps = workload(app("a", job(gpus=2)), searching)
    return Run(workload=apps, settings=settings(TWO, record_rounds=True, **others))


def recorded(run):
    return "".join(recording_lines(run, make_run(run)))


@pytest.fixture(scope="module")
def text():
    return recorded(small_run())


def test_the_same_input_gives_the_same_bytes(text):
    assert recorded(small_run()) == text
    assert recorded(small_run(seed=2)) != text


def test_a_recording_gives_back_its_input_rounds_and_outcomes(text):
    run = small_run()
    found, record = parse_recording(text, "here"), make_run(run)
    assert found.run == run
    assert (found.record.rounds, found.record.apps) == (record.rounds, record.apps)
    assert metrics_of(found.record) == metrics_of(record)
    assert "".join(recording_lines(found.run, found.record)) == text


def test_a_run_made_from_a_recording_is_the_run_that_was_recorded(text):
    assert recorded(parse_recording(text, "here").run) == text


def test_gaps_are_recorded_if_present(text):
    assert "gaps" not in text
    run = small_run()
    run = replace(run, workload=replace(run.workload, gaps="one job: left out"))
    assert parse_recording(recorded(run), "here").run == run


def test_every_choice_comes_back():
    chosen = Settings(
        cluster=TWO,
        policy="tiresias",
        seed=3,
        leases=LeasePolicy(duration_s=60.0, ends=LeaseEnds.STAGGERED),
        bundle_rule=BundleRule.IDLE_THEN_SHARE,
        outages=(NodeOutage(machine_id="m0", lost_at_s=1.0, back_at_s=2.0),),
    )
    chosen = replace(chosen, rounds=replace(chosen.rounds, empty_bundle=EmptyBundle.LEXICOGRAPHIC, payments=False))
    assert Decoder().restored(Settings, json.loads(json.dumps(plain(chosen))), "settings") == chosen
    lies = (LieChoice(app="a", kind="rows", factor=2.0),)
    run = replace(small_run(), error=0.2, lies=lies)
    assert parse_recording(recorded(run), "here").run == run


@pytest.mark.parametrize(
    "curve",
    [
        LossCurve(floor=0.1, power=0.5),
        ReplayedCurve(recorded=nearest_curve("digits_cnn", 0.05), iterations=500, log_every=20),
    ],
)
def test_curves_of_every_kind_come_back(curve):
    written = json.loads(json.dumps(plain(curve, CURVES)))
    assert Decoder({Curve: CURVES}).restored(Curve, written, "curve") == curve


@pytest.mark.parametrize("wrong", [{"floor": math.nan}, {"drop": -1.0}, {"scale": 0.0}, {"power": math.nan}])
def test_a_loss_that_is_no_number_is_refused(wrong):
    with pytest.raises(InputError, match="a loss needs a finite floor"):
        LossCurve(**wrong)


def test_numbers_that_json_has_no_word_for_are_written_as_text():
    endless = LossCurve(scale=float("inf"))
    assert plain(endless)["scale"] == "inf"
    assert Decoder().restored(LossCurve, plain(endless), "curve") == endless


def test_no_wall_time_is_in_it(text):
    kinds = [json.loads(line)["line"] for line in text.splitlines()]
    assert kinds[0] == "header"
    assert kinds[-1] == "end"
    assert set(kinds) == {"header", "round", "app", "end"}
    assert not any(word in text for word in ("wall_s", "peak_memory", "bid_s", "auction_s"))


def changed(text, line, **content):
    lines = [json.loads(each) for each in text.splitlines()]
    lines[line] |= content
    return "\n".join(json.dumps(each) for each in lines)


def moved(text, line, to):
    lines = text.splitlines()
    lines.insert(to, lines.pop(line))
    return "\n".join(lines)


def without(text, kind):
    return "\n".join(line for line in text.splitlines() if json.loads(line)["line"] != kind)


def twice_the_job(text):
    workload = json.loads(text.splitlines()[0])["workload"]
    workload["apps"][0]["jobs"] *= 2
    return changed(text, 0, workload=workload)


OUTAGE = {"machine_id": "m0", "lost_at_s": math.nan, "back_at_s": 9.0}


def set_to(text, value, *path):
    """The recording with another value of a setting; Python's JSON has words for numbers that are none."""
    settings = json.loads(text.splitlines()[0])["settings"]
    inside = settings
    for key in path[:-1]:
        inside = inside[key]
    assert isinstance(inside, list) or path[-1] in inside
    inside[path[-1]] = value
    return changed(text, 0, settings=settings)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: "", "here is no recording of a run"),
        (lambda text: "[1]", "here, line 1 is no JSON object"),
        (lambda text: text[: len(text) // 2], "is no JSON|is cut short"),
        (lambda text: text.splitlines()[0], "here is cut short"),
        (lambda text: changed(text, 0, version=2), "of another version: 2; this version reads"),
        (lambda text: changed(text, 0, settings={"polcy": 1}), "unknown key of here, line 1: settings: 'polcy'"),
        (lambda text: changed(text, 0, error="x"), "here, line 1: error does not fit: 'x'"),
        (lambda text: changed(text, 0, lies=5), "here, line 1: lies must be a list: 5"),
        (lambda text: changed(text, -2, gpu_time_s=-1.0), "here is damaged: figures of app "),
        (lambda text: "[" * 100_000, "here, line 1 is no JSON"),
        (lambda text: changed(text, 1, now_s="soon"), "here, line 2.now_s does not fit: 'soon'"),
        (lambda text: text.replace('{"line":"round"', '{"line":"rond"'), "unknown kind of here, line 2: 'rond'"),
        (lambda text: moved(text, 1, 2), "line 3: rounds must be in their order: 1"),
        (lambda text: moved(text, 1, -2), "is out of its place: 'app'|is out of its place: 'round'"),
        (lambda text: text + text.splitlines()[-1], "is out of its place: 'end'"),
        (lambda text: text.splitlines()[0] + "\n" + text, "here, line 2 is out of its place: 'header'"),
        (lambda text: changed(text, -2, bound="nan"), "here is damaged: figures of app"),
        (lambda text: changed(text, -2, ideal_gpu_s=math.inf), "here is damaged: figures of app"),
        (lambda text: without(text, "round"), r"here is damaged: rounds are missing: \(0, "),
        (lambda text: changed(text, -1, makespan_s=-1.0), "here is damaged: the makespan: -1.0"),
        (
            lambda text: changed(text, -1, cluster_gpus=5),
            "damaged: its header, settings and end differ in the GPUs of the cluster",
        ),
        (lambda text: changed(text, -2, rho=dict.fromkeys(RhoDefinition, 1e308)), "damaged: figures of app"),
        (lambda text: twice_the_job(text), "here, line 1: workload.apps.*: two jobs of an app share one id"),
        (
            lambda text: changed(text, 0, policy="foo"),
            "damaged: its header, settings and end differ in the policy: .*'foo'",
        ),
        (
            lambda text: changed(text, -1, policy="foo"),
            "damaged: its header, settings and end differ in the policy: .*'foo'",
        ),
        (
            lambda text: changed(text, 0, policy=["themis"]),
            r"damaged: its header, settings and end differ in the policy: .*\['themis'\]",
        ),
        (lambda text: changed(text, 0, policy={}), "damaged: its header, settings and end differ in the policy: "),
        (lambda text: changed(text, -1, makespan_s=10**400), "makespan_s does not fit: 1000"),
        (lambda text: changed(text, -1, counts={"empty_bids": -(10**400)}), "counts.empty_bids does not fit: -1000"),
        (lambda text: changed(text, 0, seed=7), "damaged: its header, settings and end differ in the seed: .*7"),
        (
            lambda text: changed(text, -1, workload="foo"),
            "damaged: its header, settings and end differ in the workload: .*'foo'",
        ),
        (lambda text: changed(text, -1, counts={"rounds": 0.5}), "counts.rounds does not fit: 0.5"),
        (lambda text: set_to(text, math.nan, "costs", "restore_s"), "settings.costs: restore_s must be .*: nan"),
        (lambda text: set_to(text, "inf", "costs", "container_s"), "settings.costs: container_s must be .*: inf"),
        (lambda text: set_to(text, -1.0, "costs", "checkpoint_s"), "settings.costs: checkpoint_s must be .*: -1.0"),
        (lambda text: set_to(text, math.nan, "coalesce_s"), "settings: coalesce_s must be 0 to a day"),
        (
            lambda text: set_to(text, math.nan, "leases", "duration_s"),
            "settings.leases: a lease must be longer",
        ),
        (
            lambda text: set_to(text, 9e9, "leases", "checkpoint_lead_s"),
            "settings.leases: a lease must be longer",
        ),
        (lambda text: set_to(text, -1.0, "leases", "grace_s"), "settings.leases: the grace must be 0 s or more: -1.0"),
        (lambda text: set_to(text, 2.0, "rounds", "f"), "settings.rounds: f must lie in 0 to 1: 2.0"),
        (lambda text: set_to(text, 10**18, "cluster", "machines", 0, "slots", 0), "too many GPUs in a cluster"),
        (lambda text: set_to(text, [OUTAGE], "outages"), r"settings.outages\[0\]: an outage must begin .*nan"),
    ],
)
def test_a_damaged_recording_is_refused_by_its_place(text, damage, message):
    with pytest.raises(InputError, match=message):
        parse_recording(damage(text), "here")


def test_a_lie_of_an_unknown_app_is_refused():
    with pytest.raises(InputError, match="unknown app"):
        replace(small_run(), lies=(LieChoice(app="c", kind="rho", factor=2.0),))
    with pytest.raises(InputError, match="one lie only"):
        replace(small_run(), lies=(LieChoice(app="a", kind="rho", factor=2.0),) * 2)
    with pytest.raises(
        InputError, match=r"factor of a lie must be from 1/1,000,000 to 1,000,000: 0\.0; 1 is the truth"
    ):
        LieChoice(app="a", kind="rho", factor=0.0)
    assert LieChoice(app="a", kind="slowdown", factor=0.0).factor == 0.0
    with pytest.raises(InputError, match=r"must be from 0 to 1,000,000: -0\.1; 0 is the truth"):
        LieChoice(app="a", kind="slowdown", factor=-0.1)
    with pytest.raises(InputError, match="unknown lie"):
        LieChoice(app="a", kind="rhoo", factor=2.0)
