"""One random model from a seed."""

import numpy as np

from . import ops_control, ops_conv, ops_elementwise, ops_hybrid, ops_move  # noqa: F401
from . import ops_microsoft, ops_network, ops_pattern, ops_quant, ops_reduce  # noqa: F401
from .builder import Builder, Reject
from .table import OPERATORS

WEIGHTS = np.array([weight for _, weight, _ in OPERATORS])
WEIGHTS = WEIGHTS / WEIGHTS.sum()


# What large tensors are for.
DENSE = (
    "matmul",
    "gemm",
    "conv",
    "conv_chain",
    "pool",
    "reduce",
    "softmax",
    "perceptron",
    "einsum",
    "attention_by_hand",
    "normalization",
    "transpose",
    "rows_by_hand",
    "matmul_integer",
)


def swarm(rng, only):
    """How likely each operator is: in half of the models a few are all there is, so that these meet
    more often. only: names of those that there may be, or nothing."""
    if only:
        weights = np.array([float(name in only) for name, _, _ in OPERATORS])
        return weights / weights.sum()
    if rng.random() < 0.5:
        return WEIGHTS
    few = rng.choice(len(WEIGHTS), int(rng.integers(3, 11)), replace=False, p=WEIGHTS)
    weights = np.zeros(len(WEIGHTS))
    weights[few] = 1 / len(few)
    return weights


def random_model(seed, number, rejects=None, preferred=(), only=()):
    """Model `number` of the run `seed`: a Builder. rejects: a dict that counts why nodes were not
    taken, by operator. preferred: names of operators that half of the nodes are taken from;
    only: all of them."""
    rng = np.random.default_rng([seed, number])
    g = Builder(rng)
    weights = swarm(rng, only)
    if g.large:
        weights = weights * np.array([3 if name in DENSE else 1 for name, _, _ in OPERATORS])
        weights = weights / weights.sum()
    wanted = int(rng.integers(1, 31)) if rng.random() < 0.7 else int(rng.integers(1, 5))
    if g.large:
        wanted = min(wanted, 5)
    tries = 0
    while len(g.nodes) < wanted and tries < 6 * wanted + 20:
        tries += 1
        name, _, function = OPERATORS[int(rng.choice(len(OPERATORS), p=weights))]
        if name not in preferred and preferred and rng.random() < 0.5:
            continue
        before = dict(g.values), list(g.nodes), list(g.inputs), list(g.constants)
        try:
            function(g)
        except Reject as reason:
            if rejects is not None:
                rejects.setdefault((name, str(reason)[:100]), [0, number])[0] += 1
            # what was made for the node goes with it
            g.values, g.nodes, g.inputs, g.constants = before
    return g
