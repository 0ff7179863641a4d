"""Operators of com.microsoft for language models that mix attention with recurrences."""

import numpy as np

from .dtypes import NUMPY
from .table import operator

MICROSOFT = "com.microsoft"
SMALL = ("f32", "f32", "f16")


@operator(0.7)
def linear_attention(g):
    rule = g.one_of(("linear", "gated", "delta", "gated_delta", None))
    heads, groups, keys = g.one_of(((4, 2, 2), (2, 2, 2), (1, 1, 1), (2, 4, 2), (2, 4, 1), (1, 3, 1)))
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
        g.node(name, inputs, kind="smooth", scale=4, outputs=1 + beta, domain=MICROSOFT)
    elif name == "GatedRMSNorm":
        shape = lead + (wide * g.between(1, 3),)
        inputs = [g.fresh(dtype, shape), g.fresh(dtype, (wide,)), g.fresh(dtype, shape)]
        g.node(
            name,
            inputs,
            kind="smooth",
            scale=8,
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
    g.node(name, inputs, kind="smooth", scale=8, domain=MICROSOFT, **attributes)


@operator(0.5)
def engram_gate(g):
    dtype = g.one_of(SMALL)
    batch, length, count, size = g.between(1, 2), g.between(1, 4), g.between(1, 3), g.one_of((1, 4, 9))
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
        scale=16,
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
