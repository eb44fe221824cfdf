"""One network for every checkpoint family: a pre-norm Transformer with two forward passes.

`Network.forward` is the dense forward pass. `PackedForward` (in `surelock.engines.torch`) computes only some rows. They
attend to the cached keys and values of all positions: lines 9 to 15 of Algorithm 1. Comments here name these lines.
Both passes run the same layers. They differ in the function `attend`.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from surelock.config import NetworkConfig

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
Rotary = tuple[Tensor, Tensor]
Pick = Callable[[Tensor], Tensor]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [..., heads, head_size] with rotary embeddings, applied in halves as in LLaDA and Qwen.

    cos, sin: see `rotary_table`.
    """
    rotated = torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, -1), sin)
    return rotated if rotated.dtype == x.dtype else rotated.to(x.dtype)


def gated(gate_up: Tensor) -> Tensor:
    """Return SiLU(gate) * up, [..., d_ff]. gate_up: gate and up side by side, [..., 2 d_ff]; may be overwritten."""
    gate, up = gate_up.chunk(2, dim=-1)
    gate = F.silu(gate)
    return gate * up if gate.requires_grad else gate.mul_(up)


class Elementwise(NamedTuple):
    """The elementwise functions of a layer: `PLAIN`, or compiled functions (`surelock.engines.fused`)."""

    rotate: Callable[[Tensor, Tensor, Tensor], Tensor]
    gated: Callable[[Tensor], Tensor]


PLAIN = Elementwise(rotate, gated)


def norm_of(config: NetworkConfig) -> nn.Module:
    """Return a norm of hidden states, computed in float32 (float64 in a float64 network)."""
    kind = nn.LayerNorm if config.layer_norm else nn.RMSNorm
    return kind(config.d_model, eps=config.norm_eps)


class Block(nn.Module):
    """A layer: x + attention(norm(x)), then x + SwiGLU(norm(x)). `NetworkConfig` has other forms of both.

    One matrix product computes queries, keys and values, and one computes gate and up. In a layer that is a
    convolution, one matrix product computes B, C and X, as one head of width d_model. C is used like queries, and B * X
    like keys.
    """

    def __init__(self, config: NetworkConfig, layer: int) -> None:
        super().__init__()
        self.heads = (config.n_heads, config.n_kv_heads, config.n_kv_heads)
        d = config.d_model
        conv = layer in config.conv_layers
        gelu = config.gelu
        self.attn_norm = norm_of(config)
        if conv:
            self.conv_in = nn.Linear(d, 3 * d, bias=False)
            self.conv_out = nn.Linear(d, d, bias=False)
        else:
            self.qkv = nn.Linear(d, sum(self.heads) * config.head_size, bias=config.qkv_bias)
            self.attn_out = nn.Linear(config.n_heads * config.head_size, d, bias=False)
        self.conv = nn.Conv1d(d, d, 3, padding=1, groups=d, bias=False) if conv else None
        normed = config.qk_norm and not conv
        self.q_norm = nn.RMSNorm(config.head_size, config.norm_eps) if normed else None
        self.k_norm = nn.RMSNorm(config.head_size, config.norm_eps) if normed else None
        self.ff_norm = norm_of(config)
        self.gate_up = nn.Linear(d, config.d_ff if gelu else 2 * config.d_ff, bias=gelu)
        self.ff_out = nn.Linear(config.d_ff, d, bias=gelu)

    def forward(
        self,
        x: Tensor,
        rotary: Rotary,
        attend: Attend,
        only: Pick | None = None,
        elementwise: Elementwise = PLAIN,
    ) -> Tensor:
        """Return the output of the layer for rows x [..., d_model].

        rotary: cosines and sines of the rows' positions.
        attend: a function from queries, keys and values to the attended values, in the shape of the queries.
        only: a function that picks rows. The output has only the picked rows. For all other rows the layer computes
        only keys and values.
        """
        if self.conv is None:
            # line 10: Q, K, V of the active rows
            q, k, v = self._project(self.attn_norm(x), rotary, elementwise)
            out = self.attn_out
        else:
            b, q, inner = self.conv_in(self.attn_norm(x)).unsqueeze(-2).chunk(3, dim=-1)
            k = b * inner
            v = self.conv.weight
            out = self.conv_out
        if only is not None:
            x = only(x)
            q = only(q)
        # Line 11: `attend` writes K and V of the rows into the cache, which has K and V of every position. Line 24
        # needs no code: K and V of a row that locks stay in the cache.
        # line 12: attention, then the feed-forward
        x = add_product(x, out, attend(q, k, v).flatten(-2))
        h = self.gate_up(self.ff_norm(x))
        is_gelu = self.gate_up.bias is not None
        h = F.gelu(h, approximate="tanh") if is_gelu else elementwise.gated(h)
        return add_product(x, self.ff_out, h)

    def _project(
        self, h: Tensor, rotary: Rotary, elementwise: Elementwise
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys (both after rotary embedding) and values: [..., heads, head_size]."""
        n_heads, n_kv_heads, _ = self.heads
        heads = self.qkv(h).unflatten(-1, (sum(self.heads), -1))
        both, v = heads.split((n_heads + n_kv_heads, n_kv_heads), dim=-2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = both.split((n_heads, n_kv_heads), dim=-2)
            both = torch.cat((self.q_norm(q), self.k_norm(k)), dim=-2)
        q, k = elementwise.rotate(both, *rotary).split((n_heads, n_kv_heads), dim=-2)
        return q, k, v


def add_product(x: Tensor, linear: nn.Linear, h: Tensor) -> Tensor:
    """Return x + linear(h). For packed rows [R, d] on a GPU the matrix product adds to x in place."""
    is_int8 = type(linear.weight) is not nn.Parameter  # weights in int8 have another class
    if not is_int8 and x.dim() == 2 and not x.is_cpu:
        x = x.addmm_(h, linear.weight.T)
        return x if linear.bias is None else x.add_(linear.bias)
    return x + linear(h)


class Network(nn.Module):
    """The Transformer of a `NetworkConfig`.

    Layers may be on different devices (`device_map`). The hidden states move to the device of the next layer.
    """

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        values = torch.empty(config.vocab_size, config.d_model)
        # Random values on the meta device would make torch import its compiler, which takes 70 MB.
        values = values if values.is_meta else None
        self.embed = nn.Embedding(config.vocab_size, config.d_model, _weight=values)
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.norm = norm_of(config)
        self.head = None
        if not config.tied:
            self.head = nn.Linear(config.d_model, config.vocab_size, bias=config.head_bias)

    @property
    def head_weight(self) -> Tensor:
        """The weights of the head, [vocab_size, d_model]. Their device is the device of the logits."""
        return self.embed.weight if self.head is None else self.head.weight

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the embedding, in which the network computes."""
        return self.embed.weight.dtype

    def forward(self, tokens: Tensor) -> Tensor:
        """Run the dense forward pass. tokens: [B, N] int64, without pads. Returns logits [B, N, vocab_size]."""
        return self.logits(self.hidden(tokens))

    def hidden(self, tokens: Tensor) -> Tensor:
        """Run the dense forward pass up to the head. tokens: [B, N] int64. Returns hidden states [B, N, d_model].

        They are the states after the last norm. In a shifted network, a position has the state of the position before.
        """
        x = self._dense(tokens)
        return torch.cat((x[:, :1], x[:, :-1]), dim=1) if self.config.shifted else x

    def attention(self, tokens: Tensor, position: int) -> Tensor:
        """Return the attention of the row that predicts `position`, [N] float32.

        It is the mean over heads and over layers with attention, and sums to 1. tokens: [1, N] int64.
        """
        row = max(0, position - self.config.shifted)
        groups = self.config.n_heads // self.config.n_kv_heads
        weights: list[Tensor] = []

        def look(q: Tensor, k: Tensor, mask: Tensor | None) -> None:
            keys = k[0].repeat_interleave(groups, 0)
            scores = (q[0, :, row, None] @ keys.mT).squeeze(1).float() / self.config.head_size**0.5
            scores = scores if mask is None else scores.masked_fill(~mask[row], -torch.inf)
            weights.append(scores.softmax(-1).mean(0).cpu())

        self._dense(tokens, look)
        return torch.stack(weights).mean(0)

    def _dense(
        self, tokens: Tensor, look: Callable[[Tensor, Tensor, Tensor | None], None] | None = None
    ) -> Tensor:
        """Run all layers for all rows.

        look: a function that is called with queries, keys and mask of every layer with attention.
        """
        gqa = self.config.n_heads != self.config.n_kv_heads
        length = tokens.shape[1]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            mask = sight(self.config, torch.arange(length, device=q.device), length)
            if look is not None:
                look(q, k, mask)
            return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=gqa).transpose(1, 2)

        def rotary(device: torch.device) -> Rotary:
            return rotary_table(self.config, length, self.dtype, device)

        def attend_in(layer: int) -> Attend:
            return convolve if layer in self.config.conv_layers else attend

        return self.run(tokens, rotary, attend_in)

    def logits(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        """Return the head's logits [..., vocab_size] for hidden states x [..., d_model].

        out: a tensor [K, vocab_size] for the result, for x [K, d_model].

        Line 15: the posteriors are the softmax of the logits, at temperature 1.
        """
        x = x.to(self.head_weight.device)
        bias = None if self.head is None else self.head.bias
        if out is None:
            return F.linear(x, self.head_weight, bias)
        weight = self.head_weight.T
        if bias is None:
            return torch.mm(x, weight, out=out)
        return torch.addmm(bias, x, weight, out=out)

    def run(
        self,
        tokens: Tensor,
        rotary: Callable[[torch.device], Rotary],
        attend: Callable[[int], Attend],
        only: Pick | None = None,
        elementwise: Elementwise = PLAIN,
    ) -> Tensor:
        """Run all layers. tokens: [...] int64. Returns hidden states [..., d_model] after the last norm.

        rotary: a function from a device to the cosines and sines of the rows' positions.
        attend: a function from the number of a layer to its `attend`, see `Block.forward`.
        only: a function that picks rows in the last layer; None: all rows.
        """
        x = self.embed(tokens.to(self.embed.weight.device))
        factors = None
        device = None
        last = len(self.blocks) - 1
        # Line 9, for every layer. Line 13 needs no code, because locked rows are not among the rows.
        for number, block in enumerate(cast("Iterable[Block]", self.blocks)):
            block_device = block.ff_out.weight.device
            if factors is None or block_device != device:
                x = x.to(block_device)
                factors = rotary(block_device)
                device = block_device
            picked = only if number == last else None
            x = block(x, factors, attend(number), picked, elementwise)
        return self.norm(x.to(self.norm.weight.device))


def convolve(c: Tensor, kept: Tensor, weight: Tensor) -> Tensor:
    """Return c times the centred convolution of `kept`. All three are [B, N, 1, d_model]; weight: [d_model, 1, 3].

    c is C, and kept is B * X, see `Block`.
    """
    mixed = F.conv1d(kept.squeeze(-2).mT, weight, padding=1, groups=len(weight)).mT
    return c * mixed.unsqueeze(-2)


def empty_network(config: NetworkConfig) -> Network:
    """Return a network on the meta device, whose parameters have shapes but no values."""
    with torch.device("meta"):
        return Network(config)


def sight(config: NetworkConfig, positions: Tensor, length: int) -> Tensor | None:
    """Return the mask of rows at `positions` [R]: which of the first `length` positions a row sees.

    It is [R, length] bool, or None if rows see all positions.
    """
    if config.block_size is None:
        return None
    seen = (positions // config.block_size + 1) * config.block_size
    return torch.arange(length, device=positions.device) < seen[:, None]


@lru_cache(maxsize=16)
def rotary_table(
    config: NetworkConfig, length: int, dtype: torch.dtype, device: torch.device
) -> Rotary:
    """Return cosines and signed sines of `length` positions, [length, 1, head_size] each, in float32 or float64."""
    wide = torch.promote_types(dtype, torch.float32)
    with torch.inference_mode(False):
        exponents = (
            torch.arange(0, config.head_size, 2, device=device, dtype=wide) / config.head_size
        )
        positions = torch.arange(length, device=device, dtype=wide)
        angles = positions[:, None, None] * config.rope_theta**-exponents
        cos = angles.cos()
        sin = angles.sin()
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
