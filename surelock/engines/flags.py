"""The command-line flag of the engine."""

import argparse

from surelock.engines import ENGINES


def add_engine_flag(parser: argparse.ArgumentParser, engine: str = "auto") -> None:
    """Add --engine. engine: its default."""
    about = "what computes: onnx (float32 on one CPU), torch, or auto: onnx where it can (default: %(default)s)"
    parser.add_argument("--engine", choices=ENGINES, default=engine, help=about)
