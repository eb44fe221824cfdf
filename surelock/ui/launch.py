"""From the command line to a running page."""

from __future__ import annotations

import argparse
import threading
from typing import TYPE_CHECKING, Any

from gradio.themes import Default
from starlette.middleware import Middleware

from surelock.ui.gradio_patches import CalmFrames, PagesOfLessons
from surelock.ui.layout import build
from surelock.ui.models import EMBEDDED, Models
from surelock.ui.serving import exception_handlers, page_head, routes
from surelock.ui.session import Sessions

if TYPE_CHECKING:
    from surelock.quality.judge import Judge

SWEEP_SECONDS = 60.0
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"]


def parser() -> argparse.ArgumentParser:
    """The command line of app.py. What is not given follows Gradio's environment variables (GRADIO_SERVER_NAME,
    GRADIO_SERVER_PORT, ...).
    """
    made = argparse.ArgumentParser(
        prog="app.py", description="Watch a masked diffusion language model decode with and without SureLock."
    )
    made.add_argument(
        "--model",
        nargs="+",
        default=[EMBEDDED],
        metavar="ID_OR_PATH",
        help="models to offer; the first is loaded at once (default: the embedded one)",
    )
    made.add_argument("--device-map", choices=("auto",), help="spread each model over all GPUs")
    made.add_argument(
        "--judge",
        metavar="MODEL",
        help="a causal model (hub id, directory, GGUF file) that scores each finished text (default: none)",
    )
    made.add_argument("--host", help="address to listen on (default: this machine only)")
    made.add_argument("--port", type=int, help="port (default: the first free one from 7860)")
    made.add_argument("--share", action="store_true", help="also open a public link through Gradio")
    made.add_argument(
        "--max-length", type=int, default=512, help="most positions of a run, prompt included (default: %(default)s)"
    )
    made.add_argument("--queue-size", type=int, default=32, help="most visitors waiting (default: %(default)s)")
    return made


def main(arguments: list[str] | None = None) -> None:
    """Build the page, start loading the model, serve until stopped."""
    given = parser().parse_args(arguments)
    if given.max_length < 32:
        parser().error("--max-length must be at least 32")
    models = Models(given.model, given.device_map)
    judge = _judge(given.judge) if given.judge else None
    page, sessions = build(models, most=given.max_length, queue_size=given.queue_size, judge=judge)
    _sweep_regularly(sessions)
    page.launch(
        server_name=given.host,
        server_port=given.port,
        share=given.share or None,
        prevent_thread_lock=True,
        enable_monitoring=False,
        **look(),
    )
    models.start_loading(models.labels[0])
    page.block_thread()


def _judge(name: str) -> Judge:
    from surelock.quality.judge import Judge

    try:
        return Judge.load(name)
    except ValueError as error:
        parser().error(str(error))


def look() -> dict[str, Any]:
    """How the page is launched: its own files, system fonts (nothing is fetched from elsewhere), no run history."""
    theme = Default(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=["ui-monospace", "monospace"]).set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        block_title_text_color="*neutral_800",
        block_label_text_color="*neutral_700",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
    )
    return {
        "theme": theme,
        "head": page_head(),
        "app_kwargs": {
            "routes": routes(),
            "exception_handlers": exception_handlers(),
            "middleware": [Middleware(CalmFrames), Middleware(PagesOfLessons)],
        },
        "run_history": False,
        "ssr_mode": False,
        "footer_links": ["api"],
        "max_file_size": "1mb",
        "state_session_capacity": 200,  # Gradio keeps 10,000 tabs, closed ones too, at 80 kB each
        "show_error": True,
    }


def _sweep_regularly(sessions: Sessions) -> None:
    """Drop abandoned runs every minute."""

    def sweep() -> None:
        sessions.sweep()
        _sweep_regularly(sessions)

    timer = threading.Timer(SWEEP_SECONDS, sweep)
    timer.daemon = True
    timer.start()
