"""Parts that several pages of the ResourceManager share: colours, names of apps, the table of rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from colorsys import hls_to_rgb
from urllib.parse import quote

from rm_plugin.service.entries import AppEntry
from rm_plugin.service.store import app_number
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.round_record import RoundRecord
from themis.identity import Identity
from themis.lifecycle import AppState
from themis.rho import rho_text
from themis.web.elements import Markup, element, join, link, markup, table
from themis.web.formatting import counted, duration, from_now, number
from themis.web.frame import chip

_GOLDEN_ANGLE = 137.508
_MIN_CONTRAST = 4.5
_APPS_IN_A_CELL = 8
_BAD_STATES = frozenset({AppState.FAILED, AppState.KILLED})


class AppNames:
    """Apps as links with their colour; `root` leads from the page to `/`."""

    def __init__(self, page_state: PageState, root: str) -> None:
        self._entries = page_state.manager.entries
        self._root = root
        self._boxes: dict[str, Markup] = {}
        self._links: dict[str, Markup] = {}

    def colour(self, app_id: str) -> str:
        """Neighbours in order of submission have hues as far from each other as they come."""
        hue = round(210 + app_number(app_id) * _GOLDEN_ANGLE) % 360
        lightness = next(percent for percent in range(42, 0, -1) if _contrast_of_white(hue, percent) >= _MIN_CONTRAST)
        return f"hsl({hue} 50% {lightness}%)"

    def address(self, app_id: str) -> str:
        """The app's page."""
        return f"{self._root}apps/{quote(app_id, safe='')}"

    def name(self, app_id: str) -> str:
        """The name that its user gave it."""
        entry = self._entries.find(app_id)
        return app_id if entry is None else entry.spec.name

    def short(self, app_id: str) -> str:
        """Return a short label of the app for a small box: the number at the end of its id."""
        digits = app_id[len(app_id.rstrip("0123456789")) :]
        return digits.lstrip("0") or app_id[-3:]

    def box(self, app_id: str) -> Markup:
        """The end of the opening tag of a GPU's box, and its content: the same for all of an app's."""
        if app_id not in self._boxes:
            address, short = markup(self.address(app_id)), markup(self.short(app_id))
            style = f"background-color:{self.colour(app_id)}"
            self._boxes[app_id] = Markup(f'href="{address}" style="{style}">{short}')
        return self._boxes[app_id]

    def link(self, app_id: str) -> Markup:
        """Its colour and its name; the id shows when the pointer rests on it."""
        if app_id not in self._links:
            text = element("a", self.name(app_id), href=self.address(app_id), title=app_id)
            self._links[app_id] = element("span", chip(self.colour(app_id)), text, class_="nowrap")
        return self._links[app_id]

    def id_link(self, app_id: str) -> Markup:
        """Its colour and its id."""
        return Markup(chip(self.colour(app_id)) + link(self.address(app_id), app_id))

    def listed(self, notes: Mapping[str, str] | Iterable[str]) -> Markup:
        """Apps with a note each, the first few of them."""
        pairs = notes if isinstance(notes, Mapping) else dict.fromkeys(notes, "")
        shown = [join((self.link(app), note), " ") for app, note in list(pairs.items())[:_APPS_IN_A_CELL]]
        more = len(pairs) - len(shown)
        return join([*shown, f"and {more} more"] if more else shown, "<br>")


def _contrast_of_white(hue: int, lightness_percent: int) -> float:
    """WCAG's contrast of white text on `hsl(hue 50% lightness)`. Greens and yellows are brighter than blues."""
    channels = hls_to_rgb(hue / 360, lightness_percent / 100, 0.5)
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in channels)
    return 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05)


def reader_note(reader: Identity | None, root: str) -> Markup:
    """Say as whom a page is read; `root` leads from the page to `/`."""
    if reader is None:
        words: tuple[object, ...] = (
            "Not signed in: you see what every user sees. ",
            link(f"{root}login", "Sign in"),
            ".",
        )
    else:
        role = ", an administrator" if reader.is_admin else ""
        words = ("Signed in as ", element("strong", reader.user), f"{role}.")
    return element("p", *words, class_="reader")


def app_state(page_state: PageState, entry: AppEntry) -> Markup:
    """The state, marked when it is a bad one; the reason shows when the pointer rests on it."""
    kind = "bad" if entry.state in _BAD_STATES else None
    return element("span", page_state.manager.shown_state(entry), class_=kind, title=entry.diagnostics or None)


def rounds_table(names: AppNames, rounds: Sequence[RoundRecord], page_state: PageState, *, auctions: bool) -> Markup:
    """Rounds, one a row; with `auctions`, also whom they offered GPUs, and who bid."""
    noun, devices = page_state.device_noun, page_state.devices_label

    def given(record: RoundRecord) -> list[Markup]:
        if not auctions:
            apps = [*record.won, *record.leftovers]
            return [names.listed({app: counted(gpus, noun) for app in apps if (gpus := record.gpus_of(app))})]
        return [
            names.listed({app: f"rho {rho_text(record.rho.get(app))}" for app in record.offered}),
            names.listed(_bid_notes(record)),
            names.listed(_win_notes(record, noun)),
            names.listed({app: counted(sum(gpus.values()), noun) for app, gpus in record.leftovers.items() if gpus}),
        ]

    rows = [
        (
            record.round_id,
            element("span", from_now(record.started_at_s, page_state.now_s), class_="nowrap"),
            record.gpus_offered,
            join(record.reasons, "<br>"),
            *given(record),
            record.usable_left if record.granted else "",
            _took(record),
        )
        for record in rounds
    ]
    of_given = ("offered to", "bids", "won", "leftovers") if auctions else ("given to",)
    heads = ("round", "began", devices, "reasons", *of_given, "left", "took")
    return table(heads, rows, numbers=("round", devices, "left", "took"))


def _bid_notes(record: RoundRecord) -> dict[str, str]:
    notes = {app: counted(int(bid["rows"]), "row") for app, bid in record.bids.items()}
    return notes | dict(record.bids_absent)


def _win_notes(record: RoundRecord, noun: str) -> dict[str, str]:
    notes = {}
    for app, gpus in record.won.items():
        if gpus:
            share = record.payment(app)
            kept = "" if share is None else f", kept {number(share)}"
            notes[app] = counted(sum(gpus.values()), noun) + kept
    return notes


def _took(record: RoundRecord) -> Markup:
    if record.duration_s is None:
        return markup("being played")
    notable = element("span", record.outcome, class_="bad") if record.outcome == "abandoned" else ""
    return join((duration(record.duration_s), notable), " ")
