"""`python -m surelock.harness run --model surelock ...`: lm-eval's own command line, which knows our model.

lm-eval finds the model of an installed package by itself (entry point `lm_eval.models`) in releases after 0.4.13.
"""

from __future__ import annotations

import lm_eval.models  # pyright: ignore[reportMissingImports]  # its own models, which a first one of ours would hide
from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

import surelock.harness.model

__all__ = ["lm_eval", "surelock"]  # imported for what they register

if __name__ == "__main__":
    cli_evaluate()
