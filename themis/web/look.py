"""The look that the pages and the report of a run share: colours, text, tiles and tables."""

LOOK = """
:root { --paper: #f6f7f9; --card: #ffffff; --ink: #1d232b; --dim: #5c6773; --line: #d5dae1; --bad: #b3261e;
  --good: #1c7a3e; --accent: #2f5f9e; --free: #e9ecf0; --curve: 58%; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --card: #1c2127; --ink: #e4e8ed; --dim: #9aa5b1; --line: #3a424c; --bad: #ff8a80;
    --good: #6fd393; --accent: #8ab4f0; --free: #2a3038; --curve: 74%; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 3rem; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h1 small { font-weight: 400; font-size: 1rem; color: var(--dim); }
h2 { font-size: 1.05rem; margin: 0 0 .25rem; }
h3 { font-size: .88rem; margin: .75rem 0 .25rem; color: var(--dim); font-weight: 600; }
p { margin: 0 0 .75rem; color: var(--dim); max-width: 62rem; overflow-wrap: anywhere; }
a { color: var(--accent); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; margin: 1rem 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1rem 0 0; }
.tiles div { flex: 1 1 8rem; background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem .8rem; }
.tiles dt { color: var(--dim); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; margin: .5rem 0 0;
  font-size: .88rem; }
.facts dt { color: var(--dim); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th { text-align: left; color: var(--dim); font-weight: 600; white-space: nowrap; }
th, td { padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td a { white-space: nowrap; }
td code { overflow-wrap: anywhere; display: inline-block; min-width: 14rem; }
th:last-child, td:last-child { padding-right: 0; }
tr:last-child td { border-bottom: 0; }
td .words { display: block; min-width: 15rem; }
td:first-child { white-space: nowrap; }
@media (max-width: 40rem) {
  td .when { white-space: normal; }
  td a { white-space: normal; overflow-wrap: anywhere; }
  .stacked :is(table, tbody, tr, td) { display: block; }
  .stacked thead { display: none; }
  .stacked[data-sort] thead, .stacked[data-sort] thead tr { display: flex; flex-wrap: wrap; }
  .stacked[data-sort] th { border: 0; }
  .stacked tbody tr { padding: .4rem 0; border-bottom: 1px solid var(--line); }
  .stacked tbody tr:last-child { border-bottom: 0; }
  .stacked td { position: relative; min-height: 1.6rem; padding: .05rem 0 .05rem 8.5rem; border: 0; text-align: left;
    overflow-wrap: anywhere; }
  .stacked td::before { content: attr(data-head); position: absolute; left: 0; color: var(--dim); }
  .stacked td:empty { display: none; }
  .stacked td :is(.words, code) { min-width: 0; } }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.dim { color: var(--dim); }
.bad { color: var(--bad); }
.good { color: var(--good); }
.nowrap { white-space: nowrap; }
.chip { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .45em; }
"""
