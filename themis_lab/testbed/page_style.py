"""The style sheet of the report's page. Figures use its `--ink` and `--line`."""

from __future__ import annotations

from themis.web.look import LOOK

STYLE = (
    LOOK
    + """\
main { max-width: 70rem; }
header p b { color: var(--ink); }
figure { margin: 0; }
figure svg { width: 100%; height: auto; display: block; }
figure.plot img { display: block; max-width: 100%; height: auto; margin: .5rem auto 1rem; background: #ffffff;
  border-radius: 6px; padding: .4rem; }
figure svg text { font-family: system-ui, sans-serif !important; }
.verdict { font-size: .85rem; padding: .1rem .6rem; border-radius: 1rem; border: 1px solid; vertical-align: middle; }
.passed { color: var(--good); }
.failed, .failure { color: var(--bad); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0 .25rem; margin: 0; }
.kind { font-size: .75rem; color: var(--dim); margin-left: .4em; }
.kind.real { color: var(--accent); font-weight: 600; }
.facts { margin: 0 0 .75rem; }
.path { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  figure { overflow-x: auto; }
  figure svg { width: 48rem; max-width: none; }
  td:first-child { white-space: normal; } }
"""
)
