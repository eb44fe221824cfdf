"""How dense is the code? `python tests/density.py` prints one JSON line of measures, and nothing else.

Docstrings and comments are left out. `tokenize` splits texts with fields in another way from Python 3.12 on, so numbers
that are compared are of Python 3.11.
"""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDE = 100  # characters; a longer line is counted
#: Tokens at 89ac563, before Algorithm 1 was put in order. The package was to fall to 95 %, the others were not to rise.
START = {"package": 129_716, "research": 36_607, "tests": 213_853, "scripts": 132_037}
LAYOUT = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
#: A comment, or one token, of a script. A text is one token, as in Python 3.11.
SCRIPT = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r"|(?P<token>`(?:\\.|[^`\\])*`|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'"
    r"|[\w$]+|\.\.\.|=>|\?\?=?|\?\.|[*&|]{2}=?|[=!]==?|<<=?|>>>?=?|[+-]{2}|[-+*/%&|^<>]=|\S)",
    re.DOTALL,
)


def measure(sources: Iterable[str]) -> dict[str, float]:
    """Return the measures of Python files together. sources: their texts."""
    tokens = lines = wide = tuples = raises = 0
    for source in sources:
        tree = ast.parse(source)
        described = documented_lines(tree)
        counted = [
            token
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type not in LAYOUT and token.start[0] not in described
        ]
        numbers = {line for token in counted for line in range(token.start[0], token.end[0] + 1)}
        texts = source.splitlines()
        tokens += len(counted)
        lines += len(numbers)
        wide += sum(len(texts[number - 1]) > WIDE for number in numbers)
        nodes = list(ast.walk(tree))
        tuples += sum(
            isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            for node in nodes
        )
        raises += sum(isinstance(node, ast.Raise) for node in nodes)
    return {
        "tokens": tokens,
        "lines": lines,
        "tokens_a_line": round(tokens / lines, 2),
        "tuple_assignments": round(100 * tuples / lines, 2),
        "raises": round(100 * raises / lines, 2),
        "wide_percent": round(100 * wide / lines, 2),
    }


def documented_lines(tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold docstrings."""
    found: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            found.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return found


def measure_scripts(sources: Iterable[str]) -> dict[str, int]:
    """Return the number of tokens of scripts, without comments."""
    found = [match for source in sources for match in SCRIPT.finditer(source)]
    return {"tokens": sum(match["token"] is not None for match in found)}


def texts_under(folder: str, suffix: str) -> dict[Path, str]:
    """Return the texts of the files of a folder of the checkout by their paths."""
    return {path: path.read_text("utf-8") for path in sorted((ROOT / folder).rglob(f"*{suffix}"))}


def main() -> None:
    package = texts_under("surelock", ".py")
    research = texts_under("surelock/research", ".py")
    rest = [text for path, text in package.items() if path not in research]
    measures = {
        "package": measure(rest),
        "research": measure(research.values()),
        "tests": measure(texts_under("tests", ".py").values()),
        "scripts": measure_scripts(texts_under("assets/js", ".js").values()),
    }
    shares = {
        name: round(100 * measures[name]["tokens"] / tokens, 1) for name, tokens in START.items()
    }
    print(json.dumps({**measures, "percent_of_start": shares}))


if __name__ == "__main__":
    main()
