"""Operators of com.microsoft for language models that mix attention with recurrences."""

import numpy as np

from .dtypes import NUMPY
from .table import operator

MICROSOFT = "com.microsoft"
SMALL = ("f32", "f32", "f16")


def room(scale, *dtypes):
    """The scale of errors: of f16 not more than their bounds allow."""
    return 1 if "f16" in dtypes else scale


@operator(0.7)
def linear_attention(g):
    rule = g.one_of(("linear", "gated", "delta", "gated_delta", None))
    counts = ((4, 2, 2), (2, 2, 2), (1, 1, 1), (2, 4, 2), (2, 4, 1), (1, 3, 1))
    heads, groups, keys = g.one_of(counts)
    batch, length, size, values = g.between(1, 2), g.between(1, 5), g.between(1, 5), g.between(1, 5)
    whole = rule or "gated_delta"
    rows = (batch, length)
    decay = beta = past = None
    if "gated" in whole or g.chance(0.2):
        decay = g.fresh("f32", rows + (groups * (size if g.chance(0.5) else 1),), -2, 0)
    if "delta" in whole or g.chance(0.2):
        beta = g.fresh("f32", rows + (g.one_of((1, groups)),), 0, 1)
    if g.chance(0.6):
        past = g.fresh("f32", (batch, groups, size, values), -1, 1)
    inputs = [
        g.fresh("f32", rows + (heads * size,), -1, 1),
        g.fresh("f32", rows + (keys * size,), -1, 1),
        g.fresh("f32", rows + (groups * values,), -1, 1),
    ]
    g.node(
        "LinearAttention",
        inputs + [past, decay, beta],
        kind="smooth",
        outputs=2,
        scale=16,
        domain=MICROSOFT,
        q_num_heads=heads,
        kv_num_heads=groups,
        update_rule=rule,
    )


@operator(0.7)
def causal_conv(g):
    batch, length, kernel = g.between(1, 2), g.between(1, 9), g.between(1, 4)
    dilation, last = g.one_of((1, 2, 3, None)), g.one_of((0, 1, None))
    shape = [g.one_of((1, 3, 8, 17))] + [g.between(1, 3)] * (g.below(3) if last else 0)
    channels, state = int(np.prod(shape)), (kernel - 1) * (dilation or 1)
    rows = (lambda n: [batch, n] + shape) if last else (lambda n: [batch] + shape + [n])
    g.node(
        "CausalConvWithState",
        [
            g.fresh("f32", rows(length), -2, 2),
            g.fresh("f32", (channels, 1, kernel), -1, 1),
            g.fresh("f32", (channels,), -1, 1) if g.chance(0.5) else None,
            g.fresh("f32", rows(state), -2, 2) if g.chance(0.6) else None,
        ],
        kind="smooth",
        outputs=2,
        scale=4,
        domain=MICROSOFT,
        activation=g.one_of(("none", "silu", "swish", None)),
        dilation=dilation,
        channels_last=last,
    )


@operator(0.7)
def gates(g):
    """LinearAttentionGate, GatedRMSNorm, GatedAdd."""
    name = g.one_of(("LinearAttentionGate", "GatedRMSNorm", "GatedAdd"))
    dtype, lead = g.one_of(SMALL), g.pick_shape(0, 3, most=24)
    wide = g.one_of((1, 2, 3, 8, 17))
    if name == "LinearAttentionGate":
        beta = g.chance(0.6)
        inputs = [g.fresh(dtype, lead + (wide,)), g.fresh("f32", (wide,)), g.fresh("f32", (wide,))]
        inputs.append(g.fresh(dtype, lead + (wide,)) if beta else None)
        scale = room(4, dtype)
        g.node(name, inputs, kind="smooth", scale=scale, outputs=1 + beta, domain=MICROSOFT)
    elif name == "GatedRMSNorm":
        shape = lead + (wide * g.between(1, 3),)
        inputs = [g.fresh(dtype, shape), g.fresh(dtype, (wide,)), g.fresh(dtype, shape)]
        g.node(
            name,
            inputs,
            kind="smooth",
            scale=room(8, dtype),
            domain=MICROSOFT,
            epsilon=1e-2,
            activation=g.one_of(("silu", "swish", "sigmoid", None)),
        )
    else:
        inputs = [g.fresh(dtype, lead + (n,)) for n in (wide, wide, 1)]
        g.node(name, inputs, kind="smooth", domain=MICROSOFT)


@operator(0.7)
def streams(g):
    """BranchwiseRMSNorm, HyperConnectionPreMix, HyperConnectionPostMix."""
    name = g.one_of(("BranchwiseRMSNorm", "HyperConnectionPreMix", "HyperConnectionPostMix"))
    dtype, other = g.one_of(SMALL), g.one_of(SMALL)
    lead, count, size = g.pick_shape(0, 2, most=24), g.between(1, 4), g.one_of((1, 2, 5, 16))
    flat = g.chance(0.5)
    shape = lead + ((count * size,) if flat else (count, size))
    inputs = [g.fresh(dtype, shape)]
    attributes = {"num_branches": count if flat else g.one_of((0, None))}
    gate = g.one_of(((count,), (count, 1), (count, size)))
    if name == "BranchwiseRMSNorm":
        scale = g.one_of((None, (size,), (count, size), (count * size,)))
        inputs.append(g.fresh(other, scale) if scale else None)
        attributes["epsilon"] = 1e-2
    elif name == "HyperConnectionPreMix":
        if flat and g.chance(0.3):
            gate = (count * size,)
        inputs.append(g.fresh(other, lead + gate))
        attributes["reduction_scale"] = g.one_of((0.5, None))
    else:
        mix = g.fresh(other, lead + (count, count)) if g.chance(0.6) else None
        inputs += [g.fresh(dtype, lead + (size,)), g.fresh(other, lead + gate), mix]
    scale = room(8, dtype, other)
    g.node(name, inputs, kind="smooth", scale=scale, domain=MICROSOFT, **attributes)


@operator(0.5)
def engram_gate(g):
    dtype = g.one_of(SMALL)
    batch, length = g.between(1, 2), g.between(1, 4)
    count, size = g.between(1, 3), g.one_of((1, 4, 9))
    rows, scale = (batch, length, count, size), (count, size)
    shapes = (rows, (batch, length, size), scale, scale)
    # products of both signs, none, and one below what its root is taken of
    key = g.one_of(((0.25, 2), (-2, -0.25), (0, 0), (1e-7, 2e-7)))
    inputs = [g.add(g.rng.uniform(*key, rows).astype(NUMPY[dtype]))]
    inputs += [g.fresh(dtype, s, 0.25, 2) for s in shapes]
    normed = g.chance(0.6)
    inputs.append(g.fresh(dtype, scale, 0.25, 2) if normed else None)
    g.node(
        "EngramGate",
        inputs,
        kind="smooth",
        scale=room(16, dtype),
        outputs=1 + normed,
        domain=MICROSOFT,
        epsilon=1e-2,
    )


@operator(0.5)
def ngram_hash(g):
    dtype, words, heads = g.one_of(("i32", "i64")), g.between(2, 4), g.between(1, 3)
    batch, length, count = g.between(1, 2), g.between(1, 7), (words - 1) * heads
    high = 2**30 if dtype == "i32" else 2**62

    def ids(*shape, low=0, high=9):
        value = g.add(g.rng.integers(low, high, shape).astype(NUMPY[dtype]))
        g.frozen.add(value.name)
        return value

    segments = None
    if g.chance(0.4):
        segments = g.fresh("i32", (batch, length), 0, 2)
        g.frozen.add(segments.name)
    g.node(
        "NGramHashMapping",
        [
            ids(batch, length),
            ids(words + g.below(2), low=-high, high=high),
            ids(count, low=1, high=50),
            ids(batch, words - 1) if g.chance(0.5) else None,
            ids(count) if g.chance(0.5) else None,
            ids() if g.chance(0.5) else None,
            segments,
        ],
        outputs=2,
        domain=MICROSOFT,
        max_ngram_size=words,
        n_head_per_ngram=heads,
        pad_id=g.between(0, 9),
        reset_on_eos=g.one_of((0, 1, None)),
    )


@operator(0.6)
def rotary_of_three(g):
    """MRotaryEmbedding."""
    dtype, half, heads = g.one_of(SMALL), g.one_of((1, 2, 4, 9)), g.between(1, 3)
    batch, length = g.between(1, 2), g.between(1, 5)
    most = length + g.below(3)
    first = g.between(0, half)
    second = g.between(0, half - first)
    whole = g.chance(0.6)
    size = 2 * half + (0 if whole else 2 * g.between(0, 2))
    packed = g.chance(0.5)
    shape = (batch, length, heads * size) if packed else (batch, heads, length, size)
    ids = g.add(g.rng.integers(0, most, (3, batch, length)).astype(np.int64))
    g.frozen.add(ids.name)
    g.node(
        "MRotaryEmbedding",
        [g.fresh(dtype, shape), ids] + [g.fresh(dtype, (most, half), -1, 1) for _ in range(2)],
        kind="smooth",
        scale=room(4, dtype),
        fixed=(1,),
        domain=MICROSOFT,
        mrope_section=[first, second, half - first - second],
        mrope_layout=g.one_of((0, 1, None)),
        interleaved=g.one_of((0, 1, None)),
        num_heads=heads if packed or not whole else None,
        rotary_embedding_dim=None if whole else 2 * half,
    )


@operator(0.7)
def decoder_attention(g):
    """DecoderMaskedMultiHeadAttention: one query."""
    batch, heads, size = g.between(1, 2), g.between(1, 3), g.one_of((1, 4, 8))
    most = g.between(1, 9)
    hidden, cross = heads * size, g.chance(0.4)
    before = g.below(most)
    keys = most if cross else before + 1
    rows = (batch, heads, most, size)
    one = rows if cross else (batch, 1, hidden)
    inputs = [g.fresh("f32", (batch, 1, hidden), -2, 2)]
    inputs += [g.fresh("f32", one, -2, 2) for _ in range(2)]
    mask = g.rng.integers(0, 2, (batch, keys)).astype(np.int32)
    mask[:, 0] = 1
    inputs.append(g.add(mask) if g.chance(0.5) else None)
    inputs += [None] * 4
    if inputs[3]:
        g.frozen.add(inputs[3].name)
    if not cross:
        if g.chance(0.5):
            shape = (g.one_of((1, batch)), g.one_of((1, heads)), 1, keys)
            inputs[4] = g.fresh("f32", shape, -2, 2)
        inputs[5:7] = [g.fresh("f32", rows, -2, 2) for _ in range(2)]
        inputs[7] = g.scalar("i32", [before]) if g.chance(0.5) else g.add(np.array([before], "i4"))
        g.frozen.add(inputs[7].name)
    inputs += [None, None, g.fresh("f32", (3 * hidden,), -1, 1) if g.chance(0.5) else None]
    g.node(
        "DecoderMaskedMultiHeadAttention",
        inputs,
        kind="smooth",
        outputs=1 if cross else 3,
        scale=16,
        fixed=(3, 7),
        domain=MICROSOFT,
        num_heads=heads,
        past_present_share_buffer=None if cross else 1,
        mask_filter_value=g.one_of((-50.0, None)),
    )


@operator(0.5)
def gemma_rotary(g):
    batch, heads, length, size = g.between(1, 2), g.between(1, 3), g.between(1, 4), g.between(1, 6)
    shapes = [(batch, heads, length, size)] * 2 + [(batch, g.between(1, 3), length, size)] * 2
    inputs = [g.fresh("f32", (batch, length, size))] + [g.fresh("f16", s) for s in shapes]
    name = "GemmaRotaryEmbedding"
    g.node(name, inputs, kind="smooth", outputs=2, domain=MICROSOFT)


@operator(0.7)
def fused_bits(g):
    """MatMulNBitsMlp and MatMulNBitsQkv."""
    bits, block = g.one_of((2, 4, 4, 8)), g.one_of((16, 32))
    depth = block * g.between(1, 3)
    rows, columns = g.pick_shape(1, 2, most=6), g.one_of((1, 3, 16))
    other = g.one_of((1, 8)), columns
    mlp = g.chance(0.5)
    skip = g.chance(0.4)
    scale = skip or not mlp or g.chance(0.5)
    inputs = [g.fresh("f32", rows + (depth,), -2, 2)]
    inputs.append(g.fresh("f32", rows + (depth,), -2, 2) if skip else None)
    inputs.append(g.fresh("f32", (depth,), 0.5, 2) if scale else None)
    blocks = depth // block
    for n in (columns, columns) if mlp else (columns, other[0], other[0]):
        packed = g.rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
        scales = g.rng.uniform(0.5, 1, (n, blocks)) / 2**bits
        inputs += [g.add(packed, True), g.add(scales.astype(np.float32), True)]
        inputs.append(g.fresh("f32", (n,), -1, 1) if g.chance(0.5) else None)
    special = {"N": columns, "activation": "silu"} if mlp else {"Nq": columns, "Nkv": other[0]}
    g.node(
        "MatMulNBitsMlp" if mlp else "MatMulNBitsQkv",
        inputs,
        kind="smooth",
        outputs=(1 if mlp else 3) + skip,
        scale=16,
        domain=MICROSOFT,
        K=depth,
        bits=bits,
        block_size=block,
        epsilon=1e-2,
        **special,
    )


@operator(0.7)
def sparse_attention(g):
    """Keys in a buffer, of which each block of queries sees some blocks."""
    heads, groups, layouts = g.one_of(((2, 1, 1), (2, 2, 2), (4, 2, 2), (1, 1, 1), (4, 1, 4)))
    batch, block, size = g.between(1, 2), g.one_of((1, 2, 16)), g.one_of((2, 4, 16))
    blocks = g.between(1, 4)
    most = block * blocks
    begins = g.chance(0.4)
    length = g.between(1, most) if begins or g.chance(0.3) else 1
    lengths = g.rng.integers(1 if begins else length, most + 1, batch)
    if begins:
        lengths = np.minimum(lengths, length)
    total = length if begins else int(lengths.max())
    if total == length:
        lengths[0] = length
    ends, columns = np.zeros((layouts, blocks + 1), np.int32), []
    for layout in range(layouts):
        seen = np.tril(g.rng.random((blocks, blocks)) < 0.5)
        np.fill_diagonal(seen, True)
        ends[layout, 1:] = np.cumsum(seen.sum(1))
        columns.append(np.nonzero(seen)[1])
    wide = max(len(c) for c in columns)
    columns = np.array([np.pad(c, (0, wide - len(c)), constant_values=-1) for c in columns], "i4")
    q, k, v = (g.fresh("f32", (batch, length, n * size), -1, 1) for n in (heads, groups, groups))
    if g.chance(0.3):
        packed = g.fresh("f32", (batch, length, (heads + 2 * groups) * size), -1, 1)
        q, k, v = packed, None, None
    inputs = [q, k, v]
    inputs += [g.fresh("f32", (batch, groups, most, size), -1, 1) for _ in range(2)]
    numbers = (ends, columns, np.array([total], "i4"), lengths.astype(np.int32))
    inputs += [g.add(array) for array in numbers]
    g.frozen.update(value.name for value in inputs[5:])
    rotary = g.chance(0.4)
    if rotary:
        inputs += [g.fresh("f32", (most, size // 2), -1, 1) for _ in range(2)]
    g.node(
        "SparseAttention",
        inputs,
        kind="smooth",
        outputs=3,
        scale=16,
        fixed=(5, 6, 7, 8),
        domain=MICROSOFT,
        num_heads=heads,
        kv_num_heads=groups,
        sparse_block_size=block,
        do_rotary=1 if rotary else None,
        rotary_interleaved=g.one_of((0, 1, None)),
    )


@operator(0.6)
def float_weights(g):
    """MatMulBlockQuantizedFp4Weight and MatMulBlockQuantizedFp8Weight."""
    block, depth, columns = g.one_of((4, 16, 32)), 2 * g.between(1, 20), g.one_of((1, 3, 16))
    rows, small = g.pick_shape(1, 2, most=6), g.chance(0.5)
    a = g.fresh("f16", rows + (depth,), -1, 1)
    bias = g.fresh("f16", (columns,), -1, 1) if g.chance(0.5) else None
    shape = (columns, -(-depth // block))
    if small:
        name = "MatMulBlockQuantizedFp4Weight"
        packed = g.rng.integers(0, 256, (columns, depth // 2)).astype(np.uint8)
        scales = g.rng.integers(0x20, 0x48, shape).astype(np.uint8)
        inputs = [a, g.parameter(packed), g.parameter(scales), g.scalar("f32", 0.25)]
        inputs += [g.scalar("f32", 0.5) if g.chance(0.3) else None, bias]
    else:
        name = "MatMulBlockQuantizedFp8Weight"
        weights = g.rng.uniform(-8, 8, (columns, depth)).astype(NUMPY["f8e4m3fn"])
        scales = g.rng.uniform(0.05, 0.2, shape).astype(np.float32)
        inputs = [a, g.parameter(weights), g.parameter(scales), None, bias]
    g.node(name, inputs, kind="smooth", fixed=(1, 2, 3, 4), domain=MICROSOFT, block_size=block)


@operator(0.4)
def word_embedding(g):
    """WordConvEmbedding; ONNX Runtime does not write what a word without letters gives."""
    filters, window, size, characters = (g.between(1, n) for n in (5, 3, 4, 9))
    characters += 1
    words = g.rng.integers(0, characters, (g.between(1, 3), window + g.below(4))).astype(np.int32)
    words[:, 0] = g.rng.integers(1, characters, len(words))
    words = g.add(words)
    g.frozen.add(words.name)
    shapes = ((filters, 1, window, size), (filters,), (characters, size))
    inputs = [words] + [g.fresh("f32", shape, -1, 1) for shape in shapes]
    sizes = g.chance(0.5)
    g.node(
        "WordConvEmbedding",
        inputs,
        kind="smooth",
        scale=8,
        fixed=(0,),
        domain=MICROSOFT,
        embedding_size=filters if sizes else None,
        conv_window_size=window if sizes else None,
        char_embedding_size=size if sizes else None,
    )


@operator(0.6)
def gated_delta_net(g):
    rule = g.one_of(("linear", "gated", "delta", "gated_delta", None))
    heads, groups = g.one_of(((1, 1), (1, 3), (2, 4), (2, 2)))
    batch, length, size, wide = g.between(1, 2), g.between(1, 5), g.between(1, 5), g.between(1, 5)
    tokens = (batch, length) if g.chance(0.4) else (batch * length,)
    if g.chance(0.3):
        columns = 2 * heads * size + groups * wide
        inputs = [g.fresh("f32", tokens + (columns,), -1, 1), None, None]
    else:
        shapes = [(heads, size), (heads, size), (groups, wide)]
        inputs = [g.fresh("f32", tokens + shape, -1, 1) for shape in shapes]
    inputs += [None] * 6
    activation, sigmoid = None, None
    if "gated" in (rule or "gated_delta"):
        each = (size,) if g.chance(0.4) else ()
        inputs[4] = g.fresh("f32", tokens + (groups,) + each, -2, 0)
        activation = g.one_of(("none", "qwen", None))
    if "delta" in (rule or "gated_delta"):
        inputs[5] = g.fresh("f32", tokens + (groups,), 0, 1)
        sigmoid = g.one_of(("none", "sigmoid", None))
    inputs[6] = g.fresh("f32", (batch, groups, wide, size), -1, 1)
    if activation == "qwen":
        inputs[7:9] = [g.fresh("f32", (groups,), -1, 1) for _ in range(2)]
    g.node(
        "GatedDeltaNet",
        inputs,
        kind="smooth",
        outputs=2,
        scale=16,
        domain=MICROSOFT,
        update_rule=rule,
        gate_activation=activation,
        beta_activation=sigmoid,
    )


@operator(0.4)
def time_warping(g):
    shape = (g.between(1, 7), g.between(1, 7))
    if g.chance(0.3):
        shape = (1,) + shape
    values = g.rng.uniform(0, 3, shape).astype(np.float32)
    if g.chance(0.4):  # of which no way, or not each, costs a finite sum
        some = g.rng.random(shape) < g.one_of((0.2, 0.6, 1))
        values[some] = g.rng.choice(g.one_of(([np.inf], [np.nan], [np.inf, np.nan])), some.sum())
    costs = g.add(values)
    g.frozen.add(costs.name)
    path = g.node("DynamicTimeWarping", [costs], domain=MICROSOFT)
    g.told.update(value.name for value in path)
