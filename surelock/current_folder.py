"""The current folder is no place of modules: it may be a checkpoint's, with a transformers.py beside the weights.

Nothing is imported here that the folder could hold: both modules are built into Python.
"""

import os
import sys

_HOME = os.path.realpath(os.path.join(os.path.dirname(__file__), os.pardir))


def runs_as_module(package: str) -> bool:
    """Return whether `python -m PACKAGE` or `python -m PACKAGE.MODULE` is being started.

    While Python looks for the module, the first of `sys.argv` is "-m".
    """
    if sys.argv[:1] != ["-m"]:
        return False
    module = sys.orig_argv[-len(sys.argv)]
    return module.removeprefix("-m").split(".")[0] == package


def leave_current_folder() -> None:
    """Remove the current folder from the module path.

    `python -m` puts it there, and so does an empty part of PYTHONPATH. It stays where this package lies in it, as in a
    clone, and where PYTHONPATH names it.
    """
    named = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    kept = {_HOME, *map(os.path.realpath, named)}
    left_out = _current_folder() - kept
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry) not in left_out]


def module_path(*left_out: str) -> list[str]:
    """Return the module path of a child process: that of this one, absolute, without the current folder.

    left_out: further folders that are left out.

    The folder of this package comes first, whatever it is.
    """
    refused = {*_current_folder(), *map(os.path.realpath, left_out), _HOME}
    return [
        _HOME,
        *(os.path.abspath(entry) for entry in sys.path if os.path.realpath(entry) not in refused),
    ]


def _current_folder() -> set[str]:
    """The current folder, which an empty entry of a path is, too; nothing if it was deleted."""
    try:
        return {os.path.realpath(os.getcwd())}
    except OSError:
        return set()
