"""Operators of com.microsoft that ONNX Runtime has no CPU kernel of (or one that cannot be asked),
as nodes that say the same. Integers that an operator is given are constants to its model."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from .dtypes import NUMPY

MICROSOFT = "com.microsoft"
OPSET = 23


class Parts:
    """The nodes that stand for one: `of[i]` is the name of input i, `values[i]` its array; "" and
    None where it is left out."""

    def __init__(self, node, arrays):
        self.node, self.nodes, self.constants = node, [], []
        self.attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.of = list(node.input) + [""] * (16 - len(node.input))
        self.values = [arrays.get(name) for name in self.of]

    def __call__(self, op, *inputs, domain="", **attributes):
        names = [self.constant(v) if isinstance(v, np.ndarray) else v for v in inputs]
        result = f"part{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [result], domain=domain, **attributes))
        return result

    def constant(self, array):
        name = f"constant{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def result(self, i, name):
        """Output i is what has this name."""
        if i < len(self.node.output) and self.node.output[i]:
            self.nodes.append(helper.make_node("Identity", [name], [self.node.output[i]]))


def normed(p, sum_output):
    """A, skip and norm_scale of products with weights of few bits."""
    x, skip, scale = p.of[:3]
    if skip:
        x = p("Add", x, skip)
        p.result(sum_output, x)
    if not scale:
        return x
    epsilon = p.attributes["epsilon"]
    return p("SimplifiedLayerNormalization", x, scale, epsilon=epsilon, axis=-1)


def bits_product(p, x, at, columns):
    """Weights are input `at`, their scales and the bias follow."""
    sizes = {name: p.attributes[name] for name in ("K", "bits", "block_size")}
    y = p("MatMulNBits", x, *p.of[at : at + 2], domain=MICROSOFT, N=columns, **sizes)
    return p("Add", y, p.of[at + 2]) if p.of[at + 2] else y


def bits_mlp(p):
    x = normed(p, 1)
    gate, up = (bits_product(p, x, at, p.attributes["N"]) for at in (3, 6))
    p.result(0, p("Mul", p("Mul", gate, p("Sigmoid", gate)), up))


def bits_qkv(p):
    x = normed(p, 3)
    for i, name in enumerate(("Nq", "Nkv", "Nkv")):
        p.result(i, bits_product(p, x, 3 + 3 * i, p.attributes[name]))


def gemma_rotary(p):
    half = p.values[1].dtype == np.float16
    angles = [p("Unsqueeze", p(op, p.of[0]), np.array([1])) for op in ("Cos", "Sin")]
    cos, sin = (p("Cast", a, to=10 if half else 1) for a in angles)
    for i in range(2):
        state, turned = p.of[1 + 2 * i : 3 + 2 * i]
        p.result(i, p("Add", p("Mul", state, cos), p("Mul", turned, sin)))


def sparse_attention(p):
    heads, groups, block = (
        p.attributes[name] for name in ("num_heads", "kv_num_heads", "sparse_block_size")
    )
    past, ends, columns, total, lengths = (p.values[i] for i in (3, 5, 6, 7, 8))
    batch, _, room, size = past.shape
    length = p.values[0].shape[1]
    if p.of[1]:
        q, k, v = p.of[:3]
    else:
        parts = [heads * size, groups * size, groups * size]
        starts = np.cumsum([0] + parts)
        q, k, v = (
            p("Slice", p.of[0], starts[i : i + 1], starts[i + 1 : i + 2], np.array([2]))
            for i in range(3)
        )
    begin = np.zeros(batch, int) if int(total.reshape(-1)[0]) == length else lengths - length
    places = begin[:, None] + np.arange(length)
    shapes = [np.array([batch, length, n, size]) for n in (heads, groups, groups)]
    q, k, v = (
        p("Transpose", p("Reshape", part, shape), perm=[0, 2, 1, 3])
        for part, shape in zip((q, k, v), shapes)
    )
    if p.attributes.get("do_rotary"):
        turn = p.attributes.get("rotary_interleaved", 0)
        q, k = (
            p(
                "RotaryEmbedding",
                part,
                places.astype(np.int64),
                *p.of[9:11],
                domain=MICROSOFT,
                interleaved=turn,
            )
            for part in (q, k)
        )
    at = np.zeros((batch, groups, length, 3), np.int64)
    at[..., 0] = np.arange(batch)[:, None, None]
    at[..., 1] = np.arange(groups)[None, :, None]
    at[..., 2] = places[:, None]
    keys, values = (p("ScatterND", old, at, new) for old, new in zip(p.of[3:5], (k, v)))
    mask = np.full((batch, heads, length, room), -np.inf, np.float32)
    for b, h, i in np.ndindex(batch, heads, length):
        place, layout = places[b, i], h % len(ends)
        low, high = ends[layout, place // block : place // block + 2]
        seen = np.isin(np.arange(room) // block, columns[layout, low:high])
        mask[b, h, i][seen & (np.arange(room) <= place)] = 0
    scale = {"scale": p.attributes["scale"]} if p.attributes.get("scale") else {}
    y = p("Attention", q, keys, values, mask, **scale)
    shape = np.array([batch, length, heads * size])
    p.result(0, p("Reshape", p("Transpose", y, perm=[0, 2, 1, 3]), shape))
    p.result(1, keys)
    p.result(2, values)


def float_product(p, weights, bias):
    """The input times weights that are known, in f32."""
    x = p("Cast", p.of[0], to=TensorProto.FLOAT)
    y = p("MatMul", x, weights.T)
    if bias:
        y = p("Add", y, p("Cast", bias, to=TensorProto.FLOAT))
    p.result(0, p("CastLike", y, p.of[0]))


def blocks_of(scales, block, depth):
    """A scale for each weight."""
    return np.repeat(scales, block, axis=1)[:, :depth]


def fp8_weight(p):
    weights, scales = p.values[1:3]
    scales = blocks_of(scales, p.attributes["block_size"], weights.shape[1])
    float_product(p, weights.astype(np.float32) * scales, p.of[4])


def fp4_weight(p):
    packed, scales, scale = p.values[1:4]
    codes = np.stack([packed & 15, packed >> 4], 2).reshape(len(packed), -1)
    weights = codes.view(NUMPY["f4e2m1"]).astype(np.float32) * scale.reshape(())
    scales = scales.view(NUMPY["f8e4m3fn"]).astype(np.float32)
    weights *= blocks_of(scales, p.attributes["block_size"], codes.shape[1])
    weights = weights.astype(p.values[0].dtype).astype(np.float32)
    float_product(p, weights, p.of[5])


def gated_delta_net(p):
    batch, heads, wide, size = p.values[6].shape
    q = p.values[0]
    joined = not p.of[1]
    length = q.size // q.shape[-1] // (1 if joined else q.shape[-2]) // batch
    packed = np.array([batch, length, -1])
    parts = [p("Reshape", name, packed) for name in p.of[: 1 if joined else 3]]
    if joined:
        first = (q.shape[-1] - heads * wide) // 2
        starts = np.array([0, first, 2 * first, q.shape[-1]])
        parts = [
            p("Slice", parts[0], starts[i : i + 1], starts[i + 1 : i + 2], np.array([2]))
            for i in range(3)
        ]
    queries = (first if joined else q.shape[-1] * q.shape[-2]) // size
    decay, beta = p.of[4:6]
    if decay and p.attributes.get("gate_activation") == b"qwen":
        a_log, dt_bias = (p("Reshape", name, np.array([heads, 1])) for name in p.of[7:9])
        decay = p("Reshape", decay, np.array([batch, length, heads, -1]))
        decay = p("Mul", p("Neg", p("Exp", a_log)), p("Softplus", p("Add", decay, dt_bias)))
    if beta and p.attributes.get("beta_activation") == b"sigmoid":
        beta = p("Sigmoid", beta)
    decay, beta = (p("Reshape", name, packed) if name else "" for name in (decay, beta))
    past = p("Transpose", p.of[6], perm=[0, 1, 3, 2])
    names = [*parts, past, decay, beta]
    p.nodes.append(
        helper.make_node(
            "LinearAttention",
            names,
            ["rows", "state"],
            domain=MICROSOFT,
            q_num_heads=queries,
            kv_num_heads=heads,
            scale=p.attributes.get("scale", 0.0),
            update_rule=p.attributes.get("update_rule", b"gated_delta"),
        )
    )
    tokens = list(q.shape[: q.ndim - (1 if joined else 2)])
    p.result(0, p("Reshape", "rows", np.array(tokens + [heads, wide])))
    p.result(1, p("Transpose", "state", perm=[0, 1, 3, 2]))


STAND_INS = {
    "GatedDeltaNet": gated_delta_net,
    "GemmaRotaryEmbedding": gemma_rotary,
    "MatMulBlockQuantizedFp4Weight": fp4_weight,
    "MatMulBlockQuantizedFp8Weight": fp8_weight,
    "MatMulNBitsMlp": bits_mlp,
    "MatMulNBitsQkv": bits_qkv,
    "SparseAttention": sparse_attention,
}


def stand_in(node, arrays):
    """The nodes and constants that stand for a node; None: it stands for itself."""
    if node.op_type not in STAND_INS:
        return None
    parts = Parts(node, arrays)
    STAND_INS[node.op_type](parts)
    return parts.nodes, parts.constants
