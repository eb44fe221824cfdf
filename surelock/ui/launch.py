"""Builds and serves the page that the command line describes."""

import argparse
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from gradio.themes import Default
from gradio.tunneling import CURRENT_TUNNELS
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.types import ASGIApp

from surelock.arguments import Parser
from surelock.decoding.outside import import_rules
from surelock.engines.flags import add_engine_flag, add_weights_flag
from surelock.environment import LOOPBACK, read_environment, spare_loopback, value_of
from surelock.errors import first_line
from surelock.ui.addresses import is_ipv6
from surelock.ui.endpoint import Calls, admit
from surelock.ui.gate import API, Gate
from surelock.ui.layout import build
from surelock.ui.limits import MOST_SIDE, Limits, room
from surelock.ui.log import calm
from surelock.ui.models import EMBEDDED, Models
from surelock.ui.queue import Queue
from surelock.ui.run_routes import RunRoutes
from surelock.ui.runs import Runs
from surelock.ui.serving import KeptAnswers, failed, page_head, routes
from surelock.ui.shared_race import make_runner
from surelock.ui.zero_gpu import on_zero_gpu
from surelock.values import Json

SERVER_NAME = "GRADIO_SERVER_NAME"
UNTAKEN_SECONDS = 30.0  # a connection is closed if its reader takes nothing for so long
MOST_THREADS = 40  # Gradio's default
FONTS = ["system-ui", "-apple-system", "Segoe UI", "Noto Sans", "sans-serif"]


def parser() -> argparse.ArgumentParser:
    """Return the parser of app.py."""
    about = "Watch a masked diffusion language model decode with and without SureLock."
    page_parser = Parser(prog="app.py", description=about)
    add_page_arguments(page_parser)
    return page_parser


def add_page_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of app.py and `surelock page`.

    Environment variables set the defaults: first those of `read_environment`, then those of Gradio
    (`surelock.environment`).
    """
    limits = Limits()
    flags = list[argparse.Action]()

    def add(*names: str, **more: Any) -> None:
        flags.append(parser.add_argument(*names, **more))

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
    flags += [add_engine_flag(parser), add_weights_flag(parser)]
    add(
        "--tokenizer",
        metavar="ID_OR_PATH",
        help="of models that have none (default: their family's)",
    )
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
    rules = "rules and policies that the form offers, too"
    add("--rules", nargs="+", default=[], metavar="PACKAGE.MODULE:CLASS", help=rules)
    names = "further host names of the server ('*' for any)"
    add("--allow-host", nargs="+", default=[], metavar="NAME", help=names)
    agents = "also serve /decode to agents as a tool (Model Context Protocol, at /gradio_api/mcp/)"
    add("--mcp", action="store_true", help=agents)
    read_environment(parser, flags)
    parser.set_defaults(run=lambda args: serve(args, parser.error))


def main(arguments: list[str] | None = None) -> None:
    """Serve the page until it is stopped. arguments: the command line's arguments, None for those of the process."""
    args = parser().parse_args(arguments)
    args.run(args)


def serve(args: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> None:
    """Build the page, serve it, load the first model, and return when the server stops.

    args: the flags of `add_page_arguments`.
    refuse: a function that ends the process with a message. It is called for every flag that cannot be followed.
    """
    if not 32 <= args.max_length <= MOST_SIDE:
        refuse(f"--max-length must be from 32 to {MOST_SIDE}, the most positions of a trace")
    if args.queue_size < 1:
        refuse("--queue-size must be at least 1")
    if args.port is not None and not 1 <= args.port < 65536:
        refuse("--port must be from 1 to 65535")
    hosts = {"--host": args.host, SERVER_NAME: value_of(SERVER_NAME)}
    for setting, host in hosts.items():
        if host and not is_here(host):
            refuse(
                f"{setting} must be a name or an address of this machine, as 0.0.0.0 is, not {host[:60]!r}"
            )
    if ":" in value_of(SERVER_NAME):
        refuse(f"{SERVER_NAME} must be no address of IPv6: give that by --host")
    in_browsers = args.decode_in == "browser"
    if in_browsers and args.model != [EMBEDDED]:
        refuse(
            "--decode-in browser is for the embedded model: a browser computes no other, so leave out --model"
        )
    if in_browsers and args.mcp:
        refuse(
            "--decode-in browser leaves no runs to this server, and --mcp needs them: leave it out"
        )
    if args.weights and on_zero_gpu():
        refuse(
            "--weights int8 is not for ZeroGPU, which has room for the weights as they are: leave it out"
        )
    if args.mcp and find_spec("mcp") is None:
        refuse("--mcp needs the package mcp (pip install mcp)")
    try:
        for name in args.rules:
            if ":" not in name:
                raise ValueError(f"--rules must be package.module:Class, not {name!r}")
            import_rules(name)
        limits = Limits(args.keep_mb, args.run_seconds)
        models = Models(
            args.model, args.device_map, args.engine, args.weights, not in_browsers, args.tokenizer
        )
    except ValueError as error:
        refuse(str(error))
    if on_zero_gpu():
        import_module("spaces")  # before CUDA starts
        models.load_all()  # ZeroGPU's workers see only the models that are loaded before the page opens
    queue = Queue(args.queue_size)
    runner = make_runner(models)
    calls = Calls(models, runner, queue, limits, args.max_length)
    run_routes = RunRoutes(
        models, runner, queue, Runs(limits, shared=not on_zero_gpu()), args.max_length
    )
    offered = sources(args.decode_in, models.labels, is_public(args))
    page = build(models, calls, most=args.max_length, sources=offered)
    names = (*args.allow_host, args.host or "")
    gate = partial(Gate, allow_hosts=names, admit=partial(admit, page, calls), agents=args.mcp)
    served: Json = {
        "routes": [*run_routes.routes, *routes()],
        "middleware": [Middleware(KeptAnswers)],
    }
    running: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    if args.mcp:
        from surelock.ui.agents import Agents  # the package mcp is optional

        agents = Agents(calls, models.labels)
        served["routes"] += [Route(f"{API}/mcp{end}", agents) for end in ("", "/")]
        running = agents.running
    served["lifespan"] = partial(behind, gate, running)
    spare_loopback(args.host or "", value_of(SERVER_NAME))
    calm()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        page.launch(
            server_name=f"[{args.host}]" if is_ipv6(args.host or "") else args.host,
            server_port=args.port,
            share=args.share or None,
            prevent_thread_lock=True,
            enable_monitoring=False,
            # calls of /decode wait without a thread
            max_threads=max(MOST_THREADS, args.queue_size + 8),
            **look(served, api=models.decodes),
        )
    except OSError as error:  # the port is taken
        refuse(f"{first_line(error).partition('. ')[0]}.")
    page.server.config.limit_concurrency = room()
    close_unread(listening for server in page.server.servers for listening in server.sockets)
    models.start_loading(models.labels[0])
    if why := models.failure(models.labels[0]):
        refuse(f"--model {models.labels[0]} cannot be loaded: {why}")
    page.block_thread()


def is_public(args: argparse.Namespace) -> bool:
    """Return whether the page can be reached from other machines."""
    host = args.host or value_of(SERVER_NAME) or "127.0.0.1"
    return args.share or bool(value_of("SPACE_HOST")) or host not in LOOPBACK


def close_unread(sockets: Iterable[Any]) -> None:
    """Let Linux close a connection whose reader takes nothing for UNTAKEN_SECONDS.

    Without this limit the server would wait for the reader. Other systems have no such limit.

    sockets: the sockets that the server listens on. Their connections inherit the limit.
    """
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        for listening in sockets:
            listening.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNTAKEN_SECONDS)
            )


def is_here(host: str) -> bool:
    """Return whether this machine can listen on an address or a name."""
    try:
        for family, kind, _, _, address in socket.getaddrinfo(
            host.strip("[]"), 0, type=socket.SOCK_STREAM
        ):
            with socket.socket(family, kind) as probe:
                probe.bind(address)
    except OSError:
        return False
    return True


@asynccontextmanager
async def behind(
    gate: Callable[[ASGIApp], Gate],
    running: Callable[[], AbstractAsyncContextManager[None]],
    app: Any,
) -> AsyncGenerator[None]:
    """The lifespan of Gradio's application. It puts the gate before the application, before the server listens.

    gate: makes the gate of an application.
    running: makes the context in which the server runs.

    The gate is not added to Gradio's middleware: the middleware that answers OPTIONS and failures would come first.
    """
    app.middleware_stack = gate(app.middleware_stack)
    async with running():
        yield


def sources(decode_in: str, labels: list[str], public: bool) -> list[str]:
    """Return the places where runs may be computed, "server" and "browser". The page selects the first one.

    decode_in: the value of --decode-in.
    labels: the labels of the models. The browser computes the embedded model alone.
    public: whether other machines reach the page. A public server without a GPU selects the browser first.
    """
    if decode_in != "both":
        return [decode_in]
    if EMBEDDED not in labels:
        return ["server"]
    if public and not _has_gpu():
        return ["browser", "server"]
    return ["server", "browser"]


def _has_gpu() -> bool:
    if on_zero_gpu():
        return True
    from torch import cuda  # the first model imports torch in any case

    return cuda.is_available()


def _stop(*_: object) -> None:
    """Stop the process without waiting: a step of a large model may take long, and no run writes to disk."""
    for tunnel in CURRENT_TUNNELS:
        tunnel.kill()
    os._exit(0)


def look(served: Json, api: bool) -> Json:
    """Return arguments of `page.launch`: a theme with system fonts, the page's head, and limits.

    served: arguments of Gradio's application: the routes that come before Gradio's routes, middleware and lifespan.
    api: whether the page links to the description of its API.
    """
    theme = Default(
        primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=["ui-monospace", "monospace"]
    ).set(
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
        "app_kwargs": served | {"exception_handlers": {Exception: failed}},
        "run_history": False,
        "ssr_mode": False,
        "footer_links": ["api"] if api else [],
        "max_file_size": "1mb",
        "state_session_capacity": 200,  # Gradio's default keeps 10,000 tabs at 80 kB each
        "show_error": True,
    }
