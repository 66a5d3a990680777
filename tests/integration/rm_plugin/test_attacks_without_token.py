"""The attacks that succeeded before callers had an identity, on the ResourceManager of this checkout."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_no_attack_without_a_token_succeeds() -> None:
    command = [sys.executable, ROOT / "tools" / "attack_checkout.py", ROOT]
    played = subprocess.run(command, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert [line.split()[0] for line in played.stdout.splitlines()] == ["refused"] * 8
