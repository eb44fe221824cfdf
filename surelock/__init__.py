"""SureLock: masked diffusion decoding that stops computing tokens once their posterior has converged.

The public names are declared in `__init__.pyi`. A name is imported at its first use, since torch and pandas import
slowly.
"""

from surelock.current_folder import leave_current_folder, runs_as_module

if runs_as_module(__name__):  # before any import of a module that the current folder might contain
    leave_current_folder()

import lazy_loader

__version__ = "5.0.0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
