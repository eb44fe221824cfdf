"""The shape of a network: everything the forward pass and the FLOPs formulas need to know."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 2**24  # of any size: beyond it a configuration is damaged


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """A bidirectional pre-norm Transformer, as LLaDA-8B and Qwen3-like diffusion models are.

    vocab_size is the width of the logits (the embedding's height), head_size the width of one attention head
    (n_heads * head_size need not equal d_model), max_length the number of positions the model was made for. shifted:
    what stands at a position is predicted by the one before it, as in Dream (the first position predicts itself, too).
    """

    vocab_size: int
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    d_ff: int
    max_length: int
    rope_theta: float
    norm_eps: float
    tied: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    shifted: bool = False

    def __post_init__(self) -> None:
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_size", "d_ff", "max_length"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
                raise ValueError(f"{name} must be a whole number from 1 to {MOST}, not {value!r:.40}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads ({self.n_kv_heads}) must divide n_heads ({self.n_heads})")
        if self.head_size % 2:
            raise ValueError(f"head_size must be even for rotary embeddings, not {self.head_size}")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a run must know of a model: its network's shape, and the ids of special tokens.

    mask_id, pad_id: always there. eos_id, eot_id (end of turn): None where the model has none.
    """

    network: NetworkConfig
    mask_id: int
    pad_id: int
    eos_id: int | None = None
    eot_id: int | None = None


#: The published shape of LLaDA-8B (Base, Instruct, 1.5): for FLOPs and for benchmarks with random weights.
LLADA_8B = NetworkConfig(
    vocab_size=126464,
    d_model=4096,
    n_layers=32,
    n_heads=32,
    n_kv_heads=32,
    head_size=128,
    d_ff=12288,
    max_length=4096,
    rope_theta=500000.0,
    norm_eps=1e-5,
    tied=False,
)

#: That of Qwen3-0.6B and its diffusion models.
QWEN3_0_6B = NetworkConfig(
    vocab_size=151936,
    d_model=1024,
    n_layers=28,
    n_heads=16,
    n_kv_heads=8,
    head_size=128,
    d_ff=3072,
    max_length=40960,
    rope_theta=1e6,
    norm_eps=1e-6,
    tied=True,
    qk_norm=True,
)
