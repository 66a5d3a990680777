"""The page `/apps`: all apps, a page of them at a time."""

from __future__ import annotations

from collections.abc import Sequence

from rm_plugin.service.app_pages import AppPage
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.parts import AppNames, app_state
from themis.rho import HEADLINE, rho_text
from themis.web.elements import Markup, element, link, outside_link, section, table
from themis.web.formatting import counted, duration, percent
from themis.web.frame import page

APPS_A_PAGE = 200
_RHO = f"rho, {HEADLINE}"


def apps_page(page_state: PageState, shown: AppPage) -> str:
    """The page as text."""
    names = AppNames(page_state, root="")
    more = link(f"apps?after={shown.next_mark}", "Next apps") if shown.next_mark else "These are the last."
    return page(
        "Apps",
        element("p", link("./", "Cluster")),
        element("h1", "Apps ", element("small", counted(page_state.manager.entries.count(), "app"))),
        section(
            "Active apps first, the newest of each first",
            apps_table(page_state, names, shown.entries),
            element("p", more),
        ),
    )


def apps_table(page_state: PageState, names: AppNames, entries: Sequence[AppEntry]) -> Markup:
    """Apps, one a row."""
    devices, time = page_state.devices_label, f"{page_state.device_noun} time"
    heads = ("app", "name", "user", "queue", "state", _RHO, "progress", devices, "wants", time, "its own page")
    rows = [
        (
            names.id_link(entry.app_id),
            entry.spec.name,
            entry.spec.user,
            entry.spec.queue,
            app_state(entry),
            rho_text(page_state.rho(entry)),
            percent(entry.progress),
            "" if entry.ended else page_state.gpus_held(entry),
            f"+{entry.heartbeat.unmet_gpus}" if entry.heartbeat.unmet_gpus and not entry.ended else "",
            duration(page_state.gpu_time_s(entry)),
            outside_link(entry.page_url, "app master") if entry.page_url else "",
        )
        for entry in (page_state.seen(each, whole=False) for each in entries)
    ]
    return table(heads, rows, numbers=(_RHO, "progress", devices, "wants", time))
