"""Make a recorded run: ``python -m surelock.record --model stories --prompt "..." --out
assets/runs/stories.json``.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from surelock.decoding.choices import CHOICES, check_owners
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.presets import PRESETS
from surelock.decoding.recommended import recommended
from surelock.engines.flags import add_engine_flag
from surelock.files import write_text
from surelock.loading import load
from surelock.model.flags import add_model_flags, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.places import label_of
from surelock.quality.commit_error import Shadow
from surelock.trace.cli import target_file
from surelock.trace.lanes import Lane, beside_every_position
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.replay import replay_html


def record_run(
    lm: LanguageModel,
    prompt: str,
    lanes: Sequence[Lane],
    *,
    name: str | None = None,
    exact: bool = True,
) -> dict[str, Any]:
    """Run all lanes to the end and return the trace document, with commit errors.

    name: the model's name in the trace. None is its own.
    exact: True keeps KLs and confidences in full precision, False in one byte each.

    Raises what `race` raises.
    """
    tokens = lm.encode(prompt, blanks=True)
    recorder = Recorder(make_header(lm, prompt, tokens, lanes, name=name), lm.tokenizer)
    for items in race(lm, tokens, lanes, shadow=Shadow):
        recorder.take(items)
    return recorder.document(exact=exact)


def plain_json(document: dict[str, Any]) -> str:
    """Return a trace as JSON text without spaces."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


FORMS = {".json": plain_json, ".html": replay_html}


def field_of(lm: LanguageModel, presets: Sequence[str], given: dict[str, Any]) -> list[Lane]:
    """Return the lanes of a race.

    presets: names of presets. Empty is the given decoder and the same one with every position computed.
    given: settings in the flat form.

    Raises ValueError for an unknown preset, and beside presets for a rule, a policy and a setting that no lane has.
    """
    if not presets:
        return beside_every_position(PRESETS["surelock"].name, recommended(lm.generation, given))
    if unknown := [name for name in presets if name not in PRESETS]:
        raise ValueError(f"--lane must be one of {', '.join(PRESETS)}, not {unknown[0]!r}")
    if chosen := sorted(CHOICES.keys() & given.keys()):
        raise ValueError(f"{chosen[0]} is what --lane says: leave one of the two out")
    decoders = [PRESETS[name].decoder(lm.generation, given) for name in presets]
    kinds = {kind for each in decoders for kind in (*each.compute.kinds.split("+"), each.unmask.kind)}
    check_owners(given, kinds)
    return [
        Lane(id=name, name=PRESETS[name].name, decoder=decoder) for name, decoder in zip(presets, decoders, strict=True)
    ]


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, write the trace (.json) or the replay (.html)."""
    parser = argparse.ArgumentParser(
        prog="python -m surelock.record", description="Record a race as a trace or a replay page."
    )
    add_model_flags(parser)
    add_engine_flag(parser)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .json trace or a .html replay")
    add = parser.add_argument
    add(
        "--lane",
        action="append",
        default=[],
        metavar="PRESET",
        help=f"repeatable: {', '.join(PRESETS)} (default: what the flags say, beside every position)",
    )
    add_decoder_flags(parser)
    parser.add_argument("--exact", action="store_true", help="full precision instead of bytes")
    options = parser.parse_args(arguments)
    try:
        out = target_file("--out", options.out, tuple(FORMS))
        how = {"device": options.device, "dtype": told_dtype(options), "engine": options.engine}
        lm = load(options.model, tokenizer=options.tokenizer, **how)
        field = field_of(lm, options.lane, given_settings(options))
        document = record_run(lm, options.prompt, field, name=label_of(options.model), exact=options.exact)
        write_text(out, FORMS[out.suffix.lower()](document))
    except (ValueError, ArithmeticError, OSError) as error:
        parser.error(str(error))
    print(f"{out}: {len(document['records'])} records, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
