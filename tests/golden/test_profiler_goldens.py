"""What the profiler makes of logs and event files that real runs wrote (tests/golden/profiler/SOURCES.md)."""

import math
from pathlib import Path

import pytest

from am.profiler.event_folder import EventFolder
from am.profiler.follower import LogFollower
from am.profiler.job_reader import JobReader
from am.profiler.parser import LogReader
from am.profiler.profile import JobProfile
from am.profiler.records import Validation
from themis.cluster import Level

GOLDEN = Path(__file__).parent / "profiler"


def fed(records):
    profile = JobProfile()
    profile.started(1, Level.SLOT)
    for record in records:
        profile.feed(record)
    return profile


def of_log(name):
    return fed(LogReader().read((GOLDEN / f"{name}.log").read_bytes()))


@pytest.mark.parametrize(
    ("name", "iteration", "loss", "held_out", "accuracy"),
    [
        ("keras_bars", 96, (0.2, 0.7), (0.2, 0.6), (0.8, 1.0)),
        ("keras_lines", 96, (0.2, 0.7), (0.2, 0.6), (0.8, 1.0)),
        ("keras_resumed", 200, (0.05, 0.4), None, None),
        ("keras_unknown", 80, (0.2, 0.6), None, None),
        ("keras2_bars", 96, (0.2, 0.7), (0.2, 0.6), (0.8, 1.0)),
        ("keras2_lines", 96, (0.2, 0.7), (0.2, 0.6), (0.8, 1.0)),
        ("keras2_slow_bars", 250, (0.26, 0.26), (0.25, 0.25), (0.93, 0.93)),
        ("keras2_older_lines", 250, (0.26, 0.26), None, None),
        ("hooks", 40, (0.0, 0.01), None, None),
        ("themis", 60, (0.0, 0.3), (0.0, 0.5), (0.9, 1.0)),
        ("estimator_2_15", 200, (0.4, 0.8), (0.5, 0.8), (0.5, 0.8)),
        ("estimator", 301, (3.6, 3.6), (3.71, 3.71), (0.42, 0.42)),
        ("tf_cnn_benchmarks", 30, (7.781, 7.781), None, None),
    ],
)
def test_progress_and_values(name, iteration, loss, held_out, accuracy):
    profile = of_log(name)
    assert profile.iteration == iteration
    for value, bounds in ((profile.loss, loss), (profile.validation_loss, held_out), (profile.accuracy, accuracy)):
        assert value is None if bounds is None else bounds[0] <= value <= bounds[1]
    assert profile.diverged is None


@pytest.mark.parametrize(
    ("name", "low_s", "high_s"),
    [
        # Every step slept for 20 ms.
        ("keras_bars", 0.020, 0.040),
        ("keras_lines", 0.0005, 0.05),
        ("keras_resumed", 0.0005, 0.05),
        ("keras_unknown", 0.0005, 0.05),
        # The first epoch's 24 ms count only as long as nothing else is known.
        ("keras2_bars", 0.020, 0.040),
        ("keras2_lines", 0.0005, 0.05),
        ("keras2_slow_bars", 0.03, 0.03),
        ("keras2_older_lines", 0.096, 0.096),
        ("hooks", 0.0002, 0.01),
        ("themis", 0.0004, 0.02),
        # Of the evaluations, which take a hundred times as long as twenty steps, the median knows nothing.
        ("estimator_2_15", 0.0002, 0.01),
        ("estimator", 1 / 2.5, 1 / 2.4),
        ("tf_cnn_benchmarks", 64 / 102.9, 64 / 102.4),
    ],
)
def test_seconds_an_iteration(name, low_s, high_s):
    pace_s = of_log(name).iteration_s
    assert low_s * 0.999999 <= pace_s <= high_s * 1.000001


def test_progress_bars_count_as_drawn_but_few_give_a_pace():
    data = (GOLDEN / "keras_bars.log").read_bytes()
    reader, profile = LogReader(), fed([])
    steps = []
    for drawn in data.replace(b"\r", b"\r|").replace(b"\n", b"\n|").split(b"|"):
        for record in reader.read(drawn):
            profile.feed(record)
        steps.append(profile.iteration)
    assert steps == sorted(steps)
    # 20 ms a step, drawn at most every 50 ms.
    assert len(set(steps)) > 25
    [pace] = profile.paces.values()
    assert 20 <= pace.count <= 30
    assert 0.020 <= pace.iteration_s <= 0.040
    assert pace.spread_s < 0.01
    assert (profile.iteration, profile.validation_loss) == (96, of_log("keras_bars").validation_loss)


def test_evaluations_are_no_training():
    text = (GOLDEN / "keras_lines.log").read_text()
    assert text.splitlines()[-1].startswith("40/40 - ")
    records = LogReader().read(text.encode())
    assert sum(isinstance(record, Validation) for record in records) == 3
    assert fed(records).loss == pytest.approx(float(text.splitlines()[-2].split(" - loss: ")[1].split()[0]))


def test_losses_that_are_no_numbers_are_a_divergence():
    profile = of_log("keras_nan")
    assert (profile.iteration, profile.diverged.since_iteration, profile.diverged.losses) == (80, 40, 2)


def of_events(name):
    folder = EventFolder([GOLDEN / name])
    folder.search()
    records = folder.read()
    folder.close()
    return fed(records)


@pytest.mark.parametrize(
    ("name", "iteration", "loss", "held_out"),
    [
        ("keras_batch_events", 60, (0.2, 0.8), None),
        ("keras_epoch_events", 64, (0.2, 0.8), (0.2, 0.7)),
        ("hook_events", 31, (0.0, 0.1), None),
        ("summary_events", 40, (0.049, 0.051), None),
        ("estimator_events", 200, (0.4, 0.8), (0.5, 0.8)),
    ],
)
def test_event_files(name, iteration, loss, held_out):
    profile = of_events(name)
    assert profile.iteration == iteration
    assert loss[0] <= profile.loss <= loss[1]
    assert (
        profile.validation_loss is None if held_out is None else held_out[0] <= profile.validation_loss <= held_out[1]
    )
    assert 0.0001 < profile.iteration_s < 0.2


def test_event_files_are_ignored_once_the_log_reports_steps(tmp_path):
    log = tmp_path / "log"
    reader = JobReader(LogFollower(log), [GOLDEN / "summary_events"])
    assert fed(reader.read(0.0)).iteration == 40
    log.write_bytes((GOLDEN / "hooks.log").read_bytes())
    assert fed(reader.read(1.0)).iteration == 40
    assert reader.read(2.0) == []
    quiet = JobReader(LogFollower(log), [GOLDEN / "summary_events"])
    assert {record.loss for record in quiet.catch_up(0.0) if hasattr(record, "loss")}.isdisjoint({2.0, 1.0})


@pytest.mark.parametrize(
    ("name", "iteration", "loss", "held_out", "accuracy"),
    [
        ("tqdm_postfix", 60, 0.0127, 0.0083, 0.8),
        ("tqdm_print", 91, 0.01, None, None),
        ("loguru", 50, 0.02, None, None),
        ("sklearn_mlp", 12, 2.07331349, None, None),
        ("sklearn_boosting", 5, 0.9757, None, None),
        ("xgboost", 12, 0.0362, 0.14078, None),
        ("xgboost_rmse", 12, math.nan, 0.24232, None),
        ("lightgbm", 12, 0.205105, 0.274374, None),
        ("lightgbm_l2", 12, math.nan, 0.0650292, None),
        ("catboost", 20, 0.073777, 0.1283823, None),
        ("catboost_auc", 12, math.nan, None, None),
        ("catboost_learn", 12, 0.3447071, None, None),
        ("fasttext", 100, 0.469126, None, None),
        ("spacy", 50, 516.34, None, None),
        ("fastai_bars", 4, 0.501315, 0.420621, 0.859375),
        ("fastai_lines", 4, 0.5002393126487732, 0.4187934696674347, None),
    ],
)
def test_logs_of_other_libraries(name, iteration, loss, held_out, accuracy):
    reader = LogReader()
    reader.expect(100)
    profile = fed(reader.read((GOLDEN / "text" / f"{name}.log").read_bytes()))
    assert (profile.iteration, profile.loss) == pytest.approx((iteration, loss), nan_ok=True)
    assert (profile.validation_loss, profile.accuracy) == (held_out, accuracy)


@pytest.mark.parametrize(("name", "values"), [("bars", (0.1629, 0.1975, 0.9417)), ("lines", (0.2762, 0.2581, 0.925))])
@pytest.mark.parametrize("iterations", [3, 75])
def test_paddlepaddle_counts_steps_or_epochs(name, values, iterations):
    reader = LogReader()
    reader.expect(iterations)
    profile = fed(reader.read((GOLDEN / "text" / f"paddle_{name}.log").read_bytes()))
    assert profile.iteration == iterations
    assert (profile.loss, profile.validation_loss, profile.accuracy) == values


def tagged(text):
    return "\n".join(f"[rank0]: {line}" for line in text.split("\n"))


def coloured(text):
    halves = [(line[: len(line) // 2], line[len(line) // 2 :]) for line in text.split("\n")]
    return "\n".join(f"\x1b[32m{left}\x1b[1m{right}\x1b[0m" for left, right in halves)


def behind_bars(text):
    bar = "\r 39%|###9      | 39/77 [00:01<00:02, 30.00it/s]\r                          \r"
    return "\n".join(bar + line for line in text.split("\n"))


BY_HAND = [
    # Name, iterations asked for; iteration, training loss, held-out loss, accuracy.
    ("torchvision", 782, (782, 1.1121, 1.0311, 0.61)),
    ("imagenet_example", 200, (200, 4.9221, 4.05, 0.181)),
    ("speechbrain", 15, (2, 1.31, 1.12, 0.61)),
    ("catalyst", 3, (2, 0.3123, 0.2523, None)),
    ("ignite", 2, (2, 1.1123, 1.1523, None)),
    ("espnet", 3, (2, 58.17, 43.17, 0.5)),
    ("clu", 1000, (200, 6.5123, 6.4123, 0.0323)),
    ("composer", 100, (20, 9.8123, None, None)),
    ("torchtune", 1000, (510, 1.412345, None, None)),
    ("swin", 300, (1, 5.1123, 5.0523, 0.111)),
    ("nested_json", 100, (2, 0.8123, 0.8323, 0.75)),
    ("lightgbm", 300, (200, 0.3123, 0.4123, None)),
    ("megatron", 5000, (200, 5.123456, 5.223456, None)),
    ("icefall", 3, (1, 1.1, 0.9, None)),
    ("keras_loop", 2, (1, 0.6123, None, None)),
    ("nnunet", 3, (2, -0.3234, -0.4234, None)),
    ("markdown_table", 10, (2, 0.8123, 0.8323, 0.7412)),
    ("thousands", 10000, (2000, 0.8123, None, None)),
    ("parts", 10, (2, 0.8123, 0.8323, 0.741)),
    ("bar_behind", 1000, (1000, 0.812, None, None)),
    ("deepspeed_pipe", 1000, (20, 2.1123, None, None)),
    ("informer", 10, (2, 0.3523456, 0.7123456, None)),
    ("caffe", 5000, (200, 1.4123, 1.5123, None)),
    ("rich_progress", 100, (2, 0.8123, None, None)),
    ("allennlp", 3, (2, 0.5431, 0.65, None)),
    ("wenet", 3, (1, 112.123456, 88.123456, None)),
    ("sets", 10, (2, 0.8123, 0.8323, 0.741)),
    ("torchtext", 10, (2, 0.812, 0.832, 0.741)),
    ("pytorch_tutorial", 5, (2, 0.8123, 0.8323, None)),
    ("nested_objects", 100, (2, 0.8123, 0.8323, None)),
    ("tabs", 10, (2, 0.8123, 0.8323, None)),
    ("counted", 100, (20, 0.8123, 0.8323, None)),
    ("timm", 3, (3, 4.31, 3.702, 0.27012)),
    ("timm", 10000, (3753, 4.31, 3.702, 0.27012)),
    ("deepspeed_chat", 2, (2, 2.25, 2.0, None)),
    ("deepspeed_chat", 8, (6, 2.25, 2.0, None)),
    ("olmo", 1000, (200, 5.812, 6.912, None)),
    ("fairseq", 10000, (2468, 8.123, 7.123, None)),
    ("litgpt", 100, (6, 1.434, 1.412, None)),
    ("orbit", 2000, (2000, 3.1234, 2.9234, 0.45)),
    ("torchtitan", 1000, (10, 7.1234, 7.2234, None)),
    ("bracketed", 2, (1, 5.14, None, None)),
    ("lightgbm_cli", 100, (2, 0.660123, 0.671123, None)),
    ("coqui", 1170, (25, 0.512, 0.4123, None)),
    ("coqui", 1000, (1, 0.512, 0.4123, None)),
    ("detr", 300, (2, 5.1123, 4.2123, None)),
    ("object_detection", 1000, (200, 0.5123, 0.6123, None)),
    ("darknet", 6000, (1001, 2.281234, None, None)),
    ("opennmt", 100000, (100, 6.9123, 673.1, None)),
    ("baselines", 100000, (4096, 12.1, None, None)),
    ("yolov7", 300, (2, 0.1311, None, None)),
    ("ultralytics", 3, (2, 6.5, None, None)),
    ("pretty_printed", 1000, (50, 5.12, None, None)),
    ("mxnet", 10, (1, 0.9123, 0.8123, None)),
    ("marian", 10000, (2000, 5.91234, 6.01234, None)),
    ("tacotron", 5000, (11, 1.912345, 1.812345, None)),
    ("sockeye", 10000, (100, 934.123456, 712.123456, None)),
    ("t5x", 1000, (200, 3.1234, 3.0123, 0.412)),
    ("composer_errors", 100, (20, 2.1123, 2.0123, None)),
    ("error_rates", 120, (1, math.nan, 0.812345, None)),
    ("rllib", 100, (0, 8.7123, None, None)),
    ("lasagne", 500, (2, 0.5, 0.6, None)),
    ("bar_of_epochs", 100, (2, 512, None, None)),
    ("deepmd", 1000000, (200, 0.123, 0.125, None)),
    ("efficientdet", 500, (1, 1.5, 1.7, None)),
    ("fastmri", 50, (1, 0.55, 0.6, None)),
    ("bar_wiped", 60, (2, 1.5, None, None)),
    ("dgcnn", 250, (1, 0.5, 0.6, 0.8)),
    ("pointnet", 200, (2, 0.5, 0.6, None)),
    ("drawn_table", 100, (2, 0.5, 0.6, 0.8)),
    ("notebook", 300, (200, 0.5, 0.6, 0.8)),
    ("rsl_rl", 100, (13, math.nan, None, None)),
    ("mlpack", 3, (2, 0.7123, None, None)),
    ("letters", 2, (2, 0.6123, 0.8323, 0.7)),
    ("letters", 1000, (200, 0.6123, 0.8323, 0.7)),
    ("letters_epochs", 10, (2, 0.8123, 0.8323, None)),
    ("letters_bare", 1000, (140, 0.7123, None, None)),
    ("xgboost_timed", 100, (10, 0.5123, 0.6323, None)),
    ("pix2pix", 200, (2, math.nan, None, None)),
    ("mlagents", 50000, (24000, math.nan, None, None)),
    ("basicsr", 300000, (200, 0.024567, None, None)),
    ("esrgan", 300000, (100, math.nan, None, None)),
    ("vowpal_wabbit", 1000, (4, 0.212121, None, None)),
    ("spinning_up", 50, (2, math.nan, None, None)),
    ("levanter", 10000, (1200, 3.012, 3.312, None)),
    ("nequip", 100, (2, 1.134, None, None)),
    ("deepxde", 10000, (1000, 0.01686, 0.01686, None)),
    ("slim", 10000, (20, 2.1234, None, None)),
    ("mlperf", 100, (1, 0.6912, 0.7012, None)),
    ("trax", 1000, (100, 2.3123, 2.1123, None)),
    ("slowfast", 200, (1, 5.5123, 5.0123, None)),
    ("segmentation", 40, (1, 0.6912, 0.5912, None)),
]


@pytest.mark.parametrize("shown", [str, tagged, coloured, behind_bars])
@pytest.mark.parametrize(("name", "iterations", "expected"), BY_HAND)
def test_logs_in_the_style_of_other_programs(name, iterations, expected, shown):
    text = shown((GOLDEN / "text" / "by_hand" / f"{name}.log").read_text().rstrip("\n"))
    reader = LogReader()
    reader.expect(iterations)
    # Line by line, as a log grows.
    profile = fed(record for line in text.split("\n") for record in reader.read(line.encode() + b"\n"))
    found = (profile.iteration, profile.loss, profile.validation_loss, profile.accuracy)
    assert found == pytest.approx(expected, nan_ok=True)
