"""Training: the loss falls, an interrupted run resumes exactly, the shipped checkpoint is as good as it says."""

import json
import lzma
import re
from argparse import ArgumentParser, Namespace
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import surelock
from surelock.__main__ import main
from surelock.model import bound
from surelock.places import ASSETS
from surelock.research import corpus as device
from surelock.research import training
from surelock.research.corpus import Corpus, generator_of, make_batch, training_stories
from surelock.research.muon import Muon
from surelock.research.renaming import NAMES, find_names, rename, renamed_copies
from surelock.research.training import (
    Trainer,
    add_train_arguments,
    batch_loss,
    evaluate,
    learning_rate,
)

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
HELD_OUT = [story.partition(". ")[2] for story in STORIES]
SMALL = (
    "--data {0}/stories.txt --valid {0}/held_out.txt --pieces 400 --d-model 32 --layers 2 --heads 2 --ffn 64 "
    "--batch-tokens 512 --window 48 --evaluate-every 9 --evaluate-draws 2 --warm-up 0.1 --device cpu --prompted .5 "
    "--steps 20 --out {0}/{1}"
)
CPU = torch.device("cpu")


def write_stories(file: Path, stories: list[str]) -> Path:
    text = "".join(f"{story}\n<|endoftext|>\n" for story in stories)
    file.write_bytes(lzma.compress(text.encode()) if file.suffix == ".xz" else text.encode())
    return file


def write_corpora(folder: Path) -> None:
    write_stories(folder / "stories.txt", STORIES)
    write_stories(folder / "held_out.txt", HELD_OUT)
    write_stories(folder / "also.txt.xz", [story.lower() for story in STORIES])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpora(tmp_path)
    return tmp_path


def flags(folder: Path, out: str, *more: str) -> list[str]:
    return [*SMALL.format(folder, out).split(), *more]


def options(folder: Path, out: str, *more: str) -> Namespace:
    parser = ArgumentParser()
    add_train_arguments(parser)
    return parser.parse_args(flags(folder, out, *more))


class Interrupted(Trainer):
    """Stops like a killed process: the state of step 9 is on the disk, and some more work is lost."""

    def _train_step(self) -> None:
        super()._train_step()
        if self.step == 12:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    "more", ["", "--compile eager --also {}/also.txt.xz --renamed 2"], ids=["plain", "compiled"]
)
def test_loss_falls_and_a_resumed_run_equals_an_uninterrupted_one(folder: Path, more: str) -> None:
    """Compiled in one piece, as on a GPU, with a second corpus in a first part and other names."""
    torch.compiler.reset()
    words = more.format(folder).split()
    whole = Trainer(options(folder, "whole", *words))
    untrained = evaluate(whole.network, whole.valid, sum(map(len, HELD_OUT)), draws=2)[
        "bits_per_character"
    ]
    summary = whole.run()
    lines = [json.loads(line) for line in (folder / "whole" / "log.jsonl").read_text().splitlines()]
    bounds = [
        line["valid_bits_per_character"] for line in lines if "valid_bits_per_character" in line
    ]
    assert [line["step"] for line in lines] == [9, 18, 20, 20]
    assert bounds[-1] < bounds[0] and bounds[-1] < 0.95 * untrained
    assert (summary["steps"], summary["tokens"]) == (20, 20 * 10 * 48)
    assert summary["bits_per_character"] == pytest.approx(min(bounds))

    with pytest.raises(KeyboardInterrupt):
        Interrupted(options(folder, "parts", *words)).run()
    resumed = Trainer(options(folder, "parts", "--resume", *words))
    assert resumed.step == 9
    assert resumed.run()["bits_per_character"] == summary["bits_per_character"]
    assert [corpus.drawn for corpus in resumed.corpora] == (
        [200 - 3 * 11, 3 * 11] if words else [200]
    )
    for (name, a), b in zip(
        whole.network.named_parameters(), resumed.network.parameters(), strict=True
    ):
        assert torch.equal(a, b), name


def test_what_was_trained_is_a_model_and_a_start(folder: Path) -> None:
    trained = Trainer(options(folder, "out"))
    trained.run()
    model = folder / "out" / "model"
    lm = surelock.load(model, device="cpu")
    assert lm.decode(lm.encode(STORIES[0])) == STORIES[0] and (lm.mask_id, lm.eos_id) == (1, 0)
    further = Trainer(options(folder, "further", "--init", str(model)))
    kept = zip(further.network.parameters(), trained.network.parameters(), strict=True)
    assert all(torch.equal(a, b.bfloat16().float()) for a, b in kept)
    new = Trainer(options(folder, "new", "--tokenizer", str(model), "--pieces", "300"))
    assert new.tokenizer.get_vocab() == trained.tokenizer.get_vocab()
    assert new.network.embed.weight.shape == trained.network.embed.weight.shape


def test_a_run_by_the_clock_goes_on_after_the_time_that_it_has_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that goes on by a second whenever it is read."""
    ticks = count()
    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    words = ["--seconds", "100", "--steps", "1"]
    with pytest.raises(KeyboardInterrupt):
        Interrupted(options(folder, "out", *words)).run()
    used = torch.load(folder / "out" / "state.pt")["seconds"]
    for _ in range(1000):  # the run was away for a while
        next(ticks)
    resumed = Trainer(options(folder, "out", "--resume", *words))
    assert 9 < used < 60 and resumed.seconds == used
    summary = resumed.run()
    assert 100 <= summary["seconds"] < 120 and 12 < summary["steps"] < 60
    rates = {group["lr"] / 0.015 for group in resumed.optimizers["muon_rate"].param_groups}
    assert len(rates) == 1 and 0 <= rates.pop() < 0.1
    assert Trainer(options(folder, "out", "--resume", *words)).run()["steps"] == summary["steps"]


def test_the_rate_rises_stays_and_falls() -> None:
    rates = [learning_rate(progress, 0.1, 0.4) for progress in (0, 0.05, 0.1, 0.4, 0.7, 1, 1.1)]
    assert rates == pytest.approx([0, 0.5, 1, 1, 0.5, 0, 0])
    assert (
        learning_rate(0.5, 0, 0) == 0.5
        and learning_rate(0.5, 1, 0) == 0.5
        and learning_rate(1, 1, 1) <= 1
    )


@pytest.mark.parametrize("moves", [0, 1])
def test_the_best_model_is_whole_wherever_a_run_ends(
    folder: Path, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run ends after so many of the moves with which a better model takes its place."""
    words = ["--resume", "--steps", "18"]
    Trainer(options(folder, "out", "--steps", "9")).run()
    better = Trainer(options(folder, "out", *words))
    plain = Path.rename
    left = iter([True] * moves)

    def move(file: Path, target: Path) -> Path:
        if not next(left, False):
            raise KeyboardInterrupt
        return plain(file, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "rename", move)
        better.run()
    resumed = Trainer(options(folder, "out", *words))
    surelock.load(folder / "out" / "model", device="cpu")
    assert resumed.step == 9 and resumed.run()["steps"] == 18
    assert not (folder / "out" / "model.old").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--batch-tokens 1000000000000", "--batch-tokens must be from 1"),
        ("--heads 3", "--heads must divide --d-model (32)"),
        ("--out {}", "is not empty (--resume"),
        ("--resume --out {}/empty", "model"),
        ("--evaluate-draws 3", "--evaluate-draws must be an even number, not 3"),
        ("--seconds nan", "--seconds must be from 0 to 10,000,000, not nan"),
        ("--share 1", "--share must be from 0 to 0.99, not 1.0"),
        ("--seed -1", "--seed must be from 0"),
        ("--tokenizer {}/foreign", "must have <|endoftext|> as 0 and <|mask|> as 1"),
        ("--also {}/held_out.txt", "no story of 80 characters in ASCII that is not held out"),
        ("--also {}/damaged.xz", "damaged.xz cannot be read as text"),
    ],
)
def test_what_cannot_be_trained_is_told_in_a_sentence(
    more: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty").mkdir()
    (folder / "foreign").mkdir()
    words = (ASSETS / "stories" / "tokenizer.json").read_text("utf-8")
    other = words.replace("<|mask|>", "<|blank|>")
    (folder / "foreign" / "tokenizer.json").write_text(other, "utf-8")
    (folder / "damaged.xz").write_bytes((folder / "also.txt.xz").read_bytes()[:-20])
    assert main(["train", *flags(folder, "out", *more.format(folder).split())]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("surelock: ")
    assert said in error


def test_a_state_of_another_run_is_refused(folder: Path) -> None:
    Trainer(options(folder, "out", "--steps", "2")).run()
    state = folder / "out" / "state.pt"
    whole = state.read_bytes()
    also = ["--also", str(folder / "also.txt.xz")]
    torch.save({"step": 2}, state)
    for content, more in ((whole[:500], []), (b"", []), (state.read_bytes(), []), (whole, also)):
        state.write_bytes(content)
        with pytest.raises(ValueError, match="is no state of this run"):
            Trainer(options(folder, "out", "--resume", *more))


def test_objective_equals_the_formula(lm: surelock.LanguageModel) -> None:
    """Mean over windows of (1/N) (N/k) sum over masked of -log p, from the plain dense forward."""
    rng = np.random.default_rng(1)
    windows = rng.integers(2, 41, (3, 10))
    masks = bound.draw_masks(rng, np.array([1, 4, 10]), 10)
    batch = make_batch(torch.from_numpy(windows), torch.from_numpy(masks))
    log_p = lm.network(batch[0]).log_softmax(dim=-1)
    expected = 0.0
    for row, mask in enumerate(masks):
        own = [float(log_p[row, i, windows[row, i]]) for i in np.flatnonzero(mask)]
        expected -= sum(own) / len(own) / 3
    assert float(batch_loss(lm.network, *batch)) == pytest.approx(expected, rel=1e-5)


def test_masks_have_the_distribution_of_those_of_evaluate() -> None:
    """Of windows of four tokens, behind prompts of 0 to 2: how often each set of positions is masked."""
    rows = 60_000
    length = 4
    rng = np.random.default_rng(3)
    generator = generator_of(CPU, 3)
    prompts = np.arange(rows) % 3
    expected = bound.stratified_counts(rng, rng.permutation(rows), rows, length - prompts)
    counts = device.stratified_counts(generator, torch.from_numpy(length - prompts))
    whole = np.bincount(device.stratified_counts(generator, torch.full((rows,), length)).numpy())
    assert whole.tolist() == [0, *[rows // length] * length]  # stratified: no error of sampling
    theirs = bound.draw_masks(rng, expected, length, prompts)
    ours = device.draw_masks(generator, counts, length, torch.from_numpy(prompts)).numpy()
    bits = prompts * 2**length
    powers = 2 ** np.arange(length)
    a, b = (np.bincount(bits + masks @ powers, minlength=48) for masks in (theirs, ours))
    assert np.array_equal(a == 0, b == 0)  # none is empty, none reaches into a prompt
    assert (abs(a - b) <= 5 * np.sqrt(2 * a)).all()


def test_prompts_have_their_share() -> None:
    prompts = device.prompt_lengths(generator_of(CPU, 4), 60_000, 4, 0.4)
    shares = np.bincount(prompts.numpy()) / 60_000
    assert shares == pytest.approx([0.6 + 0.1, 0.1, 0.1, 0.1], abs=0.01)


def test_an_epoch_has_every_story_and_every_token_once_in_batches_of_any_size() -> None:
    rng = Random(5)
    stories = [[10 * number + 2 + i % 8 for i in range(rng.randint(1, 9))] for number in range(30)]
    corpus = Corpus(stories, 0, 1, CPU)
    epoch = 2 * max(len(corpus.tokens), len(stories))
    whole = corpus.batch(2 * epoch)
    parts = Corpus(stories, 0, 1, CPU)
    drawn = torch.cat([parts.batch(rows) for rows in (1, 2, 0, 7, epoch, epoch - 10)])
    assert parts.drawn == corpus.drawn == len(whole)
    assert torch.equal(drawn.sort(dim=0).values, whole.sort(dim=0).values)

    tokens = whole[: len(corpus.tokens), 0].tolist()  # windows of one token, in tiles
    begun = whole[epoch:, 0].tolist()
    first = begun[: len(stories)]
    assert sorted(tokens) == sorted(corpus.tokens.tolist()) != tokens
    assert sorted(first) == sorted(story[0] for story in stories)
    assert first != begun[len(stories) : 2 * len(stories)]  # another order

    longer = Corpus(stories, 0, 12, CPU)
    # behind a story comes another one
    for window in longer.batch(2 * len(stories))[len(stories) :].tolist():
        story = window[: window.index(0)]
        assert story in stories and window[len(story) + 1] in [other[0] for other in stories]


def test_muon_for_all_matrices_of_a_shape_is_that_of_torch() -> None:
    """Over queries, keys and values of different heights in one parameter, a wide matrix and two of one shape."""
    generator = torch.Generator().manual_seed(6)
    heights = [[16, 16, 16], [16, 8, 8], [8], [24], [16]]
    widths = [16, 16, 24, 8, 16]
    ours = [
        torch.randn(sum(rows), width, generator=generator).requires_grad_()
        for rows, width in zip(heights, widths, strict=True)
    ]
    stacks = list(zip(ours, heights, strict=True))
    theirs = [
        [part.clone().requires_grad_() for part in own.detach().split(rows)] for own, rows in stacks
    ]
    begun = torch.cat([own.detach().flatten() for own in ours])
    batched = Muon(stacks, 0.1, 0.05)
    plain = torch.optim.Muon(
        [part for parts in theirs for part in parts], lr=0.1, weight_decay=0.05
    )
    assert len(batched.param_groups) == 4
    for step in range(6):
        for (own, rows), parts in zip(stacks, theirs, strict=True):
            own.grad = torch.randn(own.shape, generator=generator)
            for part, gradient in zip(parts, own.grad.split(rows), strict=True):
                part.grad = gradient
        if step == 3:
            state = batched.state_dict()
            batched = Muon(stacks, 0.1, 0.05)
            batched.load_state_dict(state)
        batched.step()
        plain.step()
    moved = torch.cat([own.detach().flatten() for own in ours])
    expected = torch.cat([part.detach().flatten() for parts in theirs for part in parts])
    assert float((moved - expected).norm()) < 0.04 * float((expected - begun).norm())


#: A name that no list knows, a place, and a thing, each with a capital.
KNOWN = (
    "One day {a} met {b} in Kenya. {a} said he liked the South. Then {b} took {a} to the Nile in Kenya, and {b} showed "
    "him {a}'s boat. So {a} and {b} were friends, and {c} was not. But {c} did not mind."
)


def test_a_copy_has_other_names_of_the_same_gender_and_the_same_words() -> None:
    draw = Random(7)
    told = []
    for _ in range(500):
        a = draw.choice(["Zorb", "Tom", *NAMES["boy"]])
        b, c = draw.sample(["Lily", *NAMES["girl"]], 2)
        told.append(KNOWN.format(a=a, b=b, c=c))
    texts = [*STORIES, *told]
    names = find_names(texts)
    genders = {name: gender for gender, those in NAMES.items() for name in those} | {
        "Tom": "boy",
        "Zorb": "boy",
    }
    genders |= {"Lily": "girl", "Pim": "boy"}
    for text in texts:
        copy = rename(text, names, draw)
        assert copy is not None or text == STORIES[3]  # of a lamp
        words, others = (re.findall(r"\w+|\W+", each) for each in (text, copy or text))
        pairs = {pair for pair in zip(words, others, strict=True) if pair[0] != pair[1]}
        assert len(pairs) == len(dict(pairs)) == len({new for _, new in pairs})
        for old, new in pairs:
            assert words.count(old) >= 2 and new not in text and new in NAMES[genders[old]]
        kept = set(words) - dict(pairs).keys()
        assert not kept & set(genders) - {name for name in kept if words.count(name) == 1}
    assert renamed_copies(texts, 1) == renamed_copies(texts, 1) != renamed_copies(texts, 2)


def test_nothing_of_a_held_out_story_is_trained_on_under_any_name(tmp_path: Path) -> None:
    """A copy would begin with another name, and not be known again."""
    held_out = "Zorb was a small bee. One day Zorb flew far away. He was glad, and so Zorb sang of it all day long."
    odd = ["Too short.", "\u0416" * 100, f"# The boat\n{STORIES[0]}\n**The end of it**\n", held_out]
    file = write_stories(tmp_path / "stories.txt", [*STORIES[1:], *odd])
    stories = training_stories([file], [f"Another one.\n{held_out}"], renamed=3)
    assert stories[:4] == [*STORIES[1:], STORIES[0]]
    assert len(stories) == 4 + 3 * 3 and not [
        story for story in stories if " bee" in story or "Zorb" in story
    ]


def test_shipped_checkpoint_scores_within_its_stated_figure(
    stories: surelock.LanguageModel,
) -> None:
    """The stories above are not from any corpus: plainer sentences than the held-out ones, stranger names."""
    ids = [stories.encode(story) for story in STORIES]
    bound = evaluate(stories.network, ids, sum(map(len, STORIES)))
    # the card says 1.16
    assert (stories.mask_id, stories.eos_id) == (1, 0) and bound["bits_per_character"] < 1.2


def test_the_documents_command_is_one() -> None:
    text = (Path(__file__).parents[1] / "docs" / "researchers.md").read_text("utf-8")
    command = re.findall(r"^python -m surelock train ([^`]*)", text, re.MULTILINE)
    assert len(command) == 1
    add_train_arguments(parser := ArgumentParser())
    assert parser.parse_args(command[0].split()).seconds == 420
