"""``python -m tests.soak.asker URL``: ask a served page until the input ends, then print the longest time of an answer.
It is a process of its own, so that it measures the server alone.
"""

import sys
import threading
import time

import httpx

longest, over = 0.0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
while not over.wait(0.1):
    for path in ("", "gradio_api/app_id"):
        begun = time.monotonic()
        httpx.get(f"{sys.argv[1]}/{path}", timeout=30)
        longest = max(longest, time.monotonic() - begun)
print(round(longest, 3))
