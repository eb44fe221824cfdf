"""The folder of the assets, which is inside an installed package and next to the package in a clone."""

from os.path import abspath
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
ASSETS = _PACKAGE / "assets" if (_PACKAGE / "assets").is_dir() else _PACKAGE.parent / "assets"


def is_hub_id(model: str) -> bool:
    """Return whether a model's name has the form of a hub id, "owner/model"."""
    return model.count("/") == 1 and not model.startswith((".", "/", "~"))


def label_of(model: str) -> str:
    """Return the public name of a model: its name, or the last part of its directory's path."""
    return Path(abspath(model)).name if Path(model).is_dir() else model
