"""`python -m surelock decode`."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

from surelock.decoding.ends import written
from surelock.decoding.flags import add_decoder_flags, given_settings
from surelock.decoding.loop import decode
from surelock.decoding.recommended import recommended
from surelock.decoding.totals import TotalsCounter
from surelock.engines.flags import add_engine_flag, add_weights_flag
from surelock.loading import load
from surelock.model.flags import add_model_flags, told_dtype


def add_decode_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `surelock decode`, and set the parser's `run`."""
    parser.add_argument("prompt", metavar="PROMPT", help="the text to continue; __ in it is a blank of two tokens")
    add_model_flags(parser)
    add_engine_flag(parser)
    add_weights_flag(parser)
    parser.add_argument("--device-map", choices=("auto",), help="spread the model over all devices (default: do not)")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    parser.add_argument("--no-blanks", action="store_true", help="underscores in the prompt are text")
    add_decoder_flags(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.set_defaults(run=run_decode)


def run_decode(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Decode and print the text. Returns the totals for --json. Raises ValueError for what cannot be decoded."""
    lm = load(
        arguments.model,
        device=arguments.device,
        dtype=told_dtype(arguments),
        device_map=arguments.device_map,
        engine=arguments.engine,
        weights=arguments.weights,
        tokenizer=arguments.tokenizer,
    )
    decoder = recommended(lm.generation, given_settings(arguments))
    prompt = lm.encode(arguments.prompt, chat=arguments.chat, blanks=not arguments.no_blanks)
    settings, blanks = decoder.settings, prompt.count(lm.mask_id)
    counter = TotalsCounter(lm.config, lm.ends, guided=settings.cfg_scale > 0)
    step, steps = None, decode(lm, [prompt], **decoder.keywords())
    with tqdm(steps, total=settings.steps_of(blanks), unit="step", leave=False, disable=None) as progress:
        for step in progress:
            counter.add(step)
            progress.set_postfix(locked=int(step.locked.sum()), masked=int(step.masked.sum()))
    assert step is not None
    text, totals = written(lm, prompt, step.tokens[0].tolist()), counter.totals()
    print(text if blanks or arguments.chat else arguments.prompt + text)
    if arguments.json:
        kinds = {"lock": decoder.compute.locks, "compute": decoder.compute.kinds, "unmask": decoder.unmask.kind}
        texts = {"model": lm.name, "prompt": arguments.prompt, "text": text}
        return texts | kinds | asdict(settings) | asdict(totals)
    print(
        f"{totals.steps} steps in {totals.seconds:.2f} s; {totals.flops_ratio:.0%} of the baseline's FLOPs, "
        f"active ratio {totals.active_ratio:.3f}, {totals.locked:.0%} of the positions locked",
        file=sys.stderr,
    )
    return None


def target_file(flag: str, path: Path, suffixes: Sequence[str] = ()) -> Path:
    """Return the path of an output file, checked before the work begins.

    suffixes: the allowed suffixes; empty is any.

    Raises ValueError for another suffix, or a folder that does not exist.
    """
    if suffixes and path.suffix.lower() not in suffixes:
        raise ValueError(f"{flag} must be a file that ends in {' or '.join(suffixes)}, not {str(path)!r}")
    if not path.parent.is_dir():
        raise ValueError(f"{flag} must lie in a folder that exists, not {str(path)!r}")
    return path
