"""The page `/`: the cluster, who holds what of it, the apps and the newest rounds."""

from __future__ import annotations

import math
from itertools import islice, takewhile

from rm_plugin.service.web.apps_page import apps_table, owners_table
from rm_plugin.service.web.page_state import GpuState, MachineState, PageState
from rm_plugin.service.web.parts import AppNames, rounds_table
from rm_plugin.service.web.stream import cluster_mark
from themis.cluster import GpuId, Machine
from themis.lifecycle import LeaseState
from themis.rho import HEADLINE, RhoDefinition, rho_text
from themis.web.elements import Markup, element, join, link, markup, search_form, section, tiles
from themis.web.formatting import counted, from_now
from themis.web.frame import chart, label, page
from themis.web.static_files import TABLES_SCRIPT

MAX_MACHINES = 200
MAX_APPS = 200
MAX_ENDED = 20
ROUNDS_SHOWN = 10


def home_page(page_state: PageState) -> str:
    """The page as text."""
    names = AppNames(page_state, root="")
    cluster = page_state.manager.arbiter.cluster
    return page(
        f"{cluster.name}: {page_state.policy}",
        element("h1", cluster.name, " ", element("small", f"under {page_state.policy}")),
        element("p", _emulation(page_state)),
        _tiles(page_state),
        section("Cluster", *_cluster(page_state, names), note=_CLUSTER_NOTE.format(page_state.device_noun)),
        section("Use and fairness", chart("usage", "api/v1/usage", _USAGE), note=_USAGE_NOTE),
        section("Apps", *_apps(page_state, names), note=_APPS_NOTE),
        *_owners(page_state),
        _rounds(page_state, names),
        element(
            "p",
            "The same for programs: ",
            join([link(path, path) for path in _ADDRESSES], ", "),
            ". Submit with the command ",
            element("code", "submarine"),
            ".",
        ),
        charts_from="static/",
        scripts=(TABLES_SCRIPT,),
        stream=f"api/v1/stream?after={cluster_mark(page_state.manager)}",
    )


_ADDRESSES = ("api/v1/cluster", "api/v1/apps", "api/v1/usage", "api/v1/rounds", "api/v1/events", "metrics", "healthz")
_CLUSTER_NOTE = (
    "A box is a {}, with the number of the app that holds it; striped while its holder gives it back. "
    "Boxes side by side share a slot."
)
_USAGE = "leased GPUs and the largest rho over time"
_USAGE_NOTE = f"Since the start of the ResourceManager. Max rho is that of apps active at the time, by {HEADLINE}."
_APPS_NOTE = (
    f"Finish-time fairness rho by {HEADLINE}: the time to the end over {HEADLINE.sentence}. Of an app that runs "
    "the end is an estimate; pages of ended apps have the other definitions."
)
_OWNERS_NOTE = "The apps that have not ended: who holds {0}s, and who could use more."
_AUCTION_NOTE = (
    f"An auction offers GPUs to the apps of the worst rho, by {RhoDefinition.THEMIS}, as their app masters report it; "
    "what a winner kept is its share after the hidden payment. "
)
_LEFT_NOTE = "Left: {}s that some app could still use."


def _emulation(page_state: PageState) -> str:
    machines = page_state.manager.arbiter.cluster.machines
    emulated = sum(machine.gpus for machine in machines if page_state.is_emulated(machine))
    if not emulated:
        return ""
    share = "All" if emulated == page_state.manager.arbiter.cluster.gpus else str(emulated)
    return f"{share} {page_state.device_noun}s are emulated: leases are real, cards are not."


def _tiles(page_state: PageState) -> Markup:
    gpus = page_state.gpus_by_state()
    rows: list[tuple[str, object]] = [
        (page_state.devices_label, sum(gpus.values())),
        ("leased", gpus[GpuState.LEASED]),
        ("free", gpus[GpuState.FREE]),
        ("closed", gpus[GpuState.CLOSED]),
        ("lost", gpus[GpuState.LOST]),
        ("active apps", page_state.manager.arbiter.active_count),
        (f"max rho, {HEADLINE}", rho_text(page_state.max_rho())),
        ("rounds", page_state.manager.rounds.rounds),
    ]
    hidden = {name for name, value in rows if name in ("closed", "lost") and not value}
    return tiles([row for row in rows if row[0] not in hidden])


# ---- the cluster ----------------------------------------------------------------------------------------------------


def _cluster(page_state: PageState, names: AppNames) -> list[Markup]:
    cluster = page_state.manager.arbiter.cluster
    parts, room = [], MAX_MACHINES
    for rack, machines in cluster.racks.items():
        if room > 0:
            boxes = [_machine(page_state, names, machine) for machine in machines[:room]]
            parts += [element("h3", rack), element("div", *boxes, class_="rack")]
        room -= len(machines)
    if room < 0:
        parts.append(element("p", f"and {counted(-room, 'more machine')}, which api/v1/cluster lists"))
    return parts


def _machine(page_state: PageState, names: AppNames, machine: Machine) -> Markup:
    state = page_state.machine_state(machine)
    labels = [label(machine.device)] if not page_state.is_emulated(machine) else [label("emulated")]
    if state is not MachineState.AVAILABLE:
        labels.append(label(state.value, "bad"))
    gpus = iter(page_state.manager.arbiter.cluster.gpus_of(machine.machine_id))
    slots = [
        element("div", *[_gpu(page_state, names, next(gpus)) for _ in range(size)], class_="slot")
        for size in machine.slots
    ]
    return element(
        "div",
        join((machine.machine_id, *labels), " "),
        element("div", *slots, class_="gpus"),
        class_=f"machine {state}",
    )


def _gpu(page_state: PageState, names: AppNames, gpu: GpuId) -> Markup:
    # Written out, not put together from elements: there are thousands, and the loop has other work.
    state = page_state.gpu_state(gpu)
    if state is not GpuState.LEASED:
        mark = "" if state is GpuState.FREE else "x"
        return Markup(f'<div class="gpu {state.value}" title="{markup(gpu)}: {state.value}">{mark}</div>')
    table = page_state.manager.arbiter.table
    lease, next_lease = table.live[gpu], table.reserved.get(gpu)
    expiring = " expiring" if lease.state is LeaseState.EXPIRING else ""
    then = f", then {names.name(next_lease.app_id)}" if next_lease is not None else ""
    ends = from_now(lease.expires_at_s, page_state.now_s)
    title = markup(f"{gpu}: {names.name(lease.app_id)} ({lease.app_id}), ends {ends}{then}")
    return Markup(f'<a class="gpu leased{expiring}" title="{title}" {names.box(lease.app_id)}</a>')


# ---- apps -----------------------------------------------------------------------------------------------------------


def _apps(page_state: PageState, names: AppNames) -> list[Markup]:
    entries = page_state.manager.entries
    living, ended = entries.newest_first(), entries.newest_first(after=(True, -math.inf))
    shown = [*islice(takewhile(lambda entry: not entry.ended, living), MAX_APPS), *islice(ended, MAX_ENDED)]
    if not shown:
        return [element("p", "None yet.")]
    parts = [search_form("apps", "apps"), apps_table(page_state, names, shown)]
    if more := page_state.manager.entries.count() - len(shown):
        parts.append(element("p", link("apps", f"and {counted(more, 'more app')}")))
    return parts


def _owners(page_state: PageState) -> list[Markup]:
    if not page_state.manager.entries.has_living:
        return []
    note = _OWNERS_NOTE.format(page_state.device_noun)
    return [section("Users and queues", owners_table(page_state), note=note)]


# ---- rounds ---------------------------------------------------------------------------------------------------------


def _rounds(page_state: PageState, names: AppNames) -> Markup:
    newest = page_state.event_index.rounds(ROUNDS_SHOWN)
    auctions = any(record.offered for record in newest)
    note = (_AUCTION_NOTE if auctions else "") + _LEFT_NOTE.format(page_state.device_noun)
    shown = rounds_table(names, newest, page_state, auctions=auctions) if newest else markup("None yet.")
    return section("Newest rounds", shown, note=note)
