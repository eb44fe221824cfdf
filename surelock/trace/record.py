"""Make a recorded run: ``python -m surelock.trace.record --model stories --prompt "..." --out
assets/runs/stories.json``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from surelock.decoding.recommended import recommended_rule, recommended_settings
from surelock.decoding.settings import DecodeSettings, LockRule
from surelock.model.flags import add_model_flags, told_dtype
from surelock.model.language_model import LanguageModel
from surelock.model.loading import load
from surelock.trace.race import race
from surelock.trace.recorder import Recorder, make_header
from surelock.trace.replay import replay_html

SETTINGS = {
    "gen_length": int,
    "steps": int,
    "block_length": int,
    "temperature": float,
    "remasking": str,
    "no_repeat_ngram_size": int,
    "seed": int,
    "epsilon": float,
    "percentile": float,
    "visible_steps": int,
}


def record_run(
    lm: LanguageModel,
    prompt: str,
    settings: DecodeSettings,
    rule: LockRule,
    *,
    name: str | None = None,
    exact: bool = True,
) -> dict[str, Any]:
    """Run both decoders to the end and return the trace document (``exact``: full precision, else quantised and
    smaller).
    """
    tokens = lm.encode(prompt)
    recorder = Recorder(make_header(lm, prompt, tokens, settings, rule, name=name), lm.tokenizer)
    for pair in race(lm, tokens, settings, rule):
        for facts in pair:
            recorder.record(facts)
    return recorder.document(exact=exact)


def main(arguments: list[str] | None = None) -> None:
    """Parse the command line, run, write the trace (.json) or the replay (.html)."""
    parser = argparse.ArgumentParser(
        prog="python -m surelock.trace.record", description="Record a run of both decoders as a trace or a replay page."
    )
    add_model_flags(parser)
    parser.add_argument("--prompt", required=True)
    parser.add_argument("--out", type=Path, required=True, help="a .json trace, or a .html replay")
    for name, kind in SETTINGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="default: what the model recommends")
    parser.add_argument("--exact", action="store_true", help="full precision instead of bytes")
    options = parser.parse_args(arguments)
    given = {name: value for name, value in vars(options).items() if name in SETTINGS and value is not None}
    lm, out = load(options.model, device=options.device, dtype=told_dtype(options)), options.out
    settings, rule = recommended_settings(lm.generation, given), recommended_rule(lm.generation, given)
    document = record_run(lm, options.prompt, settings, rule, name=Path(options.model).name, exact=options.exact)
    plain = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    out.write_text(replay_html(document) if out.suffix == ".html" else plain, encoding="utf-8")
    print(f"{out}: {len(document['records'])} records, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
