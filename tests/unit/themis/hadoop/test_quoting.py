"""Commands and values against a real bash, with what a NodeManager does to them written out here."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from themis.errors import InputError
from themis.hadoop.quoting import command_line, environment_value

REPORT = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['VALUE']]))"
texts = st.text(st.sampled_from("ab$`\\\"'{}<>LOG_DIRCPS \n!*;&|#~-é")) | st.sampled_from(
    ["{{HOME}}", "}}}", "<LOG_DIR>", "<CPS>", "a{{b}}c", "$(id)", "${HOME}", 'it\'s "so"']
)


def replaced(text):
    """`ContainerLaunch.expandEnvironment` of Hadoop."""
    return text.replace("<LOG_DIR>", "/logs").replace("<CPS>", ":").replace("{{", "$").replace("}}", "")


def launched(arguments, value, log_dir):
    command = command_line([sys.executable, "-S", "-c", REPORT, *arguments])
    script = f'export VALUE="{replaced(environment_value(value))}"\nexec bash -c "{replaced(command)}"\n'
    done = subprocess.run(["bash", "-c", script.replace("/logs", str(log_dir))], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads((log_dir / "stdout").read_text())


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("logs")


@given(arguments=st.lists(texts, max_size=4), value=texts)
def test_they_arrive_letter_by_letter(log_dir, arguments, value):
    assert launched(arguments, value, log_dir) == [arguments, value]


def test_the_program_replaces_the_shell_and_its_output_is_kept(log_dir):
    command = command_line(["sh", "-c", "echo out; echo err >&2"], stdout="o.txt", stderr="e.txt")
    assert command.startswith("exec sh -c ")
    subprocess.run(["bash", "-c", f'exec bash -c "{command.replace("<LOG_DIR>", str(log_dir))}"'], check=True)
    assert [(log_dir / name).read_text() for name in ("o.txt", "e.txt")] == ["out\n", "err\n"]


def test_a_nul_character_cannot_pass():
    for make in (environment_value, lambda text: command_line([text])):
        with pytest.raises(InputError, match="NUL"):
            make("a\0b")
