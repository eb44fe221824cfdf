"""Keep Python from importing modules from the current folder.

The current folder may be a checkpoint's, with a harmful transformers.py beside the weights. This module imports only
modules that Python has already imported, so that the folder cannot replace them.
"""

import os
import sys

_HOME = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))


def runs_as_module(package: str) -> bool:
    """Return whether `python -m PACKAGE` or `python -m PACKAGE.MODULE` is being started.

    While Python looks for the module, `sys.argv[0]` is "-m".
    """
    if sys.argv[:1] != ["-m"]:
        return False
    module = sys.orig_argv[-len(sys.argv)]
    return module.removeprefix("-m").split(".")[0] == package


def leave_current_folder() -> None:
    """Remove the current folder from the module path.

    `python -m` and an empty part of PYTHONPATH add it. It stays if it contains this package, as in a clone, and if
    PYTHONPATH names it.
    """
    named = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    kept = {_HOME, *map(os.path.realpath, named)}
    left_out = _current_folder() - kept
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in left_out]


def module_path(*left_out: str) -> list[str]:
    """Return the module path for a child process: absolute paths, without the current folder.

    left_out: further folders that are left out.

    The folder of this package comes first, even if it is among the folders to leave out.
    """
    refused = {*_current_folder(), *map(os.path.realpath, left_out), _HOME}
    kept = [os.path.abspath(entry) for entry in sys.path if os.path.realpath(entry) not in refused]
    return [_HOME, *kept]


def _current_folder() -> set[str]:
    """Return the current folder in a set, or an empty set if it was deleted."""
    try:
        return {os.path.realpath(os.getcwd())}
    except OSError:
        return set()
