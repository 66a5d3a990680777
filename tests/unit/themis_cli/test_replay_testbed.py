"""A run of the testbed, read from its folder and repeated in the simulator."""

import json

import pytest
from documents import ROOT

from themis.wire import themis_pb2 as pb
from themis.wire.values import app_to_message
from themis_cli.main import main
from themis_lab.testbed.facts import Ending, RunFacts, write_facts
from themis_lab.testbed.mix import arrivals, load_mix
from themis_lab.testbed.run_folder import RunFolder
from themis_lab.testbed.statuses import write_statuses

SMALL = ROOT / "conf/testbed/small.yaml"
BEGAN_S = 1.7e9
SETTINGS = """\
cluster: gone.yaml
policy: tiresias
time_scale: 30
seed: 9
lease: {duration_s: 5, checkpoint_lead_s: 1, grace_s: 8}
auction: {f: 0.5}
"""


@pytest.fixture
def folder(tmp_path):
    """Make the folder of a run of the small mix. Each app took 20 s, and its rho is its position."""
    run, mix = RunFolder(tmp_path), load_mix(SMALL)
    run.cluster.write_bytes(mix.cluster.read_bytes())
    run.settings.write_text(SETTINGS)
    run.events.write_text("")
    write_statuses(run.apps, [status(place, arrival) for place, arrival in enumerate(arrivals(mix), start=1)])
    facts = RunFacts(
        mix="small",
        policy="tiresias",
        seed=9,
        time_scale=30.0,
        expected_apps=3,
        ending=Ending.ALL_ENDED,
        wall_s=30.0,
        time_limit_s=90.0,
    )
    write_facts(run.facts, facts)
    return tmp_path


def status(place, arrival):
    submitted_s = BEGAN_S + arrival.at_s
    return pb.AppStatus(
        app_id=f"app-{place}",
        name=arrival.spec.name,
        state="FINISHED",
        spec=app_to_message(arrival.spec),
        submitted_at_s=submitted_s,
        finished_at_s=submitted_s + 20.0,
        final_rho={"themis": float(place), "isolated_share": 2.0 * place},
    )


def test_live_run_is_simulated_with_its_arrivals(folder, capsys):
    assert main(["replay", str(folder), "--policy", "themis", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    recorded, (replayed,) = output["recorded"], output["replayed"]
    assert recorded["max_rho"] == {"themis": 3.0, "isolated_share": 6.0}
    assert (recorded["policy"], recorded["cluster_gpus"], recorded["seed"]) == ("tiresias", 8, 9)
    assert recorded["completion_s"]["mean"] == 20.0
    assert recorded["makespan_s"] == 23.0
    assert (replayed["policy"], replayed["cluster_gpus"], replayed["seed"]) == ("themis", 8, 9)
    names = [[app["name"] for app in each["apps"]] for each in (recorded, replayed)]
    assert names[0] == names[1] == ["digits-small", "small-search", "small-pair"]
    assert [app["submitted_at_s"] for app in replayed["apps"]] == [0.0, 1.0, 3.0]


def test_unmeasured_values_are_shown_as_unknown(folder, capsys):
    assert main(["replay", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["of", "the", "run", "recorded:", "tiresias", "tiresias"]
    (bound,) = [line for line in lines if line.startswith("largest bound of rho")]
    assert bound.split()[-2] == "-", bound


def test_run_without_apps_is_refused(folder, capsys):
    (folder / "apps.json").write_text("[]")
    assert main(["replay", str(folder)]) == 2
    assert "the run has no apps to play again: 'small'" in capsys.readouterr().err
