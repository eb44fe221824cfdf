"""Serves the files of the page, keeps Gradio's answers for the page itself, and answers failed requests.

A file is compressed once for all visitors. Gradio would compress it for every visit, which takes a third of a second of
the processor that decodes.
"""

import asyncio
import gzip
import json
import os
import re
from collections.abc import Collection, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from gradio.route_utils import BUILD_PATH_LIB
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from surelock.places import ASSETS
from surelock.trace.replay import data_scripts, plotly_script, replay_shell
from surelock.ui.models import EMBEDDED

#: Folders of assets/ that are served whole. Of the embedded model's folder only `model_files` are served.
SERVED = ("scripts", "runs", "fonts")
PREFIX = "surelock"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" stroke="#1668c7" stroke-width="2" fill="none">'
    '<rect x="3" y="8" width="10" height="6" rx="1" fill="#1668c7"/><path d="M5 8V5a3 3 0 0 1 6 0v3"/></svg>'
)
#: The prefix of the files that page.js is split into. Their names contain a hash of their content.
PART = "part-"
SHELL = "replay.txt"  # the replay page without a trace; as .txt, so that a browser does not open it as a page
#: Browsers ask for every file again, so that they never mix old and new modules.
_ASK_AGAIN = "no-cache"
# for files whose address changes with their content
_FOR_GOOD = "public, max-age=31536000, immutable"
#: The policy of the worker's script, which runs WebAssembly and fetches from this server.
WORKER_POLICY = "default-src 'none'; script-src 'wasm-unsafe-eval'; connect-src 'self'"
_MAKING_PLOTLY = Lock()
_MAKING_SHELL = Lock()
PLACE = b"surelock-host.invalid"  # replaced by the server's name in every kept answer
# the headers from which Gradio makes the addresses in the page
_FORWARDED = (b"host", b"x-forwarded-host", b"x-forwarded-proto")
_PACKED = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


@cache
def _packed(path: str | os.PathLike[str], changed: int) -> bytes:
    """Return the content of a file, compressed by gzip.

    changed: the file's time of modification in nanoseconds, so that the cache compresses a changed file again.
    """
    return gzip.compress(Path(path).read_bytes())


class KeptAnswers:
    """ASGI middleware that keeps the answers to requests for the page ("/") and its configuration ("/config").

    Gradio computes both answers for every request, in many threads at once. A class that opens the page would stop the
    server for seconds. Here the answers are computed once, with PLACE in place of the host name. Every request gets
    them with its host name.

    The query of a request is dropped: only the browser reads it, and Gradio would read the parameter `page` as the name
    of another page.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._kept: dict[tuple[str, str, str], list[Message]] = {}  # by path, scheme and root path
        self._making = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if not is_read or scope["path"] not in ("/", "/config"):
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        forwarded = _first(headers, "x-forwarded-host")
        secure = _first(headers, "x-forwarded-proto") == "https"
        if not forwarded and scope["scheme"] == "https":
            secure = True
        scheme = "https" if secure else "http"
        key = scope["path"], scheme, scope.get("root_path", "")
        messages = self._kept.get(key)
        if messages is None:
            async with self._making:
                messages = self._kept.get(key) or await self._make(key, scope, receive)
        for message in _named(messages, forwarded or headers.get("host", "")):
            await send(message)

    async def _make(
        self, key: tuple[str, str, str], scope: Scope, receive: Receive
    ) -> list[Message]:
        """Let Gradio answer a request. Keep the answer if its status is 200."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        _, scheme, _ = key
        headers = [(name, value) for name, value in scope["headers"] if name not in _FORWARDED]
        headers.insert(0, (b"host", PLACE))
        plain = {
            "method": "GET",
            "query_string": b"",
            "scheme": scheme,
            "headers": headers,
            "extensions": {},
        }
        await self._app({**scope, **plain}, receive, keep)
        if messages[0]["status"] == 200:
            self._kept[key] = messages
        return messages


def _first(headers: Headers, name: str) -> str:
    """Return the first value of a header, "" if it is missing. Gradio reads the first value, too."""
    return headers.get(name, "").partition(",")[0].strip()


def _named(messages: list[Message], host: str) -> Iterator[Message]:
    """Yield the messages of a kept answer, with a host name in place of PLACE.

    host: the host name of the request, which the gate has checked.
    """
    name = host.lower().encode("latin-1")
    bodies = [message.get("body", b"").replace(PLACE, name) for message in messages]
    for message, body in zip(messages, bodies, strict=True):
        message = dict(message)
        if message["type"] == "http.response.start":
            message["headers"] = list(message["headers"])
            MutableHeaders(scope=message)["content-length"] = str(sum(map(len, bodies)))
        else:
            message["body"] = body
        yield message


def _takes_gzip(headers: Headers) -> bool:
    return "gzip" in headers.get("accept-encoding", "")


class _Files(StaticFiles):
    """Serves the files of a directory. Text files are compressed.

    caching: the Cache-Control header of files whose address contains no hash of their content.
    only: the names of the files that are served, None for all files.
    """

    def __init__(self, directory: Path, caching: str, only: Collection[str] | None = None) -> None:
        super().__init__(directory=directory)
        self._caching = caching
        self._only = only

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        if self._only is not None and path not in self._only:
            return "", None
        return super().lookup_path(path)

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        kind = response.media_type or ""
        text = kind.startswith("text/") or kind.endswith(("javascript", "json", "xml"))
        if isinstance(response, FileResponse) and text and _takes_gzip(Headers(scope=scope)):
            headers = {name: response.headers[name] for name in ("etag", "last-modified")} | _PACKED
            response = Response(
                _packed(full_path, stat_result.st_mtime_ns), status_code, headers, kind
            )
        for_good = b"sha256=" in scope["query_string"] or Path(full_path).name.startswith(PART)
        response.headers["Cache-Control"] = _FOR_GOOD if for_good else self._caching
        return response


def _worker(request: Request) -> Response:
    """Answer with the script of the worker that decodes in the browser."""
    script = ASSETS / "scripts" / "worker.js"
    response = _Files(script.parent, _ASK_AGAIN).file_response(script, script.stat(), request.scope)
    response.headers["Content-Security-Policy"] = WORKER_POLICY
    return response


def _plotly(request: Request) -> Response:
    """Answer with the script of Plotly.

    Starlette calls this function in a thread: the first call takes a third of a second to compress the script.
    """
    script = plotly_script()
    with _MAKING_PLOTLY:
        return _Files(script.parent, "max-age=86400").file_response(
            script, script.stat(), request.scope
        )


@cache
def _packed_shell() -> tuple[bytes, bytes, str]:
    """Return the replay page without a trace: its text, the text compressed by gzip, and its ETag."""
    text = replay_shell().encode()
    return text, gzip.compress(text), f'"{sha256(text).hexdigest()[:16]}"'


def _shell(request: Request) -> Response:
    """Answer with the replay page without a trace.

    Starlette calls this function in a thread: the first call takes a second.
    """
    with _MAKING_SHELL:
        text, packed, tag = _packed_shell()
    headers = {"Cache-Control": _ASK_AGAIN, "ETag": tag}
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    if _takes_gzip(request.headers):
        return Response(packed, media_type="text/plain", headers=headers | _PACKED)
    return Response(text, media_type="text/plain", headers=headers)


def model_files() -> tuple[str, ...]:
    """Return the names of the embedded model's files that a browser needs to decode."""
    content = json.loads((ASSETS / EMBEDDED / "browser.json").read_text("utf-8"))
    return ("browser.json", *content["files"])


def routes() -> list[BaseRoute]:
    """Return the routes that come before Gradio's routes: files under /surelock/, and the modules of Gradio's page."""
    mounts: list[BaseRoute] = [
        Mount(f"/{PREFIX}/{folder}", _Files(ASSETS / folder, _ASK_AGAIN)) for folder in SERVED
    ]
    mounts.append(
        Mount(f"/{PREFIX}/{EMBEDDED}", _Files(ASSETS / EMBEDDED, _ASK_AGAIN, model_files()))
    )
    mounts.append(Mount("/assets", _Files(Path(BUILD_PATH_LIB), _FOR_GOOD)))
    answers = {"plotly.min.js": _plotly, SHELL: _shell, "scripts/worker.js": _worker}
    return [*(Route(f"/{PREFIX}/{name}", answer) for name, answer in answers.items()), *mounts]


def first_parts() -> list[str]:
    """Return the names of the parts that page.js imports at once. The browser fetches other parts when needed."""
    script = (ASSETS / "scripts" / "page.js").read_text("utf-8")
    return re.findall(rf'(?:from|import)"\./({PART}[\w-]+\.js)"', script)


def page_head() -> str:
    """Return the HTML of the page's head.

    Its links let the browser fetch the recorded run and the page's scripts while Gradio's scripts start.
    """
    styles = "".join(
        f'<link rel="stylesheet" href="{PREFIX}/scripts/{name}.css">' for name in ("stage", "page")
    )
    icon = f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}">'  # browsers request an icon file again and again
    run = f'<link rel="preload" href="{PREFIX}/runs/stories.json" as="fetch" crossorigin>'
    parts = "".join(
        f'<link rel="modulepreload" href="{PREFIX}/scripts/{name}">' for name in first_parts()
    )
    return f'{data_scripts()}{icon}{styles}{run}{parts}<script type="module" src="{PREFIX}/scripts/page.js"></script>'


def failed(request: Request, error: Exception) -> Response:
    """Return the answer to a request during which an unexpected error was raised."""
    return JSONResponse({"detail": "The server failed at this request; its log says more."}, 500)
