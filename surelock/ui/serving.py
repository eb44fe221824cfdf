"""What the server answers beside Gradio's pages: the stage's files, refused uploads, a reason for every refusal."""

from __future__ import annotations

from errno import ENAMETOOLONG
from functools import cache
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from surelock.model.errors import without_paths
from surelock.places import ASSETS
from surelock.trace.replay import described_script, lessons_script, plotly_script
from surelock.ui.bundle import bundle

SERVED = ("js", "css", "runs")  # folders of assets/; nothing else of the checkout is served
PREFIX = "surelock"
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" stroke="#1668c7" stroke-width="2" fill="none">'
    '<rect x="3" y="8" width="10" height="6" rx="1" fill="#1668c7"/><path d="M5 8V5a3 3 0 0 1 6 0v3"/></svg>'
)
BUNDLE = "all.js"  # beside the modules that it is made of: they find other files from where they are


class _Files(StaticFiles):
    """Static files that a browser asks about again after an update, instead of mixing old modules with new."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _plotly(request: Request) -> Response:
    return FileResponse(plotly_script(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


@cache
def _bundled() -> tuple[bytes, str]:
    script = bundle(ASSETS / "js").encode()
    return script, f'"{sha256(script).hexdigest()[:16]}"'


async def _page_script(request: Request) -> Response:
    script, tag = _bundled()
    headers = {"Cache-Control": "no-cache", "ETag": tag}
    if request.headers.get("if-none-match", "").removeprefix("W/") == tag:
        return Response(status_code=304, headers=headers)
    return Response(script, media_type="text/javascript", headers=headers)


async def _no_upload(request: Request) -> Response:
    return JSONResponse({"detail": "This page takes no uploads: traces are opened in the browser."}, 403)


def routes() -> list[BaseRoute]:
    """The stage's files under /surelock/, and the refusal of uploads. They come before Gradio's own routes."""
    mounts: list[BaseRoute] = [Mount(f"/{PREFIX}/{folder}", _Files(directory=ASSETS / folder)) for folder in SERVED]
    uploads = [Route(f"/gradio_api/upload{end}", _no_upload, methods=["POST"]) for end in ("", "/")]
    made = [Route(f"/{PREFIX}/plotly.min.js", _plotly), Route(f"/{PREFIX}/js/{BUNDLE}", _page_script)]
    return [*made, *uploads, *mounts]


def page_head() -> str:
    """Lets the browser fetch and unpack the recorded run and the stage while the page itself is still starting."""
    styles = "".join(f'<link rel="stylesheet" href="{PREFIX}/css/{name}.css">' for name in ("stage", "page"))
    icon = f'<link rel="icon" href="data:image/svg+xml,{quote(ICON)}">'  # a file would be asked for again and again
    run = f'<link rel="preload" href="{PREFIX}/runs/stories.json" as="fetch" crossorigin>'
    data = described_script() + lessons_script()
    return f'{data}{icon}{styles}{run}<script type="module" src="{PREFIX}/js/{BUNDLE}"></script>'


def _unknown(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": f"The request names what does not exist here: {without_paths(error)}"}, 404)


def _no_file(request: Request, error: OSError) -> Response:
    """A name that no file can have; any other failure of the system is the server's own."""
    if error.errno != ENAMETOOLONG:
        raise error
    return _unknown(request, error)


def _malformed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": f"The request is not understood: {without_paths(error)}"}, 400)


def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "The server failed at this request; its log says more."}, 500)


def exception_handlers() -> dict[Any, Any]:
    """Answers for what Gradio's routes raise at odd requests: by itself it would only say that it failed."""
    unknown, malformed = (LookupError, FnIndexInferError), (TypeError, ValueError, AttributeError)
    return {
        **dict.fromkeys(unknown, _unknown),
        **dict.fromkeys(malformed, _malformed),
        OSError: _no_file,
        Exception: _failed,
    }
