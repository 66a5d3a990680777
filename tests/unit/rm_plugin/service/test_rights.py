"""Every method of gRPC and every address of the pages, as another user and without a valid token; new ones too.

A new method needs a row in a table here. A new address is tried by itself, and must show nothing private.
"""

import asyncio
from types import SimpleNamespace

import grpc
import pytest
from google.protobuf.message import Message
from msgspec.structs import replace
from service_cases import SPEC
from web_cases import RmCase, served

from rm_plugin.service.admin_service import AdminService
from rm_plugin.service.authentication import Authentication
from rm_plugin.service.budget import Budgets
from rm_plugin.service.client_service import ClientService
from rm_plugin.service.grant_limit import GrantLimit
from rm_plugin.service.identities import SEARCH_CALLS
from rm_plugin.service.memory_service import memory_service
from rm_plugin.service.web.event_index import EventIndex
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.routes import application
from rm_plugin.service.web.usage_history import UsageHistory
from themis.apps import ProgramSpec
from themis.web.static_files import ROUTE
from themis.wire import themis_pb2 as pb
from themis.wire import themis_pb2_grpc as rpc
from themis.wire.values import app_to_message

SECRET, VALUE = "S3cret", "V4lue"
PRIVATE_PROGRAM = ProgramSpec(name="digits", arguments={"flag": SECRET}, environment={"KEY": SECRET + VALUE})
APP = replace(
    SPEC,
    user="ada",
    program=PRIVATE_PROGRAM,
    jobs=(replace(SPEC.jobs[0], hyper_parameters={"rate": SECRET}),),
    checkpoint_uri=f"/checkpoints/{SECRET}",
)

# ---- gRPC ------------------------------------------------------------------------------------------------------------

APP_ID = "app-0001"
OF_OTHERS = {
    "Submit": pb.SubmitRequest(spec=app_to_message(APP)),
    "Validate": pb.SubmitRequest(spec=app_to_message(APP)),
    "Kill": pb.KillRequest(app_id=APP_ID),
    "Pause": pb.PauseRequest(app_id=APP_ID),
    "Resume": pb.ResumeRequest(app_id=APP_ID),
    "Logs": pb.LogsRequest(app_id=APP_ID),
    "Stop": pb.StopRequest(),
    "Drain": pb.DrainRequest(machine_id="m0", drained=True),
    "Reload": pb.ReloadRequest(),
    "AddUser": pb.AddUserRequest(user="eve", valid_s=60.0),
    "ListUsers": pb.ListUsersRequest(),
    "RevokeUser": pb.RevokeUserRequest(user="ada"),
}
"""What only the user named in it, or an administrator, may do."""

OF_EVERYBODY = {
    "List": pb.ListRequest(),
    "Show": pb.ShowRequest(app_id=APP_ID, environment=True),
    "Usage": pb.UsageRequest(),
    "Watch": pb.WatchRequest(app_id=APP_ID),
    "ClusterInfo": pb.ClusterRequest(),
    "Status": pb.RmStatusRequest(),
}
"""What every user may ask for."""

METHODS = {
    method.name: f"/{service.full_name}/{method.name}"
    for service in pb.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if service.name != "ArbiterService"
}


async def answer(channel: grpc.aio.Channel, name: str, request: Message, token: str) -> tuple[grpc.StatusCode, str]:
    """The status and the answers of a call, whether it is a stream or not."""
    metadata = (("authorization", f"Bearer {token}"),) if token else ()
    call = channel.unary_stream(METHODS[name], request_serializer=type(request).SerializeToString)(
        request, metadata=metadata
    )
    try:
        found = b"".join([part async for part in call])
    except grpc.aio.AioRpcError as error:
        return error.code(), ""
    return grpc.StatusCode.OK, found.decode("utf-8", "replace")


def test_every_method_refuses_other_users_or_shows_them_nothing_private(tmp_path, caplog):
    async def scenario():
        async with memory_service(tmp_path) as rm:
            entry, _ = await rm.registered(APP)
            assert entry.app_id == APP_ID
            entry.diagnostics = entry.page_url = entry.engine_id = SECRET
            entry.grant_limit = GrantLimit(reason=SECRET, until_s=float("inf"))
            rm.manager.recorder.record("job_progress", app_id=APP_ID, detail={"note": SECRET})
            rm.manager.recorder.record("app_kill_wanted", app_id=APP_ID, detail={"reason": SECRET})
            stops = []
            server = grpc.aio.server(
                interceptors=[Authentication(rm.manager.identities, rm.manager.connections.note_user)]
            )
            rpc.add_ClientServiceServicer_to_server(ClientService(rm.manager, "srtf"), server)
            operators = AdminService(rm.manager, SimpleNamespace(look=None), lambda **_: stops.append(1))
            rpc.add_AdminServiceServicer_to_server(operators, server)
            port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            try:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                    bob = rm.manager.identities.local_token(1, "bob")
                    for name, request in {**OF_OTHERS, **OF_EVERYBODY}.items():
                        for token in ("", "themis_wrong"):
                            assert (await answer(channel, name, request, token))[0] is grpc.StatusCode.UNAUTHENTICATED
                    for name, request in OF_OTHERS.items():
                        status, _ = await answer(channel, name, request, bob)
                        assert status is grpc.StatusCode.PERMISSION_DENIED, name
                    for name, request in OF_EVERYBODY.items():
                        status, shown = await answer(channel, name, request, bob)
                        assert (status, SECRET in shown) == (grpc.StatusCode.OK, False), name
                    ada = rm.manager.identities.local_token(1, "ada")
                    assert VALUE in (await answer(channel, "Show", OF_EVERYBODY["Show"], ada))[1]
                    # Values of variables are hidden from the owner, too, until it asks for them.
                    for name, request in {**OF_EVERYBODY, "Show": pb.ShowRequest(app_id=APP_ID)}.items():
                        assert VALUE not in (await answer(channel, name, request, ada))[1], name
            finally:
                await server.stop(None)
            assert not (entry.kill_reason or entry.pause_reason or stops or rm.manager.identities.tokens)
            assert len(rm.entries) == 1
            # Who tried what is in the log.
            assert caplog.text.count("bob") == len(OF_OTHERS)
            assert all(caplog.text.count(f"refused: {METHODS[name]}: ") == 1 for name in OF_OTHERS)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_every_method_of_grpc_has_a_row():
    assert {*OF_OTHERS, *OF_EVERYBODY} == set(METHODS)


# ---- the pages -------------------------------------------------------------------------------------------------------

PLACES = {"app_id": APP_ID, "path": "job-0/task-0.log", "node_id": "m00"}


def addresses(case: RmCase) -> list[tuple[str, str]]:
    """Every method and path that is served, but our own style and scripts."""
    page_state = PageState(case.manager, "themis", EventIndex(case.recorder), UsageHistory())
    routes = application(page_state).router.routes()
    found = {(route.method, route.resource.canonical) for route in routes}
    return sorted((method, path.format(**PLACES)) for method, path in found if path != ROUTE.rstrip("/"))


def private_case() -> RmCase:
    case = RmCase(((4,),))
    entry = case.running("mine")
    entry.spec = replace(APP, name="mine")
    entry.diagnostics = entry.engine_id = SECRET
    entry.page_url = f"http://10.0.0.7:1/{SECRET}/"
    entry.heartbeat.jobs[0].health = entry.heartbeat.jobs[0].tracked_run = SECRET
    entry.heartbeat.jobs[0].hyper_parameters["rate"].text = SECRET
    case.explanations = {APP_ID: (("why", SECRET),)}
    case.grant(app_0001={"m00": 1})
    case.recorder.record("job_progress", app_id=APP_ID, detail={"note": SECRET})
    case.recorder.record("app_kill_wanted", app_id=APP_ID, detail={"reason": SECRET})
    return case


def readers(case: RmCase) -> list[dict[str, str]]:
    """Another user, and somebody who is not known: one from another machine."""
    bob = case.manager.identities.local_token(1, "bob")
    return [{"Authorization": f"Bearer {bob}"}, {"Host": "rm.example"}]


def test_every_address_shows_other_readers_nothing_private():
    async def scenario():
        case = private_case()
        ada = {"Authorization": f"Bearer {case.manager.identities.local_token(1, 'ada')}"}
        async with served(case) as site:
            for method, path in addresses(case):
                if method != "GET":
                    continue
                for headers in (*readers(case), ada):
                    async with site.session.request(method, site.url.rstrip("/") + path, headers=headers) as reply:
                        assert reply.status in (200, 302, 401, 403, 404), (path, reply.status)
                        # Streams do not end. Their first event comes at once.
                        content = await reply.content.read(2_000) if path.endswith("/stream") else await reply.read()
                    # The owner, too, sees no values of variables.
                    hidden = VALUE if headers is ada else SECRET
                    assert hidden not in content.decode() + str(reply.headers), path
            async with site.session.get(f"{site.url}api/v1/apps/{APP_ID}", headers=ada) as reply:
                assert SECRET in await reply.text()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_every_address_that_changes_something_refuses_other_users_and_forged_requests(caplog):
    async def scenario():
        case = private_case()
        changing = [address for address in addresses(case) if address[0] not in ("GET", "HEAD")]
        assert {method for method, _ in changing} == {"POST", "PUT"}
        bob, unknown = readers(case)
        # What another site can make the owner's browser send.
        forged = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        async with served(case) as site:
            for method, path in changing:
                url = site.url.rstrip("/") + path
                order = '{"state": "KILLED"}' if method == "PUT" else None
                for headers, status in ((bob, 403), (unknown, 401), (forged, 401)):
                    async with site.session.request(method, url, headers=headers, data=order) as reply:
                        assert reply.status == status, path
        assert f"refused: POST /api/v1/apps/{APP_ID}/kill: {APP_ID} is not your app" in caplog.text
        assert "refused: PUT /ws/v1/cluster/apps/" in caplog.text
        entry = case.entries.get(APP_ID)
        assert not (entry.kill_reason or entry.pause_reason)

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_readers_beyond_their_limit_cause_no_search_for_an_app():
    async def scenario():
        case, searches = private_case(), []

        async def searched(*words, **more):
            searches.append((words, more))

        case.manager.find = case.manager.page_of_apps = searched
        case.manager.identities._calls = Budgets(0.0, 1e-9)
        async with served(case) as site:
            for method, path in addresses(case):
                more = "?app=mine" if path.endswith("/events") else "?search=mine"
                for headers in readers(case):
                    async with site.session.request(
                        method, site.url.rstrip("/") + path + more, headers=headers
                    ) as reply:
                        assert reply.status in (200, 302, 401, 404, 429), path
        assert searches == []

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("path", ["apps", "api/v1/apps"])
def test_search_counts_as_several_requests(path):
    async def scenario():
        case = private_case()
        case.manager.identities._calls = Budgets(SEARCH_CALLS + 1, 1e-9)
        async with served(case) as site:
            for headers in readers(case):
                answers = []
                for query in ("?search=mine", "?search=mine", "", ""):
                    async with site.session.get(site.url + path + query, headers=headers) as reply:
                        answers.append(reply.status)
                assert answers == [200, 429, 200, 429]

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_app_of_another_user_with_the_same_name_is_not_taken_for_ones_own():
    async def scenario():
        case = RmCase(((4,),))
        for user in ("ada", "bob"):
            entry = case.running("mine")
            entry.spec = replace(APP, name="mine", user=user)
        ada = {"Authorization": f"Bearer {case.manager.identities.local_token(1, 'ada')}"}
        async with served(case) as site:
            for path in ("api/v1/apps/mine", "apps/mine", "api/v1/apps/mine/losses", "ws/v1/cluster/apps/mine"):
                async with site.session.get(site.url + path, headers=ada) as reply:
                    shown = await reply.text()
                    assert reply.status == 200 and "bob" not in shown, path
            async with site.session.get(site.url + "api/v1/apps/mine", headers={"Host": "rm.example"}) as reply:
                assert reply.status == 400 and "2 running apps have this name" in await reply.text()
            async with site.session.post(site.url + "api/v1/apps/mine/pause", headers=ada) as reply:
                assert (reply.status, (await reply.json())["app_id"]) == (200, APP_ID)

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.parametrize("path", ["job-0/task-0.log", "am-1.log"])
def test_logs_are_for_their_owner(path):
    async def scenario():
        case = private_case()
        async with served(case) as site:
            for headers, status in zip(readers(case), (403, 401), strict=True):
                async with site.session.get(f"{site.url}api/v1/apps/{APP_ID}/logs/{path}", headers=headers) as reply:
                    assert reply.status == status

    asyncio.run(asyncio.wait_for(scenario(), 60))
