"""The lab of an experiment, that is, its model and its data; and the decoding of a cell's prompts."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path

import numpy as np

from surelock.decoding.decoder import Decoder, read_decoder
from surelock.decoding.loop import decode
from surelock.decoding.totals import TotalsCounter
from surelock.model.language_model import LanguageModel
from surelock.research.prompts import HELD, Prompt, chosen, read_source
from surelock.research.runner import Cell, fingerprint
from surelock.values import Json, frozen


@frozen
class Lab:
    """The model and the data of an experiment."""

    lm: LanguageModel
    data: dict[str, Path] = field(default_factory=dict)  # files by source
    _read: dict[str, list[Prompt]] = field(default_factory=dict, repr=False)  # prompts by source

    def prompts(self, cell: Cell) -> list[Prompt]:
        """Return the prompts of a cell, see `read_source` and `chosen`."""
        source = cell["source"]
        if source not in self._read:
            self._read[source] = read_source(self.lm, source, self.data)
        return chosen(self._read[source], cell)

    def batches(self, cell: Cell) -> Iterator[tuple[list[list[int]], Decoder]]:
        """Yield (prompts, decoder) of the batches of a cell. The seed of a prompt does not depend on its batch."""
        prompts = self.prompts(cell)
        size = cell["batch"]
        for start in range(0, len(prompts), size):
            yield [prompt.ids for prompt in prompts[start : start + size]], decoder_of(cell, start)

    def setup(self) -> Json:
        """Return the properties of model and data that results depend on."""
        files = HELD | self.data
        hashes = {
            name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items()
        }
        engine = self.lm.engine.name
        return {
            "model": Path(self.lm.name).name,
            **weights_of(self.lm),
            "data": hashes,
            # recorded cells of torch do not name it
            **({} if engine.startswith("torch") else {"engine": engine}),
        }


def weights_of(lm: LanguageModel) -> dict[str, str]:
    """Return a hash of a model's weights, and their dtype."""
    return {"weights": fingerprint(lm.network), "dtype": lm.dtype}


def decoder_of(cell: Cell, first: int = 0) -> Decoder:
    """Return the decoder of a cell for the batch that begins with prompt number `first`.

    cell: settings by their short names. epsilon None is the baseline. A select_fraction below 1 selects rows among the
        rows that the rule computes.
    """
    rule = "everything" if cell["epsilon"] is None else "lock"
    if cell["select_fraction"] < 1:
        rule = "select" if rule == "everything" else "lock+select"
    varied = {
        name: value for name, value in cell.items() if value is not None or name == "percentile"
    }
    return read_decoder(
        {"compute": rule, "unmask": cell["remasking"]} | varied | {"seed": cell["seed"] + first}
    )


@frozen
class Decoded:
    """The result of decoding a cell."""

    tokens: list[list[int]]  # the generated token ids by prompt
    figures: dict[str, float]
    curve: list[float]  # by step, the FLOPs divided by the baseline's FLOPs


def decode_cell(lab: Lab, cell: Cell) -> Decoded:
    """Decode the prompts of a cell.

    FLOPs are counted as in Sec. 2.4 and Table 1 of the paper, and summed over the batches before ratios are taken.
    Figures with `_to_eos` leave out the positions after the first EOS of a sequence, which lock early and flatter the
    ratio.
    """
    tokens: list[list[int]] = []
    sums: dict[str, float] = defaultdict(float)
    flops, baseline = np.zeros((2, decoder_of(cell).steps_of()))
    for ids, decoder in lab.batches(cell):
        counter = TotalsCounter(lab.lm.config, lab.lm.ends)
        positions = sum(map(len, ids)) + len(ids) * decoder.settings.gen_length
        last = None
        for last in decode(lab.lm, ids, **decoder.keywords()):
            counter.add(last)
            flops[last.index] += last.flops.sum()
            baseline[last.index] += last.baseline_flops.sum()
        assert last is not None
        tokens += last.tokens[:, -decoder.settings.gen_length :].tolist()
        totals = counter.totals()
        sums["flops"] += totals.flops
        sums["baseline"] += totals.baseline_flops
        sums["padded"] += totals.padded_baseline_flops
        for prefix, rows in (("", counter.rows()), ("eos_", counter.rows(to_eos=True))):
            sums[f"{prefix}computed"] += float(rows.computed.sum())
            sums[f"{prefix}present"] += float(rows.present.sum())
        sums["positions"] += positions
        sums["padded_positions"] += last.tokens.size
        sums["locked"] += totals.locked * positions
    return Decoded(tokens, _figures(sums), (flops / baseline).tolist())


def _figures(sums: dict[str, float]) -> dict[str, float]:
    return {
        "active_ratio": sums["computed"] / sums["present"],
        "active_ratio_to_eos": sums["eos_computed"] / sums["eos_present"],
        "f_base": sums["baseline"] / sums["positions"],
        "f_base_padded": sums["padded"] / sums["padded_positions"],
        "f_locked": sums["flops"] / sums["positions"],
        "flops_ratio": sums["flops"] / sums["baseline"],
        "flops_ratio_padded": sums["flops"] / sums["padded"],
        "locked": sums["locked"] / sums["positions"],
    }
