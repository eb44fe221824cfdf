"""Ask a served page until the input ends, then print the longest time of an answer: apart, to measure it alone.

A client is made once, since reading the system's certificates takes it longer than many an answer; every answer has a
connection of its own, as another visitor's.
"""

import sys
import threading
import time

import httpx

longest = 0.0
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
with httpx.Client(timeout=30, headers={"Connection": "close"}) as client:
    while not over.wait(0.1):
        begun = time.monotonic()
        client.get(sys.argv[1])
        longest = max(longest, time.monotonic() - begun)
print(round(longest, 3))
