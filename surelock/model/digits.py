"""Eight digits of a model's weights, by which two pages tell whether they have the same."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

SAMPLES = 64  # per file: to read all of a large one takes a minute
SAMPLE_BYTES = 4096


def digits_of_weights(files: Iterable[Path]) -> str:
    """Return eight hexadecimal digits of the SHA-256 of the files: their sizes, and evenly spaced samples of them.

    files: in the order of their names. assets/js/decode/digits.js computes the same.
    """
    digest = sha256()
    for file in sorted(files, key=lambda path: path.name):
        size = file.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        room = max(0, size - SAMPLE_BYTES)
        with file.open("rb") as stream:
            for number in range(SAMPLES):
                stream.seek(room * number // (SAMPLES - 1))
                digest.update(stream.read(SAMPLE_BYTES))
    return digest.hexdigest()[:8]
