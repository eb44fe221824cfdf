"""Eight digits that identify a model's weights. Two pages compare them to know whether they have the same weights."""

from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

SAMPLES = 64  # per file, since reading a whole large file takes a minute
SAMPLE_BYTES = 4096


def digits_of_weights(files: Iterable[Path]) -> str:
    """Return the first eight hexadecimal digits of a SHA-256 over the files' sizes and evenly spaced samples of them.

    Files are taken in the order of their names. assets/js/decode/digits.js computes the same digits.
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
