"""The built-in programs: their modules, flags, and whether they train or replay. Imports no TensorFlow.

The client validates an app's program and hyper-parameters against this before anything starts, and the programs
parse their command lines by it, so the two cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from themis.errors import FoundErrors, InputError, UnknownNameError
from themis.number_parsing import parse_number
from themis.python_programs import module_command
from themis.values import Value

FlagValue = int | float | str


class Flag(Value, frozen=True, kw_only=True):
    """One command-line flag of a program.

    Attributes:
        name: Without dashes, lower case with underscores.
        kind: Type of its value.
        default: Value if the flag is not given; None if it is required.
        help: One line for `--help`, with the unit.
        low: Minimum, for numbers.
        high: Maximum, for numbers.
        choices: The allowed words; empty if any text is allowed.
        hyper_parameter: Whether a search may vary it.
    """

    name: str
    kind: type[int] | type[float] | type[str]
    default: FlagValue | None
    help: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    hyper_parameter: bool = False


class Program(Value, frozen=True, kw_only=True):
    """One task program. Kind `real` trains; kind `replay` emulates training from recorded tables."""

    name: str
    module: str
    kind: Literal["real", "replay"]
    summary: str
    flags: tuple[Flag, ...]

    def flag(self, name: str) -> Flag:
        """Return the flag of this name. Raises UnknownNameError, which names the nearest."""
        for flag in self.flags:
            if flag.name == name:
                return flag
        raise UnknownNameError(f"flag of {self.name}", f"--{name}", (f"--{flag.name}" for flag in self.flags))


_COMMON = (
    Flag(name="iterations", kind=int, default=None, low=0, help="cumulative iteration at which this run stops"),
    Flag(name="checkpoint_every", kind=int, default=100, low=1, help="iterations between checkpoints"),
    Flag(name="log_every", kind=int, default=20, low=1, help="iterations between log lines"),
    Flag(name="seed", kind=int, default=0, low=0, high=2**31 - 1, help="seed of data order, initial state and noise"),
    Flag(name="batch_size", kind=int, default=64, low=1, help="samples an iteration, over all tasks together"),
    Flag(name="keep_checkpoints", kind=int, default=3, low=1, help="newest checkpoints to keep"),
    Flag(name="checkpoint_uri", kind=str, default="", help="where checkpoints lie; overrides THEMIS_CHECKPOINT_URI"),
)


def _learning_rate(default: float) -> Flag:
    return Flag(
        name="learning_rate",
        kind=float,
        default=default,
        low=0.0,
        help="step size of the optimizer",
        hyper_parameter=True,
    )


def _trained(optimizer: str, learning_rate: float) -> tuple[Flag, ...]:
    """Return the flags of a program that trains, with defaults for its network."""
    return (
        *_COMMON,
        _learning_rate(learning_rate),
        Flag(
            name="optimizer",
            kind=str,
            default=optimizer,
            choices=("sgd", "momentum", "adam"),
            help="update rule",
            hyper_parameter=True,
        ),
        Flag(
            name="hidden",
            kind=int,
            default=64,
            low=1,
            high=4096,
            help="units of the hidden layer",
            hyper_parameter=True,
        ),
        Flag(
            name="dropout",
            kind=float,
            default=0.0,
            low=0.0,
            high=0.95,
            help="share of hidden units dropped in training",
            hyper_parameter=True,
        ),
        Flag(
            name="ordered_parts",
            kind=int,
            default=0,
            low=0,
            help="parts of a batch, summed in the same order for any number of tasks up to this; 0: one per task",
        ),
    )


_DIGITS = _trained("momentum", 0.05)
_TEXT = _trained("adam", 0.003)

_FILTERS = Flag(
    name="filters",
    kind=int,
    default=16,
    low=1,
    high=512,
    help="filters of the first convolution",
    hyper_parameter=True,
)

_LAYERS = Flag(
    name="layers", kind=int, default=2, low=1, high=24, help="layers of the transformer", hyper_parameter=True
)
_HEADS = Flag(
    name="heads", kind=int, default=4, low=1, high=64, help="attention heads of each layer", hyper_parameter=True
)

_REPLAY = (
    *_COMMON,
    Flag(name="model", kind=str, default="resnet50", help="model whose measured speed is emulated"),
    _learning_rate(0.05),
    Flag(name="curve", kind=str, default="", help="family of recorded loss curves; empty: the model's own"),
    Flag(name="curve_iterations", kind=int, default=500, low=1, help="iteration at which a recorded curve ends"),
    Flag(
        name="serial_iteration_s",
        kind=float,
        default=0.0,
        low=0.0,
        help="unscaled seconds an iteration on one GPU; 0: as measured",
        hyper_parameter=True,
    ),
    Flag(name="slowdown", kind=str, default="", help="S at slot,machine,rack,cluster; empty: as measured"),
    Flag(name="speeds", kind=str, default="", help="true speed by device type: k80=0.3,v100=1; empty: as stated"),
    Flag(
        name="log_every_s",
        kind=float,
        default=0.0,
        low=0.0,
        help="most seconds between log lines, where log_every would be longer; 0: as long as it is",
    ),
    Flag(name="checkpoint_bytes", kind=int, default=4096, low=0, help="size of a checkpoint, in bytes"),
    Flag(name="startup_s", kind=float, default=0.0, low=0.0, help="unscaled seconds before the first iteration"),
    Flag(name="checkpoint_s", kind=float, default=0.0, low=0.0, help="unscaled seconds that a checkpoint takes"),
)

PROGRAMS: tuple[Program, ...] = (
    Program(
        name="digits_cnn",
        module="tf_jobs.digits_cnn",
        kind="real",
        summary="small convolutional net on the digits data set",
        flags=(*_DIGITS, _FILTERS),
    ),
    Program(
        name="digits_dense",
        module="tf_jobs.digits_dense",
        kind="real",
        summary="dense net on the digits data set",
        flags=_DIGITS,
    ),
    Program(
        name="digits_lstm",
        module="tf_jobs.digits_lstm",
        kind="real",
        summary="LSTM that reads the rows of each digit",
        flags=_DIGITS,
    ),
    Program(
        name="text_lstm",
        module="tf_jobs.text_lstm",
        kind="real",
        summary="LSTM language model of a short text, by character",
        flags=_TEXT,
    ),
    Program(
        name="text_transformer",
        module="tf_jobs.text_transformer",
        kind="real",
        summary="small transformer language model of the same text",
        flags=(*_TEXT, _LAYERS, _HEADS),
    ),
    Program(
        name="replay",
        module="tf_jobs.replay",
        kind="replay",
        summary="emulates a training job by measured speeds and recorded loss curves",
        flags=_REPLAY,
    ),
)


def program(name: str) -> Program:
    """Return the program of this name. Raises UnknownNameError, which names the nearest."""
    for known in PROGRAMS:
        if known.name == name:
            return known
    raise UnknownNameError("program", name, (known.name for known in PROGRAMS))


def program_command(name: str, values: Mapping[str, FlagValue] | None = None) -> list[str]:
    """Return the command that starts a program, with the checked `values` as flags.

    Raises:
        InputError: The program or a flag is unknown, or a value is out of range.
    """
    checked = check_values(name, values or {})
    flags = [word for flag, value in checked.items() for word in (f"--{flag}", str(value))]
    return list(module_command(program(name).module, *flags))


def check_values(name: str, values: Mapping[str, object]) -> dict[str, FlagValue]:
    """Return `values` by flag name, each converted to its flag's type, in the given order.

    Raises:
        InputError: The program or a flag is unknown, or a value is out of range.
    """
    of, found = program(name), FoundErrors()

    def fitting(flag: str) -> FlagValue:
        return convert(of.flag(flag), values[flag])

    converted = {flag: found.run(fitting, flag) for flag in values}
    found.raise_all()
    return {flag: value for flag, value in converted.items() if value is not None}


def convert(flag: Flag, value: object) -> FlagValue:
    """Convert `value`, text or already typed, to the flag's type. Raises InputError if it does not fit."""
    shown = f"--{flag.name}"
    if flag.kind is str:
        text = str(value)
        if flag.choices and text not in flag.choices:
            raise UnknownNameError(f"value of {shown}", text, flag.choices)
        return text
    number = _number(flag, value)
    if not flag.low <= number <= flag.high:
        allowed = f"{flag.low:.10g} or more" if flag.high == math.inf else f"{flag.low:.10g} to {flag.high:.10g}"
        raise InputError(f"{shown} is out of range", value=value, remedy=f"use {allowed}")
    return number


def _number(flag: Flag, value: object) -> int | float:
    """Convert `value` to the flag's kind of number. Raises InputError if it is none, or is not finite."""
    try:
        if isinstance(value, bool):
            raise ValueError
        given = parse_number(float, value) if isinstance(value, str) else value
        number = float(given) if isinstance(given, (int, float)) else math.nan
        if not math.isfinite(number) or (flag.kind is int and number != int(number)):
            raise ValueError
        if flag.kind is int:
            return value if isinstance(value, int) else int(value) if isinstance(value, str) else int(number)
    except (ValueError, OverflowError):
        wanted = "a whole number" if flag.kind is int else "a number"
        raise InputError(f"--{flag.name} takes {wanted}", value=value, remedy=f"meaning: {flag.help}") from None
    return number
