"""The shape of a network, for the forward pass and the FLOPs formulas."""

from surelock.values import frozen

MOST = 2**24  # a larger size is treated as damage


@frozen
class NetworkConfig:
    """The shape of a pre-norm Transformer with bidirectional or block-causal attention, such as LLaDA-8B.

    In a shifted network, such as Dream's, the hidden state of a position predicts the next position. The first position
    also predicts itself. In a block-causal network a position sees its block and all earlier blocks; blocks are counted
    from position 0.

    Raises ValueError, which names the field, for an impossible shape.
    """

    vocab_size: int  # the width of the logits and the number of rows of the embedding
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_size: int  # the width of one head; n_heads * head_size need not equal d_model
    d_ff: int
    max_length: int  # the number of positions that the model was trained for
    rope_theta: float  # the base of rotary embeddings
    norm_eps: float
    tied: bool  # whether the head uses the embedding's weights
    qkv_bias: bool = False
    qk_norm: bool = False
    shifted: bool = False
    block_size: int | None = None  # positions of a block; None: every position sees all positions
    layer_norm: bool = False  # whether norms are LayerNorms with a bias instead of RMS norms
    gelu: bool = False  # whether the feed-forward is GELU(x W + b) W + b instead of SwiGLU
    head_bias: bool = False  # whether the head has a bias
    # numbers of the layers that are convolutions over a position and its two neighbours instead of attention
    conv_layers: tuple[int, ...] = ()
    # number of rows of the stored embedding after the vocabulary, which are not read
    unused: int = 0

    def __post_init__(self) -> None:
        sizes = [
            "vocab_size",
            "d_model",
            "n_layers",
            "n_heads",
            "n_kv_heads",
            "head_size",
            "d_ff",
            "max_length",
        ]
        for name in sizes if self.block_size is None else [*sizes, "block_size"]:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
                raise ValueError(
                    f"{name} must be a whole number from 1 to {MOST}, not {value!r:.40}"
                )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(f"n_kv_heads ({self.n_kv_heads}) must divide n_heads ({self.n_heads})")
        if self.head_size % 2:
            raise ValueError(f"head_size must be even for rotary embeddings, not {self.head_size}")
        if self.block_size is not None and self.shifted:
            raise ValueError("block_size cannot be set in a shifted network")
        if self.conv_layers and (self.shifted or self.block_size is not None):
            raise ValueError("conv_layers cannot be set in a shifted or block-causal network")


@frozen
class Shape:
    """The shape of a model's network and the ids of its special tokens."""

    network: NetworkConfig
    mask_id: int
    pad_id: int
    # ids that end a text; the first is EOS, which the model also writes after the end
    ends: tuple[int, ...] = ()


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
