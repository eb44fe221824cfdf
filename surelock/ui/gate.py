"""The gate of the server. It accepts requests by host name, route and size, and sets security headers of answers.

Gradio serves many routes that this page does not use. The gate answers 404 for every route that is not listed here,
so a route that a later Gradio adds is closed, too.
"""

import asyncio
import json
import re
import socket
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surelock.environment import LOOPBACK, value_of
from surelock.ui.addresses import client_of, is_address, is_local
from surelock.values import Fields, Json

API = "/gradio_api"
PLAIN = r"[A-Za-z0-9_-]{1,64}"  # the name of a session, an event or a run
#: The routes of the page, of its documented API and of a health check.
TAKEN = {
    "GET": re.compile(
        r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json"
        r"|/(assets|static|svelte|surelock)/.{1,250}"  # no file has a longer name
        rf"|{API}/(info/?|app_id/?|theme\.css|startup-events|queue/data|call/(v2/)?decode/{PLAIN})"
    ),
    "POST": re.compile(
        rf"{API}/(queue/join|run/predict|cancel|reset|call/(v2/)?decode)/?"
        rf"|/surelock/(runs|runs/{PLAIN}/stop|token|attended)"
    ),
}
TAKEN["HEAD"] = TAKEN["GET"]
AGENTS = re.compile(rf"{API}/mcp/?")  # calls of agents, with --mcp; they have no streams
UPLOAD = re.compile(rf"{API}/upload/?")
STOP = re.compile(rf"/surelock/runs/{PLAIN}/stop")  # requests whose body is not read

#: The most bytes of a body. The longest prompt with the longest lanes takes a tenth of them.
MOST_BODY = 2**20
#: The most bytes of all bodies whose requests are not answered yet: of all clients, and of one client.
MOST_BODIES = 2**26
MOST_BODIES_OF_ONE = 2**24
#: The most JSON values in a body. A value takes sixty bytes of memory; the longest prompt has 8,192 tokens.
MOST_VALUES = 2**15
BODY_SECONDS = 30.0  # a body must arrive within this time
UNREAD_SECONDS = 10.0  # the client must take a piece of an answer within this time
#: The most bytes of an answer that are sent at once. The next piece waits until the client has taken this one.
PIECE = 2**16
PUBLIC_NAMES = ("*.hf.space", "*.gradio.live")
BODY = "surelock.body"  # the key of the body, read from JSON, in the scope of a request
#: The most open requests of one client, streams included. A class that shares one address is one client.
MOST_REQUESTS = 400

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?")
_FORWARDED_HOST = re.compile(r'(?:^|[;,\s])host="?([^";,]*)', re.IGNORECASE)
_DROPPED = (b"range", b"accept-encoding", b"x-gradio-server")
# Gradio sends the same headers with its answers to other sites
_READABLE = {"access-control-allow-credentials": "true", "vary": "Origin"}
_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # an address holds a prompt
    # docs/security.md has the reasons for the directives. There is no frame-ancestors, since any page may embed this
    # page; the value "*" would exclude slides that are opened from a disk.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self'; "
    "object-src 'none'; base-uri 'self'; form-action 'self'",
}


class Refused(Exception):
    """A request is refused. The message is one sentence.

    status: the HTTP status of the answer.
    seconds: the wait before the answer. It slows down scripts that try again at once.
    """

    def __init__(self, status: int, message: str, seconds: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.seconds = seconds

    def response(self, origin: str | None) -> Response:
        """Return the answer. origin: the site whose scripts may read the answer, None for no other site."""
        headers = {}
        if origin is not None:
            headers = _READABLE | {"access-control-allow-origin": origin}
        if self.status in (408, 411):  # the rest of the body is not read
            headers["connection"] = "close"
        return JSONResponse({"detail": str(self)}, self.status, headers)


class Gate:
    """ASGI middleware that accepts or refuses requests. It comes before all other middleware, which may answer, too.

    app: the application behind the gate.
    allow_hosts: further names of this server; '*.domain' for a whole domain, '*' for any name.
    admit: a function of the scope and the JSON body of a request to Gradio's API. It returns the context in which the
        request is answered; entering the context may raise Refused.
    agents: whether agents may call.
    """

    def __init__(
        self,
        app: ASGIApp,
        allow_hosts: Collection[str] = (),
        admit: Callable[[Scope, Any], AbstractContextManager[None]] = lambda scope, body: (
            nullcontext()
        ),
        agents: bool = False,
    ) -> None:
        self.app = app
        self.admit = admit
        self.agents = agents
        self.names = own_names(allow_hosts)
        self._bodies: Counter[str] = Counter()  # bytes of bodies of open requests, by client
        self._open: Counter[str] = Counter()  # open requests, by client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        unread = asyncio.timeout(None)
        try:
            async with unread:
                await self._answer(scope, receive, _in_time(send, unread))
        except TimeoutError:
            if not unread.expired():
                raise

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        state: Json = {**scope.get("state", {})}
        answer = _with_headers(_in_pieces(send), state)
        content = bytearray()
        body = origin = None
        client = client_of(scope)
        self._open[client] += 1
        try:
            origin = self._check_names(scope)
            self._check_route(scope)
            if self._open[client] > MOST_REQUESTS:
                raise Refused(429, "Too many requests of one address are open; close some pages.")
            if scope.get("method") == "POST" and not STOP.fullmatch(scope["path"]):
                body = await self._read(scope, receive, content)
                receive = _again(bytes(content), receive)
            scope = {**scope, "headers": _cheap(scope["headers"]), BODY: body, "state": state}
            is_api = scope["path"].startswith(API)
            with self.admit(scope, body) if is_api else nullcontext():
                await self.app(scope, receive, answer)
        except Refused as refused:
            await asyncio.sleep(refused.seconds)
            await refused.response(origin)(scope, receive, answer)
        except RuntimeError as error:
            if not isinstance(error.__cause__, HTTPException):
                raise
            # Gradio's stream has already sent the error: only the end of the answer is missing
            await answer({"type": "http.response.body"})
        finally:
            self._bodies -= Counter({client: len(content)})
            self._open -= Counter([client])

    def _check_names(self, scope: Scope) -> str | None:
        """Return the origin of the script that sends the request, None if the browser names no origin.

        Raises Refused for a host name that is not this server's, and for a script of a site that may not call it.
        """
        headers = Headers(scope=scope)
        host = _host(headers.get("host", ""))
        origin = headers.get("origin")
        names = {*self.names, *PUBLIC_NAMES}
        hosts = host, *_forwarded(headers)
        if not all(is_address(name) or _goes_by(name, names) for name in hosts):
            raise Refused(421, "This server does not go by that name; --allow-host adds one.")
        # any site may call a public server: a request has no rights that a site could misuse
        if origin is not None and is_local(host):
            site = _name(origin)
            if site != host and not _goes_by(site, self.names):
                raise Refused(403, "Pages of other sites may not call a server on this machine.")
        return origin

    def _check_route(self, scope: Scope) -> None:
        """Raise Refused for a route that is not listed."""
        path = scope["path"]
        method = _method(scope)
        # a body in pieces of one byte would keep the server busy for a minute
        if "transfer-encoding" in Headers(scope=scope):
            raise Refused(411, "A body comes whole, with its length (content-length).")
        if method == "POST" and UPLOAD.fullmatch(path):
            raise Refused(403, "This page takes no uploads: traces are opened in the browser.")
        if self.agents and AGENTS.fullmatch(path):
            if method != "POST":
                raise Refused(405, "Agents call by POST; no stream is open for them.")
        elif method not in TAKEN or not TAKEN[method].fullmatch(path):
            raise Refused(
                404, "There is nothing here: this server has the page, its files and /decode."
            )

    async def _read(self, scope: Scope, receive: Receive, content: bytearray) -> Any:
        """Read the body into `content` and return its JSON. Raises Refused."""
        headers = Headers(scope=scope)
        kind = headers.get("content-type", "").partition(";")[0]
        if kind.strip().lower() != "application/json":
            raise Refused(415, "The body must be JSON (content-type: application/json).")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MOST_BODY:
            raise _too_long()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                await self._gather(receive, client_of(scope), content)
        except TimeoutError:
            raise Refused(408, f"The body took longer than {BODY_SECONDS:.0f} seconds.") from None
        return _parsed(content)

    async def _gather(self, receive: Receive, client: str, content: bytearray) -> None:
        """Append the body to `content`, and count its bytes as those of `client`. Raises Refused."""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Refused(400, "The connection ended within the body.")
            piece = message.get("body", b"")
            more = message.get("more_body")
            content += piece
            self._bodies[client] += len(piece)
            if len(content) > MOST_BODY:
                raise _too_long()
            if self._bodies[client] > MOST_BODIES_OF_ONE or self._bodies.total() > MOST_BODIES:
                raise Refused(503, "Too much is being sent at once. Try again in a moment.")


def own_names(allow_hosts: Collection[str]) -> frozenset[str]:
    """Return the host names of this server: the machine's name, a Space's name, and the names that are allowed.

    Numeric addresses are not listed: the gate always accepts them, since an attack by DNS rebinding needs a name.
    """
    machine = socket.gethostname().lower()
    settings = [value_of(name) for name in ("SPACE_HOST", "GRADIO_SERVER_NAME")]
    names = " ".join((*settings, *allow_hosts)).lower().replace(",", " ").split()
    return frozenset({*LOOPBACK, machine, f"{machine}.local", *names})


def _method(scope: Scope) -> str:
    """Return the method of a request. For a preflight it is the method of the announced request."""
    method = scope.get("method", "")  # a web socket has no method
    if method == "OPTIONS":
        return Headers(scope=scope).get("access-control-request-method") or method
    return method


def _host(text: str) -> str:
    """Return the name or the address in `name:port`; "" for any other text."""
    match = _HOST.fullmatch(text)
    return match[1].strip("[]").lower() if match else ""


def _forwarded(headers: Headers) -> list[str]:
    """Return the host names that proxies report, "" for a text that is no name."""
    listed = ",".join(headers.getlist("x-forwarded-host")).split(",")
    pairs = _FORWARDED_HOST.findall(",".join(headers.getlist("forwarded")))
    return [_host(text.strip()) for text in (*listed, *pairs) if text.strip()]


def _cheap(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request without those that would make its answer expensive.

    `Range`: every range costs a read of the file. `Accept-Encoding` other than gzip: Gradio would compress a file by
    Brotli for every request, while gzip is computed once. `X-Gradio-Server` names a server in front of Gradio, which
    this page does not have.
    """
    kept = [(name, value) for name, value in headers if name not in _DROPPED]
    if any(name == b"accept-encoding" and b"gzip" in value for name, value in headers):
        kept.append((b"accept-encoding", b"gzip"))
    return kept


def _name(url: str) -> str:
    """Return the host name in a URL, "" if there is none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _goes_by(name: str, patterns: Collection[str]) -> bool:
    """Return whether a name is one of the names, or belongs to one of the domains, in `patterns`."""
    domains = tuple(pattern[1:] for pattern in patterns if pattern.startswith("*."))
    return name != "" and ("*" in patterns or name in patterns or name.endswith(domains))


def _with_headers(send: Send, state: Fields) -> Send:
    """Return a `send` that adds the gate's headers, and replaces the status by `state["status"]` if it is set."""

    async def answer(message: Message) -> None:
        # the refusal of a web socket is a "websocket.http.response.start"
        if message["type"].endswith("http.response.start"):
            message["status"] = state.get("status", message["status"])
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return answer


def _in_time(send: Send, unread: asyncio.Timeout) -> Send:
    """Return a `send` that lets `unread` expire if a message takes longer than UNREAD_SECONDS. This ends the request.

    unread: the timeout of the request.
    """

    async def answer(message: Message) -> None:
        unread.reschedule(asyncio.get_running_loop().time() + UNREAD_SECONDS)
        try:
            await send(message)
        finally:
            if not unread.expired():
                unread.reschedule(None)

    return answer


def _in_pieces(send: Send) -> Send:
    """Return a `send` that splits a long answer into pieces, so that the connection's buffer stays small."""

    async def answer(message: Message) -> None:
        body = message.get("body", b"")
        starts = range(0, len(body), PIECE)
        for start in starts[:-1]:
            await send(
                {"type": message["type"], "body": body[start : start + PIECE], "more_body": True}
            )
        await send({**message, "body": body[starts[-1] :]} if starts else message)

    return answer


def _too_long() -> Refused:
    return Refused(413, f"The body is too long: at most {MOST_BODY:,} bytes are taken.")


def _parsed(content: bytearray) -> Any:
    """Return the value of a body that is JSON. Raises Refused for any other body."""
    try:
        body = json.loads(content)
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise Refused(
            400,
            f"The body holds half a character (a lone surrogate) after {error.object[: error.start][-40:]!r}.",
        ) from None
    except (ValueError, RecursionError):
        raise Refused(400, "The body is no JSON that can be read.") from None
    _check_body(body)
    return body


def _check_body(body: Any) -> None:
    """Raise Refused for a malformed session, for too many values, and for an object of Gradio's type FileData.

    Gradio would fetch or open the file of a FileData.
    """
    session = body.get("session_hash") if isinstance(body, dict) else None
    if session is not None and not (isinstance(session, str) and re.fullmatch(PLAIN, session)):
        raise Refused(400, "session_hash must be 1 to 64 letters and digits.")
    rest = [body]
    count = 1
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if value.get("_type") == "gradio.FileData":
                raise Refused(400, "No input of this page is a file; a prompt is text.")
            parts = list(value.values())
        elif isinstance(value, list):
            parts = value
        else:
            parts = []
        count += len(parts)
        if count > MOST_VALUES:
            raise Refused(
                413, f"The body holds too much: at most {MOST_VALUES:,} values are taken."
            )
        rest.extend(parts)


def _again(content: bytes, receive: Receive) -> Receive:
    """Return a `receive` that begins with the body, which the gate has already read."""
    unread: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

    async def again() -> Message:
        return unread.pop() if unread else await receive()

    return again
