"""The file of queues: a tree of queues with weights, guarantees and limits, and users within them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from themis.config.loader import Section, fit, load_yaml
from themis.config.names import check_label, check_queue_name
from themis.errors import FoundErrors, InputError
from themis.queues import ROOT, Limits, Queue, Queues, QueueUser

MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e6
"""Products and sums of such weights are exact enough: 1e308 twice makes the share of each no number."""


class LimitsSection(Section):
    """What a queue, or a user within it, may have at most."""

    max_gpus: int | None = Field(default=None, ge=0, description="most GPUs at a time; none: no limit")
    max_active_apps: int | None = Field(
        default=None, ge=1, description="most apps that run at a time; further ones wait; none: no limit"
    )
    submissions_per_minute: int | None = Field(
        default=None, ge=1, description="most submissions a minute; further ones are refused; none: no limit"
    )

    @property
    def limits(self) -> Limits:
        """The limits as a value."""
        return Limits(
            max_gpus=self.max_gpus,
            max_active_apps=self.max_active_apps,
            submissions_per_minute=self.submissions_per_minute,
        )


class UserSection(LimitsSection):
    """A user within a queue."""

    weight: float = Field(default=1.0, ge=MIN_WEIGHT, le=MAX_WEIGHT, description="weight among the users of a queue")


class QueueSection(LimitsSection):
    """A queue, with the queues below it."""

    weight: float = Field(default=1.0, ge=MIN_WEIGHT, le=MAX_WEIGHT, description="weight among the queues beside it")
    guaranteed_gpus: int = Field(
        default=0, ge=0, description="GPUs up to which it is served before queues that have their guarantee"
    )
    submit: tuple[str, ...] = Field(default=(), description="users who may submit; empty: all")
    admins: tuple[str, ...] = Field(
        default=(), description="users who may end, pause and read all apps of it and of the queues below it"
    )
    users: dict[str, UserSection] = Field(default={}, description="users with a weight or limits of their own")
    each_user: LimitsSection = Field(default=LimitsSection(), description="limits of every other user")
    queues: dict[str, QueueSection] = Field(default={}, description="the queues below it, by name")


def load_queues(path: Path) -> Queues:
    """Read a file of queues. Raises InputError with all that does not fit."""
    return build_queues(fit(QueueSection, load_yaml(path), str(path)), str(path))


def build_queues(file: QueueSection, source: str) -> Queues:
    """The queues that a file describes; its top level is the root."""
    found, errors = list(_with_those_below(ROOT, "", file)), FoundErrors()
    counts = Counter(name for name, _, _ in found)
    for name, _, section in found:
        errors.run(check_queue_name, name, "queue", source)
        if counts[name] > 1:
            errors.run(_refuse, f"{source}: two queues have one name", name, "apps name a queue without its parents")
            counts[name] = 1
        _check(name, section, source, errors)
    errors.raise_all()
    return Queues(queues={name: _queue(name, parent, section) for name, parent, section in found})


def _with_those_below(name: str, parent: str, section: QueueSection) -> Iterator[tuple[str, str, QueueSection]]:
    yield name, parent, section
    for below, each in section.queues.items():
        yield from _with_those_below(below, name, each)


def _check(name: str, section: QueueSection, source: str, errors: FoundErrors) -> None:
    most, guaranteed = section.max_gpus, section.guaranteed_gpus
    if most is not None and guaranteed > most:
        remedy = f"guarantee at most {most}, or raise max_gpus"
        errors.run(_refuse, f"{source}: queue {name} is guaranteed more GPUs than its max_gpus", guaranteed, remedy)
    below = sum(each.guaranteed_gpus for each in section.queues.values())
    # Without one the root's guarantee is all GPUs, whose number the file does not know.
    if below > guaranteed and (name != ROOT or guaranteed):
        remedy = f"guarantee {name} at least as many, or its queues fewer"
        what = f"{source}: the queues below {name} are guaranteed more GPUs than its {guaranteed}"
        errors.run(_refuse, what, below, remedy)
    for user in (*section.users, *section.submit, *section.admins):
        errors.run(check_label, user, "user", source)


def _refuse(what: str, value: object, remedy: str) -> None:
    raise InputError(what, value=value, remedy=remedy)


def _queue(name: str, parent: str, section: QueueSection) -> Queue:
    return Queue(
        name=name,
        parent=parent,
        weight=section.weight,
        guaranteed_gpus=section.guaranteed_gpus,
        limits=section.limits,
        submitters=section.submit,
        admins=section.admins,
        users={user: QueueUser(weight=each.weight, limits=each.limits) for user, each in section.users.items()},
        each_user=section.each_user.limits,
    )
