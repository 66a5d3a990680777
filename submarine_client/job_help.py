"""The text of `submarine job run --help`, from the tables of flags and settings."""

from __future__ import annotations

from submarine_client.job_app import CONF
from submarine_client.job_flags import FLAGS, JobFlag, Takes

_HEAD = """\
usage: submarine job run --name NAME --input_path PATH --worker_resources RES --worker_launch_cmd COMMAND [flags]

Run a command of your own as a job: all its workers at once, until each has exited 0. Flags may have one dash or two.
"""
_TAIL = """\
Resources are name=integer[unit], comma-separated: memory (with M or G) or memory-mb, vcores, gpu or yarn.io/gpu.
In the command, %input_path%, %checkpoint_path% and %saved_model_path% stand for the paths.
"""


def help_text() -> str:
    """Return the whole text."""
    flags = [f"  {_left(flag):<36} {_right(flag)}" for flag in FLAGS]
    settings = [f"  {name:<36} {entry.help}; default {entry.default}" for name, entry in CONF.items()]
    return "\n".join([_HEAD, "flags:", *flags, "", "settings, as --conf K=V:", *settings, "", _TAIL])


def _left(flag: JobFlag) -> str:
    dashes = "-" if len(flag.name) == 1 else "--"
    return f"{dashes}{flag.name} {flag.placeholder}".rstrip()


def _right(flag: JobFlag) -> str:
    aside = " (ignored)" if flag.ignored else " (refused for now)" if flag.refused else ""
    return flag.help + ("; may be repeated" if flag.takes is Takes.MANY else "") + aside
