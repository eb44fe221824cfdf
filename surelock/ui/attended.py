"""Which positions a position attends to most, by one dense forward pass of a small model outside the queue."""

from surelock.ui.models import Models, NotReady
from surelock.values import Fields

#: The most parameters of the model: a larger model would delay the runs in the queue.
SMALL = 50_000_000
MOST = 6  # the most positions that are returned


def most_attended(models: Models, fields: Fields, longest: int) -> list[list[float]] | None:
    """Return [[position, share], ...]: the positions that one position attends to most, by falling share (0 to 1).

    fields: `model`, the label of a model; `tokens`, the token ids of the text, -1 for a masked position; `position`,
        the index of the position that attends.
    longest: the most tokens.

    The position itself and masked positions are left out. Returns None if the model is not loaded or too large, and if
    the fields cannot be read.
    """
    tokens = fields.get("tokens")
    position = fields.get("position")
    if not isinstance(tokens, list) or not 0 < len(tokens) <= longest:
        return None
    try:
        lm = models.get(fields.get("model", ""))
    except NotReady:
        return None
    vocabulary = lm.config.vocab_size
    if any(type(token) is not int or not -1 <= token < vocabulary for token in tokens):
        return None
    if type(position) is not int or not 0 <= position < len(tokens):
        return None
    if sum(weight.numel() for weight in lm.network.parameters()) > SMALL:
        return None
    import torch  # the loaded model has imported torch already

    ids = [lm.mask_id if token < 0 else token for token in tokens]
    with torch.inference_mode():
        shares = lm.network.attention(torch.tensor([ids], device=lm.device), position)
    order = [
        at for at in shares.argsort(descending=True).tolist() if at != position and tokens[at] >= 0
    ]
    return [[at, round(float(shares[at]), 4)] for at in order[:MOST]]
