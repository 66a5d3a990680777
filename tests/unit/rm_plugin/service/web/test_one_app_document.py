"""The REST interface and `submarine app show --json` show an app with the same keys and numbers."""

import asyncio

from web_cases import busy

from rm_plugin.service.status import app_status
from rm_plugin.service.web.documents import app_document, summary
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.usage_history import UsageHistory
from themis.identity import Identity
from themis.wire import app_document as shown
from themis.wire import themis_pb2 as pb

OPERATOR = Identity(user="operator", is_admin=True)
OTHER = Identity(user="somebody-else")
PRIVATE = ("best_job", "best_checkpoint", "checkpoint_uri", "folder", "archive", "page_url", "waits_for", "waiting")


def seen_by(reader, see):
    """What `see(page_state, entry)` returns for the busy case's first app, whose job has a measured slowdown."""

    async def scenario():
        case = busy()
        entry = case.entries.get("app-0001")
        slowdown = pb.LevelSlowdown(level="rack", factor=1.5, intervals=4, spread=0.1)
        entry.heartbeat.jobs[0].slowdown.append(slowdown)
        entry.heartbeat.checkpoint_uri = "hdfs://nn/ckpt"
        case.manager.page_url = "http://rm:8651/"
        return see(PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory(), reader), entry)

    return asyncio.run(scenario())


def test_document_of_one_app_is_that_of_the_command():
    def both(page_state, entry):
        command = shown.app_document(app_status(page_state.manager, entry, whole=True))
        return app_document(page_state, entry), command

    rest, command = seen_by(OPERATOR, both)
    assert rest["waiting"].pop("newest_round")
    assert rest == command
    assert rest["app_page_url"] == "http://rm:8651/apps/app-0001"
    assert rest["checkpoint_uri"] == "hdfs://nn/ckpt"
    assert rest["jobs"][0]["slowdown"] == {"rack": {"factor": 1.5, "intervals": 4, "spread": 0.1}}


def test_lists_have_the_same_values_as_the_app():
    listed, whole = seen_by(OPERATOR, lambda *case: (summary(*case), app_document(*case)))
    assert listed == {key: whole[key] for key in listed}


def test_a_list_of_the_command_has_null_for_what_lists_do_not_have():
    def both(page_state, entry):
        return tuple(app_status(page_state.manager, entry, whole=whole) for whole in (False, True))

    status, whole = seen_by(OPERATOR, both)
    listed, document = shown.listed_document(status), shown.app_document(whole)
    assert document["leases"] and document["folder"]
    assert {key for key in document if listed[key] != document[key]} <= {*shown.NOT_IN_LISTS, "waiting"}
    assert [listed[key] for key in shown.NOT_IN_LISTS] == [None] * len(shown.NOT_IN_LISTS)


def test_other_readers_get_null_for_what_is_private():
    document = seen_by(OTHER, app_document)
    assert [document[key] for key in PRIVATE] == [None] * len(PRIVATE)
    assert (document["jobs"], document["metric"], document["explanation"]) == ([], None, [])
    assert document["jobs_total"] > 0 and document["demand_max_gpus"] > 0


def test_unknown_reader_sees_what_another_user_sees():
    assert seen_by(None, app_document) == seen_by(OTHER, app_document)
