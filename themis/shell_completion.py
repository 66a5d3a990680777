"""Completion of a command's words in bash, zsh and fish, by argcomplete."""

from __future__ import annotations

import argparse
import os

SHELLS = ("bash", "zsh", "fish")

VARIABLE = "_ARGCOMPLETE"
"""The shell sets this variable when it runs the command to complete a word."""


def is_completing() -> bool:
    """Whether a shell asks for the completion of a word."""
    return VARIABLE in os.environ


def complete(parser: argparse.ArgumentParser) -> None:
    """Write the completions for the shell and end the process; returns if no shell asks for any."""
    if is_completing():
        import argcomplete

        argcomplete.autocomplete(parser, always_complete_options=False)


def shell_code(program: str, shell: str) -> str:
    """Return the lines for a shell's start-up file that switch completion on for a program."""
    from argcomplete.shell_integration import shellcode

    code: str = shellcode([program], shell=shell)
    return code
