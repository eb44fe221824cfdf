"""Serve the page: ``python app.py [--model ID_OR_PATH ...] [--device-map auto] [--host H] [--port P] [--share]
[--max-length N] [--queue-size N] [--keep-mb N] [--run-seconds N] [--allow-host NAME ...]``.
"""

import signal
from importlib.util import find_spec

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it quietly while the page is still being built, too

if find_spec("spaces"):  # a ZeroGPU Space: it must come before CUDA starts
    import spaces  # noqa: F401  # pyright: ignore

from surelock.ui.launch import main  # noqa: E402

if __name__ == "__main__":
    main()
