"""Mix files: the apps with their arrivals, the cluster, and the settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from pydantic import Field

from submarine_client.groups import load_app
from themis.apps import AppSpec
from themis.config.loader import Section, fit, load
from themis.config.names import check_app_name
from themis.config.rm_settings import LeaseSettings, RmSettings
from themis.errors import InputError
from themis.values import Value

_RM_ABSENCE_S = 120.0
"""Apps of a run that was killed end after two minutes: nothing starts a run again, as a service is."""

_MANAGED = ("cluster", "state_dir", "listen", "policy", "lease", "time_scale", "seed", "engine", "yarn")
"""Settings of the ResourceManager that other keys of a mix set, or that the run determines."""


class AppArrival(Section):
    """One app of a mix: its group file, relative to the mix file, and when it is submitted."""

    group: Path
    at_s: float = Field(default=0.0, ge=0, description="real seconds after the start")
    name: str | None = Field(default=None, description="in place of the group's own")


class Setup(Section):
    """Cluster and settings: everything of a run except the apps."""

    name: str = Field(min_length=1)
    seed: int = 0
    time_scale: float = Field(gt=0, description="factor on the measured speed of replayed jobs")
    time_limit_s: float = Field(default=360.0, gt=0, description="real seconds after which the run has failed")
    cluster: Path
    lease: LeaseSettings
    rm: Mapping[str, Any] = Field(default={}, description="further settings, as in themis/config/rm_settings.py")


class Mix(Setup):
    """A mix file. Its paths are relative to the file, so that a mix can be run from anywhere."""

    apps: tuple[AppArrival, ...] = Field(min_length=1)


class Arrival(Value, frozen=True, kw_only=True):
    """An app, ready to be submitted `at_s` seconds after the start."""

    at_s: float
    spec: AppSpec


def load_mix(path: Path) -> Mix:
    """Read a mix file and make its paths absolute. Raises InputError for invalid content."""
    mix = load(Mix, path)
    apps = tuple(app.model_copy(update={"group": path.parent / app.group}) for app in mix.apps)
    return mix.model_copy(update={"cluster": path.parent / mix.cluster, "apps": apps})


def arrivals(mix: Mix) -> tuple[Arrival, ...]:
    """The apps of a mix in order of arrival, with each group file read and checked.

    Raises:
        InputError: An invalid group file, or two apps with one name.
    """
    arriving = [Arrival(at_s=app.at_s, spec=_spec(app)) for app in mix.apps]
    names = [arrival.spec.name for arrival in arriving]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError("two apps of a mix share a name", value=twice[0], remedy="give one of them another name")
    return tuple(sorted(arriving, key=lambda arrival: arrival.at_s))


def check_trainable(arriving: Iterable[Arrival]) -> None:
    """Check that this machine, which runs the tasks, has what the apps' real programs import.

    Raises:
        InputError: The extra `tf` is missing.
    """
    real = [arrival.spec.name for arrival in arriving if arrival.spec.program.name and not arrival.spec.replay]
    if real and not all(find_spec(name) for name in ("tensorflow", "sklearn")):
        remedy = "pip install 'themis-scheduler[tf]', or run a mix whose programs are all `replay`"
        raise InputError("apps train with TensorFlow, which is not installed", value=", ".join(real), remedy=remedy)


def rm_settings(
    setup: Setup, *, policy: str, seed: int, cluster: Path, state_dir: Path, engine: Mapping[str, Any] | None = None
) -> RmSettings:
    """The settings of the ResourceManager for such a run. It listens on a port that the system chooses.

    `engine` holds the settings that the run's engine requires; local processes require none.
    """
    managed = sorted(set(setup.rm) & set(_MANAGED))
    if managed:
        remedy = "lease, time_scale, seed and cluster are keys of the file itself; the run decides the others"
        raise InputError("this cannot be set under rm", value=managed[0], remedy=remedy)
    settings = {
        "rm_absence_s": _RM_ABSENCE_S,
        # Replayed time runs fast: the start of an app master after a grant would idle its GPUs for minutes of it.
        "app_masters": "at_submit",
        **setup.rm,
        **(engine or {}),
        "cluster": cluster,
        "state_dir": state_dir,
        "listen": "127.0.0.1:0",
        "policy": policy,
        "lease": setup.lease.model_dump(),
        "time_scale": setup.time_scale,
        "seed": seed,
    }
    return fit(RmSettings, settings, f"rm settings of {setup.name}")


def _spec(app: AppArrival) -> AppSpec:
    spec = load_app(app.group)
    return spec if app.name is None else replace(spec, name=check_app_name(app.name, "the mix"))
