"""Restore apps, leases and rounds from the store at start. Unreadable rows are reported and skipped."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import re
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
from google.protobuf.message import DecodeError
from msgspec.structs import replace

from rm_plugin.arbiter.round_values import Wait
from rm_plugin.policies.gang_check import check_gang
from rm_plugin.policies.port import Policy, PolicyWithMemory
from rm_plugin.policies.registry import POLICIES, make_policy
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.store import StateStore, app_number
from themis.cluster import Cluster, GpuId
from themis.errors import InputError, ThemisError
from themis.leases import Lease, LeaseChangeKind
from themis.lifecycle import LEASE_LIFECYCLE, LeaseState
from themis.values import Value

LOG = logging.getLogger("themis.rm")

T = TypeVar("T")

_KEY = re.compile("[0-9a-f]{64}")


def restored_entries(store: StateStore, key_file: Path | None = None, app_folders: Iterable[Path] = ()) -> AppEntries:
    """Return all readable apps. The ids of the others are not used again, and their processes are to be ended.

    Args:
        store: The state of an earlier run, or an empty store.
        key_file: Keeps the key of refusals beside the store, in case that is lost; None to keep none.
        app_folders: Folders of apps, also of such that the store does not know, as it is lost or an older copy. Their
            ids are not used again: a new app would go on from the journal and the checkpoints in there.
    """
    last_number = store.last_app_number()
    last_folder = max((app_number(folder.name) for folder in app_folders), default=0)
    if last_folder > last_number:
        LOG.warning(
            "the store knows apps up to %d, but the folder of apps has %d: the next app gets a later number",
            last_number,
            last_folder,
        )
    apps, damaged = store.apps_and_damage()
    for row in (*damaged, *store.damaged_leases()):
        LOG.error("%s of the table %s cannot be read and is skipped: %.300s", row.key, row.table, row.problem)
    entries, lost = [], [row.key for row in damaged]
    for stored in apps:
        try:
            entries.append(AppEntry.restored(stored))
        except (ThemisError, ValueError, TypeError, DecodeError) as error:
            LOG.error("%s cannot be read and is skipped: %.300s", stored.app_id, error)
            lost.append(stored.app_id)
    return AppEntries(
        entries,
        lost,
        last_number=max(last_number, last_folder),
        archived=store.counts(archived=True),
        refusal_key=_refusal_key(store, key_file),
    )


def _refusal_key(store: StateStore, file: Path | None) -> str:
    """Return the key that proves refusals.

    A store without one takes that of the file. So after the loss of a store, app masters of earlier runs believe that
    they are refused, and end; else they would use GPUs that the service grants to others.
    """
    kept = None if file is None else _read_key(file)
    key = store.meta("refusal_key")
    if key is None:
        key = kept or secrets.token_hex(32)
        with store.transaction() as transaction:
            transaction.put_meta("refusal_key", key)
    if file is not None and key != kept:
        try:
            _write_key(file, key)
        except OSError as error:
            # The store has it.
            LOG.warning("the key of refusals cannot be kept beside the store: %s", error)
    return key


def _write_key(file: Path, key: str) -> None:
    partial = file.with_suffix(".partial")
    opened = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(opened, "w", encoding="ascii") as written:
        written.write(key)
        written.flush()
        os.fsync(written.fileno())
    partial.replace(file)


def _read_key(file: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        text = file.read_text(encoding="ascii")
        if _KEY.fullmatch(text):
            return text
    return None


def warn_of_refused(entries: AppEntries, policy: str) -> None:
    """Warn of active apps that the policy would refuse: another one accepted them, and some of their jobs wait now."""
    for entry in entries.active():
        try:
            for job in entry.spec.jobs:
                check_gang(policy, entry.spec.name, job.job_id, job.shape)
        except InputError as error:
            LOG.warning("jobs of %s wait until the policy changes: %s", entry.app_id, error)


def restored_value(store: StateStore, key: str, kind: type[T], empty: T) -> T:
    """Read a value of the service that the store has as JSON. Returns `empty` if it has none or cannot be read."""
    text = store.meta(key)
    if text is None:
        return empty
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        LOG.error("%s of the store cannot be read and is dropped: %.300s", key, error)
        return empty


def lasting_leases(store: StateStore, cluster: Cluster, entries: AppEntries, now_s: float) -> list[Lease]:
    """Return the leases that continue.

    A lease is written as revoked, so that its GPU can be leased again, if its app has ended or is unreadable, if the
    cluster lacks its GPU, or if another lease holds that GPU.
    """
    active = {entry.app_id for entry in entries.active()}
    taken: set[tuple[bool, GpuId]] = set()
    lasting = []
    for lease in store.leases():
        place = (lease.state is LeaseState.RESERVED, lease.gpu)
        if lease.app_id not in active:
            problem = "its app cannot be read, or has ended"
        elif lease.gpu not in cluster.gpu_set:
            problem = "the cluster has no such GPU"
        elif place in taken:
            problem = "another lease is on its GPU"
        else:
            taken.add(place)
            lasting.append(lease)
            continue
        LOG.error("lease %d of %s on %s is revoked: %s", lease.lease_id, lease.app_id, lease.gpu, problem)
        if lease.app_id not in active:
            entries.lose(lease.app_id)
        _revoke(store, lease, problem, now_s)
    return lasting


def _revoke(store: StateStore, lease: Lease, problem: str, now_s: float) -> None:
    state = LeaseState.REVOKED if LEASE_LIFECYCLE.allows(lease.state, LeaseState.REVOKED) else LeaseState.RELEASED
    detail = {"lease_id": lease.lease_id, "gpu": str(lease.gpu), "expires_at_s": lease.expires_at_s, "reason": problem}
    kind = LeaseChangeKind.REVOKED if state is LeaseState.REVOKED else LeaseChangeKind.RELEASED
    with store.transaction() as transaction:
        transaction.put_lease(replace(lease, state=state))
        transaction.append_event(kind.value, now_s, app_id=lease.app_id, detail=detail)


def restored_memory(stored: object, policy: Policy, former: str = "") -> Value | None:
    """Restore the policy's memory after the last granted round, from JSON.

    Policies that share a type of memory, such as `oef` and its baselines, accept each other's memory.

    Args:
        stored: The stored memory, or None.
        policy: The present policy.
        former: The policy that wrote the memory; empty if unknown.

    Returns:
        None if the policy uses no memory, if a policy with another one wrote it, or if it cannot be read. The policy
        then starts without memory.
    """
    if stored is None:
        return None
    if not isinstance(policy, PolicyWithMemory):
        LOG.warning("the policy %s uses no memory: that of %s is dropped", policy.name, former or "an earlier policy")
        return None
    if former not in ("", policy.name):
        kept = _memory_type(former) is policy.memory_type
        LOG.warning(
            "the policy changed from %s to %s: what %s remembered is %s",
            *(former, policy.name, former, "kept" if kept else "dropped"),
        )
        if not kept:
            return None
    try:
        return msgspec.convert(stored, policy.memory_type)
    except msgspec.ValidationError as error:
        problem = "what is stored is dropped, because another policy wrote it or it is damaged"
        LOG.warning("the policy %s starts without memory: %s (%.300s)", policy.name, problem, error)
        return None


def restored_waits(stored: object) -> dict[str, Wait]:
    """Restore why jobs wait by the newest round, by app, from JSON. The next round says again what cannot be read."""
    try:
        return msgspec.convert(stored or {}, dict[str, Wait])
    except msgspec.ValidationError as error:
        LOG.warning("why jobs wait is unknown until the next round: %.300s", error)
        return {}


def _memory_type(policy_name: str) -> type[Value] | None:
    policy = make_policy(policy_name) if policy_name in POLICIES else None
    return policy.memory_type if isinstance(policy, PolicyWithMemory) else None


def is_finite(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
