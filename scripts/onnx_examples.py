"""Models of one operator for onnx_support.py, where ONNX has none, or none of some type."""

from onnx import TensorProto, helper


def f(*shape):
    """An input of this shape; its type is one that the operator has."""
    return "float", shape


def i(*shape):
    return "int64", shape


def n(*shape):
    return "int32", shape


def u(*shape):
    return "uint8", shape


def b(*shape):
    return "int8", shape


def m(key, value):
    """An input that is a map."""
    return f"{key} {value}", ()


def constant(code, shape, *values):
    """An input that the model gives, as shapes must be."""
    return helper.make_tensor("constant", code, shape, values)


TREE = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [0, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_values": [0.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}
SVM = {"support_vectors": [1.0, 2.0], "kernel_type": "LINEAR", "coefficients": [1.0, -1.0]}
CATEGORIES = {"cats_int64s": [1], "cats_strings": ["a"]}
QEMBED = [u(9, 8), u(9, 8), u(2, 8), u(8), u(8), n(1, 3)] + [f()] * 5 + [u()] * 5
QLINEAR = [u(4), f(), u(), u(4), f(), u(), f(), u()]
POOLED = [u(1, 2, 4, 4), f(), u(), f(), u()]

# domain, operator, inputs, number of outputs, attributes
EXAMPLES = [
    ("", "Constant", [], 1, {"value_strings": ["a"]}),
    ("", "GlobalLpPool", [f(1, 2, 4, 4)], 1, {}),
    ("", "MaxRoiPool", [f(1, 2, 6, 6), f(1, 5)], 1, {"pooled_shape": [2, 2]}),
    ("", "Multinomial", [f(1, 4)], 1, {"sample_size": 3, "seed": 1.0, "dtype": 6}),
    (
        "",
        "TfIdfVectorizer",
        [("string", (3,))],
        1,
        {
            "mode": "TF",
            "min_gram_length": 1,
            "max_gram_length": 1,
            "max_skip_count": 0,
            "ngram_counts": [0],
            "ngram_indexes": [0, 1],
            "pool_strings": ["a", "b"],
        },
    ),
    ("", "RandomNormal", [], 1, {"shape": [2, 3], "seed": 1.0, "dtype": 1}),
    ("", "RandomNormalLike", [f(2, 3)], 1, {"seed": 1.0, "dtype": 1}),
    ("", "RandomUniform", [], 1, {"shape": [2, 3], "seed": 1.0, "dtype": 1}),
    ("", "RandomUniformLike", [f(2, 3)], 1, {"seed": 1.0, "dtype": 1}),
    ("ai.onnx.ml", "CategoryMapper", [("string", (3,))], 1, CATEGORIES),
    ("ai.onnx.ml", "CategoryMapper", [i(3)], 1, CATEGORIES),
    ("ai.onnx.ml", "FeatureVectorizer", [f(1, 2), f(1, 3)], 1, {"inputdimensions": [2, 3]}),
    (
        "ai.onnx.ml",
        "Imputer",
        [f(2, 2)],
        1,
        {"imputed_value_floats": [1.0, 2.0], "replaced_value_float": -1.0},
    ),
    (
        "ai.onnx.ml",
        "Imputer",
        [i(2, 2)],
        1,
        {"imputed_value_int64s": [7], "replaced_value_int64": -1},
    ),
    (
        "ai.onnx.ml",
        "LinearClassifier",
        [f(2, 1)],
        2,
        {"coefficients": [1.0, -1.0], "intercepts": [0.0, 0.0], "classlabels_ints": [4, 8]},
    ),
    (
        "ai.onnx.ml",
        "LinearClassifier",
        [f(2, 1)],
        2,
        {"coefficients": [1.0, -1.0], "intercepts": [0.0, 0.0], "classlabels_strings": ["a", "b"]},
    ),
    ("ai.onnx.ml", "LabelEncoder", [i(3)], 1, {"keys_int64s": [1], "values_floats": [0.5]}),
    ("ai.onnx.ml", "LabelEncoder", [i(3)], 1, {"keys_int64s": [1], "values_strings": ["a"]}),
    ("ai.onnx.ml", "LabelEncoder", [f(3)], 1, {"keys_floats": [1.0], "values_int64s": [1]}),
    *[
        (
            "ai.onnx.ml",
            "LabelEncoder",
            [(word, (3,))],
            1,
            {
                "keys_tensor": helper.make_tensor("k", code, [1], [1]),
                "values_tensor": helper.make_tensor("v", code, [1], [2]),
                "default_tensor": helper.make_tensor("d", code, [1], [0]),
            },
        )
        for word, code in (
            ("int32", TensorProto.INT32),
            ("int16", TensorProto.INT16),
            ("double", TensorProto.DOUBLE),
        )
    ],
    ("ai.onnx.ml", "LinearRegressor", [f(2, 2)], 1, {"coefficients": [1.0, 2.0]}),
    ("ai.onnx.ml", "Normalizer", [f(2, 2)], 1, {"norm": "L2"}),
    ("ai.onnx.ml", "OneHotEncoder", [f(3)], 1, {"cats_int64s": [1, 5], "zeros": 1}),
    ("ai.onnx.ml", "OneHotEncoder", [("string", (3,))], 1, {"cats_strings": ["a", "b"]}),
    ("ai.onnx.ml", "Scaler", [f(2, 2)], 1, {"offset": [1.0, 2.0], "scale": [0.5, 2.0]}),
    (
        "ai.onnx.ml",
        "SVMClassifier",
        [f(2, 1)],
        2,
        {**SVM, "vectors_per_class": [1, 1], "rho": [0.25], "classlabels_ints": [4, 8]},
    ),
    (
        "ai.onnx.ml",
        "SVMClassifier",
        [f(2, 1)],
        2,
        {**SVM, "vectors_per_class": [1, 1], "rho": [0.25], "classlabels_strings": ["a", "b"]},
    ),
    ("ai.onnx.ml", "SVMRegressor", [f(2, 1)], 1, {**SVM, "n_supports": 2, "rho": [0.5]}),
    (
        "ai.onnx.ml",
        "TreeEnsembleClassifier",
        [f(2, 1)],
        2,
        {
            **TREE,
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [0, 0],
            "class_weights": [0.25, 0.75],
            "classlabels_int64s": [4, 8],
        },
    ),
    (
        "ai.onnx.ml",
        "TreeEnsembleClassifier",
        [f(2, 1)],
        2,
        {
            **TREE,
            "class_treeids": [0, 0],
            "class_nodeids": [1, 2],
            "class_ids": [0, 0],
            "class_weights": [0.25, 0.75],
            "classlabels_strings": ["a", "b"],
        },
    ),
    (
        "ai.onnx.ml",
        "TreeEnsembleRegressor",
        [f(2, 1)],
        1,
        {
            **TREE,
            "n_targets": 1,
            "target_treeids": [0, 0],
            "target_nodeids": [1, 2],
            "target_ids": [0, 0],
            "target_weights": [1.0, 2.0],
        },
    ),
    ("ai.onnx.ml", "CastMap", [m("int64", "float")], 1, {"cast_to": "TO_FLOAT"}),
    ("ai.onnx.ml", "CastMap", [m("int64", "float")], 1, {"cast_to": "TO_INT64"}),
    ("ai.onnx.ml", "CastMap", [m("int64", "string")], 1, {"cast_to": "TO_STRING"}),
    ("ai.onnx.ml", "ZipMap", [f(1, 2)], 1, {"classlabels_int64s": [1, 2]}),
    ("ai.onnx.ml", "ZipMap", [f(1, 2)], 1, {"classlabels_strings": ["a", "b"]}),
]
EXAMPLES += [
    ("ai.onnx.ml", "DictVectorizer", [m(key, value)], 1, vocabulary)
    for key, other, vocabulary in [
        ("int64", "string", {"int64_vocabulary": [1, 2]}),
        ("string", "int64", {"string_vocabulary": ["a"]}),
    ]
    for value in ("float", "double", other)
]
EXAMPLES += [
    ("com.microsoft", *row)
    for row in [
        ("Attention", [f(1, 3, 8), f(8, 24), f(24)], 1, {"num_heads": 2}),
        ("Attention", [f(1, 3, 8), f(8, 24), f(24), n(1, 3)], 1, {"num_heads": 2}),
        ("BiasAdd", [f(1, 3, 4), f(4), f(1, 3, 4)], 1, {}),
        ("BiasDropout", [f(2, 3), f(3), f(2, 3)], 2, {}),
        ("BiasGelu", [f(2, 3), f(3)], 1, {}),
        ("BiasSoftmax", [f(1, 2, 3), f(2, 3)], 1, {"axis": 2, "is_inner_broadcast": 0}),
        ("BiasSplitGelu", [f(1, 3, 4), f(4)], 1, {}),
        ("BitmaskDropout", [f(2, 3)], 1, {}),
        ("BranchwiseRMSNorm", [f(2, 3, 4), f(4)], 1, {}),
        ("CausalConvWithState", [f(1, 3, 5), f(3, 1, 4), f(3), f(1, 3, 3)], 2, {}),
        ("CDist", [f(2, 3), f(4, 3)], 1, {"metric": "euclidean"}),
        ("ComplexMul", [f(3, 2), f(3, 2)], 1, {}),
        ("ComplexMulConj", [f(3, 2), f(3, 2)], 1, {}),
        (
            "ConvTransposeWithDynamicPads",
            [f(1, 2, 4, 4), f(2, 3, 3, 3), constant(TensorProto.INT64, (4,), 1, 1, 0, 0), f(3)],
            1,
            {},
        ),
        (
            "CropAndResize",
            [f(1, 2, 4, 4), f(3, 4), n(3), constant(TensorProto.INT32, (2,), 2, 3)],
            1,
            {},
        ),
        (
            "DecoderMaskedMultiHeadAttention",
            [f(1, 1, 8), f(1, 2, 3, 4), f(1, 2, 3, 4), n(1, 3)],
            1,
            {"num_heads": 2},
        ),
        ("DequantizeLinear", [u(4), f(), u()], 1, {}),
        ("DequantizeLinear", [n(4), f()], 1, {}),
        ("DynamicQuantizeMatMul", [f(2, 4), b(4, 3), f(), b()], 1, {}),
        (
            "DynamicQuantizeLSTM",
            [f(2, 1, 3), b(1, 3, 8), b(1, 2, 8), f(1, 16), constant(TensorProto.INT32, (1,), 2)]
            + [f(1, 1, 2), f(1, 1, 2), f(1, 6), f(1), b(1), f(1), b(1)],
            3,
            {"hidden_size": 2},
        ),
        ("DynamicTimeWarping", [f(3, 4)], 1, {}),
        (
            "EmbedLayerNormalization",
            [n(1, 3), n(1, 3), f(9, 8), f(9, 8), f(2, 8), f(8), f(8), n(1, 3)],
            2,
            {},
        ),
        (
            "EngramGate",
            [f(1, 3, 2, 4), f(1, 3, 2, 4), f(1, 3, 4), f(2, 4), f(2, 4), f(2, 4)],
            2,
            {},
        ),
        ("ExpandDims", [f(2, 3), constant(TensorProto.INT32, (), 1)], 1, {}),
        ("FastGelu", [f(2, 3), f(3)], 1, {}),
        ("FusedConv", [f(1, 2, 5, 5), f(3, 2, 3, 3), f(3)], 1, {"activation": "Relu"}),
        ("FusedGemm", [f(2, 3), f(3, 4), f(4)], 1, {"activation": "Relu"}),
        ("FusedMatMul", [f(2, 3), f(3, 4)], 1, {"alpha": 0.5}),
        ("FusedMatMulActivation", [f(2, 3), f(3, 4)], 1, {"activation": "Relu"}),
        ("GatedAdd", [f(2, 3), f(2, 3), f(2, 1)], 1, {}),
        (
            "GatedDeltaNet",
            [f(3, 1, 4), f(3, 1, 4), f(3, 2, 5), None, f(3, 2), f(3, 2), f(1, 2, 5, 4)],
            2,
            {},
        ),
        ("GatedRMSNorm", [f(2, 8), f(4), f(2, 8)], 1, {}),
        (
            "GatedRelativePositionBias",
            [f(1, 3, 8), f(8), f(1, 2, 3, 3), f(4, 8), f(8), f(1, 2, 1, 1)],
            1,
            {"num_heads": 2},
        ),
        (
            "GatherBlockQuantized",
            [u(4, 16), i(2), f(4, 2), u(4, 1)],
            1,
            {"bits": 4, "block_size": 16, "quantize_axis": 1},
        ),
        (
            "GatherBlockQuantized",
            [("uint4", (4, 32)), i(2), f(4, 2), ("uint4", (4, 2))],
            1,
            {"bits": 4, "block_size": 16, "quantize_axis": 1},
        ),
        ("GatherND", [f(3, 4), i(2, 1)], 1, {}),
        ("Gelu", [f(2, 3)], 1, {}),
        (
            "GemmaRotaryEmbedding",
            [f(1, 3, 4)] + [("float16", (1, 2, 3, 4))] * 4,
            2,
            {},
        ),
        ("GemmFastGelu", [f(2, 3), f(3, 4), f(4)], 1, {}),
        ("GridSample", [f(1, 2, 4, 4), f(1, 3, 3, 2)], 1, {}),
        (
            "GroupQueryAttention",
            [f(1, 2, 8), f(1, 2, 4), f(1, 2, 4), f(1, 1, 3, 4), f(1, 1, 3, 4), n(1), n()],
            3,
            {"num_heads": 2, "kv_num_heads": 1},
        ),
        ("GroupNorm", [f(1, 4, 4, 8), f(8), f(8)], 1, {"groups": 2, "activation": 1}),
        ("HyperConnectionPostMix", [f(2, 3, 4), f(2, 4), f(2, 3), f(2, 3, 3)], 1, {}),
        ("HyperConnectionPreMix", [f(2, 3, 4), f(2, 3)], 1, {}),
        (
            "LinearAttention",
            [f(1, 3, 8), f(1, 3, 4), f(1, 3, 5), f(1, 1, 4, 5), f(1, 3, 1), f(1, 3, 1)],
            2,
            {"q_num_heads": 2, "kv_num_heads": 1},
        ),
        ("LinearAttentionGate", [f(1, 3, 2), f(2), f(2), f(1, 3, 2)], 2, {}),
        (
            "MatMulBlockQuantizedFp4Weight",
            [("float16", (2, 32)), u(3, 16), u(3, 2), f(), None, ("float16", (3,))],
            1,
            {},
        ),
        (
            "MatMulBlockQuantizedFp8Weight",
            [("float16", (2, 8)), ("float8e4m3fn", (3, 8)), f(3, 1), f(), ("float16", (3,))],
            1,
            {},
        ),
        (
            "MatMulBnb4",
            [f(2, 32), u(48), f(6)],
            1,
            {"K": 32, "N": 3, "block_size": 16, "quant_type": 1},
        ),
        ("Inverse", [f(2, 3, 3)], 1, {}),
        ("Irfft", [f(2, 3, 2)], 1, {"signal_ndim": 1}),
        ("IsAllFinite", [f(2, 3), f(4)], 1, {}),
        ("MatMulInteger16", [("int16", (2, 3)), ("int16", (3, 4))], 1, {}),
        ("MatMulInteger16", [("uint16", (2, 3)), ("uint16", (3, 4))], 1, {}),
        ("MatMulIntegerToFloat", [u(2, 4), b(4, 3), f(), f(), u(), b()], 1, {}),
        (
            "MatMulNBits",
            [f(2, 32), u(3, 2, 8), f(6), u(3)],
            1,
            {"K": 32, "N": 3, "bits": 4, "block_size": 16},
        ),
        (
            "MatMulNBitsMlp",
            [f(2, 32), f(2, 32), f(32)] + [u(3, 1, 16), f(3, 1), f(3)] * 2,
            2,
            {"K": 32, "N": 3, "bits": 4, "block_size": 32, "activation": "silu"},
        ),
        (
            "MatMulNBitsQkv",
            [f(2, 32), None, f(32), u(3, 1, 16), f(3, 1), f(3)] + [u(2, 1, 16), f(2, 1), f(2)] * 2,
            3,
            {"K": 32, "Nq": 3, "Nkv": 2, "bits": 4, "block_size": 32},
        ),
        (
            "MRotaryEmbedding",
            [f(1, 2, 3, 8), i(3, 1, 3), f(6, 4), f(6, 4)],
            1,
            {"mrope_section": [2, 1, 1]},
        ),
        ("MulInteger", [u(3), u(), u(3), u()], 1, {}),
        (
            "MoE",
            [f(2, 4), f(2, 3), f(3, 6, 4), f(3, 6), f(3, 4, 6), f(3, 4)],
            1,
            {"k": 2},
        ),
        (
            "MultiHeadAttention",
            [f(1, 3, 8), f(1, 3, 8), f(1, 3, 8), f(24), n(1, 3)],
            1,
            {"num_heads": 2},
        ),
        ("NhwcConv", [f(1, 5, 5, 2), f(3, 3, 3, 2), f(3)], 1, {}),
        ("NhwcFusedConv", [f(1, 5, 5, 2), f(3, 2, 3, 3), f(3)], 1, {"activation": "Relu"}),
        ("NhwcMaxPool", [u(1, 4, 4, 2)], 1, {"kernel_shape": [2, 2]}),
        ("MurmurHash3", [i(3)], 1, {}),
        ("MurmurHash3", [i(3)], 1, {"positive": 0}),
        ("MurmurHash3", [("string", (3,))], 1, {}),
        (
            "NGramHashMapping",
            [i(1, 5), i(3), i(4), i(1, 2)],
            2,
            {"max_ngram_size": 3, "n_head_per_ngram": 2, "pad_id": 0},
        ),
        ("NGramRepeatBlock", [i(1, 5), f(1, 9)], 1, {"ngram_size": 2}),
        ("Pad", [f(2, 3), constant(TensorProto.INT64, (4,), 0, 1, 1, 0), f()], 1, {}),
        ("QAttention", [u(1, 3, 8), b(8, 24), f(24), f(), f(), n(1, 3)], 1, {"num_heads": 2}),
        ("QEmbedLayerNormalization", [n(1, 3), n(1, 3)] + QEMBED, 2, {}),
        ("QGemm", [u(2, 4), f(), u(), b(4, 3), f(), b(), n(3), f(), u()], 1, {}),
        ("QGemm", [b(2, 4), f(), b(), b(4, 3), f(), b(), n(3), f(), b()], 1, {}),
        ("QGemm", [u(2, 4), f(), u(), b(4, 3), f(), b(), n(3)], 1, {}),
        ("QLinearAdd", QLINEAR, 1, {}),
        (
            "QLinearConv",
            [u(1, 5, 5, 2), f(), u(), b(3, 2, 3, 3), f(), b(), f(), u(), n(3)],
            1,
            {"channels_last": 1},
        ),
        (
            "QLinearConv",
            [b(1, 5, 5, 2), f(), b(), u(3, 2, 3, 3), f(), u(), f(), b(), n(3)],
            1,
            {"channels_last": 1},
        ),
        ("QLinearMul", QLINEAR, 1, {}),
        ("QLinearAveragePool", POOLED, 1, {"kernel_shape": [2, 2]}),
        ("QLinearGlobalAveragePool", POOLED, 1, {}),
        ("QLinearConcat", [f(), u(), u(1, 2), f(), u(), u(1, 2), f(), u()], 1, {"axis": 1}),
        ("QLinearLeakyRelu", [u(4), f(), u(), f(), u()], 1, {"alpha": 0.5}),
        ("QLinearReduceMean", POOLED, 1, {"axes": [1], "keepdims": 1}),
        ("QLinearSigmoid", [u(4), f(), u(), f(), u()], 1, {}),
        (
            "QLinearWhere",
            [("bool", (4,)), u(4), f(), u(), u(4), f(), u(), f(), u()],
            1,
            {},
        ),
        (
            "QMoE",
            [f(2, 16), f(2, 3), u(3, 32, 8), f(3, 32), f(3, 32), u(3, 16, 16), f(3, 16), f(3, 16)],
            1,
            {"k": 2},
        ),
        ("QLinearSoftmax", [u(1, 4), f(), u(), f(), u()], 1, {"axis": -1, "opset": 13}),
        ("QuantizeLinear", [f(4), f(), u()], 1, {}),
        ("QuickGelu", [f(2, 3)], 1, {}),
        ("Range", [constant(TensorProto.FLOAT, (), v) for v in (1, 9, 2)], 1, {}),
        (
            "RelativePositionBias",
            [f(8, 2)] + [constant(TensorProto.INT64, (1,), 5)] * 2,
            1,
            {"max_distance": 16},
        ),
        ("Rfft", [f(2, 4)], 1, {"signal_ndim": 1}),
        ("RotaryEmbedding", [f(1, 2, 3, 4), i(1, 3), f(8, 2), f(8, 2)], 1, {}),
        (
            "SkipGroupNorm",
            [f(1, 4, 4, 8), f(8), f(8), f(1, 8), f(8)],
            2,
            {"groups": 2, "activation": 1},
        ),
        ("ScaledSiLU", [f(2, 3), f()], 1, {}),
        ("SkipLayerNormalization", [f(1, 3, 8), f(1, 3, 8), f(8), f(8), f(8)], 1, {}),
        ("SkipSimplifiedLayerNormalization", [f(1, 3, 8), f(1, 3, 8), f(8)], 1, {}),
        (
            "SparseAttention",
            [f(1, 2, 32), f(1, 2, 16), f(1, 2, 16), f(1, 1, 32, 16), f(1, 1, 32, 16)]
            + [n(1, 3), n(1, 3), n(1), n(1)],
            3,
            {"num_heads": 2, "kv_num_heads": 1, "sparse_block_size": 16},
        ),
        *[
            (
                "Tokenizer",
                [("string", (3,))],
                1,
                {"mark": 0, "mincharnum": 1, "pad_value": "#", **parts},
            )
            for parts in ({"tokenexp": "[a-z]+"}, {"separators": [" "]})
        ],
        ("TransposeMatMul", [f(2, 3), f(3, 4)], 1, {"alpha": 0.5}),
        ("Trilu", [f(3, 4), i()], 1, {}),
        ("UnfoldTensor", [f(2, 5)], 1, {"size": 2, "step": 2}),
        ("Unique", [f(4)], 3, {}),
        ("WordConvEmbedding", [n(2, 5), f(4, 1, 3, 2), f(4), f(9, 2)], 1, {}),
    ]
]

# What takes several nodes: operator -> constraint, body of a graph from x to y.
PAIR = "s = SequenceConstruct(x, x) i = Constant<value = int64 {1}>() "
LONGER = {
    "ConcatFromSequence": ("T", PAIR + "y = ConcatFromSequence<axis = 0>(s)"),
    "If": (
        "V",
        "c = Constant<value = bool {1}>() y = If<"
        "then_branch = yes () => (TYPE[2] t) { t = Identity(x) }, "
        "else_branch = no () => (TYPE[2] e) { e = Identity(x) }>(c)",
    ),
    "Loop": (
        "V",
        "i = Constant<value = int64 {3}>() c = Constant<value = bool {1}>() "
        "y = Loop<body = again (int64 k, bool go, TYPE[2] v) => (bool on, TYPE[2] w) "
        "{ on = Identity(go) w = Identity(v) }>(i, c, x)",
    ),
    "Optional": ("V", "o = Optional(x) y = OptionalGetElement(o)"),
    "OptionalGetElement": ("O", "o = Optional(x) y = OptionalGetElement(o)"),
    "OptionalHasElement": ("O", "o = Optional(x) h = OptionalHasElement(o) y = Identity(x)"),
    "Scan": (
        "V",
        "y = Scan<num_scan_inputs = 1, body = each (TYPE v) => (TYPE w) { w = Identity(v) }>(x)",
    ),
    "SequenceAt": ("T", PAIR + "y = SequenceAt(s, i)"),
    "SequenceConstruct": ("T", PAIR + "y = SequenceAt(s, i)"),
    "SequenceInsert": ("T", PAIR + "t = SequenceInsert(s, x) y = SequenceAt(t, i)"),
    "SequenceMap": (
        "V",
        PAIR + "t = SequenceMap<body = each (TYPE[2] a) => (TYPE[2] b) { b = Identity(a) }>(s) "
        "y = SequenceAt(t, i)",
    ),
}
