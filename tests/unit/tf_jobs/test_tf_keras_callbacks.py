"""Keras' callbacks in our loop, in a process of their own: TensorFlow and protoc, which another test loads, clash."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("keras_callback_checks.py")


@pytest.mark.timeout(900)
@pytest.mark.skipif(importlib.util.find_spec("keras") is None, reason="Keras comes with the extra 'tf'")
def test_callbacks_are_called_as_by_keras():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(CHECKS)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert "34 passed" in ended.stdout
