"""/decode as scripts use it: through gradio_client, and by POST alone."""

from __future__ import annotations

import json

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from tests.browser.server import App


def test_decode_streams_to_a_client(app: App) -> None:
    client = Client(app.url, verbose=False)
    job = client.submit(prompt="The dog ran", gen_length=10, epsilon=0.01, api_name="/decode")
    steps = list(job)
    assert [step.get("step") for step in steps[:10]] == list(range(10))
    assert steps[-1]["done"] and len(steps[-1]["texts"]) == 1 and 0 < steps[-1]["flops_ratio"] <= 1
    with pytest.raises(AppError, match="steps"):
        client.predict(prompt="The dog ran", gen_length=8, steps=9, api_name="/decode")


def test_decode_streams_by_post(app: App) -> None:
    started = httpx.post(f"{app.url}/gradio_api/call/v2/decode", json={"prompt": "The cat sat", "gen_length": 6}).json()
    with httpx.stream("GET", f"{app.url}/gradio_api/call/v2/decode/{started['event_id']}", timeout=60) as stream:
        lines = [line[6:] for line in stream.iter_lines() if line.startswith("data: ")]
    answers = [json.loads(line) for line in lines if line != "null"]
    assert len(answers) == 6 + 2 and answers[-1][0]["done"]


def test_nothing_else_is_public(app: App) -> None:
    info = httpx.get(f"{app.url}/gradio_api/info").json()
    assert list(info["named_endpoints"]) == ["/decode"] and not info["unnamed_endpoints"]
    page = httpx.get(app.url).text + httpx.get(f"{app.url}/config").text
    assert "/assets/stories" not in page and "site-packages" not in page
