"""The colours of the page, read from its stylesheet. They are declared in `assets/css/base.css`."""

import re

from surelock.places import ASSETS

_RULE = re.compile(r"(?<![^}\n])([^{}@]+)\{([^{}]*)\}")  # not those inside a media query
_COLOUR = re.compile(r"--sl-([\w-]+): (#[0-9a-f]{6})\b")


def palette(*, dark: bool = False) -> dict[str, str]:
    """Return {"ink": "#rrggbb", "raster-locked": ...}. Raises OSError if the stylesheet is missing."""
    rules = _RULE.findall((ASSETS / "scripts" / "stage.css").read_text("utf-8"))
    return {
        name: colour
        for selector, body in rules
        if selector.startswith(".dark ") == dark
        for name, colour in _COLOUR.findall(body)
    }
