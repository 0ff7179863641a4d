"""Element types, by the names that mlcc has for them, and random data."""

import ml_dtypes
import numpy as np
from onnx import TensorProto as T

# name: (ONNX's number, numpy's type)
TYPES = {
    "f32": (T.FLOAT, np.float32),
    "f64": (T.DOUBLE, np.float64),
    "f16": (T.FLOAT16, np.float16),
    "bf16": (T.BFLOAT16, ml_dtypes.bfloat16),
    "i8": (T.INT8, np.int8),
    "i16": (T.INT16, np.int16),
    "i32": (T.INT32, np.int32),
    "i64": (T.INT64, np.int64),
    "u8": (T.UINT8, np.uint8),
    "u16": (T.UINT16, np.uint16),
    "u32": (T.UINT32, np.uint32),
    "u64": (T.UINT64, np.uint64),
    "bool": (T.BOOL, np.bool_),
    "f8e4m3fn": (T.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": (T.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": (T.FLOAT8E5M2, ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": (T.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz),
    "i4": (T.INT4, ml_dtypes.int4),
    "u4": (T.UINT4, ml_dtypes.uint4),
    "f4e2m1": (T.FLOAT4E2M1, ml_dtypes.float4_e2m1fn),
}
NUMPY = {name: np.dtype(numpy) for name, (_, numpy) in TYPES.items()}
ONNX = {name: number for name, (number, _) in TYPES.items()}
NAME_OF_NUMPY = {dtype: name for name, dtype in NUMPY.items()}
NAME_OF_ONNX = {number: name for name, number in ONNX.items()}

FLOATS = ("f32", "f64", "f16", "bf16")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
COMMON = NUMBERS + ("bool",)
SMALL = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "i4", "u4", "f4e2m1")
REAL = FLOATS + tuple(t for t in SMALL if t[0] == "f")

# Bits of the significand.
PRECISION = {"f32": 24, "f64": 53, "f16": 11, "bf16": 8}
PRECISION |= {"f8e4m3fn": 4, "f8e4m3fnuz": 4, "f8e5m2": 3, "f8e5m2fnuz": 3, "f4e2m1": 2}

# How often a type is taken where any would do.
WEIGHT = {"f32": 10, "i64": 7, "i32": 6, "bool": 3, "u8": 3, "i8": 3, "f16": 3, "f64": 2}
WEIGHT |= {"bf16": 1, "i16": 1, "u16": 1, "u32": 1, "u64": 2}

DIMS = (1, 2, 3, 5, 7, 8, 16, 17, 31, 33)
LONG = (3, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 100, 127, 128)
LARGEST = 2048  # elements of a tensor


def name_of(array):
    return NAME_OF_NUMPY[array.dtype]


def epsilon(dtype):
    return 2.0 ** (1 - PRECISION[dtype])


def in_turn(image):
    """The most that rounding adds to the mean of each channel of an image, whose elements are taken
    one after the other: every sum so far is rounded."""
    count, largest = np.prod(image.shape[2:]), np.abs(wide(image.array)).max(initial=0.0)
    return count * epsilon(image.dtype) / 2 * largest


def wide(array):
    """As float64, which holds every real type that is compared by error bounds."""
    return array.astype(np.float64)


def to_bytes(array):
    """As mlcc lays tensors out: 4-bit types take a byte, signed ones with their sign."""
    name = name_of(array)
    if name == "i4":
        array = array.astype(np.int8)
    return np.ascontiguousarray(array).tobytes()


def from_bytes(data, name, shape):
    if name == "i4":
        return np.frombuffer(data, np.int8).reshape(shape).astype(NUMPY["i4"])
    return np.frombuffer(data, NUMPY[name]).reshape(shape)


def stored_bytes(name):
    return NUMPY[name].itemsize


def pick_type(rng, types):
    weights = np.array([WEIGHT.get(t, 1) for t in types], float)
    return types[rng.choice(len(types), p=weights / weights.sum())]


def pick_shape(rng, dims, low, high, most):
    """A shape of rank low to high; ranks 0 and 1 are likely where they may be."""
    ranks = np.arange(low, high + 1)
    weights = np.array([3, 4, 3, 2.5, 2, 1.5])[ranks]
    rank = int(rng.choice(ranks, p=weights / weights.sum()))
    shape, size = [], 1
    for _ in range(rank):
        fitting = [d for d in dims if d * size <= most] or [1]
        if rank > 2 and rng.random() < 0.6:
            fitting = [d for d in fitting if d <= 8] or fitting
        shape.append(int(rng.choice(fitting)))
        size *= shape[-1]
    rng.shuffle(shape)
    if shape and rng.random() < 0.01:
        shape[int(rng.integers(rank))] = 0
    return tuple(shape)


def int_range(name):
    if name in ("i4", "u4"):
        info = ml_dtypes.iinfo(NUMPY[name])
    else:
        info = np.iinfo(NUMPY[name])
    return int(info.min), int(info.max)


def pick_ints(rng, name, shape, low=None, high=None):
    least, most = int_range(name)
    if low is None:
        style = rng.random()
        if style < 0.6:
            low, high = -5, 9
        elif style < 0.8:
            low, high = least, most
        else:  # at the ends of the range
            near = rng.integers(0, 3, shape)
            ends = rng.random(shape) < 0.5
            values = [
                (least + int(n)) if e else (most - int(n)) for n, e in zip(near.flat, ends.flat)
            ]
            return np.array(values, object).reshape(shape).astype(NUMPY[name])
    low, high = max(low, least), min(high, most)
    kind = np.uint64 if high > 2**63 - 1 else np.int64
    return rng.integers(low, high, shape, dtype=kind, endpoint=True).astype(NUMPY[name])


def pick_floats(rng, name, shape, low=None, high=None, special=False):
    """Multiples of 1/4, which sums and products keep exact, or any numbers; special: with NaN,
    infinities and zeros of both signs among them."""
    if low is None:
        low, high = (-4, 4) if rng.random() < 0.8 else (-100, 100)
    if rng.random() < 0.6:
        step = 1.0 if rng.random() < 0.5 else 0.25
        values = (
            rng.integers(
                int(np.ceil(low / step)), int(np.floor(high / step)), shape, endpoint=True
            )
            * step
        )
        if not np.all((values >= low) & (values <= high)):
            values = rng.uniform(low, high, shape)
    else:
        values = rng.uniform(low, high, shape)
    values = np.asarray(values, np.float64)
    if special and values.size:
        some = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0])
        values = np.where(rng.random(shape) < 0.3, some[rng.integers(0, 5, shape)], values)
    return np.asarray(values).astype(NUMPY[name])


def pick_data(rng, name, shape, low=None, high=None, special=False):
    if name == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if name in REAL:
        if name == "f4e2m1":
            low, high = -6, 6
        array = pick_floats(rng, name, shape, low, high, special and name != "f4e2m1")
        if name.startswith("f8") and not special:
            array = np.where(np.isfinite(wide(array)), array, np.zeros_like(array))
        return array
    return pick_ints(rng, name, shape, low, high)
