"""Progress: few lines on a pipe, one that redraws itself on a terminal; patience in an outage."""

from __future__ import annotations

import io

import pytest

from submarine_client.progress import LineProgress, LiveProgress, progress_on
from submarine_client.terminal import Terminal
from submarine_client.wait import InterruptedWaitError, Pace, wait_for
from themis.errors import UnreachableError
from themis.wire import themis_pb2 as pb


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def app(state: str = "RUNNING", progress: float = 0.0, phase: int = 0, app_id: str = "a-1") -> pb.AppStatus:
    gpus = int(state == "RUNNING")
    return pb.AppStatus(app_id=app_id, state=state, gpus=gpus, progress=progress, phase=phase, phases=3)


def test_lines_come_on_changes_of_state_or_phase_and_else_every_few_seconds() -> None:
    terminal, now = Terminal(io.StringIO(), io.StringIO()), [0.0]
    progress = LineProgress(terminal, lambda: now[0])
    looks = [(0, app("SUBMITTED")), (1, app()), (2, app(progress=0.1)), (3, app(progress=0.2, phase=1))]
    looks += [(7.9, app(progress=0.3, phase=1)), (8, app(progress=0.4, phase=1)), (20, app(progress=0.4, phase=1))]
    for time_s, status in looks:
        now[0] = time_s
        progress.update([status])
    progress.update([app("FINISHED")])
    progress.update([app("FINISHED")])
    lines = terminal.err.getvalue().splitlines()
    assert [line.split()[2].rstrip(",") + line.split(",")[2] for line in lines] == [
        "SUBMITTED 0 %",
        "RUNNING 0 %",
        "RUNNING 20 %",
        "RUNNING 40 %",
    ]
    assert terminal.out.getvalue() == "a-1 FINISHED\n"


def test_on_a_terminal_the_line_is_redrawn_and_the_end_goes_to_standard_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal(io.StringIO(), Screen())
    progress = progress_on(terminal, lambda: 0.0)
    assert isinstance(progress, LiveProgress)
    progress.update([app(progress=0.1), app("FINISHED", app_id="a-2")])
    progress.note("something")
    assert terminal.out.getvalue() == ""
    progress.update([app("FAILED"), app("FINISHED", app_id="a-2")])
    progress.close()
    assert terminal.out.getvalue() == "a-2 FINISHED\na-1 FAILED\n"
    assert "10 %" in terminal.err.getvalue() and "submarine: something" in terminal.err.getvalue()
    assert "\x1b[?25h" in terminal.err.getvalue(), "the cursor is shown again"


def test_bar_on_a_terminal_has_colours_unless_the_user_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def drawn() -> str:
        terminal = Terminal(io.StringIO(), Screen())
        progress = progress_on(terminal, lambda: 0.0)
        progress.update([app(progress=0.5)])
        progress.close()
        return terminal.err.getvalue()

    assert "━" * 9 in drawn() and "\x1b[32mRUNNING" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "━" * 9 in drawn() and "[32m" not in drawn()


class ScriptedClient:
    """Answers `show` from a list of statuses and errors."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def show(self, app_id: str) -> pb.AppStatus:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def waiting(patience_s: float) -> tuple[Terminal, Pace, list[float]]:
    sleeps: list[float] = []
    pace = Pace(poll_s=1.0, patience_s=patience_s, now_s=lambda: sum(sleeps), sleep=sleeps.append)
    return Terminal(io.StringIO(), io.StringIO()), pace, sleeps


def test_retries_back_off_and_stop_at_the_deadline() -> None:
    terminal, pace, sleeps = waiting(20.0)
    lost = UnreachableError("gone")
    with pytest.raises(UnreachableError):
        wait_for(ScriptedClient(app(), *[lost] * 20), ["a-1"], LineProgress(terminal, pace.now_s), pace)
    assert sleeps == [1.0, 0.5, 1.0, 2.0, 4.0, 8.0, 4.5]


def test_an_answer_restores_the_patience() -> None:
    terminal, pace, _ = waiting(1.4)
    lost = UnreachableError("gone")
    client = ScriptedClient(lost, lost, app(), lost, lost, app("FINISHED"))
    assert wait_for(client, ["a-1"], LineProgress(terminal, pace.now_s), pace)[0].state == "FINISHED"
    assert terminal.err.getvalue().count("does not answer") == terminal.err.getvalue().count("answers again") == 2


def test_an_interrupt_names_every_app() -> None:
    terminal, pace, _ = waiting(1.0)
    client = ScriptedClient(app(), KeyboardInterrupt())
    with pytest.raises(InterruptedWaitError) as caught:
        wait_for(client, ["a-1", "a-2"], LineProgress(terminal, pace.now_s), pace)
    assert caught.value.exit_code == 3
    assert "apps a-1 a-2 go on running" in str(caught.value)
