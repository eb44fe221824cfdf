"""Serve the page: ``python app.py``. ``--help`` lists the flags."""

import signal
from importlib.util import find_spec

from surelock.arguments import Parser, start

try:
    start("network", "page")  # before Gradio reads the environment
except ValueError as error:
    Parser(prog="app.py").error(str(error))
signal.signal(
    signal.SIGINT, signal.SIG_DFL
)  # Ctrl-C ends it quietly while the page is still being built, too

if find_spec("spaces"):  # a ZeroGPU Space: it must come before CUDA starts
    import spaces  # noqa: F401  # pyright: ignore

from surelock.ui.launch import main  # noqa: E402

if __name__ == "__main__":
    main()
