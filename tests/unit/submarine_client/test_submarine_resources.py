"""Submarine's resource grammar."""

from __future__ import annotations

import pytest

from submarine_client.resources import Resources, parse_resources
from themis.errors import InputError


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("memory-mb=2048,vcores=2,yarn.io/gpu=2", Resources(memory_mb=2048, vcores=2, gpus=2)),
        ("memory=4G,vcores=2,gpu=2", Resources(memory_mb=4096, vcores=2, gpus=2)),
        ("memory=4G,vcores=1", Resources(memory_mb=4096, vcores=1)),
        ("memory=512m, gpu=1", Resources(memory_mb=512, gpus=1)),
        ("memory-mb=2g", Resources(memory_mb=2048)),
        ("memory=4G,vcores=2,gpu=0", Resources(memory_mb=4096, vcores=2, gpus=0)),
    ],
)
def test_resources_are_read(text: str, resources: Resources) -> None:
    assert parse_resources(text, "--worker_resources") == resources


def test_memory_without_unit_is_refused_and_both_readings_are_named() -> None:
    with pytest.raises(InputError) as caught:
        parse_resources("memory=2048,gpu=1", "--worker_resources")
    message = str(caught.value)
    assert "memory=2048M for 2048 MB" in message
    assert "memory=2048G for 2048 GB" in message
    assert "0 MB" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "malformed"),
        ("memory=4G,", "malformed"),
        ("memory", "malformed"),
        ("memory=4T", "must be a whole number"),
        ("memory=1.5G", "must be a whole number"),
        ("vcores=-1", "must be a whole number"),
        ("vcores=2G", "takes no unit"),
        ("gpus=2", "did you mean 'gpu'"),
        ("gpu=1,yarn.io/gpu=1", "yarn.io/gpu is given twice"),
        ("memory=1G,memory-mb=1024", "memory-mb is given twice"),
    ],
)
def test_malformed_resources_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_resources(text, "--r")
    assert message in str(caught.value)
