"""Ask a served page until the input ends, then print the longest time of an answer: apart, to measure it alone."""

import sys
import threading
import time

import httpx

longest = 0.0
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.1):
    begun = time.monotonic()
    httpx.get(sys.argv[1], timeout=30)
    longest = max(longest, time.monotonic() - begun)
print(round(longest, 3))
