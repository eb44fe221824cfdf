"""`python -m surelock.harness run --model surelock ...`: the command line of lm-eval with the model `surelock`.

Releases of lm-eval after 0.4.13 find the model of an installed package by its entry point `lm_eval.models`.
"""

import sys
from importlib.util import find_spec


def main() -> None:
    if find_spec("lm_eval") is None:
        sys.exit("surelock.harness needs the package lm-eval (pip install lm-eval)")
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    import surelock.harness.model  # noqa: F401

    cli_evaluate()


if __name__ == "__main__":
    main()
