"""`python -m surelock.research.tables FILE ...` writes the tables of results in documents.

The place of a table is between the lines `<!-- table NAME -->` and `<!-- end of table -->`. The tables are made from
assets/results: most of them from the tables of the experiments (table.csv), some from their cells. If an experiment has
no results yet, "Not measured yet." is written.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surelock.decoding.presets import PRESETS
from surelock.research import estimates, runner
from surelock.research.bench import prediction
from surelock.research.compare import bits_per_character, sampler_of
from surelock.research.experiment import markdown_lines as markdown
from surelock.research.frontier import EVERY
from surelock.values import Floats, Json, frozen

RESULTS = Path(__file__).resolve().parents[2] / "assets" / "results"
JUDGE = "judge-SmolLM2-135M-Instruct.Q4_1"
PLACE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


@frozen
class Table:
    """A table that shows rows and columns of an experiment's table. Calling it returns the table as Markdown."""

    folder: str  # the experiment's folder in assets/results
    columns: dict[str, str]  # by heading, the format of a cell
    query: str = ""  # a query of pandas that chooses rows; "" for all

    def __call__(self) -> str:
        frame = read(self.folder)
        if self.query:
            frame = frame.query(self.query)
        return listed(self.columns, frame.to_dict("records"))


def read(folder: str) -> Any:
    """Return an experiment's table. The names of the judge's figures begin with `judge_`. A missing value is ""."""
    frame = pd.read_csv(RESULTS / folder / "table.csv")
    judge = RESULTS / folder / JUDGE / "table.csv"
    if judge.is_file():
        judged = pd.read_csv(judge)
        # the columns before "prompts" are the settings of a row
        keys = judged.columns[: judged.columns.get_loc("prompts")].tolist()
        named = {name: f"judge_{name}" for name in judged.columns.drop(keys)}
        frame = frame.merge(judged.rename(columns=named), "left", on=keys)
    frame = frame.astype(object)
    if "epsilon" in frame:
        frame["epsilon"] = [f"{value:.0e}".replace("e-0", "e-") for value in frame["epsilon"]]
    return frame.where(frame.notna(), "").replace(EVERY, "baseline")


def written(form: str, row: Json) -> str:
    """Return the text of a cell, "" if a figure is missing in its row. form: its format."""
    names = re.findall(r"\{(\w+)", form)
    return "" if any(row.get(name, "") == "" for name in names) else form.format(**row)


def by_heading(rows: Sequence[Json]) -> str:
    """Return rows as a Markdown table. The keys of a row are the headings."""
    return markdown(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def listed(columns: dict[str, str], rows: Iterable[Json]) -> str:
    """Return rows as a Markdown table. columns: the format of a cell by heading."""
    return markdown(
        list(columns), [[written(form, row) for form in columns.values()] for row in rows]
    )


# --- tables made from cells -------------------------------------------------------------------------------------------

Values = Floats  # [prompts]: the mean is the figure, the scatter gives its error


def cells(experiment: str) -> list[Json]:
    """Return the records of an experiment in assets/results."""
    return list(runner.finished(RESULTS / experiment).values())


def bits(result: Json) -> Values:
    """Return the bits per character of all texts together, linearised: [prompts] values with this mean."""
    bits = bits_per_character(result)
    return bits.value + bits.residuals


def changes(experiment: str) -> list[tuple[Json, Values]]:
    """Return (cell, change of the bits from the baseline of the same sampler) of the locked cells."""
    every = cells(experiment)
    bases = {
        sampler_of(r["cell"]): bits(r["result"]) for r in every if r["cell"]["epsilon"] is None
    }
    locked = [r for r in every if r["cell"]["epsilon"] is not None]
    return [(r["cell"], bits(r["result"]) - bases[sampler_of(r["cell"])]) for r in locked]


def pooled() -> dict[str, Values]:
    """Return changes of groups of cells with the same prompts, as means over the cells of a group."""
    quality = changes("quality")
    groups = {
        "`quality`, all cells": [change for _, change in quality],
        "`quality`, ε 5e-3": [change for cell, change in quality if cell["epsilon"] == 5e-3],
        "`epsilon`, all cells": [change for _, change in changes("epsilon")],
    }
    return {name: np.mean(group, axis=0) for name, group in groups.items()}


def together() -> str:
    """Return the table of the changes of `pooled`."""
    columns = {"cells": "{name}", "bits per character": change("bits", 4), "z": "{z:.1f}"}
    means = [(name, estimates.mean(group)) for name, group in pooled().items()]
    named = (
        {"name": name, "z": mean.value / mean.error} | estimates.named({"bits": mean})
        for name, mean in means
    )
    return listed(columns, named)


# --- speeds -----------------------------------------------------------------------------------------------------------


def speeds() -> str:
    """Return, for every machine and checkpoint, a line that describes them and a table of their speeds.

    Records without an engine are of an older edition and are left out.
    """
    records = [record for record in cells("bench") if "engine" in record["setup"]]
    setups = {json.dumps(record["setup"]): record["setup"] for record in records}
    parts = []
    for setup in setups.values():
        measured = [record for record in records if record["setup"] == setup]
        measured.sort(key=lambda record: (record["cell"]["batch"], record["cell"]["gen_length"]))
        days = sorted({date.fromisoformat(record["result"]["measured"]) for record in measured})
        spans = " to ".join(dict.fromkeys(f"{day:%-d %B %Y}" for day in (days[0], days[-1])))
        where = (
            setup["processor"]
            if setup["device"] == "cpu"
            else "{device}, {processor}".format(**setup)
        )
        heading = "`{model}` (weights {weights}, {dtype}) on {cores} cores of {where}, {threads} thread{s}, {engine}, "
        parts.append(
            heading.format(where=where, s="s" * (setup["threads"] > 1), **setup) + f"{spans}:"
        )
        parts.append(by_heading([_speed(record["cell"], record["result"]) for record in measured]))
    return "\n\n".join(parts)


def _speed(cell: Json, result: Json) -> dict[str, str]:
    """Return the row of a cell in the table of speeds."""
    spread = result["spread"].get("speedup")
    ratio = result["speedup"]
    between = f" ({spread[0]:.2f} to {spread[1]:.2f})" if spread else ""
    steps = f" in {cell['steps']} steps" if cell["steps"] else ""
    return {
        "gen_length, batch": f"{cell['gen_length']}{steps}, {cell['batch']}",
        "step, baseline and SureLock": "{baseline_step_ms:.3g} and {locked_step_ms:.3g} ms".format(
            **result
        ),
        "tokens/s": "{baseline_tps:.3g} and {locked_tps:.3g}".format(**result),
        "speed-up": ("refused" if ratio is None else f"{ratio:.2f}x") + between,
        "FLOPs": f"{result['flops_ratio']:.2f}x",
        "efficiency": "" if ratio is None else f"{result['efficiency']:.2f}",
        "load": "" if result["load"] is None else f"{result['load']:.1f}",
    }


def printed(name: str, benchmark: str) -> list[Json]:
    """Return the JSON lines of a benchmark in assets/results/NAME.jsonl."""
    lines = [
        json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines()
    ]
    return [line for line in lines if line["benchmark"] == benchmark]


def laptop() -> str:
    """Return the table of `bench decode` at the shapes of real models, a row per engine."""
    rows = printed("laptop", "decode")
    for line in rows:
        line |= {"gigabytes": line["peak_memory"] / 1e9}
        line |= {name: line[f"{name}_step_ms"] / 1e3 for name in ("baseline", "locked")}
    columns = {"model": "{model}", "engine": "{engine}", "loading": "{loading_seconds:.1f} s"}
    columns |= {"memory at most": "{gigabytes:.2f} GB"}
    columns |= {"a step": "{baseline:.2f} s", "of SureLock, nothing locked": "{locked:.2f} s"}
    return listed(columns | {"processor": "{processor}, {threads} threads"}, rows)


def browser() -> str:
    """Return the table of decoders that ran alone in a browser, compared with the baseline."""
    names = {key: preset.name for key, preset in PRESETS.items()} | {"everything": "baseline"}
    rows = [
        lane
        | {
            "length": length,
            "decoder": names[preset],
            "ratio": lane["flops"] / lane["baseline_flops"],
        }
        for line in printed("browser", "browser")
        for length, lanes in line["alone"].items()
        for preset, lane in lanes.items()
    ]
    columns = {"tokens": "{length}", "decoder": "{decoder}"}
    columns |= {"time, of the baseline's": "{seconds:.1f} s, {time_ratio:.2f}"}
    return listed(columns | {"of its FLOPs": "{ratio:.2f}", "efficiency": "{efficiency:.2f}"}, rows)


def change(name: str, digits: int = 3) -> str:
    """Return the format of a signed figure with its standard error."""
    return f"{{{name}:+.{digits}f}} ({{{name}_se:.{digits}f}})"


def plain(name: str, digits: int = 2) -> str:
    """Return the format of an unsigned figure with its standard error."""
    return f"{{{name}:.{digits}f}} ({{{name}_se:.{digits}f}})"


OWN = {"FLOPs": "{flops_ratio:.3f}x", "bits, own bound": change("bits_change")}
JUDGED = {
    "bits, judge": change("judge_bits_change"),
    "Gen.-PPL": plain("judge_gen_ppl_ratio") + " times",
}
KEPT = {"tokens kept": "{equal:.0%}"}
COST = {
    "rows": "{rows:.2f}",
    "commit error": plain("error", 4),
    "error / SureLock's": plain("over_surelock"),
}
SHOWN = ["baseline", "SureLock", "by age", "by chance", "budget", "dual cache", "entropy cache"]
TABLES: dict[str, Callable[[], str]] = {
    "readme": Table(
        "frontier", {"decoder": "{rule}"} | COST, f"setting == 'recorded run' and rule in {SHOWN}"
    ),
    "frontier": Table(
        "frontier",
        {"setting": "{setting}", "decoder": "{rule}"}
        | COST
        | {"errs": "{errs}", "top words changed": "{changed:.1%}", "regret": plain("regret", 4)}
        | {"steps": "{steps:.2f}", "time": plain("time"), "more faults": change("more_faults", 2)}
        | {"bits, judge": change("judge_bits_change")},
    ),
    "flops": Table(
        "flops",
        {"new tokens": "{gen_length}", "ε": "{epsilon}", "FLOPs": "{flops_ratio:.3f}x"}
        | {
            "as the paper counts": "{flops_ratio_padded:.3f}x",
            "active ratio": "{active_ratio:.3f}",
        },
        "gen_length != 128",  # the paper has no figures of this length
    ),
    "dynamics": Table(
        "dynamics",
        {"m": "{percentile:.0f} %"}
        | {f"at {share} %": f"{{at_{share}:.2f}}" for share in (25, 50, 75, 100)}
        | {"in all": "{mean:.2f}x", "rises": "{rises}"},
        "gen_length == 256 and epsilon == '5e-3'",
    ),
    "quality": Table(
        "quality",
        {
            "new tokens": "{gen_length}",
            "steps": "{steps}",
            "policy": "`{remasking}`",
            "ε": "{epsilon}",
        }
        | (OWN | JUDGED | KEPT),
        "gen_length > 32",
    ),
    "together": together,
    "runtime": Table(
        "runtime",
        {"new tokens": "{gen_length}", "batch": "{batch}", "ε": "{epsilon}"}
        | {"speed-up": "{tps_ratio:.2f}x ({tps_ratio_min:.2f} to {tps_ratio_max:.2f})"}
        | {"FLOPs": "{flops_ratio:.2f}x", "efficiency": "{efficiency:.2f}"}
        | {"first and last steps": "{step_ratio_first:.1f}x and {step_ratio_last:.1f}x"},
        "batch in [1, 4, 8]",
    ),
    "selection": Table(
        "selection",
        {"new tokens": "{gen_length}", "rule": "{method}", "speed-up": "{tps_ratio:.2f}x"}
        | {"FLOPs": "{flops_ratio:.2f}x"},
    ),
    "epsilon": Table(
        "epsilon",
        {"ε": "{epsilon}"}
        | OWN
        | JUDGED
        | {"where repeats stay": change("judge_bits_change_even")}
        | KEPT,
    ),
    "contraction": Table(
        "contraction",
        {"new tokens": "{gen_length}", "temperature": "{temperature:g}", "prompts": "{prompts}"}
        | {"mean KL, a step": "{rho_mean:.3f}x", "it rises in": "{mean_rises:.0%}"}
        | {"single positions rise in": "{rises:.0%}", "of them never rise": "{positions_ok:.1%}"},
    ),
    "bound": Table(
        "bound",
        {"new tokens": "{gen_length}", "ε": "{epsilon}", "steps": "{steps}", "holds": "{holds:.1%}"}
        | {
            "too loose": "{loose:.0e} times",
            "KL and error, rank correlation": "{rank_correlation:.2f}",
        },
    ),
    "unlock": Table(
        "unlock",
        {"ε": "{epsilon}", "probes every": "{unlock_period:.0f}"} | OWN | KEPT,
        "epsilon == '5e-3'",
    ),
    "taking-back": Table(
        "taking_back",
        {
            "steps": "{steps}",
            "policy": "`{policy}`",
            "less": "{less}",
            "rows": "{rows:.2f}",
            "faults": plain("faults"),
        }
        | {
            "repeats": plain("repeats", 3),
            "bits, own bound": plain("bits", 3),
            "bits, judge": plain("judge_bits", 3),
        },
    ),
    "parallel": Table(
        "parallel",
        {
            "way": "{way}",
            "together, by the posterior": "{together_chance:.1%}",
            "of all runs": "{together:.1%}",
        }
        | {
            "the same name, by the posterior": "{same_chance:.1%} ({same_error:.1%})",
            "in the runs": "{same:.1%}",
        },
    ),
    "fill": Table(
        "fill",
        {"blank": "{blank}"}
        | {
            f"{head}, {side}": plain(f"{left}{name}")
            for head, name in (("filled", "filled"), ("tokens", "tokens"))
            for side, left in (("both sides", ""), ("left alone", "left_"))
        }
        | {
            "bits, both sides": plain("bits"),
            "left alone": plain("left_bits"),
            "gain": plain("gain"),
        },
    ),
    "sampler": Table(
        "sampler",
        {
            "changed": "{changed}",
            "rows": "{rows:.2f}",
            "strangers": plain("strangers"),
            "repeated": plain("repeated"),
        }
        | {"bits, own bound": plain("bits", 3), "bits, judge": plain("judge_bits", 3)},
    ),
    "speeds": speeds,
    "laptop": laptop,
    "browser": browser,
    "gpu-times": lambda: by_heading(prediction.times()),
    "gpu-runs": lambda: by_heading(prediction.runs()),
}


def filled(text: str) -> str:
    """Return a document with its tables written again. Raises ValueError for an unknown name of a table."""

    def place(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise ValueError(f"there is no table {match[2]!r}: there are {', '.join(TABLES)}")
        try:
            table = TABLES[match[2]]()
        except FileNotFoundError:
            table = "Not measured yet."
        return f"{match[1]}{table}\n{match[3]}"

    return PLACE.sub(place, text)


def main(files: Sequence[str]) -> None:
    """Write the tables of files. If a file cannot be written, end the process with a sentence."""
    if not files:
        sys.exit("tables: name the documents to write, such as docs/results.md")
    try:
        for file in map(Path, files):
            file.write_text(filled(file.read_text("utf-8")), "utf-8")
    except (ValueError, OSError) as error:
        sys.exit(f"tables: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
