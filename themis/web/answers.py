"""Our errors over HTTP, and an HTTP server, for pages and APIs."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web

from themis.errors import InputError, NotAllowedError, ThemisError, UnknownNameError, UnreachableError
from themis.identity import NoIdentityError, TooManyCallsError
from themis.web.connections import IDLE_S, BoundedConnections
from themis.web.elements import element
from themis.web.frame import HEADERS, page

LOG = logging.getLogger("themis.web")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class NotThereError(InputError):
    """What an address names is not there."""


_STATUS = (
    (NoIdentityError, 401),
    (NotAllowedError, 403),
    (TooManyCallsError, 429),
    (NotThereError, 404),
    (UnknownNameError, 404),
    (InputError, 400),
    (UnreachableError, 503),
    # The store cannot be written.
    (OSError, 503),
)
_STOP_S = 1.0


def html_answer(text: str, status: int = 200) -> web.Response:
    """A page."""
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8")


def json_answer(document: object, status: int = 200) -> web.Response:
    """A document; one with a NaN in it is a defect and raises ValueError."""
    return json_text_answer(json.dumps(document, allow_nan=False), status)


def json_text_answer(text: str, status: int = 200) -> web.Response:
    """A document that is JSON already."""
    return web.Response(text=f"{text}\n", status=status, content_type="application/json", charset="utf-8")


def text_answer(text: str, content_type: str = "text/plain; charset=utf-8") -> web.Response:
    """Plain text; `content_type` with its parameters."""
    return web.Response(body=text.encode(), headers={"Content-Type": content_type})


def whole_number(request: web.Request, name: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
    """A parameter of the query, at most `most`; one that is no whole number, or too small, raises InputError."""
    text = request.query.get(name)
    if text is None:
        return default
    # `int` alone takes blanks and underscores, and other writing systems' digits.
    if not re.fullmatch(r"-?[0-9]{1,18}", text) or int(text) < least:
        raise InputError(f"{name} must be a whole number from {least} on", value=text)
    return min(int(text), most)


def site(is_document: Callable[[str], bool]) -> web.Application:
    """An application whose errors are pages, or documents for paths of which `is_document` is true."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            answer = await handler(request)
        except Exception as error:
            answer = _refusal(request, error, is_document(request.path))
        answer.headers.update(HEADERS)
        return answer

    return web.Application(middlewares=[guard])


async def listen(
    application: web.Application, host: str, port: int, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, int]:
    """Serve on an address, with TLS or without; port 0 takes any free one. Returns what `cleanup` ends, and the port.

    Raises:
        InputError: The address cannot be listened at.
    """
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_S, keepalive_timeout=IDLE_S)
    await runner.setup()
    try:
        await _Site(runner, host, port, tls).start()
    except (OSError, OverflowError) as error:
        await runner.cleanup()
        raise InputError("a page cannot listen", value=f"{host}:{port}", remedy=str(error)) from error
    return runner, runner.addresses[0][1]


class _Site(web.BaseSite):
    """As `web.TCPSite`, with a bound on connections."""

    __slots__ = ("_host", "_port")

    def __init__(self, runner: web.AppRunner, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(runner, ssl_context=tls)
        self._host, self._port = host, port

    @property
    def name(self) -> str:
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        await super().start()
        assert self._runner.server is not None
        self._server = await asyncio.get_running_loop().create_server(
            BoundedConnections(self._runner.server, self._ssl_context),
            self._host,
            self._port,
            backlog=self._backlog,
        )


def _refusal(request: web.Request, error: Exception, as_document: bool) -> web.Response:
    status, what = _meaning(request, error)
    if isinstance(error, NotAllowedError):
        # As it was sent: in the path as it is meant there may be line breaks.
        LOG.warning("refused: %s %s: %s", request.method, request.rel_url.raw_path, error)
    allowed = sorted(error.allowed_methods) if isinstance(error, web.HTTPMethodNotAllowed) else ()
    # A browser asks its user for a name and a password, here the token.
    headers = {405: {"Allow": ", ".join(allowed)}, 401: {"WWW-Authenticate": 'Basic realm="Themis"'}}.get(status, {})
    if as_document:
        value = None if what.value is None else str(what.value)
        answer = json_answer({"error": {"what": what.what, "value": value, "remedy": what.remedy}}, status)
    else:
        more = str(what).removeprefix(what.what).lstrip(":; ")
        body = (element("h1", what.what), element("p", more) if more else "")
        answer = html_answer(page(what.what, *body, refresh_s=0), status)
    answer.headers.update(headers)
    return answer


def _meaning(request: web.Request, error: Exception) -> tuple[int, ThemisError]:
    if isinstance(error, ThemisError):
        return next((status for kind, status in _STATUS if isinstance(error, kind)), 500), error
    if isinstance(error, web.HTTPNotFound):
        return 404, NotThereError("no such page", value=request.path)
    if isinstance(error, web.HTTPMethodNotAllowed):
        remedy = f"it takes {', '.join(sorted(error.allowed_methods))}"
        return 405, InputError("this address does not take the method", value=request.method, remedy=remedy)
    if isinstance(error, web.HTTPException):
        return error.status, InputError(error.reason, value=request.path)
    LOG.error("a page failed: %s", request.path, exc_info=error)
    return 500, ThemisError("a defect of Themis; see the service's log", value=request.path)
