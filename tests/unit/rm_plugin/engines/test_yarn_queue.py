"""Unusable queues are refused at the start; a queue that withholds GPUs is logged."""

import pytest

from rm_plugin.engines.yarn_queue import check_app_queue, check_queue
from themis.errors import InputError
from themis.hadoop.values import QueueReport


def queue(**changes):
    return QueueReport(
        **{"name": "root.research", "is_running": True, "max_capacity_share": 1.0, "children": (), **changes}
    )


@pytest.mark.parametrize("share", [1.0, 0.0])
def test_queue_with_all_gpus_is_accepted_without_warning(caplog, share):
    """Schedulers that do not know the share report 0."""
    check_queue(queue(max_capacity_share=share))
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_running": False}, "stopped YARN queue .*root.research.*state to RUNNING"),
        ({"children": ("vision", "speech")}, "without child queues .*root.research.*vision, speech"),
    ],
)
def test_unusable_queue_is_refused_with_remedy(changes, words):
    with pytest.raises(InputError, match=words):
        check_queue(queue(**changes))


def test_queue_that_withholds_gpus_is_logged(caplog):
    check_queue(queue(max_capacity_share=0.5))
    assert "root.research may use at most 50 %" in caplog.text


QUEUES = (
    queue(name="vision", path="root.a.vision"),
    queue(name="speech", path="root.a.speech"),
    queue(name="speech", path="root.b.speech"),
    queue(name="old", path="root.old", is_running=False),
)


@pytest.mark.parametrize("name", ["vision", "root.a.vision", "a.vision", "b.speech"])
def test_app_may_name_a_queue_by_name_or_path(name):
    check_app_queue(name, QUEUES)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("visoin", "unknown YARN queue: 'visoin'; did you mean 'vision'"),
        ("nowhere", "known: "),
        ("speech", "several YARN queues .*root.a.speech, root.b.speech"),
        ("old", "stopped YARN queue"),
    ],
)
def test_app_in_an_unusable_queue_is_refused(name, words):
    with pytest.raises(InputError, match=words):
        check_app_queue(name, QUEUES)
