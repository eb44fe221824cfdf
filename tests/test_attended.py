"""What a choice looked at, as the inspector asks for it."""

import json
from typing import Any

import pytest
import torch

from surelock.ui import attended
from surelock.ui.attended import most_attended
from surelock.ui.models import EMBEDDED, Models


def test_the_largest_shares_of_the_networks_own_attention(models: Models) -> None:
    lm = models.get(EMBEDDED)
    tokens = [*lm.encode("Tom had a small red boat. One day he"), -1, -1, 17, -1]
    position = len(tokens) - 3
    found = most_attended(models, {"model": EMBEDDED, "tokens": tokens, "position": position}, 512)
    assert found is not None and len(found) == attended.MOST
    ids = [lm.mask_id if token < 0 else token for token in tokens]
    shares = lm.network.attention(torch.tensor([ids]), position)
    places = [int(at) for at, _ in found]
    assert [share for _, share in found] == pytest.approx(
        [float(shares[at]) for at in places], abs=6e-5
    )
    others = [
        at for at in range(len(tokens)) if at not in places and at != position and tokens[at] >= 0
    ]
    assert all(tokens[at] >= 0 and at != position for at in places)
    assert max(float(shares[at]) for at in others) <= found[-1][1] + 1e-4


#: Changes that make no request.
WRONG = """[{"model": "other"}, {"model": null}, {"tokens": []}, {"tokens": "MANY"}, {"tokens": [1, 1000000000]},
    {"tokens": [1, true]}, {"tokens": "12"}, {"tokens": null}, {"position": 2}, {"position": -1}, {"position": null}]"""


def test_what_is_no_request_gets_nothing(models: Models) -> None:
    right: dict[str, Any] = {"model": "stories", "tokens": [1, 2], "position": 0}
    assert most_attended(models, right, 16) is not None
    for wrong in json.loads(WRONG.replace('"MANY"', str([1] * 20))):
        assert most_attended(models, right | wrong, 16) is None, wrong


def test_a_large_model_is_not_asked_beside_the_queue(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attended, "SMALL", 1000)
    assert (
        most_attended(models, {"model": "stories", "tokens": [1, 2, 3], "position": 0}, 16) is None
    )
