"""The board, the alerts and the settings in conf/monitoring name only metrics and labels that are exported."""

import asyncio
import json
import re

import pytest
import yaml
from documents import ROOT, table_rows, text_of
from web_cases import NOW_S, busy

from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.metrics import metrics_text
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.usage_history import UsageHistory
from themis.lifecycle import AppState

FOLDER = ROOT / "conf" / "monitoring"
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"][0]["rules"]
BOARD = json.loads((FOLDER / "grafana.json").read_text())
PANELS = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel["targets"]]
FROM_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def exported():
    """By metric: the names and values of its labels."""

    async def text():
        case = busy()
        case.app("well", state=AppState.FINISHED, finished_at_s=NOW_S + 1.0)
        seen = PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory())
        for event in case.recorder.events(0, "", 1_000):
            seen.event_index.take(event)
        return metrics_text(seen)

    found = {}
    for name, labels in re.findall(r"^(themis_\w+)(?:{(.*)})? ", asyncio.run(text()), flags=re.M):
        values = found.setdefault(name, {})
        for label, value in re.findall(r'(\w+)="([^"]*)"', labels):
            values.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize(("title", "expression"), [*PANELS, *((rule["alert"], rule["expr"]) for rule in ALERTS)])
def test_expression_names_only_what_is_exported(exported, title, expression):
    names = re.findall(r"(?<![\w\"])themis_(?!policy_)\w+", expression)
    assert names or "themis_policy_" in expression or title == "ThemisDown"
    for name in names:
        assert name in exported, title
    for name, matchers in re.findall(r"(themis_\w+){([^}]*)}", expression):
        for label, operator, value in re.findall(r'(\w+)(=~|!=|=)"([^"]*)"', matchers):
            if label in FROM_PROMETHEUS:
                continue
            # Rounds of an outcome appear with the first one.
            known = exported[name][label] | ({"abandoned"} if label == "outcome" else set())
            wanted = set(value.split("|")) if operator == "=~" else {value}
            assert wanted <= known, (title, label)
    for name, label in re.findall(r"by \((\w+)\) \((?:rate\()?(themis_\w+)", expression):
        assert name in exported[label], title


def test_expressions_close_what_they_open():
    for title, expression in [*PANELS, *((rule["alert"], rule["expr"]) for rule in ALERTS)]:
        for opening, closing in ("()", "{}", "[]"):
            assert expression.count(opening) == expression.count(closing), title


def test_each_alert_has_a_summary_and_a_row_in_the_guide():
    assert all({"summary", "description"} <= set(rule["annotations"]) for rule in ALERTS)
    assert all(rule["labels"]["severity"] in ("critical", "warning", "info") for rule in ALERTS)
    described = [row[0].strip("`") for row in table_rows("docs/how-to/monitor.md", "alert")]
    assert described == [rule["alert"] for rule in ALERTS]


def test_prometheus_reads_the_page_of_the_example_settings():
    settings = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    (job,) = settings["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [yaml.safe_load(text_of("conf/themis.yaml"))["page"]]
    assert settings["rule_files"] == ["alerts.yaml"]


def test_panels_of_the_board_do_not_overlap_and_have_own_ids():
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
