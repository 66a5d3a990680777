"""Clocks never run backwards; errors say what, which value and what to do, and are the standard ones too."""

import pickle

import pytest

from themis.clock import VirtualClock, WallClock
from themis.errors import InputError, InvariantError, ThemisError, UnknownNameError, UnreachableError, nearest
from themis.parser import HelpfulParser


class TestClocks:
    def test_virtual_time_moves_only_by_advance(self):
        clock = VirtualClock(5.0)
        assert clock.now_s() == clock.now_s() == 5.0
        clock.advance_to(5.0)
        clock.advance_to(7.5)
        assert clock.now_s() == 7.5

    def test_virtual_time_cannot_run_backwards(self):
        clock = VirtualClock(5.0)
        with pytest.raises(InvariantError, match="backwards"):
            clock.advance_to(4.9)
        assert clock.now_s() == 5.0

    def test_wall_time_goes_on_when_the_system_clock_is_set_back(self, monkeypatch):
        clock = WallClock()
        before_s = clock.now_s()
        monkeypatch.setattr("themis.clock.time.time", lambda: 0.0)
        assert clock.now_s() >= before_s > 1e9


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (ThemisError("it broke"), "it broke"),
            (ThemisError("it broke", value=0), "it broke: 0"),
            (ThemisError("it broke", value=""), "it broke: ''"),
            (ThemisError("it broke", remedy="mend it"), "it broke; mend it"),
            (InputError("bad value", value="x", remedy="use y"), "bad value: 'x'; use y"),
        ],
    )
    def test_errors_show_problem_value_and_remedy(self, error, text):
        assert str(error) == text

    def test_long_values_are_shown_shortened_with_their_length(self):
        digits = "9" * 5_000
        assert str(InputError("no such app", value=digits)) == f"no such app: '{'9' * 199}.. (5002 characters)"
        assert len(str(UnknownNameError("app", digits, ()))) < 300
        parser = HelpfulParser(prog="submarine")
        parser.add_argument("--limit", type=int)
        for words in (["--limit", digits], [digits], ["--limit", "1", f"--limits={digits}"]):
            with pytest.raises(InputError) as caught:
                parser.parse_args(words)
            assert len(str(caught.value)) < 300

    def test_they_are_the_standard_errors_too(self):
        assert issubclass(InputError, ValueError)
        assert issubclass(UnknownNameError, InputError)
        assert issubclass(UnreachableError, ConnectionError)
        assert issubclass(InvariantError, AssertionError)
        assert (ThemisError("").exit_code, InputError("").exit_code, UnreachableError("").exit_code) == (1, 2, 2)

    def test_an_unknown_name_names_the_nearest_or_all_known(self):
        assert str(UnknownNameError("solver", "higs", ["highs", "brute_force"])).endswith("did you mean 'highs'?")
        assert str(UnknownNameError("solver", "xyz", ["b", "a"])).endswith("known: a, b")
        assert str(UnknownNameError("solver", "xyz", [])).endswith("known: none")

    @pytest.mark.parametrize("error", [ThemisError("a", value=1, remedy="b"), UnknownNameError("k", "nam", ["name"])])
    def test_they_survive_the_way_between_processes(self, error):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy)) == (type(error), str(error))

    def test_nearest(self):
        assert nearest("lease_duraton", ["duration_s", "lease_duration"]) == "lease_duration"
        assert nearest("zzz", ["duration_s"]) is None
