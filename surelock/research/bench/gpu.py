"""`bench gpu` predicts and measures steps at LLaDA-8B's shape on a GPU.

The weights are random and made on the device. The benchmark consists of parts. The result of a part is one JSON line,
printed as soon as it is measured, and with --out also added to OUT/gpu.jsonl. The most important parts come first, so
that little is lost when the time is over:

- the kernels that a step launches; no layer may wait for the device;
- the time of a step that computes every row, and of a step with half of the rows locked, for all sizes and modes;
- whole runs, which commit and lock as a recorded run of the embedded model, stretched to the size.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F

from surelock.bench.counts import PROMPT, SIZES, count_step, meta_engine, plan_of
from surelock.bench.gpu_model import predicted
from surelock.bench.random_weights import SHAPES, random_model
from surelock.bench.subject import prompts_for, setup_of
from surelock.bench.timing import Figures
from surelock.decoding.algorithm import Run
from surelock.decoding.compute import Everything
from surelock.decoding.decoder import Decoder
from surelock.decoding.locking import LockRule
from surelock.decoding.settings import DecodeSettings
from surelock.decoding.step import Layout, Plan, lent
from surelock.engines.attention import has_varlen
from surelock.engines.break_even import is_faster
from surelock.engines.cuda_graph import bucket_of
from surelock.engines.fused import can_fuse
from surelock.engines.posterior import kl_divergence
from surelock.engines.torch import TorchEngine
from surelock.loading import find_device
from surelock.model.language_model import LanguageModel
from surelock.research.bench.schedule import stretch

#: The modes in which a step is launched: the engine's attributes `graphs` and `fused`. "compiled" is its default.
MODES = {"plain": (False, False), "graphs": (True, False), "compiled": (True, True)}
RUN_SIZES = ((256, 1), *SIZES[1:])  # (generated, batch) of the whole runs
_EVERY = 8  # every eighth step of a whole run is predicted
_WARM = 4  # the first steps of a whole run, which do not count


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `bench gpu`."""
    add = parser.add_argument
    add(
        "--shape",
        choices=SHAPES,
        default="llada-8b",
        help="shape of the network (default: %(default)s)",
    )
    add("--device", help="cuda, cuda:1, cpu ... (default: CUDA if there is one)")
    what = "GENERATEDxBATCH, repeatable (default: 64x1, 256x4, 1024x8, and 256x1 as a run)"
    add("--size", action="append", type=size_of, metavar="SIZE", help=what)
    add(
        "--mode",
        action="append",
        choices=MODES,
        help="how a step is launched, repeatable (default: all)",
    )
    add(
        "--repeats",
        type=int,
        default=20,
        help="steps that are timed of each kind (default: %(default)s)",
    )
    what = "steps of a whole run; 0 leaves runs out (default: %(default)s)"
    add("--run-steps", type=int, default=64, help=what)
    add(
        "--seconds",
        type=float,
        default=300,
        help="begin nothing after so many seconds (default: %(default)s)",
    )
    add(
        "--out",
        type=Path,
        help="a folder, to whose gpu.jsonl the parts are added (default: they are only printed)",
    )
    parser.set_defaults(run=run)


def size_of(text: str) -> tuple[int, int]:
    """Return (generated, batch) from a text such as "256x4". Raises ValueError."""
    gen_length, batch = map(int, text.split("x"))
    if not (0 < gen_length <= 2**14 and 0 < batch <= 2**10):
        raise ValueError
    return gen_length, batch


def run(arguments: argparse.Namespace) -> Figures:
    """Measure and print the parts. Return a JSON object with the setup and the number of parts.

    Raises ValueError without a GPU, and OSError if the file in --out cannot be written.
    """
    begun = time.monotonic()
    device = find_device(arguments.device)
    if device.type != "cuda" and arguments.shape != "tiny":
        raise ValueError(
            "bench gpu needs a CUDA GPU; without one it takes --shape tiny, to see that it works"
        )
    file = None
    if arguments.out is not None:
        arguments.out.mkdir(parents=True, exist_ok=True)
        file = arguments.out / "gpu.jsonl"
    written = 0
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    lm = random_model(arguments.shape, device, dtype)
    setup = {
        name: value for name, value in setup_of(lm).items() if name not in ("cores", "threads")
    }
    setup |= {
        "dtype": str(lm.dtype).removeprefix("torch."),
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
    }
    for name, part in parts(lm, arguments):
        if time.monotonic() - begun > arguments.seconds:
            print(
                f"left out, {arguments.seconds:.0f} s are over: {name}", file=sys.stderr, flush=True
            )
            continue
        try:
            figures = part()
        except (RuntimeError, TypeError, ValueError) as error:
            # a part that fails is recorded as failed, and the next part is measured
            figures = {"failed": f"{type(error).__name__}: {error}"[:2000]}
        line = {"part": name, **figures, **setup, "at": round(time.monotonic() - begun, 1)}
        if file is not None:
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
        written += 1
    return {"benchmark": "gpu", **setup, "parts": written, "kept": file and str(file)}


def parts(
    lm: LanguageModel, arguments: argparse.Namespace
) -> Iterator[tuple[str, Callable[[], Figures]]]:
    """Yield (name, function that measures the part) of all parts, the most important parts first."""
    engine = cast("TorchEngine", lm.engine)
    sizes = arguments.size or SIZES
    modes = arguments.mode or MODES
    for gen_length, batch in sizes:
        for locked in (False, True):
            plan = plan_of(engine, gen_length, batch, locked)
            where = f"{gen_length}x{batch} {'half locked' if locked else 'unlocked'}"
            yield f"kernels {where}", lambda plan=plan: kernels_of(engine, plan)
            for mode in modes:
                if usable(engine, mode, plan[1]):
                    if mode == "compiled":
                        yield (
                            f"kernels {where} compiled",
                            lambda plan=plan: kernels_of(engine, plan, "compiled"),
                        )
                    yield (
                        f"step {where} {mode}",
                        lambda p=plan, m=mode: step_of(engine, p, m, arguments.repeats),
                    )
    for gen_length, batch in arguments.size or RUN_SIZES:
        if arguments.run_steps:
            name = f"run {gen_length}x{batch}"
            yield name, lambda g=gen_length, b=batch: run_of(lm, engine, g, b, arguments.run_steps)
    yield "rounding", lambda: rounding(lm)


def usable(engine: TorchEngine, mode: str, plan: Plan) -> bool:
    """Return whether a mode is measured: whether it launches this plan on this device in another way than "plain"."""
    if mode == "plain":
        return True
    if mode == "graphs":
        return _captures(engine, plan, compiled=False)
    return _has_varlen(engine) and can_fuse(engine.device)


def _has_varlen(engine: TorchEngine) -> bool:
    """Return whether the engine uses attention for sequences of different lengths in one call."""
    return engine.device.type == "cuda" and has_varlen(engine.config, engine.dtype, engine.device)


def _captures(engine: TorchEngine, plan: Plan, compiled: bool) -> bool:
    """Return whether the engine launches a plan as a graph. compiled: whether the layers are compiled."""
    return _has_varlen(engine) and bucket_of(len(plan.slots), compiled) > 0


# --- parts ------------------------------------------------------------------------------------------------------------


@contextmanager
def no_waiting(engine: TorchEngine) -> Iterator[None]:
    """Return a context in which a layer that waits for the device raises RuntimeError."""
    blocks = list(engine.network.blocks)
    on_cuda = engine.device.type == "cuda"

    def set_to(mode: str) -> Callable[..., None]:
        return lambda *_: torch.cuda.set_sync_debug_mode(mode) if on_cuda else None

    with ExitStack() as stack:
        stack.callback(set_to("default"))
        stack.callback(blocks[0].register_forward_pre_hook(set_to("error")).remove)
        stack.callback(blocks[-1].register_forward_hook(set_to("default")).remove)
        yield


def kernels_of(engine: TorchEngine, plan: tuple[Layout, Plan], mode: str = "plain") -> Figures:
    """Return the kernels of a step, counted by the device's profiler and by `count_step`.

    Raises RuntimeError if a layer waits for the device, and if a layer does not use flash attention.
    """
    layout, step = plan
    engine.graphs, engine.fused = MODES[mode]
    with lent(engine, layout) as memory:
        for _ in range(2):
            engine.read(memory, step)
        with no_waiting(engine), torch.profiler.profile() as profile:
            engine.read(memory, step)
    names = [
        event.name for event in profile.events() or () if str(event.device_type).endswith("CUDA")
    ]
    flash = sum("flash" in name and "combine" not in name for name in names)
    copies = Counter(name for name in names if name.startswith(("Memcpy", "Memset")))
    counted = count_step(meta_engine(engine.config), layout, step)
    counts = {
        "kernels_counted": len(counted.kernels),
        "kernels_launched": len(names) - copies.total(),
        "flash": flash,
        "copies": dict(copies),
        "largest": [[name[:80], count] for name, count in Counter(names).most_common(12)],
    }
    if engine.device.type == "cuda" and flash < engine.config.n_layers:
        raise RuntimeError(
            f"{flash} of {engine.config.n_layers} layers took flash attention: {json.dumps(counts)}"
        )
    return counts


def step_of(engine: TorchEngine, plan: tuple[Layout, Plan], mode: str, repeats: int) -> Figures:
    """Return the median time of a step that is repeated, and the predicted time."""
    layout, step = plan
    engine.graphs, engine.fused = MODES[mode]
    begun = time.perf_counter()
    with lent(engine, layout) as memory:  # the first steps compile layers and capture graphs
        warm = [engine.read(memory, step).seconds for _ in range(4)]
        first = time.perf_counter() - begun
        seconds = warm[3:] + [engine.read(memory, step).seconds for _ in range(repeats - 1)]
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    counted = count_step(meta_engine(engine.config), layout, step)
    launched = best_mode(engine, step) if mode == "compiled" else mode
    return {
        "mode": mode,
        "gen": layout.lengths[0] - PROMPT,
        "batch": len(layout.lengths),
        "locked": bool(step.watches.any()),
        "rows": len(step.slots),
        "kernels": len(counted.kernels),
        "predicted_ms": 1e3 * predicted(counted, launched, engine.config),
        "measured_ms": 1e3 * float(median),
        "quartiles_ms": [1e3 * float(low), 1e3 * float(high)],
        "first_seconds": first,
    }


def run_of(
    lm: LanguageModel, engine: TorchEngine, gen_length: int, batch: int, steps: int
) -> Figures:
    """Return the times of whole runs, locked and unlocked, which take turns step by step; and the predicted times.

    The prediction is made for one step in _EVERY. The first _WARM steps do not count in the speed-up.
    """
    engine.graphs = engine.fused = True
    settings = DecodeSettings(gen_length=gen_length, steps=min(steps, gen_length))
    prompts = prompts_for(lm, batch, PROMPT)
    locked = stretch(Decoder(settings=settings, compute=LockRule()), prompts, lm.config.vocab_size)
    decoders = {"unlocked": replace(locked, compute=Everything()), "locked": locked}
    runs = {name: Run(lm.shape, prompts, decoder) for name, decoder in decoders.items()}
    seconds = {name: [] for name in runs}
    guesses = {name: [] for name in runs}
    rows = dict.fromkeys(runs, 0)
    with ExitStack() as stack:
        memories = {
            name: stack.enter_context(lent(engine, run.layout)) for name, run in runs.items()
        }
        for t in range(settings.total_steps):
            for name in sorted(runs, reverse=t % 2 == 0):
                plan = runs[name].plan()
                assert plan is not None
                reading = engine.read(memories[name], plan)
                runs[name].take(reading)
                seconds[name].append(reading.seconds)
                rows[name] += len(plan.slots)
                if t % _EVERY == _EVERY // 2:
                    counts = count_step(meta_engine(engine.config), runs[name].layout, plan)
                    guesses[name].append(predicted(counts, best_mode(engine, plan), engine.config))
    whole = {name: sum(times[_WARM:]) for name, times in seconds.items()}
    return {
        "gen": gen_length,
        "batch": batch,
        "steps": settings.total_steps,
        "rows": rows["locked"] / rows["unlocked"],
        **{f"{name}_step_ms": 1e3 * float(np.median(times)) for name, times in seconds.items()},
        **{
            f"{name}_predicted_ms": 1e3 * float(np.median(times)) for name, times in guesses.items()
        },
        "speedup": whole["unlocked"] / whole["locked"],
        "predicted_speedup": sum(guesses["unlocked"]) / sum(guesses["locked"]),
    }


def best_mode(engine: TorchEngine, plan: Plan) -> str:
    """Return the mode of `gpu_model.predicted` that is nearest to the engine's default for a plan."""
    compiles = can_fuse(engine.device)
    if _captures(engine, plan, compiles):
        return "graphs"
    if compiles and is_faster("compiled reading", len(plan.read)):
        return "fused"
    return "plain"


@torch.inference_mode()
def rounding(lm: LanguageModel) -> Figures:
    """Return the median and the greatest KL, in nats, between posteriors before and after rounding their logits.

    The logits are rounded to the dtype of the network.
    """
    network = lm.network
    tokens = torch.randint(network.config.vocab_size, (1, 64), device=lm.device)
    exact = F.linear(network.hidden(tokens)[0].float(), network.head_weight.float())
    rounded = exact.to(network.dtype).float()
    kl = kl_divergence(
        exact.softmax(-1), exact, exact.logsumexp(-1), rounded.clone(), rounded.logsumexp(-1)
    )
    return {"rounding_kl_median": float(kl.median()), "rounding_kl_max": float(kl.max())}
