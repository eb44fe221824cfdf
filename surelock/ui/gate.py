"""The one door of the server: which requests it takes, from whom, how large, and with which headers it answers.

Gradio serves many routes that this page has no use for. What is not listed here does not exist, whatever Gradio adds.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/gradio_api"
#: What the page, its documented API and a health check ask for. Private functions are reached through the queue, and
#: by /run/predict where they wait for nothing (Gradio refuses the others there, see ``layout.build``).
TAKEN = {
    "GET": re.compile(
        r"/|/config/?|/theme\.css|/favicon\.ico|/robots\.txt|/manifest\.json|/pwa_icon(/\d+)?"
        r"|/(assets|static|svelte|surelock)/.+"
        rf"|{API}/(info/?|app_id/?|theme\.css|startup-events|queue/(data|status)|heartbeat/\w+|call/(v2/)?decode/\w+)"
    ),
    "POST": re.compile(rf"{API}/(queue/join|run/predict|component_server|cancel|reset|call/(v2/)?decode|upload)/?"),
}
TAKEN["HEAD"] = TAKEN["GET"]
UPLOAD = re.compile(rf"{API}/upload/?")  # refused by a route of its own, before anything of it is read

MOST_BODY = 2**20  # bytes: the longest prompt with the longest lanes takes a tenth
BODY_SECONDS = 30.0  # for a body to arrive
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
PUBLIC_NAMES = ("*.hf.space", "*.gradio.live")
ALLOW_VARIABLE = "SURELOCK_ALLOW_HOST"

_HEADERS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # an address holds a prompt
    # Gradio compiles its templates in the browser. Nothing is loaded from elsewhere. No frame-ancestors: any page may
    # embed this one, a slide on a disk too, which "*" would not mean.
    "content-security-policy": "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; media-src 'self' blob:; font-src 'self' data:; "
    "worker-src 'self' blob:; frame-src 'self' blob:; object-src 'none'; base-uri 'self'; form-action 'self'",
}


class Refused(Exception):
    """A request that is not taken: a status, and one sentence."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status

    @property
    def response(self) -> Response:
        return JSONResponse({"detail": str(self)}, self.status)


class Gate:
    """ASGI middleware. allow_hosts: further names of this server, '*.domain' for all of a domain, '*' for any.

    admit: called with a request's scope and the object it brings, may raise Refused; what it returns is called when the
    request has been answered.
    """

    def __init__(
        self,
        app: ASGIApp,
        allow_hosts: Collection[str] = (),
        admit: Callable[[Scope, Any], Callable[[], None]] | None = None,
    ) -> None:
        self.app = app
        self.own = own_names(allow_hosts)
        self.admit = admit or (lambda scope, body: lambda: None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request if it is taken."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None  # no socket is ever opened by the page
        answer = _with_headers(send)
        try:
            self._check(scope)
            body = None
            if scope["method"] == "POST" and not UPLOAD.fullmatch(scope["path"]):
                body, receive = await _read(scope, receive)
            done = self.admit(scope, body)
        except Refused as refused:
            return await refused.response(scope, receive, answer)
        try:
            return await self.app(scope, receive, answer)
        finally:
            done()

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host, origin = _name(f"//{headers.get('host', '')}"), headers.get("origin")
        if not (is_address(host) or self._goes_by(host, PUBLIC_NAMES)):
            raise Refused(421, "This server does not go by that name; --allow-host adds one.")
        if origin is not None and is_local(host) and not self._goes_by(_name(origin), (host,)):
            # in public anyone may call, a page or a script: no request carries a right
            raise Refused(403, "Pages of other sites may not call a server on this machine.")
        taken = TAKEN.get(scope["method"])
        if taken is None or not taken.fullmatch(path):
            raise Refused(404, "There is nothing here: this server has the page, its files and /decode.")

    def _goes_by(self, name: str, others: Collection[str]) -> bool:
        return "*" in self.own or any(_matches(name, own) for own in (*self.own, *others))


def own_names(allow_hosts: Collection[str]) -> frozenset[str]:
    """The names that the server goes by everywhere: this machine's, a Space's own, and what is allowed beside. A
    numeric address needs none: only a name can be rebound to another machine.
    """
    machine = socket.gethostname().lower()
    told = [os.environ.get(name, "") for name in (ALLOW_VARIABLE, "SPACE_HOST", "GRADIO_SERVER_NAME")]
    named = [name for each in (*told, *allow_hosts) for name in each.lower().replace(",", " ").split()]
    return frozenset({*LOOPBACK, machine, f"{machine}.local", *named})


def is_address(name: str) -> bool:
    """Whether it is a numeric address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_local(name: str) -> bool:
    """Whether a server of that name is out of the public's reach, so that a web page must not reach it either."""
    return not ip_address(name).is_global if is_address(name) else "." not in name or name.endswith(".local")


def client_of(scope: Scope) -> str:
    """Who calls: the address of the connection; behind a Space's proxies, whose last words are private addresses, the
    last public one that they tell of.
    """
    own = (scope.get("client") or ("unknown",))[0]
    if "SPACE_ID" not in os.environ:
        return own
    told = [each.strip() for each in Headers(scope=scope).get("x-forwarded-for", "").split(",")]
    return next((each for each in reversed(told) if is_address(each) and ip_address(each).is_global), own)


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _matches(name: str, pattern: str) -> bool:
    return name.endswith(pattern[1:]) if pattern.startswith("*.") else name == pattern


def _with_headers(send: Send) -> Send:
    async def answer(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return answer


async def _read(scope: Scope, receive: Receive) -> tuple[Any, Receive]:
    """The JSON that a request brings, and a `receive` that gives its bytes once more."""
    headers = Headers(scope=scope)
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "The body must be JSON (content-type: application/json).")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MOST_BODY:
        raise _too_long()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            content = await _gather(receive)
    except TimeoutError:
        raise Refused(408, f"The body took longer than {BODY_SECONDS:.0f} seconds.") from None
    try:
        body = json.loads(content)
    except (ValueError, RecursionError):
        raise Refused(400, "The body is no JSON that can be read.") from None
    if _names_a_file(body):
        raise Refused(400, "No input of this page is a file; a prompt is text.")
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    return body, again


async def _gather(receive: Receive) -> bytes:
    content = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refused(400, "The connection ended within the body.")
        content += message.get("body", b"")
        if len(content) > MOST_BODY:
            raise _too_long()
        if not message.get("more_body"):
            return bytes(content)


def _too_long() -> Refused:
    return Refused(413, f"The body is too long: at most {MOST_BODY:,} bytes are taken.")


def _names_a_file(body: Any) -> bool:
    """Whether Gradio would fetch or open something for it: it does so for an object of its type FileData anywhere."""
    rest = [body]
    while rest:
        each = rest.pop()
        if isinstance(each, dict):
            if each.get("_type") == "gradio.FileData":
                return True
            rest.extend(each.values())
        elif isinstance(each, list):
            rest.extend(each)
    return False
