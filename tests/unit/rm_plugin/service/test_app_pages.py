"""Lists of apps in pages: order, marks, bounds of a reply, and what clients without pages get."""

import asyncio

import pytest
from service_cases import SPEC, app

from rm_plugin.service import client_service
from rm_plugin.service.app_pages import MAX_APPS, app_page
from rm_plugin.service.authentication import set_caller
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.entries import AppEntries, AppEntry
from rm_plugin.service.memory_service import memory_service
from themis.errors import InputError, UnknownNameError
from themis.identity import Identity
from themis.lifecycle import AppState
from themis.wire import themis_pb2 as pb


def entries(*states: AppState) -> AppEntries:
    return AppEntries(
        [
            AppEntry(app_id=f"app-{number:04d}", spec=SPEC, submitted_at_s=float(number), state=state)
            for number, state in enumerate(states, start=1)
        ]
    )


def all_pages(apps, limit, between=lambda page: None, **choices):
    """The numbers of every page, one page after the other."""
    pages, mark = [], ""
    while True:
        page = app_page(apps.newest_first(), after=mark, limit=limit, **choices)
        pages.append([entry.number for entry in page.entries])
        between(page)
        if not (mark := page.next_mark):
            return pages


FINISHED, RUNNING, FAILED = AppState.FINISHED, AppState.RUNNING, AppState.FAILED


def test_active_apps_come_first_and_newest_of_each_first():
    assert all_pages(entries(FINISHED, RUNNING, FAILED, RUNNING), 3) == [[4, 2, 3], [1]]


def test_last_page_that_is_full_has_no_next_mark():
    assert all_pages(entries(FINISHED, FINISHED), 2) == [[2, 1]]


def test_pages_of_some_states_hold_no_others():
    assert all_pages(entries(FINISHED, RUNNING, FAILED, RUNNING), 1, states={RUNNING, FAILED}) == [[4], [2], [3]]


def test_app_that_ends_between_two_pages_is_never_missed():
    apps = entries(FINISHED, RUNNING, RUNNING)

    def end_all(_page):
        for entry in apps:
            entry.update(state=FINISHED)

    assert [number for page in all_pages(apps, 1, between=end_all) for number in page] == [3, 3, 2, 1]


def test_no_apps_make_one_empty_page():
    assert all_pages(entries(), 5) == [[]]


@pytest.mark.parametrize("limit", [0, MAX_APPS + 5, 2**31 - 1])
def test_page_holds_at_most_its_bound(limit):
    page = app_page(entries(*[FINISHED] * (MAX_APPS + 1)).newest_first(), limit=limit)
    assert (len(page.entries), page.next_mark) == (MAX_APPS, "ended-2")


@pytest.mark.parametrize("mark", ["7", "ended-", "ended-x", "over-7", "active-7 ", "x" * 100_000])
def test_mark_that_no_page_gave_is_refused(mark):
    with pytest.raises(InputError, match="not the mark of a page"):
        app_page(entries(RUNNING), after=mark)


def listed(tmp_path, *requests, jobs=2, apps=5):
    async def scenario():
        async with memory_service(tmp_path, gpus=64) as rm:
            for number in range(apps):
                await rm.manager.submit(app(f"of-{number}", jobs))
            set_caller(Identity(user="operator", is_admin=True))
            service = ClientService(rm.manager, "srtf")
            return [await service.List(request, None) for request in requests]

    return asyncio.run(asyncio.wait_for(scenario(), 20))


def ids(reply):
    return [app.app_id for app in reply.apps]


def test_reasons_why_apps_wait_are_listed_on_request(tmp_path):
    without, with_reasons = listed(tmp_path, pb.ListRequest(), pb.ListRequest(reasons=True))
    assert not any(app.HasField("waiting") for app in without.apps)
    assert {app.waiting.reason for app in with_reasons.apps} == {"its app master has not reported yet"}


def test_client_without_pages_gets_apps_in_order_of_submission(tmp_path):
    (reply,) = listed(tmp_path, pb.ListRequest())
    assert ids(reply) == [f"app-000{number}" for number in range(1, 6)]
    assert (reply.next, reply.total) == ("", 5)


def test_list_has_the_time_of_the_clock_that_stamps_its_apps(tmp_path):
    before, after = listed(tmp_path, pb.ListRequest(), pb.ListRequest())
    assert before.apps[-1].submitted_at_s <= before.now_s <= after.now_s


def test_reply_ends_at_its_size_and_goes_on_after_its_mark(tmp_path, monkeypatch):
    monkeypatch.setattr(client_service, "_LIST_BYTES", 10)
    first, second = listed(tmp_path, pb.ListRequest(limit=4), pb.ListRequest(limit=4, after="active-5"))
    assert (ids(first), first.next) == (["app-0005"], "active-5")
    assert (ids(second), second.next) == (["app-0004"], "active-4")


def test_unknown_name_is_answered_with_similar_one_or_few():
    apps = entries(*[FINISHED] * 30_000)
    with pytest.raises(UnknownNameError, match="did you mean 'app-2999"):
        apps.get("app-29999x")
    with pytest.raises(UnknownNameError) as raised:
        apps.get("nobody")
    assert len(str(raised.value)) < 200
    assert "and 298 more" in str(raised.value)


def test_unknown_name_is_answered_with_few_of_twenty():
    with pytest.raises(UnknownNameError, match=r"known: [^,]+, [^,]+, [^,]+ and 18 more"):
        entries(*[FINISHED] * 20).get("nobody")


def test_name_of_many_running_apps_is_answered_with_few_of_them():
    apps = entries(*[RUNNING] * 3_000)
    with pytest.raises(InputError, match="3000 running apps have this name") as raised:
        apps.get(SPEC.name)
    assert len(str(raised.value)) < 250
    assert "app-3000" in str(raised.value)
