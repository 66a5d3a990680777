"""What users type and what programs send to each other, damaged: a value or a typed error in words."""

import json
import socket

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from msgspec import to_builtins
from test_parsers_fuzz import FUZZ, WORDS, damaged, survives

from rm_plugin.engines.folder_lock import FolderLock, LockHolder
from rm_plugin.engines.shared_folder import FileSystemFolder
from submarine_client.job_app import build_job_app, notes, tensorboard_note
from submarine_client.job_commands import read_options
from submarine_client.job_flags import FLAGS
from submarine_client.tony import TONY_FLAGS
from tf_jobs.channel import LINE_LIMIT_BYTES, Channel
from tf_jobs.context import read_context
from themis.errors import InputError

GOOD_WORDS = (
    *("--name", "sum", "--worker_launch_cmd", "/bin/true %input_path%", "--worker_resources", "memory=4G,gpu=1"),
    *("--input_path", "in", "--num_workers", "2"),
)
TYPED = WORDS | st.text(max_size=10) | st.sampled_from(
    ["9" * 5_000, "memory=1G,gpu=" + "9" * 5_000, "tony.worker.gpus=2", "themis.iterations=" + "9" * 5_000, "a=b",
     "a:b", "\x00:b", "a" * 5_000 + ":b", "hdfs://x:y", "%saved_model_path%", "%%", "%", "q=http://worker-0:80", "~a"]
)  # fmt: skip
FLAG_WORDS = st.sampled_from(
    [f"--{name}" for name in (*(flag.name for flag in FLAGS if flag.name != "f"), *TONY_FLAGS)]
)


@st.composite
def command_lines(draw):
    """The words of a good `job run`, of which some are others, and more flags with values."""
    words = list(GOOD_WORDS)
    for _ in range(draw(st.integers(0, 2))):
        words[draw(st.integers(0, len(words) - 1))] = draw(TYPED | FLAG_WORDS)
    for _ in range(draw(st.integers(0, 3))):
        flag, value = draw(FLAG_WORDS), draw(TYPED)
        words += draw(st.sampled_from([[flag], [flag, value], [f"{flag}={value}"]]))
    return words


def refused_words():
    """Numbers that `int` refuses, and a name that the file system refuses."""
    digits = "9" * 5_000
    return [
        [*GOOD_WORDS[:-1], digits],
        [*GOOD_WORDS, "--conf", f"themis.iterations={digits}"],
        [*GOOD_WORDS, "--files", "a" * 5_000],
    ]


def read_command(words):
    options = read_options(words)
    app = build_job_app(options, words)
    notes(options)
    tensorboard_note(options, app)


@pytest.mark.slow
def test_any_words_of_job_run_are_an_app_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @seed(1)
    @FUZZ
    @given(command_lines())
    def each(words):
        survives(lambda: read_command(words))

    read_command(GOOD_WORDS)
    for words in refused_words():
        with pytest.raises(InputError):
            read_command(words)
    each()


JOB_FILE = """
spec: {name: sum, job_type: tensorflow, framework: tensorflow}
configs: {input_path: in, wait_job_finish: true, envs: {A: b}, localizations: ["a:b"], quicklinks: ["q=http://worker-0:80"]}
scheduling: {queue: default}
roles:
  worker: {resources: "memory=4G,gpu=1", replicas: 2, launch_cmd: "/bin/true", envs: {C: "1"}}
"""


@pytest.mark.slow
def test_damaged_job_file_is_an_app_or_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original, path = tmp_path / "original", tmp_path / "job.yaml"
    original.write_text(JOB_FILE)

    @seed(2)
    @FUZZ
    @given(damaged([original]))
    def each(content):
        path.write_bytes(content)
        survives(lambda: read_command(["-f", str(path)]))

    each()


def test_any_content_of_a_lock_is_a_holder_or_unreadable(tmp_path):
    folder, path = FileSystemFolder(tmp_path / "locks"), tmp_path / "locks" / "lock-00000007"
    holder = LockHolder.this_process(tmp_path)
    folder.create(path.name, json.dumps(to_builtins(holder)).encode())
    original = tmp_path / "original"
    original.write_bytes(path.read_bytes())
    numbers = st.sampled_from([-1, 0, 1, 10**30, 1e308, float("nan"), float("-inf"), "x", None])
    fields = st.dictionaries(st.sampled_from(["pid", "started_s", "since_s", "machine", "host"]), numbers)
    other_numbers = fields.map(lambda changed: json.dumps({**to_builtins(holder), **changed}).encode())

    @seed(3)
    @FUZZ
    @given(damaged([original]) | other_numbers | st.just(b"deep"))
    def each(content):
        path.write_bytes(b"[" * 100_000 if content == b"deep" else content)
        found = FolderLock(folder, LockHolder.this_process(tmp_path)).try_acquire()
        assert found is None or str(found)
        (tmp_path / "locks" / "lock-00000008").unlink(missing_ok=True)

    each()


LINES = st.sampled_from(
    [b"{}\n", b"[]\n", b"[" * 4_000, b"x" * (2 * LINE_LIMIT_BYTES), b'{"say": "welcome"}\n', b"\xff\n", b"\n",
     b'{"say": "died", "task": true}\n', b'{"say": "end", "code": 1e999}\n', b'{"say": "refused", "why": 1}\n']
) | st.binary(max_size=100)  # fmt: skip


@seed(4)
@FUZZ
@given(st.lists(LINES, max_size=6))
def test_any_bytes_of_a_peer_are_messages_or_end_the_connection(parts):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        channel = Channel(near)
        far.setblocking(False)
        for part in parts:
            try:
                far.sendall(part)
            except OSError:
                break
            while (message := channel.next()) is not None:
                assert isinstance(message, dict)
        channel.close()


VARIABLES = ("TASKS", "TASK_INDEX", "INCARNATION", "GPUS", "LEVEL", "TIME_SCALE", "SPEED", "THREADS", "JOB_DIR")


@seed(5)
@FUZZ
@given(st.dictionaries(st.sampled_from([f"THEMIS_{name}" for name in VARIABLES]), TYPED))
def test_any_environment_of_a_task_is_read_or_refused(environment):
    survives(lambda: read_context("program", environment))
