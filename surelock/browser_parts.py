"""Writes browser.json for a model: ``python -m surelock.browser_parts MODEL``.

The engine in the browser reads this file together with the model's files.
"""

import argparse
import json
import re
import sys
from base64 import b64encode
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from surelock.engines.onnx import OnnxEngine
from surelock.engines.onnx_graph import graphs
from surelock.files import write_text
from surelock.loading import STORIES, load
from surelock.model.families import read_json
from surelock.model.language_model import LanguageModel
from surelock.places import ASSETS
from surelock.values import Json

FILE = "browser.json"
RUNTIME = ASSETS / "scripts" / "ort.wasm.gz"
INTERPRETER = ASSETS / "scripts" / "quickjs.wasm.gz"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
CLASSES = ("L", "N")  # Unicode properties: letters and numbers
_PROPERTY = re.compile(r"\\[pP]\{[^}]*\}|\\[wWdDbB]|\[:|\(\?i")


def browser_parts(lm: LanguageModel, directory: Path) -> Json:
    """Return the content of browser.json. directory: the folder of the model's files.

    shape: the fields of `Shape`.
    graphs: {name: base64 of the ONNX graph}.
    weights: names of the files with weights.
    files: {name: {"bytes", "sha256"}} for the files of the weights and the tokenizer.
    runtime, interpreter: {"bytes", "sha256"} of ONNX Runtime Web and of QuickJS, which runs typed rules.
    classes: see `unicode_classes`.

    Raises ValueError for a model that ONNX Runtime does not compute, for a block-causal model, and for a model with
    LayerNorms or convolutions.
    """
    if not isinstance(lm.engine, OnnxEngine):
        raise ValueError(f"{lm.name} is computed by {lm.engine.name}: a browser cannot decode it")
    if lm.config.block_size is not None:
        raise ValueError(
            f"{lm.name} is block-causal, and the runs of a browser have no such blocks"
        )
    if lm.config.layer_norm or lm.config.conv_layers:
        raise ValueError(
            f"{lm.name} has layers of another kind than the runs of a browser count and keep"
        )
    models = graphs(lm.config, lm.engine.tensors)
    files = set()
    for model in models.values():
        for tensor in model.graph.initializer:
            files |= {entry.value for entry in tensor.external_data if entry.key == "location"}
    weights = sorted(files)
    check_tokenizer(lm.name, read_json(directory / TOKENIZER[0]))
    return {
        "shape": asdict(lm.shape) | {"ends": list(lm.ends)},
        "graphs": {
            name: b64encode(model.SerializeToString()).decode() for name, model in models.items()
        },
        "weights": weights,
        "files": {name: _fingerprint(directory / name) for name in (*weights, *TOKENIZER)},
        "runtime": _fingerprint(RUNTIME),
        "interpreter": _fingerprint(INTERPRETER),
        "classes": unicode_classes(),
    }


def unicode_classes() -> dict[str, list[int]]:
    """Return the letters ("L") and numbers ("N") of the tokenizers library as ranges [first, last, first, last, ...].

    The library and a browser may have different versions of Unicode. So the browser's tokenizer uses these ranges.
    """
    every = "".join(chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)
    edges = dict[str, list[int]]()
    for name in CLASSES:
        others = Split(Regex(rf"[^\p{{{name}}}]+"), "removed")
        edges[name] = []
        for run, _ in others.pre_tokenize_str(every):
            edges[name] += [ord(run[0]), ord(run[-1])]
    return edges


def check_tokenizer(name: str, tokenizer: Json) -> None:
    """Raise ValueError for a tokenizer with rules for which a browser would use its version of Unicode.

    name: the name of the model. tokenizer: the content of tokenizer.json.
    """
    before = tokenizer.get("pre_tokenizer") or {}
    steps = before.get("pretokenizers", [before])
    patterns = [step.get("pattern", {}).get("Regex", "") for step in steps]
    properties = {match for pattern in patterns for match in _PROPERTY.findall(pattern)}
    alike = (
        tokenizer.get("normalizer") is None
        and all(step.get("type") in ("Split", "ByteLevel") for step in steps)
        and not any(step.get("add_prefix_space") for step in steps)
        and properties <= {rf"\p{{{choice}}}" for choice in CLASSES}
    )
    if not alike:
        raise ValueError(
            f"the tokenizer of {name} has rules for characters beside letters and numbers (\\p{{L}}, \\p{{N}}), which "
            "browsers know from other editions of Unicode: a browser may read a text as other tokens"
        )


def _fingerprint(file: Path) -> Json:
    content = file.read_bytes()
    return {"bytes": len(content), "sha256": sha256(content).hexdigest()}


def main(arguments: list[str] | None = None) -> None:
    """Write browser.json into the folder of the model that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m surelock.browser_parts", description=__doc__)
    parser.add_argument("model", help="'stories', or the folder of a checkpoint")
    options = parser.parse_args(arguments)
    directory = STORIES if options.model == "stories" else Path(options.model)
    try:
        parts = browser_parts(load(options.model, device="cpu", engine="onnx"), directory)
        write_text(directory / FILE, json.dumps(parts, separators=(",", ":")))
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
