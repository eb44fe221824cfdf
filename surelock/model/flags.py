"""The command-line flags of the model: its name, device, dtype and threads."""

import argparse

import torch

DTYPES = ("float64", "float32", "bfloat16", "float16")
MOST_THREADS = 1024


def set_threads(threads: int | None) -> None:
    """Set the threads of torch, unless None. Raises ValueError for a number at which torch might end the process."""
    if threads is not None:
        if not 0 < threads <= MOST_THREADS:
            raise ValueError(f"threads: must be from 1 to {MOST_THREADS}, not {threads}")
        torch.set_num_threads(threads)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="stories", help="'stories', a hub id or a directory (default: %(default)s)")
    parser.add_argument("--tokenizer", help="a hub id or a directory (default: the model's, else its family's)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 ... (default: CUDA if there is one)")
    parser.add_argument("--dtype", choices=DTYPES, help="(default: the checkpoint's on CUDA, else float32)")
