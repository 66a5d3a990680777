"""The shipped tables, their reader, the tool that derives them, and the pace of an emulated job."""

import csv
import importlib.util
from pathlib import Path

import pytest

from tf_jobs.pace import NOISE_SHARE, Pace
from tf_jobs.tables_reader import (
    FAMILIES,
    OTHER_FAMILY,
    TABLES,
    Curve,
    model_speed,
    nearest_curve,
    parse_slowdown,
    parse_speeds,
    read_speeds,
)
from themis.errors import InputError

ROOT = Path(__file__).parents[3]


def test_the_shipped_speeds_are_sane():
    speeds = read_speeds()
    assert len(speeds) >= 8
    for speed in speeds.values():
        s = speed.slowdown
        assert 1.0 == s["slot"] <= s["machine"] <= s["rack"] <= s["cluster"]
        assert speed.serial_iteration_time_s > 0.0
    assert speeds["resnet50"].slowdown["rack"] < 1.1, "not placement-strict"
    assert speeds["yolov3"].slowdown["rack"] > 2.0, "placement-strict"


def test_iteration_time_follows_the_paper():
    speed = model_speed("bert")
    serial = speed.serial_iteration_time_s
    assert speed.iteration_time_s(4, "rack") == pytest.approx(serial * speed.slowdown["rack"] / 4)
    assert speed.iteration_time_s(1, "cluster") == serial, "one GPU does not communicate"


def test_tables_are_small_and_name_their_sources():
    assert sum(path.stat().st_size for path in TABLES.iterdir()) < 300_000
    reported = (TABLES / "SOURCES.md").read_text()
    assert all(path.name in reported for path in TABLES.glob("*.csv"))
    assert all(model in reported for model in read_speeds())


def test_an_unknown_model_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        model_speed("resnet5")


def test_slowdowns_given_by_hand():
    assert parse_slowdown("1,1.5,2,3") == {"slot": 1.0, "machine": 1.5, "rack": 2.0, "cluster": 3.0}


@pytest.mark.parametrize("text", ["1,2,3", "1,3,2,4", "0.5,1,1,1", "a,b,c,d", "1,2,3,inf", "nan,1,1,1"])
def test_slowdowns_that_do_not_parse(text):
    with pytest.raises(InputError):
        parse_slowdown(text)


@pytest.mark.parametrize("text", ["k80", "k80=", "k80=0", "k80=-1", "k80=inf", "k80=nan", "=2", "k80=1,", "k80:1"])
def test_speeds_that_do_not_parse(text):
    with pytest.raises(InputError, match="--speeds does not parse"):
        parse_speeds(text)


def test_speeds_by_type_given_by_hand():
    assert parse_speeds("") == {}
    assert parse_speeds("k80=0.3,v100=3") == {"k80": 0.3, "v100": 3.0}


@pytest.mark.parametrize("family", sorted({*FAMILIES.values(), OTHER_FAMILY}))
def test_recorded_curves_learn_at_a_good_rate_and_not_at_a_tiny_one(family):
    good, tiny = nearest_curve(family, 0.1), nearest_curve(family, 1e-9)
    assert (good.learning_rate, tiny.learning_rate) == (0.1, 0.0003)
    assert good.validation(1.0)[1] > 0.95 > tiny.validation(1.0)[1]
    assert good.loss(0.0) > 2.0 > 0.3 > good.loss(1.0)


def test_the_nearest_rate_is_by_ratio():
    assert nearest_curve("digits_cnn", 0.05).learning_rate == 0.03
    assert nearest_curve("digits_cnn", 0.0).learning_rate == 0.0003
    assert nearest_curve("digits_cnn", 50.0).learning_rate == 1.0
    with pytest.raises(InputError):
        nearest_curve("digits", 0.1)


def test_curves_are_linear_between_points_and_flat_outside():
    curve = Curve(
        learning_rate=0.1, iterations=(1, 11), losses=(2.0, 1.0), validation_losses=(2.0, 1.0), accuracies=(0.1, 0.9)
    )
    assert [curve.loss(share) for share in (0.0, 6 / 11, 1.0, 5.0)] == [2.0, 1.5, 1.0, 1.0]
    assert curve.validation(6 / 11) == (1.5, 0.5)


def test_pace_and_its_inverse_agree():
    pace = Pace(iteration_s=0.5, seed=3, start=7)
    assert pace.seconds_at(7) == 0.0
    for iteration in (8, 20, 21, 100, 1007):
        seconds = pace.seconds_at(iteration)
        assert seconds == pytest.approx(0.5 * (iteration - 7), rel=NOISE_SHARE)
        assert pace.iterations_at(seconds + 1e-4) == iteration
        assert pace.iterations_at(seconds - 1e-4) == iteration - 1
    assert pace.iterations_at(-1.0) == 7


def test_pace_rises_and_depends_on_the_seed():
    one, other = Pace(iteration_s=0.1, seed=1, start=0), Pace(iteration_s=0.1, seed=2, start=0)
    times = [one.seconds_at(i) for i in range(200)]
    assert times == sorted(set(times))
    assert one.seconds_at(50) != other.seconds_at(50)
    assert one.seconds_at(50) == Pace(iteration_s=0.1, seed=1, start=0).seconds_at(50)


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("derive", ROOT / "tools" / "derive_replay_tables.py")
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules["derive"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["derive"]


def test_derivation_from_placements(tool, tmp_path):
    (tmp_path / "m").mkdir()
    steps = {"1": 2.0, "2": 2.0, "4": 4.5, "11": 4.0, "1111": 4.0, "22": 4.0}
    rows = [{"placement": p, "local_bsz": b, "step_time": s * b / 8} for p, s in steps.items() for b in (8, 16)]
    with (tmp_path / "m" / "placements.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ("placement", "local_bsz", "step_time"))
        writer.writeheader()
        writer.writerows(rows)
    measured = tool.from_pollux(tmp_path, tool.Source(model="x", measured_as="m", local_batch=8))
    assert measured.serial_iteration_time_s == 8.0
    assert measured.machine == pytest.approx(1.5)
    assert measured.across == pytest.approx(2.0)
    assert [(level, s, basis) for _, level, s, _, basis, _ in tool.rows(measured)] == [
        ("machine", "1.500", "measured"),
        ("rack", "2.000", "measured across machines"),
        ("cluster", "2.250", "extrapolated"),
    ]


def test_derivation_from_throughputs(tool, tmp_path):
    (tmp_path / "throughputs.csv").write_text(
        "model,batch_size,num_gpus,gpu_type,steps_per_s_consolidated,steps_per_s_unconsolidated\n"
        "LM,80,1,v100,10,10\nLM,80,2,v100,25,5\nLM,80,4,v100,40,10\nLM,80,4,k80,1,1\n"
    )
    measured = tool.from_gavel(tmp_path, tool.Source(model="lm", measured_as="LM", local_batch=80))
    assert measured.machine == 1.0, "faster than perfect scaling is noise"
    assert measured.across == pytest.approx(4.0)
    assert measured.serial_iteration_time_s == pytest.approx(0.4)


def test_the_tool_refuses_a_wrong_folder(tool, tmp_path, capsys):
    assert tool.main([str(tmp_path)]) == 2
    assert "usage" in capsys.readouterr().err
