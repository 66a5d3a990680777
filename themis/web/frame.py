"""The frame of a page: one document that needs nothing from outside, and renews itself with or without script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

from themis.web.elements import Markup, element, join, markup
from themis.web.look import LOOK
from themis.web.static_files import CHART_SCRIPTS, CHART_STYLES

REFRESH_S = 5
"""How often a page renews itself, in seconds."""

_STYLE = (
    LOOK
    + """\
body.stale::before { content: "No answer: what follows is old."; display: block; padding: .4rem 1rem;
  background: var(--bad); color: var(--paper); }
.reader { font-size: .85rem; text-align: right; max-width: none; margin: 0; }
.label { font-size: .75rem; padding: 0 .45em; border: 1px solid var(--line); border-radius: 1em; color: var(--dim);
  white-space: nowrap; }
.label.bad { color: var(--bad); border-color: currentColor; }
.rack { display: flex; flex-wrap: wrap; gap: .5rem; }
.machine { border: 1px solid var(--line); border-radius: 6px; padding: .35rem .5rem; font-size: .8rem; }
.machine.lost, .machine.closed { border-color: var(--bad); }
.gpus { display: flex; flex-wrap: wrap; gap: .5rem; margin-top: .2rem; }
.slot { display: flex; gap: 2px; }
.gpu { width: 1.9em; height: 1.5em; border-radius: 3px; background: var(--free); color: var(--dim); font-size: .75rem;
  line-height: 1.5em; text-align: center; overflow: hidden; text-decoration: none; }
.gpu.leased { color: #fff; }
.gpu.expiring { background-image: repeating-linear-gradient(45deg, transparent 0 4px, rgb(0 0 0 / .3) 4px 8px); }
.chart { min-height: 18rem; }
.chart .u-legend { text-align: left; max-height: 9.5rem; overflow-y: auto; }
.chart .u-legend th, .chart .u-legend td { border: 0; padding: .1rem .4rem; white-space: nowrap; }
.chart .u-legend .u-marker { width: 2.4em; height: 3px; }
.chart .u-series:has(.u-value:empty) th::after { content: none; }
.chart button { font: inherit; font-size: .8rem; color: var(--ink); background: var(--free);
  border: 1px solid var(--line); border-radius: 6px; padding: .15rem .7rem; margin-top: .4rem; }
.chart button[aria-pressed=true] { border-color: var(--accent); color: var(--accent); }
.chart .u-series th:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
.actions { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: 1rem 0 0; }
.actions:not(:has(button)) { display: none; }
.actions button, dialog button, .tools button { font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: .3rem 1rem; cursor: pointer; }
button:hover { border-color: var(--accent); }
button.danger { color: var(--bad); border-color: currentColor; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
#action-note:empty { display: none; }
#action-note { margin: .5rem 0 0; }
dialog { width: min(28rem, calc(100vw - 2rem)); background: var(--card); color: var(--ink);
  border: 1px solid var(--line); border-radius: 8px; padding: 1.2rem; }
dialog::backdrop { background: rgb(0 0 0 / .45); }
dialog h2 { overflow-wrap: anywhere; }
dialog label { display: block; font-size: .88rem; color: var(--dim); }
dialog input { width: 100%; font: inherit; padding: .3rem .5rem; margin: .2rem 0 0; color: var(--ink);
  background: var(--paper); border: 1px solid var(--line); border-radius: 6px; }
dialog .buttons { display: flex; justify-content: flex-end; gap: .5rem; margin: 1rem 0 0; }
.tools { display: flex; flex-wrap: wrap; gap: .4rem 1rem; align-items: center; font-size: .88rem; }
.tools input[type=search] { font: inherit; width: 16rem; max-width: 100%; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; padding: .2rem .5rem; }
.tools:has(input[type=search]) { margin: 0 0 .6rem; }
.tools [role=status] { color: var(--dim); }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
th button:hover { color: var(--accent); }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
.logs select { font: inherit; max-width: 100%; color: var(--ink); background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; padding: .2rem .4rem; }
.logs pre { height: 20rem; overflow: auto; margin: .6rem 0 0; padding: .6rem; background: var(--paper);
  border: 1px solid var(--line); border-radius: 6px; font-size: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.logs p:empty { display: none; }
.gpu.lost, .gpu.closed { background: transparent; border: 1px dashed var(--bad); color: var(--bad); }
"""
)

_SCRIPT = """
const renew = (old, next) => {
  const before = [...old.children], after = [...next.children];
  if (before.length !== after.length || before.some((part, at) => part.tagName !== after[at].tagName)) {
    for (const kept of next.querySelectorAll("[data-keep]")) {
      const present = document.getElementById(kept.id);
      if (present) kept.replaceWith(present);
    }
    old.replaceWith(next);
    return;
  }
  before.forEach((part, at) => {
    if (part.isEqualNode(after[at]) || part.hasAttribute("data-keep")) return;
    if (part.querySelector("[data-keep]")) return renew(part, after[at]);
    const focused = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
    const scrolled = [...part.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    part.replaceWith(after[at]);
    after[at].querySelectorAll(".scroll").forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
    if (focused) after[at].querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  });
};
const root = document.documentElement, seconds = Number(root.dataset.refresh);
let isOwed = false, isBusy = false, source = null, timer = 0;
const update = async () => {
  isOwed = true;
  if (isBusy || document.hidden || String(getSelection()) || document.querySelector("dialog[open]")) return;
  isBusy = true;
  isOwed = false;
  let next = null;
  try {
    const answer = await fetch(location.href);
    if (answer.ok) next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  } catch { }
  document.body.classList.toggle("stale", !next);
  document.dispatchEvent(new Event("themis:renewing"));
  if (next) renew(document.querySelector("main"), next);
  isBusy = false;
  document.dispatchEvent(new Event("themis:renewed"));
};
const poll = () => { timer ||= setInterval(update, 1000 * seconds); };
const listen = () => {
  // A browser has few connections to one host: pages that are not seen give theirs back.
  if (source || document.hidden) return;
  source = new EventSource(root.dataset.stream);
  source.onopen = () => { clearInterval(timer); timer = 0; };
  source.onerror = poll;
  source.addEventListener("change", update);
};
document.addEventListener("themis:changed", update);
document.addEventListener("visibilitychange", () => {
  if (document.hidden) { source?.close(); source = null; return; }
  if (root.dataset.stream) listen();
  update();
});
if (root.dataset.stream) listen(); else if (seconds) poll();
setInterval(() => { if (isOwed) update(); }, 1000);
"""

_SCRIPT_HASH = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()

# Only our scripts run, even if a user's name were not escaped somewhere. No other site can show a page in a frame, to
# lead its user's clicks to our buttons.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self' 'unsafe-inline'; connect-src 'self'; "
    f"base-uri 'none'; form-action 'self'; frame-ancestors 'none'; script-src 'self' 'sha256-{_SCRIPT_HASH}'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def page(
    title: str,
    *body: object,
    refresh_s: int = REFRESH_S,
    charts_from: str | None = None,
    scripts: Sequence[str] = (),
    stream: str = "",
) -> str:
    """A whole document.

    Args:
        title: The title.
        body: The elements of the page.
        refresh_s: Seconds between two renewals without a stream; 0 for a document that does not change.
        charts_from: Relative address of the folder of scripts, for a page with charts.
        scripts: More scripts of that folder.
        stream: Relative address of server-sent events, each of which renews the page.
    """
    renew = f'<noscript><meta http-equiv="refresh" content="{refresh_s}"></noscript>' if refresh_s else ""
    streamed = f' data-stream="{markup(stream)}"' if stream else ""
    return (
        f'<!doctype html>\n<html lang="en" data-refresh="{refresh_s}"{streamed}>\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{markup(title)}</title>\n{_chart_styles(charts_from)}<style>{_STYLE}</style>\n{renew}\n</head>\n"
        f"<body>\n{element('main', join(body))}\n<script>{_SCRIPT}</script>\n{_scripts(charts_from, scripts)}</body>\n"
        "</html>\n"
    )


def _chart_styles(folder: str | None) -> str:
    names = () if folder is None else CHART_STYLES
    return "".join(f'<link rel="stylesheet" href="{folder}{name}">\n' for name in names)


def _scripts(folder: str | None, more: Sequence[str]) -> str:
    names = () if folder is None else (*CHART_SCRIPTS, *more)
    return "".join(f'<script src="{folder}{name}"></script>\n' for name in names)


def chart(kind: str, source: str, description: str) -> Markup:
    """A chart that a page's script draws, in a page with `charts_from`.

    Args:
        kind: What it shows, one of the kinds of `static/charts.js`; one chart of each kind in a page.
        source: Relative address of its data.
        description: What a reader that cannot see it should know.
    """
    attributes = {"data_keep": "", "data_chart": kind, "data_source": source, "aria_label": description}
    without = element("noscript", "This chart needs JavaScript; ", element("a", "its numbers", href=source), ".")
    return element("div", without, class_="chart", id=f"chart-{kind}", role="group", **attributes)


def chip(colour: str) -> Markup:
    """A patch of colour."""
    return element("span", class_="chip", style=f"background:{colour}")


def label(text: str, kind: str = "") -> Markup:
    """A short word in a frame; `kind` is `bad` or empty."""
    return element("span", text, class_=f"label {kind}".strip())
