"""A tokenizer and its chat template are tried in another process before a server loads their model."""

import json
import subprocess
from math import ceil
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from checkpoints import write_chat_model, write_qwen3
from test_damage import ended

import surelock
from surelock import CheckpointError
from surelock.model.trial import check_tokenizer
from surelock.ui import request
from surelock.ui.models import Models
from surelock.ui.request import prompt_tokens
from tests.waiting import HANGS, import_seconds

LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
#: What is set in which file, and a word of the refusal.
HOSTILE: dict[str, tuple[str, str, Any, str]] = {
    "loops": ("tokenizer_config", "chat_template", f"{LOOPS}{{{{ messages[0].content }}}}", "the chat template of"),
    "grows": ("tokenizer", "normalizer", [("a", 1000)] * 5, "the tokenizer of"),
    "a rare letter grows": ("tokenizer", "normalizer", [("\u0436", 1000)], "100 times as many"),
    "a decoder grows": ("tokenizer", "decoder", [("e", 1000)] * 3, "the decoder of"),
}  # fmt: skip


def write_hostile(path: Path, kind: str) -> str:
    """Write a chat model with a fault; returns a word of its refusal."""
    name, key, value, word = HOSTILE[kind]
    write_chat_model(path)
    file = path / f"{name}.json"
    content = json.loads(file.read_text("utf-8"))
    if isinstance(value, list):
        rules = [
            {"type": "Replace", "pattern": {"String": letter}, "content": letter * n}
            for letter, n in value
        ]
        before = [content[key]] if content[key] else []
        value = {"type": "Sequence", f"{key}s": [*before, *rules]}
    file.write_text(json.dumps(content | {key: value}), "utf-8")
    return word


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.long if kind == "loops" else ()) for kind in HOSTILE],
)
def test_what_takes_too_much_is_refused_in_a_sentence(tmp_path: Path, kind: str) -> None:
    word = write_hostile(tmp_path, kind)
    with pytest.raises(CheckpointError, match=word) as refused:
        check_tokenizer(tmp_path, seconds=2 * ceil(import_seconds()), megabytes=1024)
    assert str(tmp_path) in str(refused.value) and "\n" not in str(refused.value)


def test_a_server_tries_what_its_operator_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A usual model passes; one without a tokenizer, and the embedded one, start no process."""
    write_hostile(tmp_path / "bad", "a rare letter grows")
    write_chat_model(tmp_path / "good")
    write_qwen3(
        tmp_path / "bare",
        layers=1,
        d_model=32,
        heads=2,
        kv_heads=1,
        d_ff=48,
        vocab=60,
        tied=True,
        seed=3,
    )
    models = Models([str(tmp_path / name) for name in ("bad", "good", "bare")] + ["stories"])
    assert "100 times as many" in ended(models, "bad") and str(tmp_path) not in models.state("bad")
    assert ended(models, "good") == "ready"
    monkeypatch.setattr(subprocess, "run", None)
    assert [ended(models, label) for label in ("bare", "stories")] == ["ready"] * 2


def test_encoding_a_request_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stories: surelock.LanguageModel
) -> None:
    """Where a text is slow that the trial did not hold: another model's texts do not wait for it."""
    write_chat_model(tmp_path)
    described = tmp_path / "tokenizer_config.json"
    template = {"chat_template": "{{ messages[0].content * 150 }}"}
    described.write_text(json.dumps(json.loads(described.read_text()) | template))
    lm = surelock.load(tmp_path)
    tokenizer: Any = lm.tokenizer
    render = tokenizer.apply_chat_template
    ends = Event()

    def slowly(turns: Any, **how: Any) -> Any:
        if turns[0]["content"] == "slow":
            assert ends.wait(HANGS)
        return render(turns, **how)

    monkeypatch.setattr(request, "ENCODING_SECONDS", HANGS)
    with pytest.raises(
        ValueError, match="makes 3,000,000 of a text of 20,000 characters: at most 100 times"
    ):
        prompt_tokens(lm, "long" * 5000, chat=True)
    monkeypatch.setattr(tokenizer, "apply_chat_template", slowly)
    monkeypatch.setattr(request, "ENCODING_SECONDS", 0.05)
    with pytest.raises(ValueError, match="takes the tokenizer more than"):
        prompt_tokens(lm, "slow", chat=True)
    monkeypatch.setattr(request, "ENCODING_SECONDS", HANGS)
    assert prompt_tokens(stories, "Once", chat=False), "the other one has not ended"
    ends.set()
    assert prompt_tokens(lm, "Once", chat=False)  # it waits for the one before
