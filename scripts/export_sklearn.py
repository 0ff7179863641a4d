"""Trains estimators of scikit-learn, LightGBM and XGBoost on made-up data and exports them to ONNX.

    export_sklearn.py FOLDER GLOB

Writes FOLDER/NAME.onnx, and NAME.npz with a few rows of the data, of each estimator that skl2onnx
has a converter for, whose name fits and that is not there yet. The number of rows is open.
"""

import fnmatch
import pathlib
import sys
import warnings

import lightgbm
import numpy as np
import onnxmltools
import sklearn.linear_model
import sklearn.preprocessing
import sklearn.tree
import xgboost
from onnxmltools.convert.common.data_types import FloatTensorType
from skl2onnx import supported_converters, to_onnx
from sklearn.datasets import make_classification, make_regression
from sklearn.utils import all_estimators

ROWS = 7  # of the example
OPSETS = {"": 15, "ai.onnx.ml": 3}

# What skl2onnx cannot convert of these, or not as they are fitted here; ONNX Runtime wants a locale
# for texts; a sequence of results is not compared. Of KNNImputer the branches of an If have other
# ranks, which mlcc refuses.
LEFT_OUT = """
    CountVectorizer DictVectorizer FeatureHasher GaussianProcessClassifier GaussianRandomProjection
    GridSearchCV HistGradientBoostingClassifier HistGradientBoostingRegressor KBinsDiscretizer
    KernelCenterer KNNImputer LocalOutlierFactor MultiOutputClassifier NearestNeighbors
    QuadraticDiscriminantAnalysis RandomTreesEmbedding RFECV SparseCoder TargetEncoder
    TfidfVectorizer TunedThresholdClassifierCV VotingClassifier
""".split()

LOGISTIC, RIDGE = sklearn.linear_model.LogisticRegression(), sklearn.linear_model.Ridge()
TREE = sklearn.tree.DecisionTreeRegressor(max_depth=4)
CLASSES = sklearn.tree.DecisionTreeClassifier(max_depth=4)
SCALERS = [("a", sklearn.preprocessing.StandardScaler()),
           ("b", sklearn.preprocessing.MinMaxScaler())]
META = """
    ClassifierChain OneVsOneClassifier OneVsRestClassifier OutputCodeClassifier RFE SelectFromModel
    SelfTrainingClassifier
""".split()

# Of estimators that cannot be made without: what they are made of.
PARTS = {name: {"estimator": LOGISTIC} for name in META} | {
    "CalibratedClassifierCV": {"estimator": LOGISTIC},
    "ColumnTransformer": {"transformers": [(n, s, [k, k + 2]) for k, (n, s) in enumerate(SCALERS)]},
    "FeatureUnion": {"transformer_list": SCALERS},
    "MultiOutputRegressor": {"estimator": RIDGE},
    "Pipeline": {"steps": [SCALERS[0], ("c", LOGISTIC)]},
    "RandomizedSearchCV": {"estimator": LOGISTIC, "n_iter": 2, "param_distributions": {"C": [0.1, 1]}},
    "StackingClassifier": {"estimators": [("a", LOGISTIC), ("b", CLASSES)]},
    "StackingRegressor": {"estimators": [("a", RIDGE), ("b", TREE)]},
    "VotingRegressor": {"estimators": [("a", RIDGE), ("b", TREE)]},
}
NOT_NEGATIVE = """
    AdditiveChi2Sampler ComplementNB GammaRegressor LatentDirichletAllocation MiniBatchNMF
    MultinomialNB NMF PoissonRegressor TfidfTransformer TweedieRegressor
""".split()
OF_CODES = ["CategoricalNB", "OneHotEncoder", "OrdinalEncoder"]
OF_LABELS = ["LabelBinarizer", "LabelEncoder"]


def data_for(name, regression):
    """(features, targets)"""
    x, y = make_classification(400, 20, n_informative=10, n_classes=3, random_state=1)
    if regression:
        x, y = make_regression(400, 20, n_informative=10, noise=3.0, random_state=1)
    x = x.astype(np.float32)
    if name in NOT_NEGATIVE:
        x, y = np.abs(x), np.abs(y) + regression
    if name in OF_CODES:
        x = np.random.default_rng(0).integers(0, 4, (400, 5))
    if name in OF_LABELS:
        x = y
    if name == "IsotonicRegression":
        x = x[:, :1]
    if name == "ClassifierChain":
        y = np.stack([y, 2 - y], 1)
    if name.startswith("MultiTask") or name == "MultiOutputRegressor":
        y = np.stack([y, y * 2], 1)
    return x, y


def is_regression(name):
    found = name.endswith(("Regressor", "Regression")) and not name.startswith("Logistic")
    return found or (name.endswith("CV") and PARTS.get(name) is None and "Logistic" not in name)


def scikit(name, kind):
    model = kind(**PARTS.get(name, {}))
    x, y = data_for(name, is_regression(name))
    model.fit(*([x] if name in OF_LABELS else [x, y]))
    options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
    try:
        made = to_onnx(model, x[:1], options=options, target_opset=OPSETS)
    except (NameError, TypeError, ValueError):  # not all classifiers have that option
        made = to_onnx(model, x[:1], target_opset=OPSETS)
    return made, x


def boosted(kind, convert):
    def make():
        regression = "Regressor" in kind.__name__
        x, y = data_for("", regression)
        model = kind(n_estimators=60, **({"verbose": -1} if "LGBM" in kind.__name__ else {})).fit(x, y)
        types = [("X", FloatTensorType([None, x.shape[1]]))]
        options = {"zipmap": False} if convert is onnxmltools.convert_lightgbm else {}
        return convert(model, initial_types=types, target_opset=OPSETS[""], **options), x

    return make


def estimators():
    """What is made, by name."""
    converters = supported_converters(False)
    made = {
        name: lambda name=name, kind=kind: scikit(name, kind)
        for name, kind in all_estimators()
        if {name, "Sklearn" + name} & set(converters)
    }
    for kind in (lightgbm.LGBMClassifier, lightgbm.LGBMRegressor):
        made[kind.__name__] = boosted(kind, onnxmltools.convert_lightgbm)
    for kind in (xgboost.XGBClassifier, xgboost.XGBRegressor):
        made[kind.__name__] = boosted(kind, onnxmltools.convert_xgboost)
    return made


def main():
    folder, pattern = pathlib.Path(sys.argv[1]), sys.argv[2]
    warnings.filterwarnings("ignore")
    failed = 0
    for name, make in sorted(estimators().items()):
        path = folder / f"{name}.onnx"
        if path.exists() or name in LEFT_OUT or not fnmatch.fnmatch(name, pattern):
            continue
        try:
            model, x = make()
        except Exception as error:  # each converter has exceptions of its own
            print(f"not exported: {name}: {error}", file=sys.stderr)
            failed = 1
            continue
        np.savez(folder / f"{name}.npz", **{model.graph.input[0].name: x[:ROWS]})
        path.write_bytes(model.SerializeToString())
    return failed


if __name__ == "__main__":
    sys.exit(main())
