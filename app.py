"""Serve the page: ``python app.py [--model ID_OR_PATH ...] [--device-map auto] [--host H] [--port P] [--share]
[--max-length N] [--queue-size N]``.
"""

from importlib.util import find_spec

if find_spec("spaces"):  # a ZeroGPU Space: it must come before CUDA starts
    import spaces  # noqa: F401  # pyright: ignore

from surelock.ui.launch import main

if __name__ == "__main__":
    main()
