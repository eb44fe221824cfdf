"""Training: the loss falls, an interrupted run resumes exactly, the shipped checkpoint is as good as it says."""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import surelock
from surelock.model.bound import draw_masks, stratified_counts
from surelock.research.training.checkpoint import MASK_ID, train_tokenizer
from surelock.research.training.cli import add_train_arguments
from surelock.research.training.data import Corpus, Names, is_whole, read_stories
from surelock.research.training.objective import batch_loss, evaluate, make_batch, prompt_lengths
from surelock.research.training.trainer import Optimizer, Trainer, build_network, learning_rate

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "data" / "corpus"

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


@pytest.fixture
def stories_file(tmp_path: Path) -> Path:
    file = tmp_path / "stories.txt"
    file.write_text("".join(f"{story}\n<|endoftext|>\n" for story in STORIES))
    return file


SMALL = "--pieces 400 --d-model 32 --layers 2 --heads 2 --ffn 64 --batch-tokens 512 --windows 32 48"
RUN = [*SMALL.split(), "--evaluate-draws", "2", "--warm-up", "0.1", "--device", "cpu", "--steps"]


def flags(stories_file: Path, out: str, steps: int = 20) -> list[str]:
    data = str(stories_file)
    return ["--data", data, "--valid", data, "--out", str(stories_file.parent / out), *RUN, str(steps)]


def options(stories_file: Path, out: str, *more: str) -> Namespace:
    parser = ArgumentParser()
    add_train_arguments(parser)
    return parser.parse_args([*flags(stories_file, out), *more])


class Interrupted(Trainer):
    """Stops like a killed process: after the state of step 9 is on disk and some more work is lost."""

    def _look_after(self, bar: object) -> None:
        super()._look_after(bar)
        if self.step == 9:
            self._save()
        if self.step == 12:
            raise KeyboardInterrupt


def test_loss_falls_and_a_resumed_run_equals_an_uninterrupted_one(stories_file: Path) -> None:
    whole = Trainer(options(stories_file, "whole"))
    summary = whole.run()
    lines = [json.loads(line) for line in (stories_file.parent / "whole" / "log.jsonl").read_text().splitlines()]
    bounds = [line["valid_bits_per_character"] for line in lines if "valid_bits_per_character" in line]
    assert bounds[-1] < 0.9 * bounds[0]
    assert summary["steps"] == 20
    assert summary["best"]["bits_per_character"] == pytest.approx(min(bounds))

    with pytest.raises(KeyboardInterrupt):
        Interrupted(options(stories_file, "parts")).run()
    resumed = Trainer(options(stories_file, "parts", "--resume"))
    assert resumed.step == 9
    resumed.run()
    for (name, a), b in zip(whole.network.named_parameters(), resumed.network.parameters(), strict=True):
        assert torch.equal(a, b), name
    momenta = (each.optimizer.state_dict()["muon"]["state"] for each in (whole, resumed))
    for one, other in zip(*(own.values() for own in momenta), strict=True):
        assert torch.equal(one["momentum_buffer"], other["momentum_buffer"])

    lm = surelock.load(stories_file.parent / "whole" / "model", device="cpu")
    assert lm.decode(lm.encode(STORIES[0])) == STORIES[0]


def test_schedule_rises_and_falls_to_zero() -> None:
    rates = [learning_rate(p, 0.1) for p in (0.0, 0.05, 0.1, 0.55, 1.0, 1.1)]
    assert rates == pytest.approx([0.0, 0.5, 1.0, 0.5, 0.0, 0.0])


def test_records_that_are_no_stories_are_dropped() -> None:
    assert all(is_whole(story) for story in STORIES)
    assert not is_whole(STORIES[0][:-1])
    assert not is_whole(STORIES[0][1:])
    assert not is_whole("THE GOLDEN BIRD HANS IN LUCK THE STRAW, THE COAL, AND THE BEAN BRIAR ROSE RAPUNZEL.")
    assert not is_whole("The end.")


def test_a_story_told_again_differs_in_its_names_alone() -> None:
    told = 'Ida met a boy named Theo. Ida\'s cat liked Theo. "Theo!" said Ida, and Idaho was far.'
    girls = [f"There was a girl named {name}. She was glad and her mother, too." for name in ("Ida", "Ruth", "Maud")]
    boys = [f"There was a boy named {name}. He and his dog ran." for name in ("Theo", "Karl", "Sunny")]
    names = Names([*girls, *boys, *girls, *boys, "It was a sunny day."])
    assert names.kinds == dict.fromkeys(("Ida", "Maud", "Ruth"), "she") | dict.fromkeys(("Karl", "Theo"), "he")
    rng, seen = np.random.default_rng(0), set()
    for _ in range(50):
        again = names.rename(told, rng)
        girl, boy = again.split()[0], again.split()[5].rstrip(".")
        assert again.replace(girl, "Ida").replace(boy, "Theo") == told
        assert girl not in ("Ida", "Theo", boy) and boy not in ("Ida", "Theo")
        seen.add(girl)
    assert seen > {"Maud", "Ruth"}, "some of the names are invented"
    assert names.rename(STORIES[3], rng) == STORIES[3]
    alone = Names([girls[0], girls[0]])
    assert alone.rename(girls[0], rng) == girls[0], "nobody to be called after"


def test_batches_depend_on_seed_and_step_alone_and_start_stories() -> None:
    stories = [[i] * (5 + i) for i in range(2, 30)]
    make = lambda: Corpus(stories, eos_id=0, seed=3, lengths=(8, 12), batch_tokens=96)  # noqa: E731
    a, b = make(), make()
    assert [a.batch(step).shape for step in (0, 1)] == [(12, 8), (8, 12)]
    for step in (500, 3, 0):
        np.testing.assert_array_equal(a.batch(step), b.batch(step))
    first = a.batch(0)[:6]
    lengths = {story[0]: len(story) for story in stories}
    for row in first:
        expected = ([row[0]] * lengths[row[0]] + [0])[:8]
        assert list(row[: len(expected)]) == expected
    seen = {int(row[0]) for step in (0, 2, 4) for row in (*a.batch(step)[:6], *a.batch(step + 1)[:4])}
    assert seen == set(lengths), "one epoch of aligned windows starts every story"


def test_masking_is_uniform_in_the_number_of_masks() -> None:
    rng = np.random.default_rng(0)
    counts = np.concatenate([stratified_counts(rng, np.arange(8), 8, 16) for _ in range(500)])
    assert set(counts) == set(range(1, 17))
    assert np.bincount(counts)[1:] == pytest.approx(250, abs=80)
    masks = draw_masks(rng, counts, 16)
    assert (masks.sum(axis=1) == counts).all()
    assert masks.mean(axis=0) == pytest.approx(17 / 32, abs=0.04)


def test_a_prompt_is_never_masked() -> None:
    """Half of the windows keep a beginning of any length; the number of masks is uniform over the rest."""
    rng = np.random.default_rng(0)
    prompts = prompt_lengths(rng, 4000, 16, 0.5)
    assert prompts.min() == 0 and prompts.max() == 15
    assert (prompts > 0).mean() == pytest.approx(0.5 * 15 / 16, abs=0.03)
    counts = stratified_counts(rng, np.arange(4000), 4000, 16 - prompts)
    masks = draw_masks(rng, counts, 16, prompts)
    assert (masks.sum(axis=1) == counts).all() and (counts <= 16 - prompts).all() and counts.min() == 1
    assert not masks[np.arange(16) < prompts[:, None]].any()
    assert (counts / (17 - prompts)).mean() == pytest.approx(0.5, abs=0.02)
    assert not prompt_lengths(rng, 100, 16, 0.0).any()


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


def test_bound_of_a_uniform_model_is_exact() -> None:
    """A network whose logits are all zero needs log V nats per token, whatever is masked."""
    tokenizer = train_tokenizer(STORIES, 300)
    trainer_config = surelock.model.config.NetworkConfig(
        vocab_size=300, d_model=8, n_layers=1, n_heads=1, n_kv_heads=1, head_size=8, d_ff=8, max_length=64,
        rope_theta=1e4, norm_eps=1e-5, tied=True,
    )  # fmt: skip
    network = build_network(trainer_config, seed=0)
    with torch.no_grad():
        network.norm.weight.zero_()
    ids = [tokenizer.encode(story).ids for story in STORIES]
    bound = evaluate(network, ids, sum(map(len, STORIES)), mask_id=MASK_ID, eos_id=0, window=64, draws=4)
    assert bound.nats_per_token == pytest.approx(np.log(300), rel=1e-6)
    assert bound.nats_per_token_error == pytest.approx(0.0, abs=1e-6)
    assert bound.tokens == sum(map(len, ids)) + len(ids)
    assert bound.bits_per_character == pytest.approx(np.log2(300) * bound.tokens / bound.characters, rel=1e-6)


@pytest.mark.long
def test_two_processes_share_a_batch_and_keep_one_model(stories_file: Path) -> None:
    """Each computes half of the windows; the loss that is logged is the mean of both."""
    root = Path(surelock.__file__).parents[1]
    launch = ["-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes", "2"]
    launch += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    run = ["-m", "surelock", "train", *flags(stories_file, "two"), "--threads", "1"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)}
    told = subprocess.run(
        [sys.executable, *launch, *run], cwd=root, env=environment, check=True, capture_output=True, timeout=240
    )
    summary = json.loads(told.stdout.splitlines()[-1])
    alone = Trainer(options(stories_file, "one"))
    assert summary["tokens"] == alone.run()["tokens"] and summary["steps"] == 20
    losses = [
        [line["loss"] for line in map(json.loads, file.read_text().splitlines()) if "loss" in line]
        for file in (stories_file.parent / name / "log.jsonl" for name in ("one", "two"))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
    assert surelock.load(stories_file.parent / "two" / "model", device="cpu").mask_id == MASK_ID


def test_fused_matrices_are_orthogonalised_map_by_map(lm: surelock.LanguageModel) -> None:
    """One step without decay: each map of a fused matrix moves by a nearly orthogonal matrix of its own."""
    network = build_network(lm.config, seed=0)
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    optimizer = Optimizer(network, muon_rate=0.5, adam_rate=0.25)
    optimizer.optimizers["muon"].param_groups[0]["weight_decay"] = 0.0
    optimizer.step(0.1)
    after = dict(network.named_parameters())
    q, k = (heads * lm.config.head_size for heads in (lm.config.n_heads, lm.config.n_kv_heads))
    for name, heights in (("blocks.0.qkv.weight", [q, k, k]), ("blocks.1.gate_up.weight", [lm.config.d_ff] * 2)):
        for part in (after[name] - before[name]).detach().split(heights):
            values = torch.linalg.svdvals(part) / 0.05 / max(1, len(part) / part.shape[1]) ** 0.5
            assert values.min() > 0.5 and values.max() < 1.4
    moved = (after["embed.weight"] - before["embed.weight"]).abs()
    assert float(moved.detach().max()) == pytest.approx(0.025, rel=1e-3)  # AdamW's first step is the rate


def test_shipped_checkpoint_scores_within_its_stated_figure(stories: surelock.LanguageModel) -> None:
    """The stories above are not from any corpus: plainer sentences than the held-out ones, stranger names."""
    ids = [stories.encode(story) for story in STORIES]
    bound = evaluate(stories.network, ids, sum(map(len, STORIES)), mask_id=stories.mask_id, eos_id=0, draws=16)
    assert bound.bits_per_character < 1.2  # the card says 1.16


@pytest.mark.long
def test_shipped_checkpoint_scores_its_held_out_figure(stories: surelock.LanguageModel) -> None:
    file = CORPUS / "tinystories_valid.txt"
    if not file.is_file():
        pytest.skip("the held-out stories are not beside the checkout")
    directory = Path(surelock.model.loading.STORIES)
    stated = json.loads((directory / "config.json").read_text())["held_out"]
    texts = read_stories(file)
    ids = [stories.encode(text) for text in texts]
    bound = evaluate(stories.network, ids, sum(map(len, texts)), mask_id=stories.mask_id, eos_id=0, draws=2, seed=1)
    error = np.hypot(bound.bits_per_character_error, stated["bits_per_character_error"])
    assert bound.bits_per_character == pytest.approx(stated["bits_per_character"], abs=4 * error)
