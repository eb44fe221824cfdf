"""The page's modules as one script. Sixty files would hold up the page's own: a browser asks for six at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ENTRIES = ("recorded.js", "live.js", "lanes.js", "controls.js")  # what the page's components connect to
_IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([\w-]+\.js)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?(?:function|class|const) (\w+))", re.MULTILINE)


def bundle(folder: Path) -> str:
    """One ES module that exports ``modules``: by file name, what each module that the page needs exports.

    A module runs once, after those that it imports. Imports and exports are of the one form that these modules have.
    Raises ValueError for another form, and for modules that import each other.
    """
    texts = dict(_needed(folder, ENTRIES, ()))
    return "\n".join(["export const modules = {};", *(_wrapped(name, text) for name, text in texts.items())])


def _needed(folder: Path, names: tuple[str, ...], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        if name in above:
            raise ValueError(f"modules import each other: {', '.join((*above, name))}")
        text = (folder / name).read_text("utf-8")
        yield from _needed(folder, tuple(other for _, other in _IMPORT.findall(text)), (*above, name))
        yield name, text


def _wrapped(name: str, text: str) -> str:
    exported = [found for _, found in _EXPORT.findall(text)]
    body = _EXPORT.sub(r"\1", _IMPORT.sub(_taken, text))
    left = re.search(r"^(?:import\b[^(.\n]|export\b).*", body, re.MULTILINE)
    if left:
        raise ValueError(f"{name}: an import or export of another form: {left[0][:60]}")
    return f'modules["{name}"] = (() => {{\n{body}\nreturn {{ {", ".join(exported)} }};\n}})();'


def _taken(found: re.Match[str]) -> str:
    names, module = found.groups()
    return f'const {{{names.replace(" as ", ": ")}}} = modules["{module}"];' if names else ""
