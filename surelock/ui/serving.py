"""What the server answers beside Gradio's pages: the stage's files, refused uploads, a reason for every refusal."""

from __future__ import annotations

from errno import ENAMETOOLONG
from typing import Any

from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from surelock.model.errors import without_paths
from surelock.places import ASSETS
from surelock.trace.replay import described_script, lessons_script, plotly_script

SERVED = ("js", "css", "runs")  # folders of assets/; nothing else of the checkout is served
PREFIX = "surelock"


class _Files(StaticFiles):
    """Static files that a browser asks about again after an update, instead of mixing old modules with new."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers["Cache-Control"] = "no-cache"
        return response


async def _plotly(request: Request) -> Response:
    return FileResponse(plotly_script(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


async def _no_upload(request: Request) -> Response:
    return JSONResponse({"detail": "This page takes no uploads: traces are opened in the browser."}, 403)


def routes() -> list[BaseRoute]:
    """The stage's files under /surelock/, and the refusal of uploads. They come before Gradio's own routes."""
    mounts: list[BaseRoute] = [Mount(f"/{PREFIX}/{folder}", _Files(directory=ASSETS / folder)) for folder in SERVED]
    uploads = [Route(f"/gradio_api/upload{end}", _no_upload, methods=["POST"]) for end in ("", "/")]
    return [Route(f"/{PREFIX}/plotly.min.js", _plotly), *uploads, *mounts]


def page_head() -> str:
    """Lets the browser fetch and unpack the stage and the recorded run while the page itself is still starting."""
    names = sorted(path.name for path in (ASSETS / "js").glob("*.js") if path.name != "replay.js")
    modules = "".join(f'<link rel="modulepreload" href="{PREFIX}/js/{name}">' for name in names)
    styles = "".join(f'<link rel="stylesheet" href="{PREFIX}/css/{name}.css">' for name in ("stage", "page"))
    data = described_script() + lessons_script()
    return f'{data}{styles}{modules}<script type="module" src="{PREFIX}/js/live.js"></script>'


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
