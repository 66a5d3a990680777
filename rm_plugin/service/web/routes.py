"""The addresses of the page, the REST interface and the metrics; every one is described in docs/reference/web.md."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from rm_plugin.service.app_pages import MAX_APPS
from rm_plugin.service.entries import AppEntry
from rm_plugin.service.visibility import visible_event
from rm_plugin.service.web.app_page import app_page
from rm_plugin.service.web.apps_page import APPS_A_PAGE, apps_page
from rm_plugin.service.web.documents import (
    app_document,
    apps_document,
    cluster_document,
    events_document,
    gpu_usage_document,
    losses_document,
    usage_document,
)
from rm_plugin.service.web.home_page import home_page
from rm_plugin.service.web.metrics import CONTENT_TYPE, metrics_text
from rm_plugin.service.web.page_state import PageState
from rm_plugin.service.web.readers import reader_of
from rm_plugin.service.web.round_record import round_document
from themis.errors import InputError, UnknownNameError
from themis.identity import NoIdentityError
from themis.lifecycle import AppState
from themis.web.answers import NotThereError, html_answer, json_answer, site, text_answer, whole_number
from themis.web.elements import element
from themis.web.static_files import FOLDER, ROUTE

APPS_DEFAULT = 200
ROUNDS_DEFAULT, MAX_ROUNDS = 10, 100
EVENTS_DEFAULT, MAX_EVENTS = 100, 500


def application(page_state: PageState) -> web.Application:
    """Everything that is served."""
    routes = Routes(page_state)
    served = site(is_document=lambda path: path.startswith("/api/"))
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
            web.get("/api/v1/usage", routes.usage_data),
            web.get("/api/v1/gpu-usage", routes.gpu_usage_data),
            web.get("/api/v1/rounds", routes.rounds_data),
            web.get("/api/v1/events", routes.events_data),
            web.get("/metrics", routes.metrics),
            web.get("/healthz", routes.health),
            web.get("/login", routes.login),
        ]
    )
    return served


class Routes:
    """One method per address. Methods that show the log wait until it was read once."""

    def __init__(self, page_state: PageState) -> None:
        self._page_state = page_state

    async def _seen_by(self, request: web.Request) -> PageState:
        """Return the state as the reader of a page may see it."""
        return replace(self._page_state, reader=await reader_of(request, self._page_state.manager.identities))

    def _html(self, text: str) -> web.Response:
        """Return a page. If the settings are insecure, each page begins with a warning."""
        warning = self._page_state.manager.settings.exposure
        if warning:
            text = text.replace("<main>", f"<main>{element('p', f'Insecure: {warning}.', class_='bad')}", 1)
        return html_answer(text)

    async def login(self, request: web.Request) -> web.Response:
        """Let a browser ask for a token, then show the cluster."""
        if not request.headers.get("Authorization"):
            raise NoIdentityError("sign in with any user name and, as the password, your token")
        await reader_of(request, self._page_state.manager.identities)
        return web.Response(status=302, headers={"Location": "./"})

    async def home(self, request: web.Request) -> web.Response:
        """The cluster, the apps, the newest rounds."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        return self._html(home_page(page_state))

    async def apps(self, request: web.Request) -> web.Response:
        """A page of all apps, after the mark `after`."""
        page = await self._page_state.manager.page_of_apps(after=request.query.get("after", ""), limit=APPS_A_PAGE)
        return self._html(apps_page(await self._seen_by(request), page))

    async def app(self, request: web.Request) -> web.Response:
        """One app."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        return self._html(app_page(page_state, page_state.seen(await self._entry(request.match_info["app_id"]))))

    async def cluster_data(self, _request: web.Request) -> web.Response:
        """The cluster and who holds what of it."""
        return json_answer(cluster_document(self._page_state))

    async def apps_data(self, request: web.Request) -> web.Response:
        """A page of apps, of some states where `state` is given, after the mark `after`."""
        states = [_app_state(text) for text in request.query.getall("state", [])]
        limit = whole_number(request, "limit", APPS_DEFAULT, most=MAX_APPS)
        after = request.query.get("after", "")
        page = await self._page_state.manager.page_of_apps(states=states, after=after, limit=limit)
        return json_answer(apps_document(await self._seen_by(request), page, states))

    async def app_data(self, request: web.Request) -> web.Response:
        """One app, whole."""
        page_state = await self._seen_by(request)
        await self._page_state.event_index.ready()
        return json_answer(app_document(page_state, page_state.seen(await self._entry(request.match_info["app_id"]))))

    async def usage_data(self, _request: web.Request) -> web.Response:
        """The use of the cluster over time."""
        return json_answer(usage_document(self._page_state))

    async def gpu_usage_data(self, request: web.Request) -> web.Response:
        """GPU time by month, user, queue and device type, of one `month` where it is given."""
        reader = (await self._seen_by(request)).reader
        return json_answer(gpu_usage_document(self._page_state.manager.usage(request.query.get("month", ""), reader)))

    async def losses_data(self, request: web.Request) -> web.Response:
        """The loss curves of an app's jobs."""
        entry = await self._entry(request.match_info["app_id"])
        return json_answer(losses_document((await self._seen_by(request)).seen(entry)))

    async def rounds_data(self, request: web.Request) -> web.Response:
        """The newest rounds, newest first."""
        limit = whole_number(request, "limit", ROUNDS_DEFAULT, most=MAX_ROUNDS)
        await self._page_state.event_index.ready()
        return json_answer(
            {"rounds": [round_document(record) for record in self._page_state.event_index.rounds(limit)]}
        )

    async def events_data(self, request: web.Request) -> web.Response:
        """Events after a sequence number, of one app where `app` is given."""
        after = whole_number(request, "after", 0)
        limit = whole_number(request, "limit", EVENTS_DEFAULT, most=MAX_EVENTS)
        named = request.query.get("app", "")
        app_id = (await self._entry(named)).app_id if named else ""
        manager, reader = self._page_state.manager, (await self._seen_by(request)).reader
        events = await manager.recorder.read_events(after, app_id, limit)
        shown = [seen for event in events if (seen := await visible_event(manager, event, reader)) is not None]
        return json_answer(events_document(shown, events[-1].sequence if events else after))

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

    async def _entry(self, name: str) -> AppEntry:
        try:
            return await self._page_state.manager.find(name)
        except UnknownNameError:
            raise NotThereError("unknown app", value=name, remedy="api/v1/apps lists them") from None


def _app_state(text: str) -> AppState:
    if text not in AppState.__members__:
        raise InputError("unknown state of an app", value=text, remedy="known: " + ", ".join(AppState))
    return AppState(text)
