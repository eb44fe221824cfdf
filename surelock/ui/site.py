"""`surelock site` writes the page as a folder or as one file. No server is needed: the visitor's browser decodes."""

import argparse
import gzip
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import gradio as gr

from surelock.files import PART, write_files, write_text
from surelock.places import ASSETS
from surelock.trace.outputs import target_file
from surelock.trace.replay import (
    data_scripts,
    embedded_json,
    filled,
    plotly_script,
    replay_shell,
    with_fonts,
)
from surelock.ui.form import Form
from surelock.ui.layout import TITLE
from surelock.ui.models import EMBEDDED, Models
from surelock.ui.serving import ICON, SHELL, model_files

TEMPLATE = Path(__file__).with_name("site.html")
MARK = '<meta name="generator" content="surelock site">'  # marks a folder that may be overwritten
MOST = 512  # the most positions of a run, the default of a server
STYLES = ("stage", "page", "site")
#: The content security policy of the folder. docs/security.md has the reasons for the directives.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
)
#: The content security policy of the one file. It allows the file's script by its hash ({}), and the scripts that the
#: file's script unpacks.
FILE_POLICY = (
    "default-src 'none'; script-src 'sha256-{}' blob: 'wasm-unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; worker-src blob:; base-uri 'none'; form-action 'none'"
)
SPACE = """---
title: SureLock
emoji: 🔒
colorFrom: blue
colorTo: gray
sdk: static
app_file: index.html
license: mit
custom_headers:
  cross-origin-embedder-policy: require-corp
  cross-origin-opener-policy: same-origin
  cross-origin-resource-policy: cross-origin
---

# SureLock

A diffusion language model that runs in your browser, and what locking its settled words saves. `surelock site` wrote
this folder: any file server can serve it, under any path. Its head is a Hugging Face Space's.
"""


def site_files() -> dict[str, bytes]:
    """Return the contents of the files that the page's scripts fetch, by name."""
    names = [
        *("scripts/worker.js", "scripts/ort.wasm.gz", "scripts/quickjs.wasm.gz"),
        *sorted(f"runs/{path.name}" for path in (ASSETS / "runs").glob("*.json")),
        *(f"{EMBEDDED}/{name}" for name in model_files()),
    ]
    files = {name: (ASSETS / name).read_bytes() for name in names}
    return files | {"plotly.min.js": plotly_script().read_bytes(), SHELL: replay_shell().encode()}


def write_site(directory: Path) -> dict[str, int]:
    """Write the page as a folder. Return the sizes of its files in bytes, by name.

    Raises ValueError for a file, and for a folder that contains anything but a site; OSError if the folder cannot be
    written.
    """
    index = directory / "index.html"
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"DIR must be a folder, and {str(directory)!r} is a file")
    is_used = directory.is_dir() and any(
        not path.name.startswith(PART) for path in directory.iterdir()
    )
    if is_used and not (index.is_file() and MARK in index.read_text("utf-8")):
        raise ValueError(
            f"DIR must be new, empty or a site that this command wrote, and {str(directory)!r} holds something else"
        )
    names = ["scripts/site.js", *(f"scripts/{style}.css" for style in STYLES)]
    names += [f"fonts/{path.name}" for path in (ASSETS / "fonts").glob("*.woff2")]
    files = site_files() | {name: (ASSETS / name).read_bytes() for name in names}
    links = "".join(f'<link rel="stylesheet" href="scripts/{name}.css">' for name in STYLES)
    script = '<script type="module" src="scripts/site.js"></script>'
    files |= {
        ".nojekyll": b"",  # GitHub Pages then serves all files unchanged
        "README.md": SPACE.encode(),
        "index.html": _page(POLICY, links, _data(), script).encode(),
    }
    write_files(directory, files)
    return {name: len(content) for name, content in files.items()}


def one_file() -> str:
    """Return the page as the text of one HTML file, which contains all other files."""
    script = (ASSETS / "scripts" / "site.js").read_text("utf-8")
    styles = [(ASSETS / "scripts" / f"{name}.css").read_text("utf-8") for name in STYLES]
    style = with_fonts("\n".join(styles))
    files = "\n".join(
        f'<script type="text/plain" data-file="{name}">{_packed(content)}</script>'
        for name, content in site_files().items()
    )
    digest = sha256(script.encode()).digest()
    policy = FILE_POLICY.format(b64encode(digest).decode())
    return _page(
        policy,
        f"<style>{style}</style>",
        _data() + files,
        f'<script type="module">{script}</script>',
    )


def _packed(content: bytes) -> str:
    """Return a file's content compressed by gzip, as base64."""
    return b64encode(gzip.compress(content, mtime=0)).decode()


def _page(policy: str, style: str, data: str, script: str) -> str:
    """Return the HTML of the page. style, data, script: HTML elements."""
    icon = f"data:image/svg+xml,{quote(ICON)}"
    holes = {
        "POLICY": policy,
        "ICON": icon,
        "STYLE": style,
        "TITLE": TITLE,
        "DATA": data,
        "SCRIPT": script,
    }
    return filled(
        TEMPLATE.read_text("utf-8"), {f"__{hole}__": text for hole, text in holes.items()}
    )


def _data() -> str:
    """Return the script elements that contain the settings, the lessons and the first values of the form."""
    models = Models([EMBEDDED], decodes=False)
    with gr.Blocks(analytics_enabled=False):
        form = Form(models, MOST)
    values = {
        "model": EMBEDDED,
        "about": models.about(EMBEDDED),
        "prompt": form.prompt.value,
        "values": {name: field.value for name, field in form.fields.items()},
        "lanes": form.lanes.value,
        "most": MOST,
    }
    return f'{data_scripts()}<script id="sl-form" type="application/json">{embedded_json(values)}</script>'


def add_site_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock site`."""
    add = parser.add_mutually_exclusive_group(required=True).add_argument
    add("directory", nargs="?", type=Path, metavar="DIR", help="write the page into this folder")
    one = "write it as one file, which works from a disk without a network"
    add("--one-file", type=Path, metavar="FILE.html", help=one)
    parser.set_defaults(run=run_site)


def run_site(arguments: argparse.Namespace) -> None:
    """Write the page, and print its place and its size. Raises ValueError and OSError as `write_site` does."""
    if arguments.one_file:
        target = target_file("--one-file", arguments.one_file, (".html", ".htm"))
        write_text(target, one_file())
        size = _megabytes(target.stat().st_size)
        return _say(
            f"{target}: {size}", "Open it in a browser, or pass it on: it needs no network."
        )
    directory = arguments.directory
    files = write_site(directory)
    return _say(
        *(f"{_megabytes(size):>9}  {name}" for name, size in files.items()),
        f"{directory}: {len(files)} files, {_megabytes(sum(files.values()))}",
        f"Try it:             python -m http.server --directory {directory}",
        f"Hugging Face Space: hf upload YOUR_NAME/surelock {directory} . --repo-type space",
        "GitHub Pages, or any file server: put the folder there as it is, under any path.",
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.2f} MB"


def _say(*lines: str) -> None:
    print(*lines, sep="\n", file=sys.stderr)
