"""The environment is input: the page serves, or one sentence names the variable and what would be right."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.request import getproxies, proxy_bypass

import httpx
import pytest

from surelock import environment
from surelock.environment import LOOPBACK, VARIABLES, check_environment, spare_loopback
from surelock.ui import launch
from tests.browser.server import ROOT, serve

DEAD = "http://127.0.0.1:9"
ALL = ("start", "network", "page")
#: Values that end a library with a traceback, or that would open the page without its gate.
WRONG = """
GRADIO_SERVER_NAME | http://127.0.0.1 | a b | a/b
GRADIO_SERVER_PORT | abc | 0 | -1 | 65536 | 7860.5 | ٣
GRADIO_NUM_PORTS | abc | 0
GRADIO_NODE_NUM_PORTS | abc
GRADIO_ROOT_PATH | abc | /a b | ftp://a
GRADIO_TEMP_DIR | /dev/null/x | /dev/null
GRADIO_DEBUG | 1 | x
GRADIO_NUM_WORKERS | 2 | x
GRADIO_WATCH_DIRS | /tmp
GRADIO_DEFAULT_CONCURRENCY_LIMIT | x | 0
GRADIO_ANALYTICS_MAX_EVENTS | x
GRADIO_ANALYTICS_CACHE_FREQUENCY | x
WEB_CONCURRENCY | x | 0
HTTP_PROXY | nonsense://x | http://a:port | http://[::1 | http:a | direct://
https_proxy | socks://127.0.0.1:1080 | socks4://127.0.0.1:1
ALL_PROXY | socks5://127.0.0.1:9 | socks5h://127.0.0.1:9
no_proxy | [::1] | localhost,::1/128 | a:b | münchen.de
SSL_CERT_FILE | /nonexistent.pem | / | HERE
SSL_CERT_DIR | /nonexistent | HERE
SSLKEYLOGFILE | /nonexistent/x | /
HF_HUB_ETAG_TIMEOUT | x
HF_HUB_DOWNLOAD_TIMEOUT | x
TQDM_MININTERVAL | x
"""
RIGHT = """
GRADIO_SERVER_NAME | 0.0.0.0 | localhost |
GRADIO_SERVER_PORT | 7860 |  80  | 65535
GRADIO_ROOT_PATH | / | /below | https://proxy.example/below
GRADIO_DEFAULT_CONCURRENCY_LIMIT | none | 4
GRADIO_DEBUG | 0
HTTP_PROXY | http://127.0.0.1:9 | proxy.example:3128 | http://user:word@proxy.example:3128/ | https://a
NO_PROXY | * | localhost,127.0.0.1, ::1 | .example.org,10.0.0.0/8,*.local,a:80,fe80::1,http://a
"""


def values_of(line: str) -> tuple[str, list[str]]:
    """The name and the values of a line of a table."""
    name, *values = line.replace("HERE", __file__).split(" |")
    return name, [value.removeprefix(" ") for value in values]


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test changes is as it was behind it, though the process sets it."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    for scheme in ("http", "https", "all", "no"):
        for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY"):
            os.environ.pop(name, None)


@pytest.mark.parametrize("line", WRONG.strip().splitlines())
def test_a_wrong_value_is_one_sentence_that_names_the_variable(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)  # no package for SOCKS
    name, values = values_of(line)
    for value in (*values, *(["1" * 5000] if name == "GRADIO_SERVER_PORT" else [])):
        os.environ[name] = value
        said = rf"^{name} must be[^\n]+(, not | not )[^\n]+$"
        with pytest.raises(ValueError, match=said) as refused:
            check_environment(*ALL)
        assert len(str(refused.value)) < 300


@pytest.mark.parametrize("line", RIGHT.strip("\n").splitlines())
def test_a_right_value_is_taken(line: str) -> None:
    name, values = values_of(line)
    for value in values:
        os.environ[name] = value
        check_environment(*ALL)


def test_a_socks_proxy_is_taken_where_its_package_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: object())
    os.environ["ALL_PROXY"] = "socks5://127.0.0.1:9"
    check_environment(*ALL)


@pytest.mark.parametrize("name", ["GRADIO_SERVER_PORT", "HTTP_PROXY", "TQDM_MININTERVAL"])
def test_the_page_ends_in_that_sentence(name: str) -> None:
    """As a process, before Gradio is imported."""
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env=os.environ | {name: "x://"},
        capture_output=True,
        text=True,
    )
    said = rf"app\.py: error: {name} must be[^\n]+\n"
    assert done.returncode == 2 and re.fullmatch(said, done.stderr), done.stderr


def test_the_page_serves_whatever_else_the_environment_says(tmp_path: Path) -> None:
    """Proxies that are dead, no home, no folder for temporary files, a locale of ASCII, threads that are no number."""
    proxies = {
        name: DEAD
        for scheme in ("http", "https", "all")
        for name in (f"{scheme}_proxy", f"{scheme.upper()}_PROXY")
    }
    homes = dict.fromkeys(("HOME", "HF_HOME", "XDG_CACHE_HOME", "MPLCONFIGDIR"), "/dev/null/x")
    others = {
        "TMPDIR": "/nonexistent",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONIOENCODING": "ascii",
    }
    others |= {"OMP_NUM_THREADS": "abc", "NO_PROXY": "example.org", "GRADIO_ROOT_PATH": "/below"}
    more = proxies | homes | others
    with serve(log=tmp_path / "log", more=more) as app:
        assert httpx.get(f"{app.url}/config").status_code == 200
    assert "Traceback" not in (tmp_path / "log").read_text("utf-8")


def test_this_machine_is_asked_through_no_proxy() -> None:
    os.environ |= {"HTTP_PROXY": f" {DEAD} ", "NO_PROXY": "first.example"}
    os.environ["no_proxy"] = "second.example"  # which counts
    spare_loopback("page.lan", "", "10.1.2.3")
    names = (*LOOPBACK, "page.lan", "10.1.2.3", "second.example")
    assert all(proxy_bypass(name) for name in names) and not proxy_bypass("hub.example")
    assert getproxies()["http"] == DEAD == os.environ["http_proxy"] == os.environ["HTTP_PROXY"]
    httpx.Client().close()
    assert os.environ["NO_PROXY"] == os.environ["no_proxy"]


def test_where_there_is_no_proxy_nothing_is_set() -> None:
    before = dict(os.environ)
    spare_loopback()
    assert os.environ == before


@pytest.mark.parametrize(
    ("name", "said"), [("nonsense.invalid", "of this machine"), ("::1", "give that by --host")]
)
def test_so_is_one_that_the_environment_names(
    name: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.environ["GRADIO_SERVER_NAME"] = name
    with pytest.raises(SystemExit):
        launch.main([])
    err = capsys.readouterr().err
    assert "GRADIO_SERVER_NAME must be " in err and (said in err or not launch.is_here(name))


LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0"},
    {"LANG": "C", "LC_ALL": "", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
]


@pytest.mark.skipif(sys.platform != "linux", reason="paths have the locale's encoding there")
@pytest.mark.parametrize("locale", LOCALES)
def test_a_path_that_the_locale_cannot_read_names_the_setting(
    locale: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "modèle"
    folder.mkdir()
    for command in (
        ["app.py", "--model", str(folder)],
        ["-m", "surelock", "decode", "a", "--model", str(folder)],
    ):
        whole = [sys.executable, *command]
        done = subprocess.run(whole, cwd=ROOT, env=os.environ | locale, capture_output=True)
        sentence = done.stderr.decode("utf-8")
        assert done.returncode == 2 and sentence.count("\n") == 1, sentence
        assert "PYTHONUTF8=0" in sentence and sentence.endswith("set PYTHONUTF8=1\n")


def test_every_letter_is_written_whatever_the_locale() -> None:
    """In UTF-8, as in files."""
    more = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "surelock", "decode", "--help"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | more, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"") and "ε" in done.stdout.decode("utf-8")


def test_the_environment_is_read_at_one_place() -> None:
    """PYTHONPATH at another, before any import; ONNX Runtime's telemetry is switched off before its import."""
    found = set[str]()
    for file in (ROOT / "app.py", *(ROOT / "surelock").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr in (
                "environ",
                "getenv",
                "environb",
                "putenv",
            ):
                found.add(file.relative_to(ROOT).as_posix())
    assert found == {
        f"surelock/{name}.py" for name in ("environment", "current_folder", "engines/__init__")
    }


def test_the_documents_have_the_table() -> None:
    text = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    rows = re.findall(r"^\| `([A-Z_]+)` \| (.+?) \|", text, re.MULTILINE)
    assert rows == [(each.name, each.says) for each in VARIABLES]
