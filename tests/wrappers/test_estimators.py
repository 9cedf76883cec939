"""Estimators of scikit-learn: its own checks, what `fit` computes, and forms of targets."""

import copy
import dataclasses
import pickle
import unittest

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers

pytest.importorskip(
    "sklearn", reason="scikit-learn is an optional package: pip install scikit-learn"
)

import joblib
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeClassifier
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fkeras.wrappers import SKLearnClassifier, SKLearnRegressor, SKLearnTransformer

ADAM = fk.optimizers.Adam(0.02)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3)).astype("float32")
NUMBERS = X @ np.float32([1, -2, 0.5])
LABELS = np.array(["a", "b", "c"])[np.digitize(NUMBERS, [-0.7, 0.7])]
PAIR = np.where(NUMBERS > 0, "yes", "no")


def network(X, y, units=(8,), activation=None):
    """Returns the model of a checked estimator; processes of joblib import the function."""
    hidden = [layers.Dense(n, "relu") for n in units]
    return fk.Sequential(
        [fk.Input(X.shape[1:]), *hidden, layers.Dense(y.shape[1], activation=activation)]
    )


def _linear(units=1, activation=None):
    return fk.Sequential([fk.Input((3,)), layers.Dense(units, activation)])


def _classifier(**changes):
    arguments = {
        "trainer": fk.Trainer(ADAM, "categorical_crossentropy"),
        "fit_options": {"epochs": 20},
        "model_kwargs": {"units": (20,), "activation": "softmax"},
    }
    return SKLearnClassifier(network, **{**arguments, **changes})


MSE = fk.Trainer(ADAM, "mse")
_ALL = {
    "check_sample_weight_equivalence_on_dense_data": (
        "a row of weight 2 is one row of a batch, two equal rows are two"
    ),
}
# the checks that an estimator of networks cannot pass, and why
EXPECTED_FAILED_CHECKS = {
    "SKLearnClassifier": _ALL,
    "SKLearnRegressor": {
        **_ALL,
        "check_regressor_multioutput": "expects float64; a network computes in float32",
    },
    "SKLearnTransformer": _ALL,
}
CHECKED = (
    _classifier(),
    SKLearnRegressor(network, MSE, {"epochs": 10}),
    SKLearnTransformer(network, MSE, {"epochs": 3}),
)


CASES = [
    case
    for estimator in CHECKED
    for case in estimator_checks_generator(
        estimator,
        expected_failed_checks=EXPECTED_FAILED_CHECKS[type(estimator).__name__],
        mark="xfail",
    )
]


def _id(value):
    # that of scikit-learn has addresses of functions, which differ in each worker
    return getattr(value, "func", type(value)).__name__


@pytest.mark.one_in(40)
@pytest.mark.filterwarnings("default")  # scikit-learn warns on purpose in its checks
@pytest.mark.parametrize(("estimator", "check"), CASES, ids=_id)
def test_checks_of_scikit_learn(estimator, check):
    try:
        check(estimator)
    except unittest.SkipTest as reason:  # pytest counts it as a failure of an expected failure
        pytest.skip(str(reason))


def test_fit_is_the_fit_of_the_trainer():
    regressor = SKLearnRegressor(_linear(), MSE, {"epochs": 3}, random_state=7)
    predicted = regressor.fit(X, NUMBERS, batch_size=16).predict(X)
    seed = np.random.RandomState(7).randint(np.iinfo("int32").max)
    run = MSE.init(_linear(), jax.random.key(seed))
    run, history = MSE.fit(run, X, NUMBERS[:, None], epochs=3, batch_size=16, verbose=0)
    np.testing.assert_array_equal(predicted, MSE.predict(run, X)[:, 0])
    assert regressor.history_.history == history.history
    assert regressor.model_ == run.model and regressor.trainer_ is MSE


@pytest.mark.exhaustive
def test_each_fit_begins_anew_unless_warm():
    cold = SKLearnRegressor(_linear(), MSE)
    first = cold.fit(X, NUMBERS).predict(X)
    np.testing.assert_array_equal(cold.fit(X, NUMBERS).predict(X), first)
    warm = SKLearnRegressor(_linear(), MSE, warm_start=True).fit(X, NUMBERS)
    np.testing.assert_array_equal(warm.predict(X), first)
    assert int(warm.fit(X, NUMBERS).run_.step) == 4 and int(cold.run_.step) == 2
    # a built model is the start, with its state
    built = _linear().build(jax.random.key(3))
    regressor = SKLearnRegressor((built, {}), MSE)
    start = regressor.fit(X, NUMBERS, sample_weight=np.ones(60), epochs=1, batch_size=64)
    run, _ = MSE.fit(MSE.init(built, regressor.run_.key), X, NUMBERS[:, None], 64, verbose=0)
    np.testing.assert_allclose(start.predict(X), built(X)[:, 0], atol=0.2)
    np.testing.assert_allclose(start.predict(X), run.model(X)[:, 0], atol=1e-6)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("loss", "units", "activation"),
    [
        ("categorical_crossentropy", 2, "softmax"),
        ("sparse_categorical_crossentropy", 2, "softmax"),
        (fk.losses.SparseCategoricalCrossentropy(from_logits=True), 2, None),
        ("binary_crossentropy", 1, "sigmoid"),
        (fk.losses.BinaryCrossentropy(from_logits=True), 1, None),
        ("hinge", 1, None),
    ],
)
def test_targets_have_the_form_of_the_loss(loss, units, activation):
    model = _linear(units, activation)
    estimator = SKLearnClassifier(model, fk.Trainer(fk.optimizers.Adam(0.1), loss), {"epochs": 10})
    estimator.fit(X, PAIR)
    assert estimator.score(X, PAIR) > 0.9
    scores = estimator.decision_function(X)
    assert scores.shape == (60,) and roc_auc_score(PAIR == "yes", scores) > 0.95
    np.testing.assert_array_equal(estimator.predict(X), np.where(scores > 0, "yes", "no"))
    if loss == "hinge":
        with pytest.raises(ValueError, match="probabilities .* received numbers from -"):
            estimator.predict_proba(X)
    else:
        probabilities = estimator.predict_proba(X)
        np.testing.assert_allclose(probabilities.sum(-1), 1, rtol=1e-5)
        np.testing.assert_array_equal(probabilities.argmax(-1), scores > 0)
        assert log_loss(PAIR, probabilities) < 0.5


@pytest.mark.exhaustive
def test_labels_of_three_classes_and_rows_of_pictures():
    pictures = np.zeros((60, 2, 2, 3), "float32") + X[:, None, None]
    inputs = fk.Input((2, 2, 3))
    outputs = layers.Dense(3, "softmax")(layers.GlobalAveragePooling2D()(inputs))
    trainer = fk.Trainer(fk.optimizers.Adam(0.2), "sparse_categorical_crossentropy")
    estimator = SKLearnClassifier(fk.Model(inputs, outputs), trainer, {"epochs": 20})
    assert estimator.fit(pictures, LABELS).score(pictures, LABELS) > 0.8
    assert estimator.decision_function(pictures).shape == (60, 3)
    assert list(estimator.classes_) == ["a", "b", "c"]


@pytest.mark.exhaustive
def test_regressors_predict_the_shape_of_the_targets():
    regressor = SKLearnRegressor(network, MSE)
    assert regressor.fit(X, NUMBERS).predict(X).shape == (60,)
    assert regressor.fit(X, NUMBERS[:, None]).predict(X).shape == (60, 1)
    assert regressor.fit(X, X[:, :2]).predict(X).shape == (60, 2)


def test_a_grid_reaches_into_parameters():
    grid = {
        "net__trainer__optimizer__learning_rate": [1e-4, 0.1],
        "net__model_kwargs__units": [()],
        "net__fit_options__epochs": [10],
    }
    pipeline = make_pipeline(StandardScaler(), SKLearnRegressor(network, MSE))
    pipeline.steps[1] = ("net", pipeline.steps[1][1])
    with joblib.parallel_backend("threading", n_jobs=2):
        search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, NUMBERS)
    assert search.best_params_["net__trainer__optimizer__learning_rate"] == 0.1
    assert len(search.cv_results_["params"]) == 2 and search.score(X, NUMBERS) > 0.9
    best = search.best_estimator_["net"]
    assert best.trainer.optimizer.learning_rate == 0.1 and MSE.optimizer.learning_rate == 0.02


@pytest.mark.exhaustive
def test_folds_in_processes_equal_folds_in_one():
    # two processes that import jax and compile take seconds
    results = [
        cross_validate(SKLearnRegressor(network, MSE), X, NUMBERS, n_jobs=n, return_estimator=True)
        for n in (1, 2)
    ]
    np.testing.assert_allclose(results[0]["test_score"], results[1]["test_score"], rtol=1e-5)
    assert results[1]["estimator"][0].model_ is not None


def test_copies(tmp_path):
    estimator = _classifier(fit_options={"epochs": 2}).fit(X, LABELS)
    expected = estimator.predict_proba(X)
    joblib.dump(estimator, tmp_path / "estimator.joblib")
    for copied in (
        pickle.loads(pickle.dumps(estimator)),
        joblib.load(tmp_path / "estimator.joblib"),
        copy.deepcopy(estimator),
    ):
        np.testing.assert_array_equal(copied.predict_proba(X), expected)
        assert copied.run_.model == estimator.run_.model
    fresh = clone(estimator)
    assert not hasattr(fresh, "run_") and fresh.fit_options == {"epochs": 2}
    np.testing.assert_array_equal(fresh.fit(X, LABELS).predict_proba(X), expected)


def test_a_trained_network_is_a_transformer_without_fit():
    model = _linear(16, "relu").build(jax.random.key(0))
    expected = np.asarray(model(X))
    features = SKLearnTransformer(model)
    np.testing.assert_allclose(features.transform(X), expected, atol=1e-6)
    np.testing.assert_allclose(features.fit(X, LABELS).transform(X), expected, atol=1e-6)
    frozen = make_pipeline(FrozenEstimator(SKLearnTransformer(model)), RidgeClassifier())
    assert frozen.fit(X, PAIR).score(X, PAIR) > 0.8
    assert list(features.get_feature_names_out()[:2]) == [
        "sklearntransformer0",
        "sklearntransformer1",
    ]
    pytest.importorskip("pandas")
    table = clone(features).set_output(transform="pandas").fit_transform(X)
    assert table.shape == (60, 16)


@pytest.mark.exhaustive
def test_a_transformer_trains_on_targets_or_by_an_objective():
    def objective(model, state, batch, key, training):
        out = model.apply(batch, state=state, training=training, key=key)
        return fk.Output((out.value**2).mean(), out.updates)

    small = SKLearnTransformer(_linear(2), fk.Trainer(fk.optimizers.Adam(0.1), objective=objective))
    begin = small.fit(X, epochs=1).transform(X)
    assert np.abs(small.fit(X, epochs=20).transform(X)).mean() < 0.5 * np.abs(begin).mean()
    fitted = SKLearnTransformer(network, MSE).fit(X, NUMBERS)
    assert fitted.transform(X).shape == (60, 1)


TWO = fk.Sequential([fk.Input((3,)), layers.Dense(2)])
_BAD = {
    "no trainer": (SKLearnRegressor(_linear()), NUMBERS, TypeError, "received None.*fk.Trainer"),
    "no model": (SKLearnRegressor(3, MSE), NUMBERS, TypeError, "expected a model, a pair"),
    "a function of nothing": (
        SKLearnRegressor(lambda X, y: None, MSE),
        NUMBERS,
        TypeError,
        "received None",
    ),
    "outputs": (SKLearnRegressor(TWO, MSE), NUMBERS, ValueError, r"of shape \(b, 1\)"),
    "classes": (
        SKLearnClassifier(TWO, fk.Trainer("adam", "mse")),
        LABELS,
        ValueError,
        r"of shape \(b, 3\)",
    ),
    "one class": (_classifier(), ["a"] * 60, ValueError, "at least two classes"),
    "labels": (_classifier(), NUMBERS, ValueError, "continuous"),
    "an unknown argument of fit": (
        SKLearnRegressor(_linear(), MSE, {"epoch": 2}),
        NUMBERS,
        TypeError,
        "no argument 'epoch'",
    ),
    "a list of arguments": (
        SKLearnRegressor(_linear(), MSE, ["epochs"]),
        NUMBERS,
        TypeError,
        "expected fit_options as a dictionary",
    ),
    "arguments of a model": (
        SKLearnRegressor(_linear(), MSE, model_kwargs={"units": 3}),
        NUMBERS,
        TypeError,
        "expected a model function for model_kwargs",
    ),
    "not built": (SKLearnTransformer(_linear()), NUMBERS, TypeError, "expected a built model"),
    "no targets": (SKLearnTransformer(_linear(), MSE), None, TypeError, "received no targets"),
}


@pytest.mark.parametrize("case", _BAD)
def test_mistakes_are_explained(case):
    estimator, y, error, message = _BAD[case]
    with pytest.raises(error, match=message):
        estimator.fit(X, y)


def test_wrong_names_of_parameters():
    estimator = _classifier()
    with pytest.raises(ValueError, match="trainer__optimiser: expected one of optimizer, loss"):
        estimator.set_params(trainer__optimiser="sgd")
    with pytest.raises(ValueError, match="Invalid parameter 'epochs'"):
        estimator.set_params(epochs=3)
    with pytest.raises(ValueError, match="model_kwargs__units__a: expected a mapping"):
        estimator.set_params(model_kwargs__units__a=3)
    with pytest.raises(ValueError, match="trainer__loss: expected a mapping .* in None"):
        SKLearnRegressor(network).set_params(trainer__loss="mse")
    empty = SKLearnRegressor(network, MSE).set_params(fit_options__epochs=3)
    assert empty.fit_options == {"epochs": 3}
    with pytest.raises(ValueError, match="3 classes of the last fit"):
        _classifier(warm_start=True, fit_options={}).fit(X, LABELS).fit(X, PAIR)
    with pytest.raises(ValueError, match="expected a sample_weight other than zero"):
        SKLearnRegressor(_linear(), MSE).fit(X, NUMBERS, sample_weight=np.zeros(60))


def test_parameters_do_not_change():
    trainer, options = fk.Trainer("sgd", "mse"), {"epochs": 1}
    before = dataclasses.replace(trainer)
    estimator = SKLearnRegressor(_linear(), trainer, options).fit(X, NUMBERS, epochs=2)
    assert options == {"epochs": 1} and estimator.fit_options is options
    assert estimator.trainer is trainer == before and len(estimator.history_.epoch) == 2
