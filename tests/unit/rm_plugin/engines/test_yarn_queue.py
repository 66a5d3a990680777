"""Queues that can take no apps are refused at the start; one that keeps GPUs from us is told."""

import pytest

from rm_plugin.engines.yarn_queue import check_queue
from themis.errors import InputError
from themis.hadoop.values import QueueReport


def queue(**changes):
    return QueueReport(
        **{"name": "root.research", "is_running": True, "max_capacity_share": 1.0, "children": (), **changes}
    )


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_a_queue_that_takes_apps_and_every_gpu_is_well(caplog, share):
    """A share of 0 is what schedulers say that do not tell it."""
    check_queue(queue(max_capacity_share=share))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_running": False}, "is stopped .*root.research.*state to RUNNING"),
        ({"children": ("vision", "speech")}, "without others below it .*root.research.*vision, speech"),
    ],
)
def test_one_that_takes_none_is_refused_with_the_remedy(changes, words):
    with pytest.raises(InputError, match=words):
        check_queue(queue(**changes))


def test_one_that_keeps_gpus_from_us_is_told(caplog):
    check_queue(queue(max_capacity_share=0.5))
    assert "root.research may use 50 %" in caplog.text
