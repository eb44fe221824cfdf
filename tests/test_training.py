"""Training: the loss falls, an interrupted run resumes exactly, the shipped checkpoint is as good as it says."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import surelock
from surelock.__main__ import main
from surelock.model.bound import draw_masks
from surelock.research.training import Trainer, add_train_arguments, batch_loss, evaluate, make_batch

STORIES = [
    "Nora had a small green boat. One morning she took the boat to the pond near the house. The wind was soft and the "
    'boat went far. "Come back, little boat!" said Nora. A brown duck pushed the boat to her. Nora gave the duck some '
    "bread, and they were friends from that day on.",
    "There was a goat called Pim who liked to climb. He climbed on the cart, on the wall and on the roof. His mother "
    'said, "Pim, please come down." But Pim could not come down. So the farmer fetched a long ladder. Pim said thank '
    "you and never climbed on the roof again.",
    "Omar and his sister found a red kite in a tree. The string was long, but the kite had a hole. They went home and "
    "asked their grandmother for some paper. She helped them to mend it. The next day the kite flew high over the hill "
    "and Omar laughed and laughed.",
    "The old lamp in the kitchen was sad because nobody lit it any more. One night there was a storm and all the "
    'lights went out. "Where is the old lamp?" asked the father. He lit it, and the whole family sat down and told '
    "stories. The old lamp was so happy that it shone very bright.",
]
SMALL = "--pieces 400 --d-model 32 --layers 2 --heads 2 --ffn 64 --batch-tokens 512 --window 48 --evaluate-every 9"


@pytest.fixture
def stories_file(tmp_path: Path) -> Path:
    file = tmp_path / "stories.txt"
    file.write_text("".join(f"{story}\n<|endoftext|>\n" for story in STORIES))
    return file


def flags(stories_file: Path, out: str, *more: str) -> list[str]:
    files = ["--data", str(stories_file), "--valid", str(stories_file), "--out", str(stories_file.parent / out)]
    run = "--evaluate-draws 2 --warm-up 0.1 --device cpu --prompted .5 --steps 20"
    return [*files, *SMALL.split(), *run.split(), *more]


def options(stories_file: Path, out: str, *more: str) -> Namespace:
    parser = ArgumentParser()
    add_train_arguments(parser)
    return parser.parse_args(flags(stories_file, out, *more))


class Interrupted(Trainer):
    """Stops like a killed process: the state of step 9 is on the disk, and some more work is lost."""

    def _train_step(self) -> None:
        super()._train_step()
        if self.step == 12:
            raise KeyboardInterrupt


def test_loss_falls_and_a_resumed_run_equals_an_uninterrupted_one(stories_file: Path) -> None:
    whole = Trainer(options(stories_file, "whole"))
    untrained = evaluate(whole.network, whole.valid, sum(map(len, STORIES)), draws=2)["bits_per_character"]
    summary = whole.run()
    lines = [json.loads(line) for line in (stories_file.parent / "whole" / "log.jsonl").read_text().splitlines()]
    bounds = [line["valid_bits_per_character"] for line in lines if "valid_bits_per_character" in line]
    assert (
        bounds[-1] < bounds[0] and bounds[-1] < 0.95 * untrained and [line["step"] for line in lines] == [9, 18, 20, 20]
    )
    assert summary["steps"] == 20 and summary["bits_per_character"] == pytest.approx(min(bounds))

    with pytest.raises(KeyboardInterrupt):
        Interrupted(options(stories_file, "parts")).run()
    resumed = Trainer(options(stories_file, "parts", "--resume"))
    assert resumed.step == 9
    assert resumed.run()["bits_per_character"] == summary["bits_per_character"]
    for (name, a), b in zip(whole.network.named_parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b), name

    lm = surelock.load(stories_file.parent / "whole" / "model", device="cpu")
    assert lm.decode(lm.encode(STORIES[0])) == STORIES[0] and (lm.mask_id, lm.eos_id) == (1, 0)
    further = Trainer(options(stories_file, "further", "--init", str(stories_file.parent / "whole" / "model")))
    kept = zip(further.network.parameters(), whole.network.parameters(), strict=True)
    assert all(torch.equal(a, b.bfloat16().float()) for a, b in kept)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--batch-tokens", "1000000000000"], "--batch-tokens must be from 1"),
        (["--heads", "3"], "--heads must divide --d-model (32)"),
        (["--out", "{}"], "is not empty (--resume"),
        (["--resume", "--out", "{}/empty"], "none of the files"),
        (["--evaluate-draws", "3", "--steps", "1"], "even number of draws"),
    ],
)
def test_what_cannot_be_trained_is_told_in_a_sentence(
    more: list[str], said: str, stories_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (stories_file.parent / "empty").mkdir()
    more = [each.format(stories_file.parent) for each in more]
    if "--resume" in more:
        said = "model"
    assert main(["train", *flags(stories_file, "out", *more)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("surelock: ") and said in error


def test_a_state_of_another_run_is_refused(stories_file: Path) -> None:
    Trainer(options(stories_file, "out", "--steps", "2")).run()
    state = stories_file.parent / "out" / "state.pt"
    whole = state.read_bytes()
    torch.save({"step": 2}, other := stories_file.parent / "other.pt")
    for content in (whole[:500], b"", other.read_bytes()):
        state.write_bytes(content)
        with pytest.raises(ValueError, match="is no state of this run"):
            Trainer(options(stories_file, "out", "--resume"))


def test_objective_equals_the_formula(lm: surelock.LanguageModel) -> None:
    """Mean over windows of (1/N) (N/k) sum over masked of -log p, from the plain dense forward."""
    rng = np.random.default_rng(1)
    windows = rng.integers(2, 41, (3, 10))
    masks = draw_masks(rng, np.array([1, 4, 10]), 10)
    batch = make_batch(windows, masks, lm.mask_id)
    log_p = lm.network(batch[0]).log_softmax(dim=-1)
    expected = 0.0
    for row, mask in enumerate(masks):
        own = [float(log_p[row, i, windows[row, i]]) for i in np.flatnonzero(mask)]
        expected -= sum(own) / len(own) / 3
    assert float(batch_loss(lm.network, *batch)) == pytest.approx(expected, rel=1e-5)


def test_shipped_checkpoint_scores_within_its_stated_figure(stories: surelock.LanguageModel) -> None:
    """The stories above are not from any corpus: plainer sentences than the held-out ones, stranger names."""
    ids = [stories.encode(story) for story in STORIES]
    bound = evaluate(stories.network, ids, sum(map(len, STORIES)))
    assert (stories.mask_id, stories.eos_id) == (1, 0) and bound["bits_per_character"] < 1.2  # the card says 1.16
