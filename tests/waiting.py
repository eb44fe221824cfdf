"""How long tests wait for what comes, and how fast this machine is."""

import subprocess
import sys
from functools import cache

#: Seconds that only what hangs takes, on any machine: a fault, and no measure of how fast anything is.
HANGS = 300.0
_READING = """
from transformers import PreTrainedTokenizerFast
import surelock.loading, torch, time
print(time.process_time())
"""


@cache
def import_seconds() -> float:
    """The processor time in which a process imports what reads a checkpoint: limits of tests are multiples of it."""
    done = subprocess.run(
        [sys.executable, "-c", _READING], capture_output=True, text=True, check=True, timeout=HANGS
    )
    return float(done.stdout)
