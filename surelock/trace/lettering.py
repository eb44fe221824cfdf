"""Text for a picture: broken into lines by an estimate of its width, since only the viewer knows the font."""

import re
import unicodedata
from collections.abc import Iterator

FONT = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"

#: Characters that XML cannot hold, and invisible or direction-changing ones.
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff0-\ufffb\ufffe\uffff]"
)
_NARROW, _WIDE = frozenset("fijlrtI .,:;'|!()[]/"), frozenset("mwMW@%—…")


def shown(text: str) -> str:
    """Return the text with control and direction characters made visible, as in ‹202E›."""
    return _HIDDEN.sub(lambda found: f"\u2039{ord(found[0]):04X}\u203a", text)


def ems(text: str) -> float:
    """Return the estimated width of the text in ems, as in a wide sans-serif font."""
    return sum(map(_width, text))


def _width(char: str) -> float:
    if char in _NARROW:
        return 0.4
    if char in _WIDE:
        return 1.0
    if unicodedata.combining(char):
        return 0.0
    if unicodedata.east_asian_width(char) in "WF":
        return 1.1
    return 0.73 if char.isupper() else 0.63


def cut(text: str, width: float) -> str:
    """Return the text as one line of at most `width` ems, cut with an ellipsis."""
    line, *rest = _broken(shown(" ".join(text.split())), width)
    return f"{next(_broken(line, width - 1))}…" if rest else line


def wrap(text: str, width: float, most: int) -> list[str]:
    """Return at most `most` lines of at most `width` ems, broken between words; a cut ends in an ellipsis."""
    lines: list[str] = []
    for line in _lines(text, width):
        if len(lines) == most:
            lines[-1] = cut(f"{lines[-1]} …", width)
            break
        lines.append(line)
    return lines


def _lines(text: str, width: float) -> Iterator[str]:
    for paragraph in text.splitlines():
        line = ""
        for word in map(shown, paragraph.split()):
            longer = f"{line} {word}" if line else word
            if ems(longer) <= width:
                line = longer
                continue
            if line:
                yield line
            *whole, line = _broken(word, width)
            yield from whole
        yield line


def _broken(word: str, width: float) -> Iterator[str]:
    """The parts of a word of at most `width` ems, of one character at least."""
    start, wide = 0, 0.0
    for i, char in enumerate(word):
        wide += (own := _width(char))
        if wide > width and i > start:
            yield word[start:i]
            start, wide = i, own
    yield word[start:]
