"""The variables of the environment: a table of all that are read, and a check of their values.

A library stops at a wrong value with a traceback, at its import or at the first request. `check_environment` runs
before these libraries, and raises an error whose sentence names the variable and the allowed values.
"""

import argparse
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from ipaddress import IPv6Address
from pathlib import Path
from tempfile import gettempdir
from typing import Any
from urllib.parse import urlsplit

from surelock.errors import shown

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_LAST_PORT = 65535
_YES = ("1", "true")
_NO = ("0", "false")

#: A function from a value to "" if the value is right, otherwise to a requirement in words, such as "must be a folder".
Check = Callable[[str], str]


# --- checks of values -------------------------------------------------------------------------------------------------


def _any(text: str) -> str:
    return ""


def _nothing(text: str) -> str:
    return "must be left out"


def _whole(low: int, high: int | None = None) -> Check:
    """Return a check for a whole number from `low` to `high`; None: there is no upper limit."""
    where = f"of at least {low}" if high is None else f"from {low} to {high}"

    def check(text: str) -> str:
        fits = False
        if re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", text):
            number = int(text)
            fits = number >= low and (high is None or number <= high)
        return "" if fits else f"must be a whole number {where}"

    return check


def _seconds(text: str) -> str:
    return "" if re.fullmatch(r"[0-9]{1,9}(\.[0-9]*)?", text) else "must be a number of seconds"


def _limit(text: str) -> str:
    wrong = text.lower() != "none" and _whole(1)(text)
    return "must be none or a whole number of at least 1" if wrong else ""


def _root(text: str) -> str:
    fits = re.fullmatch(r"(/|https?://)[!-~]*", text)
    return "" if fits else "must begin with / or with https://, and hold no blank"


def _host(text: str) -> str:
    """Check for a name or an address without a port. Listening shows later whether it belongs to this machine."""
    return "must be a name or an address alone, as 0.0.0.0 is" if re.search(r"[/\s@]", text) else ""


def _folder(text: str) -> str:
    """Check for a folder that can be written, or that can be made."""
    folder = Path(text).absolute()
    there = next(ancestor for ancestor in (folder, *folder.parents) if ancestor.exists())
    fits = there.is_dir() and os.access(there, os.W_OK | os.X_OK)
    return "" if fits else "must be a folder that can be written"


def _temporary(text: str) -> str:
    """Check that Python has a folder for temporary files. It uses another folder if this one cannot be written."""
    try:
        gettempdir()
    except FileNotFoundError:
        return "must be a folder that can be written"
    return ""


def _there(text: str) -> str:
    return "" if Path(text).is_dir() else "must be a folder"


def _certificates(text: str) -> str:
    import ssl  # here, since the import is slow

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(text)
    except OSError:  # errors of ssl are OSErrors too
        return "must be a file of certificates (PEM)"
    return ""


def _log(text: str) -> str:
    file = Path(text).absolute()
    fits = os.access(file if file.exists() else file.parent, os.W_OK) and not file.is_dir()
    return "" if fits else "must be a file that can be written"


def _proxy(text: str) -> str:
    scheme, mark, rest = text.partition("://")
    if not mark:
        scheme = "http"
        rest = text
    socks = scheme.lower().startswith("socks")
    if scheme.lower() not in _PROXY_SCHEMES:
        instead = f"{'socks5' if socks else 'http'}://{rest or 'proxy.example:3128'}"
        return f"must begin with http://, https:// or socks5://, as {instead} does"
    if socks and find_spec("socksio") is None:
        return "must be left out, or the package socksio be there, which SOCKS proxies need (pip install socksio)"
    try:
        split = urlsplit(f"http://{rest}")
        fits = bool(split.hostname) and split.port != 0
    except ValueError:
        fits = False
    return "" if fits else "must be the address of a proxy, as http://proxy.example:3128 is"


def _direct(text: str) -> str:
    """Check for a list of names that are asked without a proxy. httpx cannot read brackets and ranges of IPv6."""
    wrong = [name for name in _names(text) if not _is_direct(name)]
    if not wrong:
        return ""
    return f"must be names and addresses with commas between, without brackets, unlike {wrong[0]}"


def _is_direct(name: str) -> bool:
    if not name.isascii() or "[" in name:
        return False
    if ":" not in name or "://" in name or re.fullmatch(r"[^:]+:[0-9]+", name):
        return True
    try:
        IPv6Address(name)
    except ValueError:
        return False
    return True


def _names(text: str) -> list[str]:
    return [name for name in re.split(r"[\s,]+", text) if name]


# --- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the environment.

    says: its meaning, for the documents.
    check: see `Check`.
    of: the reader of the variable: "start" (every command), "network" (requests to the hub, and Gradio), "page", or
    "platform", which sets the variable itself.
    otherwise: a function that returns the value to check if the variable is not set.
    """

    name: str
    says: str
    check: Check = _any
    of: str = "page"
    otherwise: Callable[[], str] = str


#: Variables of libraries, the system and platforms. Flags of the page have variables too, see `read_environment`.
VARIABLES = (
    Variable("GRADIO_SERVER_NAME", "the address to listen on; `--host` overrides it", _host),
    Variable(
        "GRADIO_SERVER_PORT", "the first port to try; `--port` overrides it", _whole(1, _LAST_PORT)
    ),
    Variable("GRADIO_NUM_PORTS", "how many ports are tried", _whole(1)),
    Variable(
        "GRADIO_ROOT_PATH",
        "the path under which a proxy shows the page, or its whole address",
        _root,
    ),
    Variable(
        "GRADIO_TEMP_DIR",
        "where Gradio makes files",
        _folder,
        otherwise=lambda: f"{gettempdir()}/gradio",
    ),
    Variable("GRADIO_SHARE", "`true` opens a public link, as `--share` does"),
    Variable(
        "GRADIO_DEFAULT_CONCURRENCY_LIMIT", "of Gradio's own queue, which no run waits in", _limit
    ),
    Variable("GRADIO_ANALYTICS_MAX_EVENTS", "of Gradio's own analytics, which is off", _whole(1)),
    Variable(
        "GRADIO_ANALYTICS_CACHE_FREQUENCY", "of Gradio's own analytics, which is off", _whole(1)
    ),
    Variable(
        "GRADIO_NODE_NUM_PORTS", "of a server by Node, which the page does not use", _whole(1)
    ),
    Variable("GRADIO_DEBUG", "must be 0: Gradio would wait before a model is loaded", _whole(0, 0)),
    Variable(
        "GRADIO_NUM_WORKERS",
        "must be 0: Gradio's further processes would answer without a gate",
        _whole(0, 0),
    ),
    Variable("GRADIO_WATCH_DIRS", "is refused: Gradio would run files that change", _nothing),
    Variable("WEB_CONCURRENCY", "how many processes a platform suggests; there is one", _whole(1)),
    Variable("FORWARDED_ALLOW_IPS", "the proxies whose `X-Forwarded-For` is believed (uvicorn)"),
    Variable(
        "HTTP_PROXY",
        "the proxy of plain requests; this machine is never asked through it",
        _proxy,
        "network",
    ),
    Variable(
        "HTTPS_PROXY",
        "the proxy of the hub's; this machine is never asked through it",
        _proxy,
        "network",
    ),
    Variable(
        "ALL_PROXY",
        "the proxy of all others; this machine is never asked through it",
        _proxy,
        "network",
    ),
    Variable("NO_PROXY", "what is asked without a proxy, beside this machine", _direct, "network"),
    Variable("SSL_CERT_FILE", "certificates to trust", _certificates, "network"),
    Variable("SSL_CERT_DIR", "a folder of certificates to trust", _there, "network"),
    Variable("SSLKEYLOGFILE", "where Python writes keys of connections", _log, "network"),
    Variable("HF_HOME", "where downloads of the hub are kept", of="network"),
    Variable("HF_HUB_ETAG_TIMEOUT", "seconds, of the hub", _whole(1), "start"),
    Variable("HF_HUB_DOWNLOAD_TIMEOUT", "seconds, of the hub", _whole(1), "start"),
    Variable(
        "TQDM_MININTERVAL", "seconds between two states of a bar of progress", _seconds, "start"
    ),
    Variable(
        "TMPDIR", "where temporary files are made", _temporary, "start", otherwise=lambda: "/tmp"
    ),
    Variable("CC", "the C compiler, which a GPU's kernels need", of="start"),
    Variable("SPACE_HOST", "the name of a Space", of="platform"),
    Variable("SPACE_ID", "the owner and name of a Space", of="platform"),
    Variable("SPACES_ZERO_GPU", "whether a Space runs on ZeroGPU", of="platform"),
)
_NAMES = frozenset(variable.name for variable in VARIABLES)
#: Variables that a child process for trying a checkpoint receives. Tokens of services, proxies and Python's variables
#: are not among them.
_PASSED = (
    *("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TEMP", "TMP", "HOME", "USERPROFILE"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH"),
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT"),
)


def value_of(name: str) -> str:
    """Return the value of a variable in VARIABLES, or "" if it is not set."""
    assert name in _NAMES, name
    return os.environ.get(name, "").strip()


def check_environment(*readers: str) -> None:
    """Check the variables of some readers (`Variable.of`), and that paths are readable.

    Raises ValueError, one sentence that names the variable and the allowed values.
    """
    for variable in VARIABLES:
        names = [variable.name]
        if variable.name.endswith("_PROXY"):
            names.append(variable.name.lower())
        for name in names:
            text = os.environ.get(name, "").strip() or variable.otherwise()
            if text and variable.of in readers and (right := variable.check(text)):
                raise ValueError(f"{name} {right}, not {shown(text)}")
    _check_paths()


def _check_paths() -> None:
    """Raise ValueError for a path or an argument that is not ASCII, if the locale's encoding is not UTF-8.

    Libraries in Rust accept only UTF-8.
    """
    encoding = sys.getfilesystemencoding()
    if is_utf8(encoding):
        return
    texts = [
        *sys.argv[1:],
        str(Path.cwd()),
        str(Path(__file__).resolve()),
        os.path.expanduser("~"),
        gettempdir(),
    ]
    for text in texts:
        if not text.isascii():
            named = [
                name for name in ("PYTHONUTF8", "LC_ALL", "LC_CTYPE", "LANG") if name in os.environ
            ]
            settings = ", ".join(f"{name}={os.environ[name]}" for name in named) or "the locale"
            raise ValueError(
                f"{settings} makes Python read {text!a} as {encoding}: set PYTHONUTF8=1"
            )


def is_utf8(encoding: str) -> bool:
    """Return whether the name of an encoding means UTF-8."""
    return encoding.lower().replace("-", "") == "utf8"


def spare_loopback(*hosts: str) -> None:
    """Set the environment so that requests to this machine use no proxy. hosts: further names of this machine.

    The system proxies of Windows and macOS are also written into the environment, because they would be ignored if the
    environment has only no_proxy.
    """
    from urllib.request import getproxies  # here, since the import is slow

    proxies = getproxies()
    set_proxies = {
        f"{scheme}_proxy": proxies[scheme].strip()
        for scheme in ("http", "https", "all")
        if scheme in proxies
    }
    if not set_proxies:
        return
    spared = dict.fromkeys([*_names(proxies.get("no", "")), *LOOPBACK, *filter(None, hosts)])
    for name, text in (set_proxies | {"no_proxy": ",".join(spared)}).items():
        os.environ[name] = text
        os.environ[name.upper()] = text


def child_environment() -> dict[str, str]:
    """Return the environment for a process that tries files of a stranger: the variables that it needs to start."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    quiet = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    return {**passed, **quiet, "CUDA_VISIBLE_DEVICES": ""}


# --- the page's flags -------------------------------------------------------------------------------------------------


def read_environment(parser: argparse.ArgumentParser, flags: list[argparse.Action]) -> None:
    """Set the defaults of a parser's flags from their variables, and add the variables to its help.

    A Space has no command line, so its flags are variables: `--keep-mb` is SURELOCK_KEEP_MB. Items of a list are
    separated by spaces or commas. The variable of a flag without a value is 1 or true, or 0 or false. A wrong value
    ends the process with a sentence that names the variable.
    """
    for action in flags:
        variable = f"SURELOCK{action.option_strings[-1].upper().replace('-', '_')[1:]}"
        action.help = f"{action.help} [{variable}]"
        if text := os.environ.get(variable, "").strip():
            try:
                parser.set_defaults(**{action.dest: _value(action, text)})
            except (ValueError, argparse.ArgumentTypeError) as error:
                parser.error(f"{variable} {error}, not {text[:60]!r}")


def _value(action: argparse.Action, text: str) -> Any:
    """Return the value of a flag that a variable's text spells. Raises ValueError."""
    if action.nargs == 0:
        if text.lower() not in (*_YES, *_NO):
            raise ValueError("must be 1 or 0")
        return text.lower() in _YES
    if not action.nargs:
        return _one(action, text)
    return [_one(action, word) for word in re.split(r"[\s,]+", text) if word]


def _one(action: argparse.Action, word: str) -> Any:
    """Return one item of a flag's value. Raises ValueError."""
    if action.choices is not None and word not in action.choices:
        raise ValueError(f"must be one of {', '.join(action.choices)}")
    if not callable(action.type):
        return word
    try:
        return action.type(word)
    except ValueError:
        kind = "a whole number" if action.type is int else "a number"
        raise ValueError(f"must be {kind}") from None
