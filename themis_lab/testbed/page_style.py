"""The style sheet of the report's page. Figures use its `--ink` and `--line`."""

from __future__ import annotations

STYLE = """
:root { --paper: #f6f7f9; --card: #ffffff; --ink: #1d232b; --dim: #5c6773; --line: #d5dae1; --bad: #b3261e;
  --good: #1c7a3e; --accent: #2f5f9e; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --card: #1c2127; --ink: #e4e8ed; --dim: #9aa5b1; --line: #3a424c; --bad: #ff8a80;
    --good: #6fd393; --accent: #8ab4f0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
h1 small { font-weight: 400; font-size: 1rem; color: var(--dim); }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
p { margin: 0 0 .75rem; color: var(--dim); max-width: 62rem; }
header p b { color: var(--ink); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1rem 0; }
figure { margin: 0; }
figure svg { width: 100%; height: auto; display: block; }
figure.plot img { display: block; max-width: 100%; height: auto; margin: .5rem auto 1rem; background: #ffffff;
  border-radius: 6px; padding: .4rem; }
figure svg text { font-family: system-ui, sans-serif !important; }
.verdict { font-size: .85rem; padding: .1rem .6rem; border-radius: 1rem; border: 1px solid; vertical-align: middle; }
.passed { color: var(--good); }
.failed, .bad, .failure { color: var(--bad); }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0 0; }
.tiles div { flex: 1 1 8rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; }
.tiles dt { color: var(--dim); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0 .25rem; margin: 0; }
.chip { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .45em; }
.kind { font-size: .75rem; color: var(--dim); margin-left: .4em; }
.kind.real { color: var(--accent); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--dim); font-weight: 600; }
th, td { padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
td:first-child { white-space: nowrap; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.dim { color: var(--dim); }
.path { overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  figure { overflow-x: auto; }
  figure svg { width: 48rem; max-width: none; }
  td:first-child { white-space: normal; } }
"""
