import json
import os
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import skops.io
import torch
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    IsolationForest,
    RandomForestClassifier,
)
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeRegressor

from assay.errors import InputError
from assay.parts import estimator_files, watch
from assay.parts.frames import preprocessor

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 4))
Y = (X[:, 0] + X[:, 1] > 0).astype(int)


@pytest.mark.parametrize(
    "estimator",
    [
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_column_transformer((StandardScaler(), [0, 1]), remainder="passthrough"),
        make_pipeline(SplineTransformer(), RidgeCV()),
        make_pipeline(SelectKBest(k=2), SVC()),
        RandomForestClassifier(n_estimators=5, random_state=0),
        IsolationForest(n_estimators=5, max_features=2, random_state=0),
        GradientBoostingRegressor(n_estimators=5),
        HistGradientBoostingClassifier(max_iter=5, categorical_features=[3]),
        DecisionTreeRegressor(),
        KNeighborsRegressor(),
        GaussianProcessRegressor(),
        MLPRegressor(max_iter=5, random_state=0),
        KMeans(n_clusters=2, n_init=1, random_state=np.random.RandomState(0)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_estimators_come_back_as_they_were(estimator, tmp_path):
    rows = np.abs(X)
    rows[:, 3] = np.round(rows[:, 3] * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of five steps of training
        estimator.fit(rows, Y)
    estimator_files.save(estimator, tmp_path / "e.skops")
    read = estimator_files.load(tmp_path / "e.skops")
    assert type(read) is type(estimator)
    for way in ("predict", "predict_proba", "transform"):
        if hasattr(estimator, way):
            np.testing.assert_array_equal(getattr(read, way)(rows), getattr(estimator, way)(rows))


def test_our_own_estimators_and_mixed_tables(tmp_path):
    table = pd.DataFrame({"a": X[:, 0], "w": np.where(Y, "yes", "no"), "k": [None, "u", "v"] * 40})
    table.loc[3, "a"] = np.nan
    pipe = make_pipeline(preprocessor(table), LogisticRegression()).fit(table, Y)
    estimator_files.save(pipe, tmp_path / "pipe.skops")
    read = estimator_files.load(tmp_path / "pipe.skops")
    np.testing.assert_array_equal(read.predict_proba(table), pipe.predict_proba(table))
    assert list(read[0].get_feature_names_out()) == list(pipe[0].get_feature_names_out())
    encoder = OneHotEncoder().fit(table[["w"]])
    estimator_files.save(encoder, tmp_path / "encoder.skops")
    assert estimator_files.load(tmp_path / "encoder.skops").categories_[0].tolist() == ["no", "yes"]


class Mine(BaseEstimator):
    """Of nobody's package."""


def test_a_dataclass_of_ours_is_read_and_another_object_is_not(tmp_path):
    scaler = StandardScaler().fit(X)
    scaler.seen_ = watch.Watch([X], Y, Y, Y, ("a",), ("ax",))
    estimator_files.save(scaler, tmp_path / "e.skops")
    assert estimator_files.load(tmp_path / "e.skops").seen_.exercises == ("a",)
    scaler.seen_ = pd.DataFrame({"a": [1]})
    with pytest.raises(InputError, match="StandardScaler cannot be written, because of its seen_, a DataFrame"):
        estimator_files.save(scaler, tmp_path / "e.skops")
    scaler.seen_ = torch.zeros(2)
    with pytest.raises(InputError, match="StandardScaler cannot be written"):
        estimator_files.save(scaler, tmp_path / "e.skops")


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (Mine(), r"Mine cannot be written, .* it holds .*\.Mine, and only types of assay"),
        (FunctionTransformer(os.path.join), "FunctionTransformer cannot be written, .* it holds posixpath.join"),
        (FunctionTransformer(np.load), r"it holds numpy\.load"),
        (FunctionTransformer(lambda x: x), "FunctionTransformer cannot be written"),
        (make_pipeline(StandardScaler(), Mine()), r"Pipeline cannot be written, .*\.Mine"),
    ],
)
def test_what_could_not_be_read_is_not_written(estimator, message, tmp_path):
    with pytest.raises(InputError, match=message) as raised:
        estimator_files.save(estimator, tmp_path / "e.skops")
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_only_estimators_and_only_skops_files_are_written(tmp_path):
    with pytest.raises(InputError, match=r"e\.joblib: an estimator's file must end in \.skops"):
        estimator_files.save(StandardScaler(), tmp_path / "e.joblib")
    with pytest.raises(TypeError, match="estimator must be a scikit-learn estimator, not a dict"):
        estimator_files.save({}, tmp_path / "e.skops")


def rewritten(path, change):
    """The file with its schema changed."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(files["schema.json"])
    change(schema)
    files["schema.json"] = json.dumps(schema)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "os.system",
        "builtins.eval",
        "builtins.getattr",
        "subprocess.Popen",
        "numpy.load",
        "numpy.memmap",
        "numpy.testing.runstring",
        "numpy.lib.npyio.DataSource",
        "sklearn.datasets._base.load_files",
        "sklearn.datasets._openml.GzipFile",
        "sklearn.datasets.fetch_openml",
        "sklearn.utils._testing.Path",
        "sklearn.feature_extraction.text.FeatureHasher.fit",
        "sklearn.ensemble._forest.Parallel",
        "sklearn.model_selection._search.time",
        "scipy.io.loadmat",
        "scipy.sparse._matrix_io.load_npz",
        "scipy.sparse.load_npz",
        "assay.parts.packages.need",
        "assay.parts.checkpoints.load_model",
        "assay.parts.cache.Path",
        "joblib.numpy_pickle.load",
        "torch.serialization.load",
        "nowhere.at_all",
    ],
)
def test_a_hostile_file_is_refused_by_name(name, tmp_path):
    witness = tmp_path / "it-ran"
    path = tmp_path / "e.skops"
    skops.io.dump(FunctionTransformer(np.add), path)
    module, _, attribute = name.rpartition(".")

    def change(schema):
        schema["content"]["content"]["func"] |= {"__class__": attribute, "__module__": module}
        arguments = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
        key_types = schema["content"]["key_types"]["content"]
        key_types[0] |= {"__class__": attribute, "__module__": module}  # it would be called with a key
        schema["content"]["content"]["kw_args"] = arguments | {"content": json.dumps(f"touch {witness}")}

    with pytest.raises(InputError, match=r"e\.skops is refused: it holds ") as raised:
        estimator_files.load(rewritten(path, change))
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not witness.exists()


@pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "ObjectNode", "PartialNode", "OperatorFuncNode"])
def test_no_loader_builds_what_is_not_trusted(loader, tmp_path):
    path = tmp_path / "e.skops"
    skops.io.dump(FunctionTransformer(np.add), path)

    def change(schema):
        text = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode", "is_json": True}
        listed = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode"}
        call = {"__class__": "Popen", "__module__": "subprocess", "__loader__": "TypeNode"}
        content = listed | {"content": [text | {"content": '"touch it-ran"'}]}
        if loader == "PartialNode":
            nothing = {"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode", "content": {}}
            nothing["key_types"] = listed | {"__class__": "list", "__loader__": "ListNode", "content": []}
            content = {"func": call, "args": content, "kwds": nothing, "namespace": nothing}
        kind = {"__class__": "methodcaller", "__module__": "operator"} if loader == "OperatorFuncNode" else call
        schema["content"]["content"]["func"] = kind | {"__loader__": loader, "content": content, "attrs": content}

    with pytest.raises(InputError, match="is refused: it holds"):
        estimator_files.load(rewritten(path, change))


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "e.skops"
    estimator_files.save(StandardScaler().fit(X), path)
    whole = path.read_bytes()
    for damaged in (b"", b"no file", whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="damaged, or no archive"):
            estimator_files.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(InputError, match=r"no file of an estimator: it has no schema\.json"):
        estimator_files.load(path)
    for schema in ("{", "[]", "{}", '{"protocol": 10000}'):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("schema.json", schema)
        with pytest.raises(InputError, match="is damaged, or of another version"):
            estimator_files.load(path)
    skops.io.dump([1, 2], path)
    with pytest.raises(InputError, match="holds a list, and no estimator"):
        estimator_files.load(path)
    with pytest.raises(InputError, match="there is no file"):
        estimator_files.load(tmp_path / "nowhere.skops")


def forest():
    return RandomForestClassifier(n_estimators=2, random_state=0).fit(X, Y)


def boosted():
    return HistGradientBoostingClassifier(max_iter=2).fit(X, Y)


def changed_tree(state):
    def change(tree):
        held = tree.__getstate__()
        held["nodes"] = held["nodes"].copy()
        state(held["nodes"])
        tree.__setstate__(held)

    return change


@pytest.mark.parametrize(
    ("make", "damage"),
    [
        (forest, lambda e: changed_tree(lambda n: n["left_child"].__setitem__(0, 10**6))(e.estimators_[0].tree_)),
        (forest, lambda e: changed_tree(lambda n: n["right_child"].__setitem__(0, -7))(e.estimators_[0].tree_)),
        (forest, lambda e: changed_tree(lambda n: n["right_child"].__setitem__(0, 0))(e.estimators_[1].tree_)),
        (forest, lambda e: changed_tree(lambda n: n["feature"].__setitem__(0, 4))(e.estimators_[1].tree_)),
        (forest, lambda e: setattr(e, "n_features_in_", 1)),
        (boosted, lambda e: e._predictors[1][0].nodes["left"].__setitem__(0, 10**6)),
        (boosted, lambda e: e._predictors[0][0].nodes["feature_idx"].__setitem__(0, 4)),
        (boosted, lambda e: setattr(e, "n_features_in_", 1)),
    ],
)
def test_trees_that_lead_nowhere_are_refused(make, damage, tmp_path):
    estimator = make()
    estimator_files.save(estimator, tmp_path / "e.skops")
    estimator_files.load(tmp_path / "e.skops")
    damage(estimator)
    estimator_files.save(estimator, tmp_path / "e.skops")
    with pytest.raises(InputError, match="a tree in it leads nowhere"):
        estimator_files.load(tmp_path / "e.skops")
