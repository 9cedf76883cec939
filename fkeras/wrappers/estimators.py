"""`SKLearnClassifier`, `SKLearnRegressor` and `SKLearnTransformer`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Self, TypeAlias

import jax
import numpy as np
import scipy.special

from fkeras.authoring.engine import complete_docstring, describe_value, missing_package
from fkeras.authoring.training import output_specs
from fkeras.engine import Configurable, Network
from fkeras.losses import Hinge, SquaredHinge
from fkeras.training import History, Trainer, TrainState

try:
    from sklearn.base import (
        BaseEstimator,
        ClassifierMixin,
        ClassNamePrefixFeaturesOutMixin,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.utils import Tags, check_array, check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise missing_package("fk.wrappers", "sklearn", error) from error

#: a model, a pair of model and state, or a function of the data that returns either
ModelLike: TypeAlias = Network | tuple[Network, Mapping[str, Any]] | Callable[..., Any]

# parameters whose entries `set_params` reaches by names such as `fit_options__epochs`
_NESTED = ("trainer", "fit_options", "model_kwargs")


class _Estimator(BaseEstimator):
    """Trains a network as an estimator of scikit-learn.

    The estimator is scikit-learn's mutable object around values: `fit` sets attributes, and model,
    trainer and runs never change. `clone`, `Pipeline`, `GridSearchCV`, joblib and pickle apply, and
    processes of joblib need a model function that they can import.

    Names with `__` lead into parameters: `set_params(fit_options__epochs=3)`,
    `model_kwargs__units=16`, `trainer__optimizer__learning_rate=1e-3`.

    Args of the family:
        model: a model; a pair `(model, state)`, such as `fk.load_model` returns; or a function that
            returns either, called as `model(X=X, y=y, **model_kwargs)` with the arrays that the network
            receives. Each `fit` begins with the weights of a built model, and builds another model
            from `random_state`.
        trainer: the `fk.Trainer` with optimizer, loss and metrics.
        fit_options: arguments of `Trainer.fit`, such as `{"epochs": 5}`. `verbose` is 0 by default.
        model_kwargs: further arguments of a model function.
        warm_start: whether another `fit` continues with the weights and the optimizer's state of the
            last `fit`.
        random_state: an integer, a `numpy.random.RandomState`, or None for NumPy's global generator;
            the source of the key from which weights, dropout and the order of the rows derive.

    Attributes of the family:
        model_: the trained model.
        run_: the `TrainState` after the last step, with weights, state and optimizer state.
        trainer_: the trainer of the last `fit`.
        history_: the `History` of the last `fit`.
        n_features_in_: the width of the rows.
        feature_names_in_: the names of the columns, if the rows are a table with names.

    Raises of the family:
        ImportError: if scikit-learn is missing.
        TypeError: by `fit`, without a trainer or a model.
        ValueError: by `fit`, for data that do not fit the model.
    """

    def __init__(
        self,
        model: ModelLike,
        trainer: Trainer | None = None,
        fit_options: Mapping[str, Any] | None = None,
        *,
        model_kwargs: Mapping[str, Any] | None = None,
        warm_start: bool = False,
        random_state: int | np.random.RandomState | None = 0,
    ):
        self.model = model
        self.trainer = trainer
        self.fit_options = fit_options
        self.model_kwargs = model_kwargs
        self.warm_start = warm_start
        self.random_state = random_state

    def __init_subclass__(cls, **kwargs: Any) -> None:
        code = _Estimator.__init__.__code__
        complete_docstring(cls, code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])
        super().__init_subclass__(**kwargs)

    @property
    def model_(self) -> Network:
        """The trained model."""
        check_is_fitted(self)
        return self.run_.model

    def set_params(self, **params: Any) -> Self:
        """Sets parameters, and entries of `trainer`, `fit_options` and `model_kwargs`; returns self.

        Args:
            params: values by name; `fit_options__epochs` sets the entry "epochs".
        """
        plain = {}
        for name, value in params.items():
            head, separator, rest = name.partition("__")
            if separator and head in _NESTED:
                place = f"{type(self).__name__}.set_params: {name}"
                old = getattr(self, head)
                old = {} if old is None and head != "trainer" else old
                setattr(self, head, _with_entry(old, rest, value, place))
            else:
                plain[name] = value
        return super().set_params(**plain)

    @property
    def _where(self) -> str:
        return f"{type(self).__name__}.fit"

    def _train(self, x: np.ndarray, y: Any, sample_weight: Any, options: Any, width: int) -> Self:
        """Trains on rows and targets, and sets the attributes of a fitted estimator."""
        trainer = self.trainer
        if not isinstance(trainer, Trainer):
            raise TypeError(
                f"{self._where}: expected trainer as a fk.Trainer, received {describe_value(trainer)}. "
                "A model of fkeras has no optimizer and no loss: write "
                f'{type(self).__name__}(model, fk.Trainer("adam", "mse")).'
            )
        if sample_weight is not None:
            sample_weight = check_array(sample_weight, ensure_2d=False, input_name="sample_weight")
        if sample_weight is not None and not sample_weight.any():
            raise ValueError(
                f"{self._where}: expected a sample_weight other than zero, received zeros for all rows, "
                "which train nothing. Give the rows that count a positive weight."
            )
        if self.warm_start and hasattr(self, "run_"):
            run = self.run_
        else:
            seed = check_random_state(self.random_state).randint(np.iinfo("int32").max)
            model, state = self._composed(x, y)
            self._check_output(model, width)
            run = trainer.init(model, jax.random.key(seed), state=state)
        options = {"verbose": 0, **self._mapping("fit_options"), **options}
        y = self._network_targets(run.model, trainer, y)
        fitted = trainer.fit(run, x, y, sample_weight=sample_weight, **options)
        self.run_: TrainState = fitted.run
        self.history_: History = fitted.history
        self.trainer_ = trainer
        return self

    def _mapping(self, name: str) -> Mapping[str, Any]:
        """Returns the arguments in a parameter; an empty mapping for None."""
        value = getattr(self, name)
        if value is not None and not isinstance(value, Mapping):
            raise TypeError(
                f"{self._where}: expected {name} as a dictionary of arguments, received "
                f"{describe_value(value)}. Write {name}={{'name': value}}."
            )
        return value or {}

    def _composed(self, x: Any, y: Any) -> tuple[Network, Mapping[str, Any] | None]:
        """Returns the model before the training and its state, or None for the initial state."""
        model, options = self.model, self._mapping("model_kwargs")
        if not isinstance(model, Network | tuple) and callable(model):
            model = model(X=x, y=y, **options)
        elif options:
            raise TypeError(
                f"{self._where}: expected a model function for model_kwargs ({', '.join(options)}), "
                f"received {describe_value(model)}. Pass def model(X, y, **model_kwargs), or leave "
                "model_kwargs out."
            )
        state = None
        if isinstance(model, tuple) and len(model) == 2:
            model, state = model
        if not isinstance(model, Network):
            raise TypeError(
                f"{self._where}: expected a model, a pair (model, state), or a function of X and y "
                f"that returns either, received {describe_value(model)}. Write def model(X, y): "
                "return fk.Sequential([fk.Input(X.shape[1:]), fk.layers.Dense(y.shape[1])])."
            )
        return model, state

    def _check_output(self, model: Network, width: int) -> None:
        """Rejects a model whose output does not have the shape (b, width)."""
        shapes = [spec.shape for spec in output_specs(model).values()]
        if len(shapes) != 1 or len(shapes[0]) != 2 or shapes[0][1] not in (width, None):
            raise ValueError(
                f"{self._where}: expected a model with one output of shape (b, {width}) for these "
                f"targets, received {' and '.join(map(str, shapes))}. End the model in "
                f"layers.Dense({width}); a function of X and y finds the number in y.shape[1]."
            )

    def _network_targets(self, model: Network, trainer: Trainer, y: Any) -> Any:
        """Returns the targets in the form of the loss."""
        return y

    def _outputs(self, x: Any) -> np.ndarray:
        """Returns the outputs of the network for checked rows."""
        check_is_fitted(self)
        rows = validate_data(self, x, reset=False, allow_nd=True)
        return self.trainer_.predict(self.run_, rows)


class SKLearnClassifier(ClassifierMixin, _Estimator):
    """Classifies rows with a network, as an estimator of scikit-learn.

    The labels may be of any type; `classes_` has them sorted, as the outputs of the network. The network
    receives them in the form of the loss: the numbers of the classes for a sparse cross-entropy, 0 and 1
    of shape (b, 1) for a network with one output, and otherwise one-hot rows, which are also the `y` of
    a model function.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import layers
        >>> from sklearn.datasets import load_iris
        >>> from sklearn.model_selection import cross_val_score
        >>> def network(X, y, units=16):
        ...     hidden = layers.Dense(units, activation="relu")
        ...     return fk.Sequential([fk.Input(X.shape[1:]), hidden, layers.Dense(y.shape[1], "softmax")])
        >>> trainer = fk.Trainer(fk.optimizers.Adam(0.02), "categorical_crossentropy")
        >>> classifier = fk.wrappers.SKLearnClassifier(network, trainer, {"epochs": 20})
        >>> x, y = load_iris(return_X_y=True)
        >>> bool(cross_val_score(classifier, x, y, cv=3).mean() > 0.9)
        True
        >>> classifier.fit(x, y).predict_proba(x[:2]).shape
        (2, 3)
    """

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_options: Any) -> Self:
        """Trains on rows and labels; returns self.

        Args:
            X: rows of shape (n, features), or (n, ...) for networks of images and sequences.
            y: labels of shape (n,).
            sample_weight: a weight for each row.
            fit_options: arguments of `Trainer.fit`, which take precedence over the parameter.
        """
        X, y = validate_data(self, X, y, allow_nd=True)
        check_classification_targets(y)
        classes, numbers = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{self._where}: expected labels of at least two classes, received one class, "
                f"{classes[0]!r}. A stratified split keeps rows of each class."
            )
        if self.warm_start and hasattr(self, "run_") and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"{self._where}: expected the {len(self.classes_)} classes of the last fit, received "
                f"{len(classes)} others. Pass rows of the same classes, or warm_start=False."
            )
        self.classes_ = classes
        one_hot = np.eye(len(classes), dtype="float32")[numbers]
        return self._train(X, one_hot, sample_weight, fit_options, len(classes))

    def _check_output(self, model: Network, width: int) -> None:
        has_one = [spec.shape[1:] for spec in output_specs(model).values()] == [(1,)]
        super()._check_output(model, 1 if width == 2 and has_one else width)

    def _network_targets(self, model: Network, trainer: Trainer, y: np.ndarray) -> np.ndarray:
        numbers = y.argmax(-1).astype("int32")
        if type(trainer.loss).__name__ == "SparseCategoricalCrossentropy":
            return numbers
        (spec,) = output_specs(model).values()
        return numbers[:, None].astype("float32") if spec.shape[1] == 1 else y

    def predict(self, X: Any) -> np.ndarray:
        """Returns the label of each row.

        Args:
            X: rows as in `fit`.
        """
        scores = self.decision_function(X)
        numbers = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(-1)
        return self.classes_[numbers]

    def decision_function(self, X: Any) -> np.ndarray:
        """Returns the outputs of the network, of shape (n, classes).

        For two classes the result has shape (n,), as in scikit-learn, and is positive for the second
        class: the difference of two outputs, or one output minus its threshold. The threshold is 0.5
        for probabilities, and 0 for logits and hinge losses.

        Args:
            X: rows as in `fit`.
        """
        outputs = self._outputs(X)
        if outputs.shape[1] == 2:
            return outputs[:, 1] - outputs[:, 0]
        if outputs.shape[1] > 2:
            return outputs
        from_zero = self._gives_logits or isinstance(self.trainer_.loss, Hinge | SquaredHinge)
        return outputs[:, 0] - (0 if from_zero else 0.5)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Returns the probabilities of the classes, of shape (n, classes).

        These are the outputs of the network, and their softmax or sigmoid if the loss has
        `from_logits=True`.

        Args:
            X: rows as in `fit`.

        Raises:
            ValueError: for outputs that are no probabilities, such as those of a hinge loss.
        """
        outputs = self._outputs(X)
        is_single = outputs.shape[1] == 1
        if self._gives_logits:
            compute = scipy.special.expit if is_single else scipy.special.softmax
            outputs = compute(outputs) if is_single else compute(outputs, axis=-1)
        if is_single:
            outputs = np.concatenate([1 - outputs, outputs], axis=-1)
        if outputs.min() < 0 or not np.allclose(outputs.sum(-1), 1, atol=1e-2):
            low, high = outputs.min(), outputs.max()
            raise ValueError(
                "SKLearnClassifier.predict_proba: expected outputs that are probabilities with the sum "
                f"1, received numbers from {low:.3g} to {high:.3g}. End the model in a softmax, or give "
                "the loss from_logits=True; decision_function returns the outputs as they are."
            )
        return outputs

    @property
    def _gives_logits(self) -> bool:
        return bool(getattr(self.trainer_.loss, "from_logits", False))


class SKLearnRegressor(RegressorMixin, _Estimator):
    """Predicts numbers for rows with a network, as an estimator of scikit-learn.

    A model function receives targets of shape (n, outputs), also for one target a row. Predictions
    have the shape of the targets.

    Example:
        >>> import numpy as np, fkeras as fk
        >>> from fkeras import layers
        >>> from sklearn.model_selection import GridSearchCV
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> x = np.random.default_rng(0).normal(3, 2, (200, 2))
        >>> y = 4 * x[:, 0] - x[:, 1]
        >>> model = fk.Sequential([fk.Input((2,)), layers.Dense(1)])
        >>> regressor = fk.wrappers.SKLearnRegressor(model, fk.Trainer("adam", "mse"), {"epochs": 30})
        >>> pipeline = make_pipeline(StandardScaler(), regressor)
        >>> grid = {"sklearnregressor__trainer__optimizer__learning_rate": [0.0001, 0.1]}
        >>> GridSearchCV(pipeline, grid, cv=2).fit(x, y).best_params_
        {'sklearnregressor__trainer__optimizer__learning_rate': 0.1}
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_options: Any) -> Self:
        """Trains on rows and targets; returns self.

        Args:
            X: rows of shape (n, features), or (n, ...) for networks of images and sequences.
            y: targets of shape (n,) or (n, outputs).
            sample_weight: a weight for each row.
            fit_options: arguments of `Trainer.fit`, which take precedence over the parameter.
        """
        X, y = validate_data(self, X, y, allow_nd=True, multi_output=True, y_numeric=True)
        targets = np.asarray(y).reshape(len(y), -1)
        self._has_column = np.ndim(y) == 2
        return self._train(X, targets, sample_weight, fit_options, targets.shape[1])

    def predict(self, X: Any) -> np.ndarray:
        """Returns predictions of shape (n,), or (n, outputs) after a `fit` with such targets.

        Args:
            X: rows as in `fit`.
        """
        outputs = self._outputs(X)
        return outputs if self._has_column else outputs[:, 0]


class SKLearnTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, _Estimator):
    """Computes features of rows with a network, as a transformer of scikit-learn.

    Without a trainer the network is a trained one that stays as it is, such as
    `transforms.cut(model, outputs="features")`; `transform` then needs no `fit`. With a trainer, `fit`
    trains the network on the targets, and the features are its predictions.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> from sklearn.linear_model import LogisticRegression
        >>> from sklearn.pipeline import make_pipeline
        >>> network = fk.Sequential([fk.Input((2,)), fk.layers.Dense(32, "relu")])
        >>> features = fk.wrappers.SKLearnTransformer(network.build(jax.random.key(0)))
        >>> x = np.random.default_rng(0).normal(size=(200, 2))
        >>> y = x[:, 0] * x[:, 1] > 0
        >>> bool(make_pipeline(features, LogisticRegression(C=100)).fit(x, y).score(x, y) > 0.9)
        True
    """

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = self.trainer is not None
        tags.transformer_tags.preserves_dtype = []  # a network computes in its own dtype
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **fit_options: Any) -> Self:
        """Trains the network if the transformer has a trainer; returns self.

        Args:
            X: rows of shape (n, features), or (n, ...) for networks of images and sequences.
            y: targets of shape (n,) or (n, outputs); None for a trainer without a loss, which minimizes
                an objective or the losses of layers. A network without training ignores them.
            sample_weight: a weight for each row.
            fit_options: arguments of `Trainer.fit`, which take precedence over the parameter.
        """
        if self.trainer is None:
            validate_data(self, X, allow_nd=True)
            self.run_, self.trainer_ = self._fixed(), Trainer()
            return self
        if y is None:
            X, targets = validate_data(self, X, allow_nd=True), None
        else:
            X, y = validate_data(self, X, y, allow_nd=True, multi_output=True, y_numeric=True)
            targets = np.asarray(y).reshape(len(y), -1)
        width = 0 if targets is None else targets.shape[1]
        return self._train(X, targets, sample_weight, fit_options, width)

    def transform(self, X: Any) -> np.ndarray:
        """Returns the outputs of the network, of shape (n, features).

        Args:
            X: rows as in `fit`.
        """
        if self.trainer is None and not hasattr(self, "run_"):
            return Trainer().predict(self._fixed(), check_array(X, allow_nd=True))
        return self._outputs(X)

    @property
    def _n_features_out(self) -> int | None:
        (spec,) = output_specs(self.run_.model).values()
        return spec.shape[-1]

    def _check_output(self, model: Network, width: int) -> None:
        if width:
            super()._check_output(model, width)

    def _fixed(self) -> TrainState:
        """Returns the run of a network that is not trained."""
        model = self.model
        model, state = model if isinstance(model, tuple) and len(model) == 2 else (model, None)
        if not isinstance(model, Network) or not jax.tree.leaves(model):
            raise TypeError(
                f"SKLearnTransformer: expected a built model, or a trainer that trains the model, "
                f"received {describe_value(self.model)} and trainer=None. Write "
                'SKLearnTransformer(model, fk.Trainer("adam", "mse")), or model.build(key).'
            )
        state = model.init_state() if state is None else state
        return TrainState(model, state, {}, {}, np.int32(0), jax.random.key(0))


def _with_entry(value: Any, name: str, new: Any, place: str) -> Any:
    """Returns a mapping, or a value of fkeras, with one entry replaced; "__" leads into entries."""
    head, _, rest = name.partition("__")
    if isinstance(value, Mapping):
        entries = dict(value)
    elif isinstance(value, Configurable):
        entries = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    else:
        entries = None
    if entries is None or (isinstance(value, Configurable) and head not in entries):
        names = f"one of {', '.join(entries)}" if entries else "a mapping or a value of fkeras"
        raise ValueError(
            f"{place}: expected {names} for {head!r}, in {describe_value(value)}. Pass the whole value "
            "of the parameter instead."
        )
    entry = _with_entry(entries.get(head), rest, new, place) if rest else new
    if isinstance(value, Configurable):
        return dataclasses.replace(value, **{head: entry})
    return {**entries, head: entry}
