"""The page behind deploy/nginx.conf, as a public server has it."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.browser.server import ROOT, App, answers, free_port
from tests.waiting import HANGS

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")


@contextmanager
def front(app: App, folder: Path, **changes: str) -> Iterator[App]:
    """The same server by the address of nginx, until the block ends. changes: values of directives."""
    port = free_port()
    text = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
    for before, after in {
        "page:7860": app.url.removeprefix("http://"),
        "listen 80": f"listen 127.0.0.1:{port}",
    }.items():
        assert before in text
        text = text.replace(before, after)
    for name, value in changes.items():
        text = "\n".join(
            f"{name} {value};" if line.strip().startswith(f"{name} ") else line
            for line in text.splitlines()
        )
    (folder / "nginx.conf").write_text(text)
    run = f"daemon off; pid {folder}/pid; error_log {folder}/error.log;"
    process = subprocess.Popen(
        [str(NGINX), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", run]
    )
    try:
        answers(f"http://127.0.0.1:{port}/surelock/models/stories/state", process)
        yield replace(app, url=f"http://127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(HANGS)
