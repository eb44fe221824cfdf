"""The command-line flags of the engine and of what it keeps the weights in."""

import argparse

from surelock.engines import ENGINES


def add_engine_flag(parser: argparse.ArgumentParser, engine: str = "auto") -> argparse.Action:
    about = "what computes: onnx (float32 on one CPU), torch, or auto: onnx where it can (default: %(default)s)"
    return parser.add_argument("--engine", choices=ENGINES, default=engine, help=about)


def add_weights_flag(parser: argparse.ArgumentParser) -> argparse.Action:
    about = "int8 keeps the layers' weights in int8, at half the memory of bfloat16 (needs torchao; default: do not)"
    return parser.add_argument("--weights", choices=("int8",), help=about)
