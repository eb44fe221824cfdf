"""Numbers of rows for which an optimised form of a step is faster than the plain form, kernels launched one by one.

The forms were measured on an H100 and an H200, see docs/gpu.md. A form is used only in the range of rows in which it
was faster.
"""

import math

#: By form, the smallest and the largest number of rows for which it is faster.
FASTER: dict[str, tuple[float, float]] = {
    "graph": (0, 512),  # 512 rows: 15.9 ms, plain 16.7 (H200); 667: 26.3, plain 24.9 (H100)
    "graph of compiled layers": (0, 704),  # 667 rows, padded to 704: 22.2 ms, plain 24.9 (H100)
    # 64 rows: 8.4 ms, plain 9.5 (H100); 4,096: 92.2, plain 113.9 (H200)
    "compiled layers": (64, math.inf),
    # 2,058 rows: 55.1 ms, plain 70.3; 1,049: 43.3, plain 36.8 (H200)
    "compiled reading": (2058, math.inf),
}


def is_faster(form: str, rows: int) -> bool:
    """Return whether a form is faster than the plain form.

    form: a key of FASTER. rows: number of computed rows; for "compiled reading", number of rows whose posteriors are
    read.
    """
    fewest, most = FASTER[form]
    return fewest <= rows <= most
