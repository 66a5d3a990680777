"""Any request of a client or a browser: an answer or a refusal in words, never an error within the service.

The targets are all methods of the wire and all addresses of the pages, so a new one is tried without a change here.
"""

import asyncio
import contextlib
from types import SimpleNamespace
from urllib.parse import quote

import grpc
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from service_cases import SPEC
from test_service_messages import change
from web_cases import RmCase, served
from yarl import URL

from rm_plugin.service.admin_service import AdminService
from rm_plugin.service.authentication import Authentication
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.routes import application
from rm_plugin.service.web.usage_history import UsageHistory
from themis.errors import InputError
from themis.web.static_files import ROUTE
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

FUZZ = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
METHODS = {
    f"/{service.full_name}/{method.name}": method.input_type._concrete_class
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if service.name != "ArbiterService"
}
GOOD = {
    pb.SubmitRequest: pb.SubmitRequest(spec=app_to_message(SPEC)),
    **{kind: kind(app_id="app-0001") for kind in (pb.ShowRequest, pb.KillRequest, pb.LogsRequest, pb.WatchRequest)},
}
INTERNAL = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.UNIMPLEMENTED)


@st.composite
def requests(draw):
    """A method, and a request of which a few fields have any value."""
    method = draw(st.sampled_from(sorted(METHODS)))
    kind = METHODS[method]
    request = kind()
    request.MergeFrom(GOOD.get(kind, request))
    for _ in range(draw(st.integers(0, 4))):
        if request.DESCRIPTOR.fields:
            change(draw, request)
    if hasattr(request, "follow"):
        request.follow = False
    return method, request


@pytest.mark.slow
def test_any_request_of_a_user_or_an_administrator_is_answered_or_refused(tmp_path):
    async def scenario(calls):
        async with memory_service(tmp_path) as rm:
            await rm.registered(SPEC)
            server = grpc.aio.server(interceptors=[Authentication(rm.manager.identities)])
            rpc.add_ClientServiceServicer_to_server(ClientService(rm.manager, "srtf"), server)
            rpc.add_AdminServiceServicer_to_server(
                AdminService(rm.manager, SimpleNamespace(look=None), lambda **_: None), server
            )
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    for user in (rm.manager.identities.user, SPEC.user):
                        token = rm.manager.identities.local_token(1, user)
                        for method, request in calls:
                            status = await status_of(channel, method, request, token)
                            assert status not in INTERNAL, (method, user, request)
            finally:
                await server.stop(None)

    async def status_of(channel, method, request, token):
        call = channel.unary_stream(method, request_serializer=type(request).SerializeToString)
        try:
            async for _ in call(request, metadata=(("authorization", f"Bearer {token}"),), timeout=30):
                pass
        except grpc.aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    @seed(1)
    @FUZZ
    @given(st.lists(requests(), min_size=20, max_size=40))
    def each(calls):
        asyncio.run(scenario(calls))

    each()


@seed(3)
@FUZZ
@given(st.data())
def test_any_greeting_of_an_app_master_has_a_proof_or_is_refused(tmp_path_factory, data):
    async def scenario():
        async with memory_service(tmp_path_factory.mktemp("rm")) as rm:
            entry, _ = await rm.registered(SPEC)
            greeting = pb.Greeting(app_id=entry.app_id, attempt=entry.attempt, nonce="once")
            for _ in range(20):
                with contextlib.suppress(InputError):
                    assert (await rm.manager.sessions.greet(greeting)).proof
                change(data.draw, greeting)

    asyncio.run(scenario())


TEXTS = st.sampled_from(
    ["", "-1", "0", "9" * 1_000, "1e9", "nan", "app-0001", "active-1", "ended-999", "../..", "%00", "\x00", "%ff", "[]",
     "2026-13", "2026-11", "RUNNING,x", "\u2028", "\ud83d\ude00"]
) | st.text(max_size=20)  # fmt: skip
QUERIES = (
    *("after", "limit", "states", "state", "user", "queue", "month", "app", "offset", "finalStatus"),
    *("applicationTypes", "startedTimeBegin", "finishedTimeEnd", "by"),
)
HEADERS = ("Authorization", "Origin", "X-Themis-Action", "Host", "Range", "Content-Type")


@st.composite
def visits(draw):
    """Texts for the parts of an address, its query, its headers and its body."""
    return (
        draw(TEXTS.filter(lambda text: text.strip("./") and "/" not in text) | st.just("app-0001")),
        draw(st.dictionaries(st.sampled_from(QUERIES), TEXTS, max_size=3)),
        draw(st.dictionaries(st.sampled_from(HEADERS), st.text(st.characters(max_codepoint=126, min_codepoint=33)))),
        draw(st.binary(max_size=50) | st.sampled_from([b"[" * 100_000, b'{"reason": 1}', b'{"reason": "x"}'])),
    )


@pytest.mark.slow
def test_any_visit_of_a_page_is_answered_or_refused():
    async def scenario(seen):
        case = RmCase(((4,),))
        case.running("mine")
        page_state = PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory())
        found = {(route.method, route.resource.canonical) for route in application(page_state).router.routes()}
        async with served(case) as site:
            for part, query, headers, body in seen:
                for method, path in sorted(found):
                    if path == ROUTE.rstrip("/") or path.endswith("/stream"):
                        continue
                    place = path.format(app_id="{}", path="{}", node_id="{}").replace("{}", quote(part, safe=""))
                    url = URL(site.url.rstrip("/") + place, encoded=True).with_query(query)
                    async with site.session.request(
                        method, url, headers=headers, data=body if method == "POST" else None, allow_redirects=False
                    ) as reply:
                        assert reply.status < 500, (method, path, part, query, headers, body)

    @seed(2)
    @FUZZ
    @given(st.lists(visits(), min_size=1, max_size=4))
    def each(seen):
        asyncio.run(scenario(seen))

    each()
