"""Read Submarine's job YAML (`-f file.yaml`) into the same options as the flags of `job run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field, StrictBool, StrictInt

from submarine_client.job_flags import Given
from themis.config.loader import Section, fit, load_yaml
from themis.config.scalars import Variable, VariableName
from themis.errors import InputError


class SpecSection(Section):
    """The job's name. `job_type` is accepted but has no effect: the launch command decides."""

    name: str | None = None
    job_type: str | None = None
    framework: str | None = None


class ConfigsSection(Section):
    """Paths and settings of every role."""

    input_path: str | None = None
    checkpoint_path: str | None = None
    saved_model_path: str | None = None
    docker_image: str | None = None
    wait_job_finish: StrictBool = False
    envs: dict[VariableName, Variable] = Field(default={})
    localizations: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    quicklinks: tuple[str, ...] = ()


class SchedulingSection(Section):
    """The job's queue."""

    queue: str | None = None


class RoleSection(Section):
    """One role: `replicas` identical tasks. `envs` are added to those of `configs`."""

    resources: str | None = None
    replicas: StrictInt | None = Field(default=None, ge=0)
    launch_cmd: str | None = None
    docker_image: str | None = None
    envs: dict[VariableName, Variable] = Field(default={})
    localizations: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()


class RolesSection(Section):
    """Workers and parameter servers."""

    worker: RoleSection = RoleSection()
    ps: RoleSection = RoleSection()


class SecuritySection(Section):
    """Kerberos."""

    keytab: str | None = None
    principal: str | None = None
    distribute_keytab: StrictBool = False


class TensorBoardSection(Section):
    """TensorBoard, requested if the section is present."""

    resources: str | None = None
    docker_image: str | None = None


class JobYaml(Section):
    """A job YAML."""

    spec: SpecSection = SpecSection()
    configs: ConfigsSection = ConfigsSection()
    scheduling: SchedulingSection = SchedulingSection()
    roles: RolesSection = RolesSection()
    security: SecuritySection = SecuritySection()
    tensorBoard: TensorBoardSection | None = None  # noqa: N815 - the key's spelling in Submarine


def read_job_yaml(path: Path) -> Given:
    """Return the options of a job YAML, by the name of the equivalent flag.

    Raises:
        InputError: The file does not fit the schema, or has mounts, which no engine supports yet.
    """
    file = fit(JobYaml, load_yaml(path), str(path))
    worker, ps = file.roles.worker, file.roles.ps
    if file.configs.mounts or worker.mounts or ps.mounts:
        remedy = "tasks see the machine's own files; name their whole paths instead"
        raise InputError(f"{path}: mounts are not supported yet", remedy=remedy)
    if ps.envs or ps.localizations:
        raise InputError(f"{path}: roles.ps cannot be honoured yet", remedy="leave it out; use workers only")
    single = {
        **_head(file),
        "num_workers": worker.replicas,
        "worker_resources": worker.resources,
        "worker_launch_cmd": worker.launch_cmd,
        "worker_docker_image": worker.docker_image,
        "num_ps": ps.replicas,
        "ps_resources": ps.resources,
        "ps_launch_cmd": ps.launch_cmd,
        "ps_docker_image": ps.docker_image,
        **_tensorboard(file.tensorBoard),
    }
    repeated: dict[str, Sequence[str]] = {
        "env": [f"{name}={value}" for name, value in {**file.configs.envs, **worker.envs}.items()],
        "localization": (*file.configs.localizations, *worker.localizations),
        "quicklink": file.configs.quicklinks,
    }
    given = {name: (str(value),) for name, value in single.items() if value is not None}
    return {**given, **{name: tuple(values) for name, values in repeated.items() if values}}


def merge(flags: Given, yaml: Given, source: str) -> Given:
    """Merge the options of both. Raises InputError for an option in both, since neither takes precedence."""
    twice = [name for name in yaml if name in flags]
    if twice:
        raise InputError(f"--{twice[0]} is given on the command line and in {source}", remedy="keep one of the two")
    return {**yaml, **flags}


def _head(file: JobYaml) -> Mapping[str, str | None]:
    return {
        "name": file.spec.name,
        "framework": file.spec.framework,
        "input_path": file.configs.input_path,
        "checkpoint_path": file.configs.checkpoint_path,
        "saved_model_path": file.configs.saved_model_path,
        "docker_image": file.configs.docker_image,
        "wait_job_finish": "true" if file.configs.wait_job_finish else None,
        "queue": file.scheduling.queue,
        "keytab": file.security.keytab,
        "principal": file.security.principal,
        "distribute_keytab": "true" if file.security.distribute_keytab else None,
    }


def _tensorboard(section: TensorBoardSection | None) -> Mapping[str, str | None]:
    if section is None:
        return {}
    return {
        "tensorboard": "true",
        "tensorboard_resources": section.resources,
        "tensorboard_docker_image": section.docker_image,
    }
