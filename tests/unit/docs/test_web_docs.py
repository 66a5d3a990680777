"""docs/reference/web.md holds every address, every key of every document, every metric and every bound."""

import asyncio
import json
import re
from pathlib import Path

import pytest
from documents import blocks, code, table_rows, text_of
from oef_round_cases import demand, round_of
from web_cases import NOW_S, busy

from am.page import log_files
from am.page.routes import application as am_application
from am.page.state import AmPageState, JobRow, LeaseRow
from am.page.status_document import status_document
from rm_plugin.policies.registry import make_policy
from rm_plugin.service import app_estimates, app_pages
from rm_plugin.service.web import event_index, home_page, routes
from rm_plugin.service.web.documents import (
    app_document,
    apps_document,
    cluster_document,
    events_document,
    losses_document,
    usage_document,
)
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.metrics import metrics_text
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.round_record import round_document
from rm_plugin.service.web.usage_history import UsageHistory
from themis.config.rm_settings import RmSettings
from themis.identity import Identity
from themis.lifecycle import AppState
from themis.web.frame import REFRESH_S
from themis.wire import themis_pb2 as pb

PAGE = "docs/reference/web.md"
OPERATOR = Identity(user="operator", is_admin=True)


@pytest.fixture(scope="module")
def page_state():
    async def make():
        case = busy()
        case.app("well", state=AppState.FINISHED, finished_at_s=NOW_S + 1.0)
        seen = PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory(), OPERATOR)
        for event in case.recorder.events(0, "", 1_000):
            seen.event_index.take(event)
        return seen

    return asyncio.run(make())


def keys(heading):
    return {name for row in table_rows(PAGE, heading) for name in code(row[0])}


def meaning(heading, key):
    return set(code(next(row[1] for row in table_rows(PAGE, heading) if key in code(row[0]))))


def addresses(application):
    routes = application.router.routes()
    return {("POST " if route.method == "POST" else "") + route.resource.canonical for route in routes}


def written(heading):
    return {name for row in table_rows(PAGE, heading) for name in code(row[0])}


def test_every_address_is_documented(page_state):
    assert {
        each.replace("{app}", "{app_id}").replace("{log}", "{path}").replace("{node}", "{node_id}")
        for each in written("address of the ResourceManager")
    } == addresses(routes.application(page_state))
    named = {
        each.replace("{job}", "{job_id}").replace("{file}", "{name}") for each in written("address of the app master")
    }
    assert named == addresses(am_application(lambda: None))


def test_keys_of_the_cluster_are_all_there(page_state):
    document = cluster_document(page_state)
    machine = document["racks"][0]["machines"][0]
    assert keys("key of the cluster") == set(document)
    assert keys("key of a machine") == set(machine)
    assert meaning("key of the cluster", "devices") == set(document["devices"]["v100"])
    assert meaning("key of the cluster", "racks") == set(document["racks"][0])
    assert set(machine["leases"][0]) <= meaning("key of a machine", "leases")


def between(begin, end):
    """The text of the page from one place to another."""
    text = text_of(PAGE)
    return text[text.index(begin) : text.index(end, text.index(begin))]


def test_keys_of_apps_are_all_there(page_state):
    document = apps_document(page_state, app_pages.app_page(page_state.manager.entries.newest_first()), [])
    whole = app_document(page_state, page_state.manager.entries.get("app-0001"))
    assert keys("key of an app") == set(document["apps"][0])
    assert set(document) <= set(code(between("### /api/v1/apps", "| key of an app")))
    assert keys("key of one app") == set(whole) - set(document["apps"][0])
    assert set(whole["jobs"][0]) <= meaning("key of one app", "jobs")
    assert keys("key of waiting") == set(whole["waiting"])
    assert keys("key of estimate") == set(whole["estimate"])


def test_keys_of_losses_and_usage_are_all_there(page_state):
    entry = page_state.manager.entries.get("app-0001")
    entry.take_heartbeat(pb.Heartbeat(loss_curves=[pb.LossCurve(job_id="job-0", iterations=[1], losses=[0.5])]))
    losses = losses_document(entry)
    assert {*losses, *losses["jobs"][0]} <= set(code(between("### /api/v1/apps/{app}/losses", "### /api/v1/usage")))
    assert set(usage_document(page_state)) <= set(code(between("### /api/v1/usage", "### /api/v1/rounds")))


def test_keys_of_rounds_and_events_are_all_there(page_state):
    (record, *_) = page_state.event_index.rounds()
    document = round_document(record)
    assert keys("key of a round") == set(document)
    for key in ("reports", "bids"):
        assert meaning("key of a round", key) == set(next(iter(document[key].values()))), key
    assert meaning("key of a round", "auction") == set(document["auction"])
    events = events_document(page_state.manager.recorder.events(0, "", 1), 1)
    assert {*events, *events["events"][0]} <= set(code(between("### /api/v1/events", "## Metrics")))


def test_every_metric_is_documented(page_state):
    made = re.findall(r"^# TYPE (\w+)", metrics_text(page_state), flags=re.M)
    assert [code(row[0])[0] for row in table_rows(PAGE, "metric")] == made


@pytest.mark.parametrize("policy", ["allox", "oef"])
def test_every_metric_of_a_policy_is_documented(policy):
    decider = make_policy(policy)
    memory = decider.decide(round_of({"a": [demand(job="j", gpus=1)]}, alpha=1.0)).memory
    made = [f"themis_policy_{figure.name}" for figure in decider.figures(memory)]
    assert [name for row in table_rows(PAGE, f"metric of {policy}") for name in code(row[0])] == made


def test_keys_of_the_status_are_all_there():
    document = status_document(
        AmPageState(
            app_id="a",
            name="n",
            tuner="t",
            attempt=1,
            now_s=0.0,
            progress=0.0,
            rho=None,
            phase=1,
            phases=1,
            best="",
            jobs=(JobRow(job_id="j", state="WAITING", iteration=0, target_iteration=1, hyper_parameters={}),),
            leases=(LeaseRow(lease_id=1, gpu="m/0", state="GRANTED", expires_at_s=1.0),),
            folder=Path("f"),
        )
    )
    assert keys("key of the status") == set(document)
    for key in ("jobs", "leases"):
        assert meaning("key of the status", key) == set(document[key][0]), key


def test_the_error_shown_is_the_one_that_is_answered():
    (example,) = blocks(PAGE, "json")
    assert set(json.loads(example.body)["error"]) == {"what", "value", "remedy"}


def test_the_setting_shown_exists():
    (example,) = blocks(PAGE, "yaml")
    assert example.body.partition(":")[0] in RmSettings.model_fields


def test_documented_bounds_match_the_code():
    answers = {code(row[0])[0]: row[1] for row in table_rows(PAGE, "address of the ResourceManager")}
    for path, default, most in (
        ("/api/v1/apps", routes.APPS_DEFAULT, app_pages.MAX_APPS),
        ("/api/v1/rounds", routes.ROUNDS_DEFAULT, routes.MAX_ROUNDS),
        ("/api/v1/events", routes.EVENTS_DEFAULT, routes.MAX_EVENTS),
    ):
        assert f"`limit` {default}, at most {most}" in answers[path]
    text = " ".join(text_of(PAGE).split())
    assert (
        f"{home_page.MAX_MACHINES} machines, {home_page.MAX_APPS} active apps, {home_page.MAX_ENDED} that ended, "
        f"{home_page.ROUNDS_SHOWN} rounds and {event_index.EVENTS_KEPT} events of an app" in text
    )
    assert f"newest {event_index.ROUNDS_KEPT} rounds" in text
    assert f"the {event_index.APPS_KEPT} apps" in text
    assert f"{app_estimates.MAX_AHEAD} at most" in text
    assert f"({log_files.CHUNK_BYTES:,}, at most {log_files.MAX_CHUNK_BYTES:,})" in text
    assert REFRESH_S == 5
