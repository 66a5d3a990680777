"""Scripts and styles that pages load. They ship in this package, so that a page needs nothing from outside.

uPlot (MIT licence, `static/uplot-LICENSE.txt`) draws the charts: docs/decisions/0064-charts-by-uplot.md.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).with_name("static")
ROUTE = "/static/"
CHART_SCRIPTS = ("uplot-1.6.32.min.js", "charts.js")
ACTIONS_SCRIPT, LOGS_SCRIPT, TABLES_SCRIPT = "actions.js", "logs.js", "tables.js"
CHART_STYLES = ("uplot-1.6.32.min.css",)
