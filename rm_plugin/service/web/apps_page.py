"""The page `/apps`: all apps, a page of them at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from urllib.parse import urlencode

from rm_plugin.service.app_pages import AppPage
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.parts import AppNames, app_state
from themis.rho import HEADLINE, rho_text
from themis.web.elements import Markup, element, link, search_form, section, table, valued
from themis.web.formatting import counted, duration, percent
from themis.web.frame import page
from themis.web.static_files import TABLES_SCRIPT

APPS_A_PAGE = 200
MAX_OWNERS = 200
_RHO = f"rho, {HEADLINE}"


def apps_page(page_state: PageState, shown: AppPage, search: str = "") -> str:
    """The page as text: all apps, or those in which the words of a search are."""
    names = AppNames(page_state, root="")
    query = urlencode({"after": shown.next_mark, **({"search": search} if search else {})})
    more = link(f"apps?{query}", "Next apps") if shown.next_mark else "These are the last."
    title = f"Apps with “{search}”" if search else "Active apps first, the newest of each first"
    return page(
        "Apps",
        element("p", link("./", "Cluster"), *((", ", link("apps", "All apps")) if search else ())),
        element("h1", "Apps ", element("small", counted(page_state.manager.entries.count(), "app"))),
        section(
            title,
            search_form("apps", "apps", search),
            apps_table(page_state, names, shown.entries) if shown.entries else element("p", "None."),
            element("p", more),
        ),
        charts_from="static/",
        scripts=(TABLES_SCRIPT,),
    )


def apps_table(page_state: PageState, names: AppNames, entries: Sequence[AppEntry]) -> Markup:
    """Apps, one a row."""
    devices, time = page_state.devices_label, f"{page_state.device_noun} time"
    heads = ("app", "name", "user", "queue", "state", _RHO, "progress", devices, "wants", time, "why it waits")
    waiting = page_state.manager.estimates.waiting_of(filter(page_state.controls, entries))
    rows = [
        (
            names.id_link(entry.app_id),
            entry.spec.name,
            entry.spec.user,
            page_state.manager.app_masters.launches.queue(entry),
            app_state(page_state, entry),
            valued(rho_text(rho := page_state.rho(entry)), rho),
            valued(percent(entry.progress), entry.progress),
            "" if entry.ended else page_state.gpus_held(entry),
            f"+{entry.heartbeat.unmet_gpus}" if entry.heartbeat.unmet_gpus and not entry.ended else "",
            valued(duration(time_s := page_state.gpu_time_s(entry)), time_s),
            element("span", waiting[entry.app_id].reason, class_="words") if entry.app_id in waiting else "",
        )
        for entry in (page_state.seen(each, whole=False) for each in entries)
    ]
    return table(heads, rows, numbers=(_RHO, "progress", devices, "wants", time), sort_as="apps")


def owners_table(page_state: PageState) -> Markup:
    """Who holds and who waits: the apps that have not ended, by user and queue."""
    devices, totals = page_state.devices_label, defaultdict[tuple[str, str], list[int]](lambda: [0, 0, 0, 0])
    for entry in page_state.manager.entries.living():
        held = page_state.gpus_held(entry)
        wants = entry.heartbeat.unmet_gpus
        row = totals[entry.spec.user, page_state.manager.app_masters.launches.queue(entry)]
        for at, value in enumerate((1, int(not held), held, wants)):
            row[at] += value
    most_first = sorted(totals.items(), key=lambda item: (-item[1][2], item[0]))
    numbers = ("apps", f"without a {page_state.device_noun}", devices, "wants")
    rows = [
        (user, queue, apps, without or "", held, f"+{wants}" if wants else "")
        for (user, queue), (apps, without, held, wants) in most_first[:MAX_OWNERS]
    ]
    return table(("user", "queue", *numbers), rows, numbers=numbers, sort_as="owners")
