"""The ONNX graphs of a step, built from the shape of a network and the tensors of a checkpoint.

`step_graph` is the packed forward of one sequence (Algorithm 1, lines 9-14). `head_graph` computes logits, and
`posterior_graph` reads posteriors from logits (line 15). The graphs use only ONNX's standard operators, so browsers can
run them. Weights stay in the checkpoint's files: a graph has the file, offset and length of a tensor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, StringStringEntryProto, TensorProto, helper, numpy_helper

from surelock.config import NetworkConfig
from surelock.model.stored import Stored, Tensors

OPSET = 23  # the first operator set with attention, rotary embedding and RMS norm
IR = 11
FLOAT = TensorProto.FLOAT
INT64 = TensorProto.INT64

#: The dtypes of safetensors that a graph can read, and their ONNX types.
DTYPES = {
    "F64": TensorProto.DOUBLE,
    "F32": FLOAT,
    "F16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
}


class _Graph:
    """A graph under construction. Calling it adds a node and returns the name of the node's output."""

    def __init__(self, tensors: Tensors | None = None) -> None:
        self._tensors = tensors or {}
        self._nodes = []
        self._constants = {}
        self._inputs = []
        self._outputs = []
        self._fed: set[str] = set()  # parameters that are inputs of the graph

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        return self._add(op, inputs, [f"{op}.{len(self._nodes)}"], attributes)[0]

    def top(self, x: str, count: str) -> tuple[str, str]:
        """Add a TopK node: return the names of its values and of their indices; ties go to the lower index."""
        number = len(self._nodes)
        values, indices = self._add("TopK", (x, count), [f"top.{number}", f"at.{number}"], {})
        return values, indices

    def _add(
        self, op: str, inputs: Sequence[str], outputs: list[str], attributes: Mapping[str, Any]
    ) -> list[str]:
        self._nodes.append(helper.make_node(op, inputs, outputs, **attributes))
        return outputs

    def input(self, name: str, dtype: int, *shape: int | str) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, computed: str, dtype: int, *shape: int | str) -> str:
        """Rename the output of a node, and make it an output of the graph. Must be called before other nodes use it."""
        node = next(node for node in reversed(self._nodes) if computed in node.output)
        node.output[list(node.output).index(computed)] = name
        self._outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def constant(self, value: Any, dtype: type = np.int64) -> str:
        array: NDArray = np.asarray(value, dtype)
        name = f"{array.dtype}.{array.shape}.{array.tobytes().hex()}"
        self._constants.setdefault(name, numpy_helper.from_array(array, name))
        return name

    def weight(self, parameter: str, part: int = 0) -> str:
        """Return the name of a parameter in float32. part: number of the part, for a stacked parameter.

        A session converts a parameter once, when the session is made.
        """
        name, dtype = self._stored(parameter, part)
        wide = f"{name} in float32"
        scaled = f"{name} scaled"
        factor = None
        if parameter not in self._fed:
            factor = getattr(self._tensors[parameter][part][1], "factor", None)
        outputs = {output for node in self._nodes for output in node.output}
        if dtype == FLOAT:
            wide = name
        elif wide not in outputs:
            self._add("Cast", [name], [wide], {"to": FLOAT})
        if factor is None:
            return wide
        if scaled not in outputs:
            self._add("Mul", [wide, self.constant(factor[:, None], np.float32)], [scaled], {})
        return scaled

    def has(self, parameter: str) -> bool:
        """Return whether the checkpoint has a parameter."""
        return parameter in self._tensors

    def rows(self, parameter: str, indices: str) -> str:
        """Return the name of the rows `indices` of a parameter in float32. Only these rows are converted."""
        name, dtype = self._stored(parameter)
        rows = self("Gather", name, indices)
        return rows if dtype == FLOAT else self("Cast", rows, to=FLOAT)

    def feed(self, parameter: str, *shape: int) -> None:
        """Make a parameter an input of the graph, in float32, with the parameter's name."""
        self._fed.add(self.input(parameter, FLOAT, *shape))

    def _stored(self, parameter: str, part: int = 0) -> tuple[str, int]:
        """Add a tensor of the checkpoint in its stored dtype, unless it is an input. Returns its name and ONNX type."""
        if parameter in self._fed:
            return parameter, FLOAT
        name, stored = self._tensors[parameter][part]
        if not isinstance(stored, Stored):
            return self.constant(stored, np.float32), FLOAT
        place = {"location": stored.file.name, "offset": stored.offset, "length": stored.nbytes}
        self._constants[name] = TensorProto(
            name=name,
            data_type=DTYPES[stored.dtype],
            dims=stored.shape,
            data_location=TensorProto.EXTERNAL,
            external_data=[
                StringStringEntryProto(key=key, value=str(value)) for key, value in place.items()
            ],
        )
        return name, DTYPES[stored.dtype]

    def model(self, name: str) -> ModelProto:
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, list(self._constants.values())
        )
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(
            graph, opset_imports=[opset], ir_version=IR, producer_name="surelock"
        )


def head_name(config: NetworkConfig) -> str:
    """Return the name of the head's weight. A tied head has the embedding's weight."""
    return "embed.weight" if config.tied else "head.weight"


def graphs(config: NetworkConfig, tensors: Tensors) -> dict[str, ModelProto]:
    """Return the graphs "step", "head" and "posterior" of a model."""
    models = step_graph(config, tensors), head_graph(config, tensors), posterior_graph()
    return {model.graph.name: model for model in models}


def step_graph(
    config: NetworkConfig, tensors: Tensors, layers: range | None = None, embed_given: bool = False
) -> ModelProto:
    """Return the graph of a step of one sequence of N positions, of which it computes R rows.

    layers: the layers of a part of the step; None: all layers. A part has an input states [R, d_model], which is the
    output next_states [R, d_model] of the part before. The first part has the input tokens instead of states. The last
    part has the output hidden instead of next_states.
    embed_given: whether the embedding is an input, embed.weight [vocab_size, d_model].

    Inputs, int64:
    tokens, positions [R]: the rows' tokens and positions.
    written [W]: indices of the rows whose keys and values are written. targets [W]: positions of these rows.
    read [K]: indices of the rows that the whole last layer computes. For other rows the last layer computes only keys
    and values.

    Inputs, float32: past_keys.i and past_values.i [N, n_kv_heads * head_size] for every layer i with attention. A layer
    that is a convolution has only past_keys.i [N + 2, d_model], with a row of zeros before and after the positions.

    Outputs, float32:
    hidden [K, d_model]: the hidden states after the last norm.
    new_keys.i, new_values.i [W, ...]: keys and values of the written rows.
    present_keys.i, present_values.i: the past keys and values, with the written rows replaced. An engine fetches these
    outputs if they can lie in the memory of the past keys and values, where nothing is copied. Otherwise it fetches the
    new keys and values.
    queries.i [1, R, n_heads * head_size], in the last layer [1, K, ...]: queries after rotary embedding. Queries and
    keys give the attention of a row.
    """
    g = _Graph(tensors)
    part = layers or range(config.n_layers)
    sizes = {"tokens": "R", "positions": "R", "written": "W", "targets": "W", "read": "K"}
    for name, size in sizes.items():
        g.input(name, INT64, size)
    if embed_given:
        g.feed("embed.weight", config.vocab_size, config.d_model)
    layer_nodes = _Layers(g, config, f"past_keys.{part.start}")
    first = part.start == 0
    x = g.rows("embed.weight", "tokens") if first else g.input("states", FLOAT, "R", config.d_model)
    for layer in part:
        x = layer_nodes.add(layer, x)
    if part.stop == config.n_layers:
        g.output("hidden", layer_nodes.norm(x, "norm"), FLOAT, "K", config.d_model)
    else:
        g.output("next_states", x, FLOAT, "R", config.d_model)
    return g.model("step")


class _Layers:
    """Adds the nodes of layers to a graph. past: an input whose first axis is the positions."""

    def __init__(self, g: _Graph, config: NetworkConfig, past: str) -> None:
        self._g = g
        self._config = config
        self._past = past
        self._batch = g.constant([0])  # attention requires a first axis of sequences
        self._targets = g("Unsqueeze", "targets", g.constant([1]))
        self._rotary = self._angles("positions")
        positions_read = g("Gather", "positions", "read")
        self._rotary_read = self._angles(positions_read)
        # masks of all rows, and of the read rows
        self._sights = (self._sight("positions"), self._sight(positions_read))

    def add(self, layer: int, x: str) -> str:
        """Add a layer for hidden states x [R, d_model], and return its output.

        The output is [R, d_model], in the last layer [K, d_model].
        """
        g = self._g
        block = f"blocks.{layer}"
        is_last = layer == self._config.n_layers - 1
        h = self.norm(x, f"{block}.attn_norm")
        mix = self._convolved if layer in self._config.conv_layers else self._attended
        mixed = mix(layer, h, is_last)
        if is_last:
            x = g("Gather", x, "read")
        x = g("Add", x, mixed)
        h = self.norm(x, f"{block}.ff_norm")
        if self._config.gelu:
            h = g("Gelu", self._linear(h, f"{block}.gate_up"), approximate="tanh")
        else:
            gate, up = (self._linear(h, f"{block}.gate_up", part) for part in (0, 1))
            h = g("Mul", g("Mul", gate, g("Sigmoid", gate)), up)
        return g("Add", x, self._linear(h, f"{block}.ff_out"))

    def _attended(self, layer: int, h: str, is_last: bool) -> str:
        g = self._g
        config = self._config
        block = f"blocks.{layer}"
        rotary = self._rotary
        keys = self._heads(h, block, 1, config.n_kv_heads, "k_norm", rotary)
        keys = self._present("keys", layer, g("Squeeze", keys, self._batch))
        values = self._present("values", layer, self._linear(h, f"{block}.qkv", 2))
        if is_last:
            h = g("Gather", h, "read")
            rotary = self._rotary_read
        q = self._heads(h, block, 0, config.n_heads, "q_norm", rotary)
        q = g.output(f"queries.{layer}", q, FLOAT, 1, "Q", config.n_heads * config.head_size)
        sight = self._sights[is_last]
        mask = [] if sight is None else [sight]
        keys, values = (g("Unsqueeze", table, self._batch) for table in (keys, values))
        attended = g(
            "Attention",
            q,
            keys,
            values,
            *mask,
            q_num_heads=config.n_heads,
            kv_num_heads=config.n_kv_heads,
        )
        return self._linear(g("Squeeze", attended, self._batch), f"{block}.attn_out")

    def _convolved(self, layer: int, h: str, is_last: bool) -> str:
        """Return C times the convolution of B * X. The cache contains B * X of every position."""
        g = self._g
        block = f"blocks.{layer}"
        one = self._g.constant([1])
        kept = g("Mul", *(self._linear(h, f"{block}.conv_in", part) for part in (0, 2)))
        present = self._present("keys", layer, kept, conv=True)
        if is_last:
            h = g("Gather", h, "read")
        positions = g("Unsqueeze", "positions", one)
        if is_last:
            positions = g("Gather", positions, "read")
        around = g("Add", positions, g.constant([0, 1, 2]))
        weight = g("Transpose", g("Squeeze", g.weight(f"{block}.conv.weight"), one))
        mixed = g("ReduceSum", g("Mul", g("Gather", present, around), weight), one, keepdims=0)
        c = self._linear(h, f"{block}.conv_in", 1)
        return self._linear(g("Mul", c, mixed), f"{block}.conv_out")

    def norm(self, x: str, name: str) -> str:
        g = self._g
        attributes = {"axis": -1, "epsilon": self._config.norm_eps}
        if self._config.layer_norm:
            return g(
                "LayerNormalization",
                x,
                g.weight(f"{name}.weight"),
                g.weight(f"{name}.bias"),
                **attributes,
            )
        return g("RMSNormalization", x, g.weight(f"{name}.weight"), **attributes)

    def _angles(self, positions: str) -> tuple[str, str]:
        """Return cosines and sines [1, R, head_size / 2] of rotary embeddings, in float32 as in `rotary_table`."""
        g = self._g
        size = self._config.head_size
        frequencies = g.constant(
            self._config.rope_theta ** (-np.arange(0, size, 2) / size), np.float32
        )
        column = g("Unsqueeze", g("Cast", positions, to=FLOAT), g.constant([0, 2]))
        angles = g("Mul", column, frequencies)
        return g("Cos", angles), g("Sin", angles)

    def _sight(self, positions: str) -> str | None:
        """Return a mask of the positions that rows at `positions` [R] see, [R, N] bool; None if they see all."""
        g = self._g
        size = self._config.block_size
        if size is None:
            return None
        block = g("Div", positions, g.constant(size))
        seen = g("Mul", g("Add", block, g.constant(1)), g.constant(size))
        length = g("Gather", g("Shape", self._past), g.constant(0))
        every = g("Range", g.constant(0), length, g.constant(1))
        return g("Less", every, g("Unsqueeze", seen, g.constant([1])))

    def _linear(self, h: str, name: str, part: int = 0) -> str:
        """Return the product of rows h and a weight, plus its bias if there is one. part: see `_Graph.weight`."""
        bias = [self._g.weight(f"{name}.bias", part)] if self._g.has(f"{name}.bias") else []
        return self._g("Gemm", h, self._g.weight(f"{name}.weight", part), *bias, transB=1)

    def _heads(
        self, h: str, block: str, part: int, heads: int, norm: str, rotary: tuple[str, str]
    ) -> str:
        """Return queries or keys after rotary embedding, [1, R, heads * head_size]."""
        g = self._g
        x = self._linear(h, f"{block}.qkv", part)
        if self._config.qk_norm:
            x = g("Reshape", x, g.constant([-1, heads, self._config.head_size]))
            x = self.norm(x, f"{block}.{norm}")
            x = g("Reshape", x, g.constant([-1, heads * self._config.head_size]))
        return g("RotaryEmbedding", g("Unsqueeze", x, self._batch), *rotary, num_heads=heads)

    def _present(self, kind: str, layer: int, new: str, conv: bool = False) -> str:
        """Return the layer's keys or values with the written rows replaced, [N, n_kv_heads * head_size]."""
        g = self._g
        config = self._config
        targets = self._targets
        shape = ("N", config.n_kv_heads * config.head_size)
        if conv:
            shape = ("N + 2", config.d_model)
            targets = g("Add", targets, g.constant(1))
        past = g.input(f"past_{kind}.{layer}", FLOAT, *shape)
        new = g.output(f"new_{kind}.{layer}", g("Gather", new, "written"), FLOAT, "W", shape[1])
        return g.output(
            f"present_{kind}.{layer}", g("ScatterND", past, targets, new), FLOAT, *shape
        )


def head_graph(
    config: NetworkConfig, tensors: Tensors, weights_as_input: bool = False
) -> ModelProto:
    """Return the graph from hidden [K, d_model] to logits [K, vocab_size].

    weights_as_input: whether the head's weights are an input of the graph.
    """
    g = _Graph(tensors)
    name = head_name(config)
    if weights_as_input:
        g.feed(name, config.vocab_size, config.d_model)
    weights = [g.weight(name)]
    if config.head_bias:
        weights.append(g.weight("head.bias"))
    product = g("Gemm", g.input("hidden", FLOAT, "K", config.d_model), *weights, transB=1)
    g.output("logits", product, FLOAT, "K", config.vocab_size)
    return g.model("head")


def posterior_graph() -> ModelProto:
    """Return the graph that reads the posteriors of logits [K, V].

    Outputs of all rows, [K, 1]:
    confidence: the largest probability.
    total: the sum of the logits, which is finite only if all logits are finite.

    Other inputs are lists of rows, int64, which may be empty. Every list has its outputs:
    watched [M]: log_p [M, V], the log posteriors.
    compared [D]: kl [D], in nats, from the rows `last` [D] of `kept` [N, V], log posteriors of an earlier step.
    chosen [C]: token [C], the token with the largest sum of logit and bias (bias is [C, V], or [1, V] for all rows);
    own [C], the probability of that token.
    scored [S]: entropy [S], the negative entropy; margin [S] and gap [S], the difference between the most likely token
    and the next, in probability and in logit.
    shown [T]: top_ids and top_probs [T, top_k], the most likely tokens and their probabilities.
    """
    g = _Graph()
    width = g.constant([1])
    first = g.constant(0)
    second = g.constant(1)
    logits = g.input("logits", FLOAT, "K", "V")
    lists = {
        "watched": "M",
        "compared": "D",
        "last": "D",
        "chosen": "C",
        "scored": "S",
        "shown": "T",
    }
    watched, compared, last, chosen, scored, shown = (
        g.input(name, INT64, size) for name, size in lists.items()
    )
    log_p = g("LogSoftmax", logits, axis=1)
    g.output("confidence", g("Exp", g("ReduceMax", log_p, width)), FLOAT, "K", 1)
    g.output("total", g("ReduceSum", logits, width), FLOAT, "K", 1)

    g.output("log_p", g("Gather", log_p, watched), FLOAT, "M", "V")
    kept = g("Gather", g.input("kept", FLOAT, "N", "V"), last)
    g.output("kl", _kl(g, g("Gather", log_p, compared), kept), FLOAT, "D")

    biased = g("Add", g("Gather", logits, chosen), g.input("bias", FLOAT, "B", "V"))
    _, tokens = g.top(biased, g.constant([2]))  # TopK takes half the time of ArgMax
    token = g.output("token", g("Gather", tokens, first, axis=1), INT64, "C")
    columns = [g("Unsqueeze", index, width) for index in (chosen, token)]
    place = g("Concat", *columns, axis=1)
    g.output("own", g("Exp", g("GatherND", log_p, place)), FLOAT, "C")

    scored_log_p = g("Gather", log_p, scored)
    terms = g("Mul", g("Exp", scored_log_p), scored_log_p)
    g.output("entropy", g("ReduceSum", terms, width, keepdims=0), FLOAT, "S")
    likeliest, _ = g.top(scored_log_p, g.constant([2]))
    for name, pair in (("gap", likeliest), ("margin", g("Exp", likeliest))):
        lead = g("Sub", g("Gather", pair, first, axis=1), g("Gather", pair, second, axis=1))
        g.output(name, lead, FLOAT, "S")

    top, top_ids = g.top(g("Gather", log_p, shown), g.input("top_k", INT64, 1))
    g.output("top_ids", top_ids, INT64, "T", "k")
    g.output("top_probs", g("Exp", top), FLOAT, "T", "k")
    return g.model("posterior")


def _kl(g: _Graph, log_p: str, log_q: str) -> str:
    """Return KL(p || q) in nats, [M]: the sum of (p + q) tanh(d / 2) - p d, with d = log q - log p.

    (p + q) tanh(d / 2) equals q - p, which sums to zero. With it no digits are lost if p and q nearly agree.
    """
    d = g("Sub", log_q, log_p)
    p = g("Exp", log_p)
    q = g("Exp", log_q)
    difference = g("Mul", g("Add", p, q), g("Tanh", g("Mul", d, g.constant(0.5, np.float32))))
    return g("ReduceSum", g("Sub", difference, g("Mul", p, d)), g.constant([1]), keepdims=0)
