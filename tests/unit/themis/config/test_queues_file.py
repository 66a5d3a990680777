"""The file of queues: what it says, and all that is wrong with it at once."""

from pathlib import Path

import pytest

from themis.config.queues_file import MAX_WEIGHT, MIN_WEIGHT, QueueSection, UserSection, load_queues
from themis.errors import InputError
from themis.queues import ROOT, Limits


def write(folder: Path, text: str) -> Path:
    path = folder / "queues.yaml"
    path.write_text(text)
    return path


def test_the_shipped_file_is_valid():
    queues = load_queues(Path(__file__).parents[4] / "conf" / "queues.yaml")
    assert queues.leaves == ("default", "vision", "speech")
    assert [queue.name for queue in queues.above("vision")] == ["vision", "research", ROOT]
    assert queues.queues["vision"].limits_of("bob") == Limits(max_gpus=16, max_active_apps=5)
    assert queues.queues["vision"].users["anna"].weight == 2.0


def test_an_empty_mapping_is_one_queue_without_limits(tmp_path):
    assert load_queues(write(tmp_path, "{}")).leaves == (ROOT,)


def test_all_errors_are_reported_at_once(tmp_path):
    text = (
        "queues:\n  a: {guaranteed_gpus: 4, max_gpus: 2, queues: {b: {guaranteed_gpus: 9}}}\n  c: {queues: {a: {}}}\n"
    )
    with pytest.raises(InputError) as error:
        load_queues(write(tmp_path, text))
    lines = str(error.value).splitlines()
    assert len(lines) == 3
    assert "two queues have one name: 'a'" in lines[0]
    assert "more GPUs than its max_gpus: 4; guarantee at most 2" in lines[1]
    assert "below a are guaranteed more GPUs than its 4: 9" in lines[2]


def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path):
    with pytest.raises(InputError, match="did you mean 'weight'"):
        load_queues(write(tmp_path, "queues: {a: {weigth: 2}}"))


@pytest.mark.parametrize("text", ["weight: 0", "max_active_apps: 0", "max_gpus: -1", "users: {anna: {weight: no}}"])
def test_a_value_out_of_range_is_refused(tmp_path, text):
    with pytest.raises(InputError):
        load_queues(write(tmp_path, text))


def test_weights_whose_shares_are_no_numbers_are_refused(tmp_path):
    text = "queues: {{a: {{weight: {0}}}, b: {{weight: {0}, users: {{anna: {{weight: {0}}}}}}}}}"
    for weight in ("1.0e308", "1.0e-320"):
        with pytest.raises(InputError) as error:
            load_queues(write(tmp_path, text.format(weight)))
        assert len(str(error.value).splitlines()) == 3


@pytest.mark.parametrize("weights", [(MAX_WEIGHT, MIN_WEIGHT), (MAX_WEIGHT, MAX_WEIGHT), (MIN_WEIGHT, MIN_WEIGHT)])
def test_shares_of_the_extreme_weights_are_positive_numbers(tmp_path, weights):
    text = "queues: {{a: {{weight: {}}}, b: {{weight: {}}}}}".format(*weights)
    tenants = [("a", "anna"), ("b", "bob")]
    shares = load_queues(write(tmp_path, text)).app_weights(dict.fromkeys(tenants, 1.0))
    assert shares["a", "anna"] / shares["b", "bob"] == pytest.approx(weights[0] / weights[1])


def test_every_key_is_documented():
    text = (Path(__file__).parents[4] / "docs" / "reference" / "configuration.md").read_text()
    table = text.split("## Queues")[1].split("\n## ")[0]
    for key in QueueSection.model_fields:
        assert f"| `{key}` |" in table
    for key in UserSection.model_fields:
        assert f"`users.NAME.{key}`" in table
