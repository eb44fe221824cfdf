"""`python -m surelock.harness run --model surelock ...` is lm-eval's command line with the model `surelock`.

Releases of lm-eval after 0.4.13 need no such command: they read the entry point `lm_eval.models` of an installed
package.
"""

import sys
from importlib.util import find_spec


def main() -> None:
    """Register the model `surelock`, and run lm-eval's command line."""
    if find_spec("lm_eval") is None:
        sys.exit("surelock.harness needs the package lm-eval (pip install lm-eval)")
    from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]

    import surelock.harness.model  # noqa: F401

    cli_evaluate()


if __name__ == "__main__":
    main()
