"""The addresses of the page, the REST interface and the metrics; every one is described in docs/reference/web.md."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web
from msgspec.structs import replace

from rm_plugin.service.app_pages import MAX_APPS
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.logs import MAX_PART_BYTES, log_paths, read_log
from rm_plugin.service.visibility import visible_events
from rm_plugin.service.web import yarn_documents
from rm_plugin.service.web.actions import VERBS, act, action_token, actor_of, document_of
from rm_plugin.service.web.app_page import app_page
from rm_plugin.service.web.apps_page import APPS_A_PAGE, apps_page
from rm_plugin.service.web.documents import (
    app_document,
    apps_document,
    cluster_document,
    events_document,
    gpu_usage_document,
    losses_document,
    summary,
    usage_document,
)
from rm_plugin.service.web.home_page import home_page
from rm_plugin.service.web.metrics import CONTENT_TYPE, metrics_text
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.parts import reader_note
from rm_plugin.service.web.readers import reader_of
from rm_plugin.service.web.round_record import round_text
from rm_plugin.service.web.stream import Streams, app_mark, cluster_mark
from rm_plugin.service.web.timeline import Timeline, Timelines, timeline_document
from themis.errors import InputError, UnknownNameError
from themis.identity import Identity, NoIdentityError
from themis.lifecycle import AppState
from themis.web.answers import (
    NotThereError,
    html_answer,
    json_answer,
    json_text_answer,
    site,
    text_answer,
    whole_number,
)
from themis.web.elements import element
from themis.web.static_files import FOLDER, ROUTE

APPS_DEFAULT = 200
ROUNDS_DEFAULT, MAX_ROUNDS = 10, 100
EVENTS_DEFAULT, MAX_EVENTS = 100, 500
LOG_DEFAULT_BYTES = 64 * 1024
LOG_READ_S = 3_600.0
"""Reads of one app's logs by one administrator within this time are one event."""


def application(page_state: PageState) -> web.Application:
    """Everything that is served."""
    routes = Routes(page_state)
    served = site(is_document=lambda path: path.startswith(("/api/", "/ws/")))
    served.router.add_static(ROUTE, FOLDER)
    served.add_routes(
        [
            web.get("/", routes.home),
            web.get("/apps", routes.apps),
            web.get("/apps/{app_id:[^/]+}", routes.app),
            web.get("/api/v1/cluster", routes.cluster_data),
            web.get("/api/v1/apps", routes.apps_data),
            web.get("/api/v1/apps/{app_id:[^/]+}", routes.app_data),
            web.get("/api/v1/apps/{app_id:[^/]+}/losses", routes.losses_data),
            web.get("/api/v1/apps/{app_id:[^/]+}/timeline", routes.timeline_data),
            web.get("/api/v1/apps/{app_id:[^/]+}/logs", routes.logs_data),
            web.get("/api/v1/apps/{app_id:[^/]+}/logs/{path:.+}", routes.log),
            web.get("/api/v1/apps/{app_id:[^/]+}/stream", routes.app_stream, allow_head=False),
            web.get("/api/v1/stream", routes.cluster_stream, allow_head=False),
            *(web.post(f"/api/v1/apps/{{app_id:[^/]+}}/{verb}", routes.act) for verb in VERBS),
            web.get("/api/v1/usage", routes.usage_data),
            web.get("/api/v1/gpu-usage", routes.gpu_usage_data),
            web.get("/api/v1/rounds", routes.rounds_data),
            web.get("/api/v1/events", routes.events_data),
            web.get("/cluster", routes.yarn_page),
            web.get("/ws/v1/cluster", routes.yarn_info),
            web.get("/ws/v1/cluster/info", routes.yarn_info),
            web.get("/ws/v1/cluster/metrics", routes.yarn_metrics),
            web.get("/ws/v1/cluster/apps", routes.yarn_apps),
            web.get("/ws/v1/cluster/apps/{app_id:[^/]+}", routes.yarn_app),
            web.get("/ws/v1/cluster/apps/{app_id:[^/]+}/state", routes.yarn_app_state),
            web.put("/ws/v1/cluster/apps/{app_id:[^/]+}/state", routes.yarn_kill),
            web.get("/ws/v1/cluster/nodes", routes.yarn_nodes),
            web.get("/ws/v1/cluster/nodes/{node_id:[^/]+}", routes.yarn_node),
            web.get("/metrics", routes.metrics),
            web.get("/healthz", routes.health),
            web.get("/login", routes.login),
        ]
    )
    return served


class Routes:
    """One method per address. Methods that show the log wait until it was read once.

    They count their reader before they look for an app, which may take a search of the store.
    """

    def __init__(self, page_state: PageState) -> None:
        self._page_state = page_state
        self._streams = Streams()
        self._timelines = Timelines(page_state.manager.recorder)
        # Since when who reads whose logs, so that an administrator is noted once an hour and not with each part.
        self._log_readers: dict[tuple[str, str], float] = {}

    async def _seen_by(self, request: web.Request) -> PageState:
        """Return the state as the reader of a page may see it."""
        identities = self._page_state.manager.identities
        reader = await reader_of(request, identities)
        return replace(self._page_state, reader=reader, action_token=action_token(request, reader, identities))

    def _html(self, request: web.Request, reader: Identity | None, text: str) -> web.Response:
        """Return a page, which begins with its reader, and with a warning if the settings are insecure."""
        warning = self._page_state.manager.settings.exposure
        before = element("p", f"Insecure: {warning}.", class_="bad") if warning else ""
        before += reader_note(reader, root="../" * (request.path.count("/") - 1))
        return html_answer(text.replace("<main>", f"<main>{before}", 1))

    async def login(self, request: web.Request) -> web.Response:
        """Let a browser ask for a token, then show the cluster."""
        if not request.headers.get("Authorization"):
            remedy = "load this page again: give any user name and, as the password, your token"
            raise NoIdentityError("you are not signed in", remedy=remedy)
        await reader_of(request, self._page_state.manager.identities)
        return web.Response(status=302, headers={"Location": "./"})

    async def home(self, request: web.Request) -> web.Response:
        """The cluster, the apps, the newest rounds."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        return self._html(request, page_state.reader, home_page(page_state))

    async def apps(self, request: web.Request) -> web.Response:
        """A page of all apps, or of those that a `search` finds, after the mark `after`."""
        page_state = await self._seen_by(request)
        after, search = request.query.get("after", ""), request.query.get("search", "")
        page = await page_state.manager.page_of_apps(search=search, after=after, limit=APPS_A_PAGE)
        return self._html(request, page_state.reader, apps_page(page_state, page, search))

    async def app(self, request: web.Request) -> web.Response:
        """One app."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        entry = await self._entry(request.match_info["app_id"], page_state.reader)
        return self._html(request, page_state.reader, app_page(page_state, page_state.seen(entry)))

    async def cluster_data(self, _request: web.Request) -> web.Response:
        """The cluster and who holds what of it."""
        return json_answer(cluster_document(self._page_state))

    async def apps_data(self, request: web.Request) -> web.Response:
        """A page of apps after the mark `after`, of some `state` and found by a `search` where these are given."""
        page_state = await self._seen_by(request)
        states = [_app_state(text) for text in request.query.getall("state", [])]
        limit = whole_number(request, "limit", APPS_DEFAULT, most=MAX_APPS)
        after, search = request.query.get("after", ""), request.query.get("search", "")
        page = await page_state.manager.page_of_apps(states=states, search=search, after=after, limit=limit)
        return json_answer(apps_document(page_state, page, states, searched=bool(search)))

    async def app_data(self, request: web.Request) -> web.Response:
        """One app, whole."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        return json_answer(app_document(page_state, await self._entry(request.match_info["app_id"], page_state.reader)))

    async def act(self, request: web.Request) -> web.Response:
        """Pause, resume or kill an app. The answer is the app after that, without its jobs."""
        page_state = self._page_state
        identity = actor_of(request, page_state.manager.identities)
        entry = await self._entry(request.match_info["app_id"], identity)
        reason = str((await document_of(request)).get("reason", ""))
        await act(page_state.manager, entry, request.path.rpartition("/")[2], identity, reason)
        return json_answer(summary(replace(page_state, reader=identity), entry))

    async def usage_data(self, _request: web.Request) -> web.Response:
        """The use of the cluster over time."""
        return json_answer(usage_document(self._page_state))

    async def gpu_usage_data(self, request: web.Request) -> web.Response:
        """GPU time by month, user, queue and device type, of one `month` where it is given."""
        reader = (await self._seen_by(request)).reader
        return json_answer(gpu_usage_document(self._page_state.manager.usage(request.query.get("month", ""), reader)))

    async def losses_data(self, request: web.Request) -> web.Response:
        """The loss curves of an app's jobs."""
        page_state = await self._seen_by(request)
        entry = await self._entry(request.match_info["app_id"], page_state.reader)
        return json_answer(losses_document(page_state.seen(entry)))

    async def timeline_data(self, request: web.Request) -> web.Response:
        """When each job of an app ran, and when each GPU was leased."""
        page_state = await self._seen_by(request)
        entry = await self._entry(request.match_info["app_id"], page_state.reader)
        line = await self._timelines.of(entry.app_id) if page_state.controls(entry) else Timeline()
        return json_answer(timeline_document(line, page_state.now_s))

    async def logs_data(self, request: web.Request) -> web.Response:
        """The paths of an app's logs."""
        entry, folder = await self._logs_of(request)
        return json_answer({"logs": await asyncio.to_thread(log_paths, folder, entry.shapes.keys())})

    async def log(self, request: web.Request) -> web.Response:
        """Bytes of one log, as text."""
        offset = whole_number(request, "offset", 0, least=-(2**53))
        limit = whole_number(request, "limit", LOG_DEFAULT_BYTES, least=1, most=MAX_PART_BYTES)
        entry, folder = await self._logs_of(request)
        # In a thread, because the log may be long and the disk slow.
        path, jobs = request.match_info["path"], entry.shapes.keys()
        data, next_offset = await asyncio.to_thread(read_log, folder, jobs, path, offset, limit)
        headers = {"Content-Type": "text/plain; charset=utf-8", "X-Next-Offset": str(next_offset)}
        return web.Response(body=data, headers=headers)

    async def _logs_of(self, request: web.Request) -> tuple[AppEntry, Path]:
        """Return an app and its folder with its logs up to now, for a reader who may see them."""
        manager = self._page_state.manager
        reader = await reader_of(request, manager.identities)
        entry = await self._entry(request.match_info["app_id"], reader)
        if reader is None:
            raise NoIdentityError("logs are for the user of their app", remedy="sign in at /login with a token")
        reader.check_controls(entry.app_id, entry.owner)
        now_s = self._page_state.now_s
        self._log_readers = {who: noted_s for who, noted_s in self._log_readers.items() if now_s < noted_s + LOG_READ_S}
        if (reader.user, entry.app_id) not in self._log_readers:
            await manager.note_read(entry, reader, "logs_read")
            self._log_readers[reader.user, entry.app_id] = now_s
        return entry, await manager.fetch_logs(entry)

    async def app_stream(self, request: web.Request) -> web.StreamResponse:
        """An event whenever the page of an app has changed."""
        reader = await reader_of(request, self._page_state.manager.identities)
        entry = await self._entry(request.match_info["app_id"], reader)
        return await self._streams.serve(request, lambda: app_mark(self._page_state.manager, entry))

    async def cluster_stream(self, request: web.Request) -> web.StreamResponse:
        """An event whenever the page of the cluster has changed."""
        return await self._streams.serve(request, lambda: cluster_mark(self._page_state.manager))

    async def rounds_data(self, request: web.Request) -> web.Response:
        """The newest rounds, newest first."""
        limit = whole_number(request, "limit", ROUNDS_DEFAULT, most=MAX_ROUNDS)
        await self._page_state.event_index.ready()
        rounds = ", ".join(map(round_text, self._page_state.event_index.rounds(limit)))
        return json_text_answer(f'{{"rounds": [{rounds}]}}')

    async def events_data(self, request: web.Request) -> web.Response:
        """Events after a sequence number, of one app where `app` is given."""
        after = whole_number(request, "after", 0)
        limit = whole_number(request, "limit", EVENTS_DEFAULT, most=MAX_EVENTS)
        manager, reader = self._page_state.manager, (await self._seen_by(request)).reader
        named = request.query.get("app", "")
        app_id = (await self._entry(named, reader)).app_id if named else ""
        events = await manager.recorder.read_events(after, app_id, limit)
        shown = await visible_events(manager, events, reader)
        return json_answer(events_document(shown, events[-1].sequence if events else after))

    # ---- as YARN's ResourceManager answers ----

    async def yarn_page(self, _request: web.Request) -> web.Response:
        """The page of the cluster, where YARN has its own: clients look there for a ResourceManager that is active."""
        return web.Response(status=302, headers={"Location": "./"})

    async def yarn_info(self, _request: web.Request) -> web.Response:
        """The cluster, as YARN describes itself."""
        return json_answer(yarn_documents.info_document(self._page_state))

    async def yarn_metrics(self, _request: web.Request) -> web.Response:
        """Numbers of apps, machines and resources, in YARN's words."""
        return json_answer(yarn_documents.metrics_document(self._page_state))

    async def yarn_apps(self, request: web.Request) -> web.Response:
        """Apps in YARN's words, with its filters."""
        return json_answer(yarn_documents.apps_document(await self._seen_by(request), request.query))

    async def yarn_app(self, request: web.Request) -> web.Response:
        """One app in YARN's words."""
        page_state = await self._seen_by(request)
        entry = await self._yarn_entry(request, page_state.reader)
        return json_answer(yarn_documents.app_document(page_state, entry))

    async def yarn_app_state(self, request: web.Request) -> web.Response:
        """The state of one app in YARN's words."""
        reader = await reader_of(request, self._page_state.manager.identities)
        return json_answer({"state": yarn_documents.state_of(await self._yarn_entry(request, reader))})

    async def yarn_kill(self, request: web.Request) -> web.Response:
        """Kill an app, the only change of state that YARN takes: 202 while it ends, 200 if it had ended."""
        identity = actor_of(request, self._page_state.manager.identities)
        entry = await self._yarn_entry(request, identity)
        document = await document_of(request, "diagnostics")
        if document.get("state") != AppState.KILLED:
            remedy = 'send {"state": "KILLED"}; to pause an app: api/v1/apps/APP/pause'
            raise InputError("an app cannot be put into this state", value=document.get("state"), remedy=remedy)
        await act(self._page_state.manager, entry, "kill", identity, str(document.get("diagnostics", "")))
        return json_answer({"state": yarn_documents.state_of(entry)}, 200 if entry.ended else 202)

    async def yarn_nodes(self, request: web.Request) -> web.Response:
        """The machines in YARN's words."""
        return json_answer(yarn_documents.nodes_document(self._page_state, request.query))

    async def yarn_node(self, request: web.Request) -> web.Response:
        """One machine in YARN's words."""
        node_id = request.match_info["node_id"]
        document = yarn_documents.node_document(self._page_state, node_id)
        if document is None:
            raise NotThereError("unknown machine", value=node_id, remedy="ws/v1/cluster/nodes lists them")
        return json_answer(document)

    async def _yarn_entry(self, request: web.Request, reader: Identity | None) -> AppEntry:
        return await self._entry(yarn_documents.app_reference(request.match_info["app_id"]), reader)

    async def metrics(self, _request: web.Request) -> web.Response:
        """Numbers for Prometheus."""
        await self._page_state.event_index.ready()
        return text_answer(metrics_text(self._page_state), CONTENT_TYPE)

    async def health(self, _request: web.Request) -> web.Response:
        """That the loop answers and that the store can be written; status 503 while it cannot."""
        trouble = self._page_state.manager.changes.trouble
        if trouble:
            return web.Response(text=f"{trouble}\n", status=503)
        return text_answer("ok\n")

    async def _entry(self, name: str, reader: Identity | None) -> AppEntry:
        """Return the app of an id or a name. The reader's own come before those of others with the same name."""
        try:
            return await self._page_state.manager.find(name, "" if reader is None else reader.user)
        except UnknownNameError:
            raise NotThereError("unknown app", value=name, remedy="api/v1/apps lists them") from None


def _app_state(text: str) -> AppState:
    if text not in AppState.__members__:
        raise InputError("unknown state of an app", value=text, remedy="known: " + ", ".join(AppState))
    return AppState(text)
