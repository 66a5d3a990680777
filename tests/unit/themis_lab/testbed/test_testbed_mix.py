"""Mix files: the built-in ones, and refused ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from themis.config.cluster_file import load_cluster
from themis.errors import InputError
from themis_lab.testbed.driver import plan_run
from themis_lab.testbed.mix import arrivals, load_mix, rm_settings

ROOT = Path(__file__).parents[4]
MIXES = sorted((ROOT / "conf" / "testbed").glob("*.yaml"))
GROUP = """
name: first
program: replay
arguments: {model: resnet50}
job: {tasks: 2, iterations: 10}
hyper_parameters:
  - {learning_rate: 0.1}
"""
MIX = """
name: tiny
time_scale: 30
cluster: cluster.yaml
lease: {duration_s: 5, checkpoint_lead_s: 1, grace_s: 2}
apps:
  - {group: group.yaml, at_s: 2}
"""
CLUSTER = """
name: one
devices: {gpu: {kind: gpu, emulated: true}}
machines: [{prefix: m, count: 1, slots: [2], racks: [r]}]
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "mix.yaml").write_text(MIX)
    (tmp_path / "group.yaml").write_text(GROUP)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return tmp_path


@pytest.mark.parametrize("path", MIXES, ids=lambda path: path.stem)
def test_every_built_in_mix_is_runnable(path: Path):
    plan = plan_run(load_mix(path), "themis", None)
    cluster = load_cluster(plan.setup.cluster)
    for arrival in plan.arriving:
        for job in arrival.spec.jobs:
            assert job.shape.demand_min_gpus <= cluster.gpus
            assert job.shape.gpus_per_task <= cluster.largest_machine_gpus
    # `tenants` and `forty` are compared with the simulator, whose jobs are all replayed.
    assert path.stem in ("tenants", "forty") or any(not arrival.spec.replay for arrival in plan.arriving)
    assert any(arrival.spec.replay for arrival in plan.arriving)


def test_main_mix_matches_documented_experiment():
    mix = load_mix(ROOT / "conf" / "testbed" / "main.yaml")
    specs = [arrival.spec for arrival in arrivals(mix)]
    assert load_cluster(mix.cluster).gpus == 64
    assert mix.time_limit_s <= 360
    assert sum(not spec.replay for spec in specs) >= 2
    replayed = [spec for spec in specs if spec.replay]
    assert len(replayed) >= 8
    assert len({spec.program.arguments["model"] for spec in replayed}) >= 6
    assert {len(spec.jobs) for spec in replayed} >= {1, 12}
    assert max(spec.jobs[0].shape.tasks for spec in replayed) == 8
    assert sum(spec.demand_max_gpus for spec in specs) >= 2 * 64
    # TensorFlow processes are heavy: no more than these at once, whatever is granted.
    assert max(spec.demand_max_gpus for spec in specs if not spec.replay) <= 5


def test_replayed_apps_estimate_measured_times():
    from tf_jobs.tables_reader import model_speed

    for arrival in arrivals(load_mix(ROOT / "conf" / "testbed" / "main.yaml")):
        spec = arrival.spec
        if spec.replay:
            speed = model_speed(str(spec.program.arguments["model"]))
            assert spec.estimate.serial_iteration_s == pytest.approx(speed.serial_iteration_time_s)
            slowdown = spec.estimate.slowdown
            assert slowdown is not None
            reported = {
                "slot": slowdown.slot,
                "machine": slowdown.machine,
                "rack": slowdown.rack,
                "cluster": slowdown.cluster,
            }
            assert reported == pytest.approx(speed.slowdown)


def test_mixes_have_no_absolute_paths():
    for path in [*MIXES, *(ROOT / "conf" / "testbed" / "apps").glob("*.yaml")]:
        words = path.read_text().replace(",", " ").replace("}", " ").split()
        assert not [word for word in words if word.startswith("/")], path


def test_paths_are_relative_to_mix(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir("/")
    (arrival,) = arrivals(load_mix(place / "mix.yaml"))
    assert (arrival.at_s, arrival.spec.name, arrival.spec.replay) == (2.0, "first", True)


def test_app_can_be_renamed(place: Path):
    text = MIX + "  - {group: group.yaml, name: second}\n"
    (place / "mix.yaml").write_text(text)
    assert [arrival.spec.name for arrival in arrivals(load_mix(place / "mix.yaml"))] == ["second", "first"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("time_scale", "timescale", "did you mean 'time_scale'"),
        ("at_s: 2", "at_s: -2", "greater than or equal to 0"),
        ("apps:\n  - {group: group.yaml, at_s: 2}", "apps: []", "at least 1"),
        ("at_s: 2}", "at_s: 2, naem: x}", "did you mean 'name'"),
        ("checkpoint_lead_s: 1", "checkpoint_lead_s: 9", "shorter than"),
    ],
)
def test_invalid_mix_is_refused(place: Path, old: str, new: str, words: str):
    (place / "mix.yaml").write_text(MIX.replace(old, new))
    with pytest.raises(InputError, match=words):
        load_mix(place / "mix.yaml")


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("  - {group: group.yaml}\n", "share a name"),
        ("  - {group: nowhere.yaml}\n", "cannot read"),
        ("  - {group: group.yaml, name: Not Good}\n", "a name is up to 63"),
    ],
)
def test_impossible_apps_are_refused(place: Path, extra: str, words: str):
    (place / "mix.yaml").write_text(MIX + extra)
    with pytest.raises(InputError, match=words):
        arrivals(load_mix(place / "mix.yaml"))


def test_mix_sets_resource_manager_settings(place: Path):
    (place / "mix.yaml").write_text(MIX + "rm: {coalesce_s: 0.25, auction: {f: 0.5}}\n")
    mix = load_mix(place / "mix.yaml")
    settings = rm_settings(mix, policy="drf", seed=9, cluster=Path("c.yaml"), state_dir=Path("state"))
    assert (settings.policy, settings.seed, settings.listen) == ("drf", 9, "127.0.0.1:0")
    assert (settings.coalesce_s, settings.auction.f, settings.lease.duration_s) == (0.25, 0.5, 5.0)
    assert settings.time_scale == 30.0


@pytest.mark.parametrize(("rm", "words"), [("{seed: 3}", "cannot be set under rm"), ("{coalesce: 3}", "did you mean")])
def test_settings_reserved_for_testbed_are_refused(place: Path, rm: str, words: str):
    (place / "mix.yaml").write_text(MIX + f"rm: {rm}\n")
    mix = load_mix(place / "mix.yaml")
    with pytest.raises(InputError, match=words):
        rm_settings(mix, policy="themis", seed=0, cluster=Path("c"), state_dir=Path("s"))
