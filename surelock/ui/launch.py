"""From the command line to a running page."""

import argparse
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from gradio.themes import Default
from gradio.tunneling import CURRENT_TUNNELS
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from surelock.arguments import Parser
from surelock.decoding.rules import register_all
from surelock.engines.flags import add_engine_flag, add_weights_flag
from surelock.errors import first_line
from surelock.ui.agents import Agents
from surelock.ui.device import on_zero_gpu
from surelock.ui.endpoint import check_call
from surelock.ui.environment import named, read_environment
from surelock.ui.gate import LOOPBACK, Gate
from surelock.ui.gradio_patches import FewAtOnce, bound_connections, compress_no_files, log_failures, serve_agents
from surelock.ui.heartbeats import Heartbeats
from surelock.ui.kept_answers import KeptAnswers
from surelock.ui.layout import build
from surelock.ui.limits import Limits
from surelock.ui.log import calm
from surelock.ui.models import EMBEDDED, Models
from surelock.ui.serving import exception_handlers, page_head, routes
from surelock.ui.session import keep_tidy

FONTS = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"]


def parser() -> argparse.ArgumentParser:
    """Return the argument parser of app.py."""
    about = "Watch a masked diffusion language model decode with and without SureLock."
    made = Parser(prog="app.py", description=about)
    add_page_arguments(made)
    return made


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of app.py and `surelock page`.

    Defaults come from the environment: the variables of `read_environment`, then Gradio's (GRADIO_SERVER_NAME,
    GRADIO_SERVER_PORT, ...).
    """
    limits, add = Limits(), parser.add_argument
    offered = "models to offer; the first is loaded at once (default: the embedded one)"
    add("--model", nargs="+", default=[EMBEDDED], metavar="ID_OR_PATH", help=offered)
    add(
        "--decode-in",
        choices=("browser", "server", "both"),
        default="both",
        help="where runs are computed: in the visitor's browser (the embedded model alone), on this server, or where "
        "the visitor chooses (default: %(default)s)",
    )
    add("--device-map", choices=("auto",), help="spread each model over all GPUs")
    add_engine_flag(parser)
    add_weights_flag(parser)
    add("--tokenizer", metavar="ID_OR_PATH", help="of models that have none (default: their family's)")
    add("--host", help="address to listen on (default: this machine only)")
    add("--port", type=int, help="port (default: the first free one from 7860)")
    add("--share", action="store_true", help="also open a public link through Gradio")
    longest = "most positions of a run, prompt included (default: %(default)s)"
    add("--max-length", type=int, default=512, help=longest)
    add("--queue-size", type=int, default=32, help="most visitors waiting (default: %(default)s)")
    kept = "megabytes for all kept runs; the one idle longest is dropped first (default: %(default).0f)"
    add("--keep-mb", type=float, default=limits.keep_mb, help=kept)
    seconds = "longest computation of one run (default: %(default).0f)"
    add("--run-seconds", type=float, default=limits.run_seconds, help=seconds)
    rules = "modules whose rules and policies the form offers, too"
    add("--rules", nargs="+", default=[], metavar="PACKAGE.MODULE", help=rules)
    names = "further host names of the server ('*' for any)"
    add("--allow-host", nargs="+", default=[], metavar="NAME", help=names)
    agents = "also serve /decode to agents as a tool (Model Context Protocol, at /gradio_api/mcp/)"
    add("--mcp", action="store_true", help=agents)
    taken = read_environment(parser)
    parser.set_defaults(run=lambda given: serve(given, lambda text: parser.error(named(text, parser, given, taken))))


def main(arguments: list[str] | None = None) -> None:
    """Serve the page. arguments: of the command line; None is the process's own."""
    given = parser().parse_args(arguments)
    given.run(given)


def serve(given: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    """Build the page, start loading the model, and serve until stopped. refuse: ends the process with a message."""
    if given.max_length < 32:
        refuse("--max-length must be at least 32")
    if given.queue_size < 1:
        refuse("--queue-size must be at least 1")
    if given.port is not None and not 0 <= given.port < 65536:
        refuse("--port must be from 0 to 65535")
    in_browsers = given.decode_in == "browser"
    if in_browsers and given.model != [EMBEDDED]:
        refuse("--decode-in browser is for the embedded model: a browser computes no other, so leave out --model")
    if in_browsers and given.mcp:
        refuse("--decode-in browser leaves no runs to this server, and --mcp needs them: leave it out")
    if given.weights and on_zero_gpu():
        refuse("--weights int8 is not for ZeroGPU, which has room for the weights as they are: leave it out")
    if given.mcp and find_spec("mcp") is None:
        refuse("--mcp needs the package mcp (pip install 'gradio[mcp]')")
    try:
        for name in given.rules:
            register_all(name)
        limits = Limits(given.keep_mb, given.run_seconds)
        models = Models(given.model, given.device_map, given.engine, given.weights, not in_browsers, given.tokenizer)
    except ValueError as error:
        refuse(str(error))
    if on_zero_gpu():
        import_module("spaces")  # before CUDA starts
        models.load_all()  # what lies on the GPU when the page opens is packed for every worker
    page, sessions, shares, door = build(
        models,
        most=given.max_length,
        queue_size=given.queue_size,
        limits=limits,
        sources=sources(given.decode_in, models.labels, is_public(given)),
    )
    threading.Thread(target=keep_tidy, args=(sessions,), name="tidy", daemon=True).start()
    admit = Agents(shares, partial(check_call, models)).admit if given.mcp else shares.admit
    gate = Middleware(Gate, allow_hosts=(*given.allow_host, given.host or ""), admit=admit, agents=given.mcp)
    if given.mcp:
        serve_agents()
    calm()
    log_failures()
    bound_connections()
    compress_no_files()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _stop)
    try:
        page.launch(
            server_name=given.host,
            server_port=given.port,
            share=given.share or None,
            prevent_thread_lock=True,
            enable_monitoring=False,
            mcp_server=given.mcp,
            **look(gate, [Heartbeats(page, shares.readers, sessions.leave).route, *door.routes], api=models.decodes),
        )
    except OSError as error:  # the port is taken, or the address is not this machine's
        refuse(f"{first_line(error).partition('. ')[0]}.")
    models.start_loading(models.labels[0])
    if why := models.failure(models.labels[0]):
        refuse(f"--model {models.labels[0]} cannot be loaded: {why}")
    page.block_thread()


def is_public(given: argparse.Namespace) -> bool:
    """Return whether the page can be reached from other machines."""
    host = given.host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    return given.share or "SPACE_HOST" in os.environ or host not in LOOPBACK


def sources(decode_in: str, labels: list[str], public: bool) -> list[str]:
    """Return where runs may be computed; the first is selected at first.

    public: whether other machines reach the page. A public server without a GPU selects the browser.
    """
    if decode_in != "both":
        return [decode_in]
    if EMBEDDED not in labels:
        return ["server"]
    return ["browser", "server"] if public and not _has_gpu() else ["server", "browser"]


def _has_gpu() -> bool:
    if on_zero_gpu():
        return True
    from torch import cuda  # a public page's server loads it at once in any case

    return cuda.is_available()


def _stop(*_: object) -> None:
    """Stop the process at once. A run leaves nothing on disk, and a step of a large model may take long."""
    for tunnel in CURRENT_TUNNELS:
        tunnel.kill()
    os._exit(0)


def look(gate: Middleware, first: list[BaseRoute], api: bool) -> dict[str, Any]:
    """Return the arguments of `page.launch`: theme with system fonts, files, no run history.

    gate: the middleware that comes first.
    first: the routes that come first.
    api: whether the page links to the description of its API.
    """
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
            "routes": [*first, *routes()],
            "exception_handlers": exception_handlers(),
            "middleware": [gate, *map(Middleware, (KeptAnswers, FewAtOnce))],
        },
        "run_history": False,
        "ssr_mode": False,
        "footer_links": ["api"] if api else [],
        "max_file_size": "1mb",
        "state_session_capacity": 200,  # Gradio's default keeps 10,000 tabs, closed ones too, at 80 kB each
        "show_error": True,
    }
