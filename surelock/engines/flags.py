"""The command-line flags of the model, of its engine, and of the format of its weights."""

import argparse

from surelock.engines import ENGINES

DTYPES = ("float64", "float32", "bfloat16", "float16")


def add_model_flags(parser: argparse.ArgumentParser, engine: str = "auto") -> None:
    """Add --model, --tokenizer, --device, --dtype and --engine. engine: the default of --engine."""
    parser.add_argument(
        "--model",
        default="stories",
        help="'stories', a hub id or a directory (default: %(default)s)",
    )
    parser.add_argument(
        "--tokenizer", help="a hub id or a directory (default: the model's, else its family's)"
    )
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ... (default: CUDA if there is one)")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="(default: the checkpoint's on CUDA, else float32)"
    )
    add_engine_flag(parser, engine)


def add_engine_flag(parser: argparse.ArgumentParser, engine: str = "auto") -> argparse.Action:
    """Add --engine. engine: its default."""
    about = "what computes: onnx (float32 on one CPU), torch, or auto: onnx where it can (default: %(default)s)"
    return parser.add_argument("--engine", choices=ENGINES, default=engine, help=about)


def add_weights_flag(parser: argparse.ArgumentParser) -> argparse.Action:
    """Add --weights."""
    about = "int8 keeps the layers' weights in int8, at half the memory of bfloat16 (needs torchao; default: do not)"
    return parser.add_argument("--weights", choices=("int8",), help=about)
