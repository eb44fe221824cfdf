"""`surelock record`: records a race of decoders, as a trace or as a page that replays the race."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.locking import LockRule
from surelock.decoding.presets import PRESETS, preset_of
from surelock.decoding.recommended import recommended
from surelock.decoding.rules import COMPUTE, DECODER_PARTS, UNMASK
from surelock.decoding.spelling import check_owners, kinds_of
from surelock.decoding.word_lists import settled
from surelock.engines.flags import add_model_flags
from surelock.files import write_text
from surelock.loading import load_by
from surelock.model.language_model import LanguageModel
from surelock.places import label_of
from surelock.quality.commit_error import Shadow
from surelock.trace.format import compact_json
from surelock.trace.lanes import Lane, beside_every_position
from surelock.trace.outputs import target_file
from surelock.trace.prompts import Prompt, say_underscores
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.replay import replay_html
from surelock.values import Json


def record_run(
    lm: LanguageModel,
    prompt: str,
    lanes: Sequence[Lane],
    *,
    name: str | None = None,
    exact: bool = True,
) -> Json:
    """Run all lanes to the end and return the trace document, with commit errors.

    name: the model's name in the trace; None: `lm.name`.
    exact: True keeps KLs and confidences in full precision, False as bytes.

    Raises what `race` raises.
    """
    tokens = settled(lm, lm.encode(prompt, blanks=True), lanes[0].decoder.settings.gen_length)
    recorder = Recorder(make_header(lm, prompt, tokens, lanes, name=name), lm.tokenizer)
    for items in race(lm, tokens, lanes, shadow=Shadow):
        recorder.take(items)
    return recorder.document(exact=exact)


FORMS = {".json": compact_json, ".html": replay_html}


def field_of(lm: LanguageModel, names: Sequence[str], overrides: Json) -> list[Lane]:
    """Return the lanes of a race.

    names: names of presets, rules and policies, see `preset_of`. If there are none, the lanes are the decoder of the
    overrides and the baseline.
    overrides: settings, a short spelling.

    Raises ValueError for an unknown name. If there are names, also for a rule or a policy in `overrides`, and for a
    setting that no lane has.
    """
    if not names:
        decoder = recommended(lm.generation, overrides)
        is_surelock = decoder.compute.kind == LockRule.kind
        name = PRESETS["surelock"].name if is_surelock else decoder.compute.label
        return beside_every_position(name, decoder)
    presets = [preset_of(name) for name in names]
    if chosen := sorted(DECODER_PARTS.keys() & overrides.keys()):
        raise ValueError(f"{chosen[0]} is what --lane says: leave one of the two out")
    decoders = [preset.decoder(lm.generation, overrides) for preset in presets]
    check_owners(overrides, {kind for decoder in decoders for kind in kinds_of(decoder.to_plain())})
    return [
        Lane(id=preset.id, name=preset.name, decoder=decoder)
        for preset, decoder in zip(presets, decoders, strict=True)
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock record`."""
    add = parser.add_argument
    add_model_flags(parser)
    add("--prompt", required=True)
    add("--out", type=Path, required=True, help="a .json trace or a .html replay")
    known_names = ", ".join(dict.fromkeys((*PRESETS, *COMPUTE, *UNMASK)))
    known_names += ", or package.module:Class; settings may follow, as in age,steps=12"
    about = f"repeatable: {known_names} (default: the decoder of the flags, beside the baseline)"
    add("--lane", action="append", default=[], metavar="NAME", help=about)
    add_decoder_flags(parser)
    add("--exact", action="store_true", help="full precision instead of bytes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Record a race, and write its trace (.json) or its replay (.html)."""
    out = target_file("--out", options.out, tuple(FORMS))
    say_underscores([Prompt(1, options.prompt, {})])
    lm = load_by(options)
    field = field_of(lm, options.lane, given_settings(options))
    document = record_run(
        lm, options.prompt, field, name=label_of(options.model), exact=options.exact
    )
    write_text(out, FORMS[out.suffix.lower()](document))
    print(f"{out}: {len(document['records'])} records, {out.stat().st_size} bytes")
