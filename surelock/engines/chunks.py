"""Sizes of the parts in which the rows of a step are read: a table [rows, V] may take more memory than the network."""

_LEAST_READ = 4  # rows whose posteriors are read at once, however large the vocabulary
_LEAST_ROWS = 32  # whose logits are made at once: each time reads the whole head


def chunk_rows(table_bytes: int, row_bytes: int) -> tuple[int, int]:
    """Return for how many rows at once logits are made, and for how many of these posteriors are read.

    table_bytes: the size that one table of posteriors may have. About ten such tables are used.
    row_bytes: the size of one row of it.
    """
    few = table_bytes // row_bytes
    return max(_LEAST_ROWS, few), max(_LEAST_READ, few)


def even(count: int, most: int) -> list[slice]:
    """Divide `count` rows into parts of at most `most` and of about one size: a few rows alone are dear."""
    parts = -(-count // most)
    return [slice(count * part // parts, count * (part + 1) // parts) for part in range(parts)]
