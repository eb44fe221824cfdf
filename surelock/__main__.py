"""The command line: `surelock COMMAND`, or `python -m surelock COMMAND` in a clone.

Without a command it serves the page. Flags have the names of the arguments of the functions that they call.
"""

import argparse
import json
import os
import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import surelock
from surelock.arguments import Parser, start
from surelock.environment import check_environment

#: By command: its help, and the function that adds its arguments and sets `run`. Only the module of the command in use
#: is imported.
COMMANDS = {
    "page": (
        "serve the page; so does no command at all, also with flags of the page",
        "ui.launch:add_page_arguments",
    ),
    "site": (
        "write the page without a server: a folder of files, or one file",
        "ui.site:add_site_arguments",
    ),
    "decode": ("continue prompts with any decoder", "trace.cli:add_decode_arguments"),
    "record": (
        "record a race of decoders as a trace or a page that replays it",
        "record:add_arguments",
    ),
    "flops": (
        "algorithmic FLOPs of the baseline for a network's shape",
        "decoding.flops:add_flops_arguments",
    ),
    "pays": (
        "whether SureLock, budget and dual cache are faster here than every row",
        "bench.pays:add_arguments",
    ),
    "bench": {
        "decode": ("time a decoder beside the baseline", "bench.decode:add_arguments"),
        "llada": (
            "time SureLock, the baseline and LLaDA's own loop",
            "research.bench.llada:add_arguments",
        ),
        "gpu": (
            "a step of LLaDA-8B's shape on a GPU, predicted and measured",
            "research.bench.gpu:add_arguments",
        ),
        "pays": (
            "what `surelock pays` says beside `bench decode`",
            "research.bench.pays:add_arguments",
        ),
        "counts": ("what a step asks of a GPU, counted without one", "bench.counts:add_arguments"),
    },
    "experiment": ("one of the experiments, resumable", "research.cli:add_arguments"),
    "train": ("train a small model in the LLaDA layout", "research.training:add_train_arguments"),
}


#: Flags that belong to no command. Any other first flag is a flag of the page.
_OF_NO_COMMAND = ("-h", "--help", "--version")


def _is_installed(home: str) -> bool:
    """Return whether the module of a command exists. An installed package has no research."""
    return not home.startswith("research.") or find_spec("surelock.research") is not None


class _Command(Parser):
    """The parser of one command. Its arguments are added when it first parses.

    home: "module:function", the function that adds the arguments; None: there are none to add.
    """

    def __init__(self, *args: Any, home: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._home = home

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        if self._home is not None:
            home = self._home
            self._home = None
            module, function = home.split(":")
            if not _is_installed(home):
                where = f"run `python -m {self.prog}` in a clone of the repository"
                self.exit(
                    2, f"surelock: `{self.prog}` is research, which is not installed: {where}\n"
                )
            if module.startswith("ui."):  # checked before Gradio reads the environment
                check_environment("network", "page")
            getattr(import_module(f"surelock.{module}"), function)(self)
        return super().parse_known_args(*args, **kwargs)


def main(argv: list[str] | None = None) -> int:
    """Run a command and return the exit status.

    argv: the arguments; None: those of the process.

    An error that the user can correct is printed as one sentence, and the status is 2. `--debug` also prints its
    traceback. The function of a command returns its exit status, or a value that is printed last as JSON, or None.
    """
    arguments = argparse.Namespace(debug=False)
    try:
        start()
        words = sys.argv[1:] if argv is None else argv
        if not words:
            print(
                "surelock: serving the page (surelock --help lists the commands)", file=sys.stderr
            )
        if not words or (words[0].startswith("-") and words[0] not in _OF_NO_COMMAND):
            words = ["page", *words]
        arguments = _parser().parse_args(words)
        result = arguments.run(arguments)
    except BrokenPipeError:  # for example in `| head`: the rest of the output is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (ValueError, ArithmeticError, OSError) as error:
        if arguments.debug:
            traceback.print_exception(error)
        said: object = error
        # Python's message would begin with the number of the error.
        if isinstance(error, OSError) and error.filename:
            said = f"{error.strerror}: {error.filename!r}"
        print(f"surelock: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as error:
        print(f"surelock: {str(error) or 'interrupted'}", file=sys.stderr)
        return 130
    if isinstance(result, int):
        return result
    if result is not None:
        print(json.dumps(result), flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    """Return the parser of all commands.

    Its help leaves out commands that are not installed. Such a command still prints how to run it.
    """
    parser = _Command(
        prog="surelock",
        description="Decoding of masked diffusion language models, with and without locks.",
    )
    parser.add_argument("--version", action="version", version=f"surelock {surelock.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, what in COMMANDS.items():
        if isinstance(what, dict):
            group = commands.add_parser(name, help="benchmarks; each prints one JSON line last")
            inner = group.add_subparsers(title="benchmarks", metavar="BENCHMARK", required=True)
            for benchmark, (about, home) in what.items():
                _add(inner, benchmark, about, home)
        else:
            _add(commands, name, *what)
    return parser


def _add(commands: Any, name: str, about: str, home: str) -> None:
    """Add a command. Only installed commands get a help text, because argparse lists no command without one."""
    listed = {"help": about} if _is_installed(home) else {}
    command = commands.add_parser(name, home=home, **listed)
    command.add_argument(
        "--debug", action="store_true", help="print the traceback of an error, too"
    )


if __name__ == "__main__":
    sys.exit(main())
