"""The catalogue of programs and the command lines it defines."""

import subprocess
import sys

import pytest

from tf_jobs.catalog import PROGRAMS, check_values, program, program_command
from tf_jobs.flags import HelpRequested, help_text, parse
from themis.errors import InputError

CNN = program("digits_cnn")


def test_every_program_is_a_module_that_can_be_run():
    for known in PROGRAMS:
        assert program_command(known.name) == [sys.executable, "-P", "-m", f"tf_jobs.{known.name}"]
        assert known.kind == ("replay" if known.name == "replay" else "real")


def test_values_are_typed_and_become_flags():
    assert check_values("digits_cnn", {"learning_rate": "1e-2", "hidden": 32.0, "optimizer": "adam"}) == {
        "learning_rate": 0.01,
        "hidden": 32,
        "optimizer": "adam",
    }
    assert program_command("digits_cnn", {"learning_rate": 0.01})[-2:] == ["--learning_rate", "0.01"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"learning_rat": 1}, "did you mean '--learning_rate'"),
        ({"learning_rate": "fast"}, "takes a number"),
        ({"learning_rate": "1_0.5"}, "takes a number"),
        ({"hidden": "1_0"}, "takes a whole number"),
        ({"learning_rate": -1}, "0 or more"),
        ({"learning_rate": float("nan")}, "takes a number"),
        ({"learning_rate": None}, "takes a number"),
        ({"hidden": 1.5}, "takes a whole number"),
        ({"hidden": True}, "takes a whole number"),
        ({"hidden": "1e2"}, "takes a whole number"),
        ({"dropout": 1}, "0 to 0.95"),
        ({"optimizer": "adma"}, "did you mean 'adam'"),
        ({"filters": 0}, "1 to 512"),
    ],
)
def test_values_that_do_not_fit(values, message):
    with pytest.raises(InputError, match=message):
        check_values("digits_cnn", values)


def test_an_unknown_program_names_the_nearest():
    with pytest.raises(InputError, match="did you mean 'digits_cnn'"):
        program_command("digit_cnn")


def test_filters_belong_to_the_convolutional_net_alone():
    with pytest.raises(InputError, match="unknown flag of digits_dense"):
        check_values("digits_dense", {"filters": 8})


def test_flags_are_parsed_with_defaults():
    values = parse(CNN, ["--iterations", "5", "--learning-rate=0.5"])
    assert (values.whole("iterations"), values.number("learning_rate"), values.text("optimizer")) == (
        5,
        0.5,
        "momentum",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "missing.*--iterations"),
        (["--iterations"], "no value"),
        (["--iterations", "5", "--iterations", "6"], "twice"),
        (["5"], "unexpected argument"),
        (["--iteration", "5"], "did you mean '--iterations'"),
        (["--iterations", "-5"], "out of range"),
    ],
)
def test_bad_command_lines(arguments, message):
    with pytest.raises(InputError, match=message):
        parse(CNN, arguments)


def test_help_names_every_flag():
    with pytest.raises(HelpRequested):
        parse(CNN, ["--help"])
    assert all(f"--{flag.name} " in help_text(CNN) for flag in CNN.flags)


def test_the_catalogue_does_not_load_tensorflow_or_numpy():
    code = "import sys, tf_jobs.catalog; print([m for m in ('tensorflow', 'numpy') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
