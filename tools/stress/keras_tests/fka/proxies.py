"""Objects that change, as Keras's tests expect them, around values of fkeras."""

import inspect
import itertools

import jax
import jax.numpy as jnp
import keras
import numpy as np

import fkeras as fk
from fka import names
from fka.names import Unsupported, unwrap, wrap

ROOTS = (
    fk.Layer,
    fk.metrics.Metric,
    fk.initializers.Initializer,
    fk.optimizers.Optimizer,
)
_calls = itertools.count()


def next_key():
    return jax.random.key(next(_calls))


class Proxy:
    """Holds `_value`, a value of the class `_fk`."""

    _fk = _value = None
    _in_test = False  # whether a test defined the class
    _composes = True

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls._in_test = "_fk" not in cls.__dict__

    def __init__(self, *args, **kwargs):
        if self._fk in ROOTS or (self._in_test and not issubclass(self._fk, fk.Layer)):
            raise Unsupported(f"an object of a class that a test derives: {self._fk.__name__}")
        if names.channels_first() and "data_format" in self._fk.__dataclass_fields__:
            kwargs["data_format"] = kwargs.get("data_format") or "channels_first"  # global in Keras
        self._hold(self._fk(*unwrap(args), **unwrap(kwargs)))

    def _hold(self, value):
        self._value = value

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return wrapped(cls._fk.from_config(config))

    def _attribute(self, name):
        """Returns an attribute that the value does not have."""
        raise Unsupported(f"{self._fk.__name__}.{name}")

    def __getattr__(self, name):
        if name.startswith("__") or self._value is None:
            raise AttributeError(name)
        if not hasattr(self._value, name) or name[0] == "_":
            return self._attribute(name)
        return wrap(getattr(self._value, name))

    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return id(self)

    def __reduce__(self):
        return wrapped, (self._value,)


CLASSES = {}


def class_for(ours):
    """Returns the class of proxies for a class of fkeras, below those of its base classes."""
    from fka import networks

    if ours not in CLASSES:
        families = (networks.LayerProxy, MetricProxy, InitializerProxy, OptimizerProxy)
        root, family = next(
            (pair for pair in zip(ROOTS, families, strict=True) if issubclass(ours, pair[0])),
            (ours, OptimizerProxy),  # a function of the namespace, such as LossScaleOptimizer
        )
        above = ours.__mro__[1]
        base = class_for(above) if ours is not root and issubclass(above, root) else family
        CLASSES[ours] = type(ours.__name__, (base,), {"_fk": ours})
    return CLASSES[ours]


def wrapped(value):
    if (test := getattr(value, "test", None)) is not None:  # the object of a test
        test._hold(value)
        return test
    made = class_for(type(value))
    self = made.__new__(made)
    self._hold(value)
    return self


class MetricProxy(Proxy):
    """A metric and its state."""

    _fk = fk.metrics.Metric
    _state = None

    _dtype = property(lambda self: self._value.dtype)

    def update_state(self, *args, **kwargs):
        args, kwargs = unwrap(args), unwrap(kwargs)
        args = [jnp.asarray(a) if isinstance(a, list | float | int) else a for a in args]
        if self._state is None:
            self._state = self._value.init(kwargs.get("y_pred", args[1] if args[1:] else None))
        self._state = self._value.update(self._state, *args, **kwargs)

    def _current(self):
        return self._value.init() if self._state is None else self._state

    def result(self):
        return self._value.result(self._current())

    def reset_state(self):
        self._state = None

    def __call__(self, *args, **kwargs):
        self.update_state(*args, **kwargs)
        return self.result()

    @property
    def variables(self):
        # sums have a second array for their low bits
        return [v for k, v in self._current().items() if not k.endswith("__rest")]

    def _attribute(self, name):
        try:
            return self._current()[name]
        except Exception:
            return super()._attribute(name)


class InitializerProxy(Proxy):
    """An initializer that draws with its seed."""

    _fk = fk.initializers.Initializer

    def __call__(self, shape, dtype=None, **kwargs):
        seeded = getattr(self._value, "seed", None) is not None
        key = jax.random.key(0) if seeded else next_key()
        return self._value(key, shape, *([] if dtype is None else [dtype]))


class OptimizerProxy(Proxy):
    """An optimizer, its state and the variables that it updates."""

    _fk = fk.optimizers.Optimizer
    _state = _variables = None
    _excluded = ((), ())
    built = False

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        if self.built:
            raise ValueError("the optimizer is built")
        self._excluded = (var_list or (), var_names or ())

    def _by_name(self, values):
        return {
            f"{v.name}_{i}": x for i, (v, x) in enumerate(zip(self._variables, values, strict=True))
        }

    def _weights(self):
        return self._by_name([v.value for v in self._variables])

    def build(self, variables):
        self._variables = list(variables)
        objects, words = self._excluded
        patterns = [
            name
            for name, v in self._by_name(self._variables).items()
            if any(v is o for o in objects) or any(word in v.name for word in words)
        ]
        self._used = self._value
        if patterns:
            config = {**self._value.get_config(), "exclude_from_weight_decay": patterns}
            self._used = type(self._value).from_config(config)
        self._transformation = self._used.transformation()
        self._state = self._transformation.init(self._weights())
        self.built = True

    def apply(self, grads, trainable_variables=None):
        if not self.built:
            self.build(trainable_variables)
        given = [None] * len(self._variables)
        for grad, variable in zip(
            unwrap(list(grads)), list(trainable_variables or self._variables), strict=True
        ):
            index = next(i for i, v in enumerate(self._variables) if v is variable)
            given[index] = None if grad is None else jnp.asarray(grad)
        changes, self._state = self._transformation.update(
            self._by_name(given), self._state, self._weights()
        )
        for name, variable in self._by_name(self._variables).items():
            if changes[name] is not None:
                new = variable.value + changes[name]
                variable.assign(variable.constraint(new) if variable.constraint else new)

    def apply_gradients(self, pairs):
        self.apply(*zip(*pairs, strict=True))

    def _clip_gradients(self, grads):
        options = ("clipnorm", "clipvalue", "global_clipnorm")
        config = self._value.get_config()
        clipping = fk.optimizers.SGD(1.0, **{k: config.get(k) for k in options}).transformation()
        arrays = {str(i): jnp.asarray(g) for i, g in enumerate(unwrap(grads)) if g is not None}
        weights = jax.tree.map(jnp.zeros_like, arrays)
        changes, _ = clipping.update(arrays, clipping.init(weights), weights)
        return [None if g is None else -changes[str(i)] for i, g in enumerate(grads)]

    def finalize_variable_values(self, variables):
        final = self._used.finalize(self._state, self._weights())
        for name, variable in self._by_name(self._variables).items():
            variable.assign(final[name])

    def scale_loss(self, loss):
        return self._value.scale_loss(jnp.asarray(loss), self._state)

    @property
    def iterations(self):
        return jnp.int32(0) if self._state is None else self._state.count

    @property
    def variables(self):
        return jax.tree.leaves(self._state)

    @property
    def learning_rate(self):
        rate = self._value.learning_rate
        return rate(self.iterations) if callable(rate) else keras.Variable(rate, trainable=False)

    @learning_rate.setter
    def learning_rate(self, value):
        config = {**self._value.get_config(), "learning_rate": float(np.asarray(unwrap(value)))}
        self._value = type(self._value).from_config(config)


class FeatureSpace(Proxy):
    """A space of features that `adapt` changes."""

    _fk = fk.utils.FeatureSpace

    def __init__(self, *args, **kwargs):
        self._value = self._fk(*unwrap(args), **unwrap(kwargs))

    def adapt(self, data):
        if not isinstance(data, dict):
            rows = [x[0] if isinstance(x, tuple) else x for x in data]
            data = {k: np.concatenate([np.atleast_1d(r[k]) for r in rows]) for k in rows[0]}
        self._value = self._value.adapt({k: np.asarray(v) for k, v in data.items()})

    def __call__(self, data):
        return self._value(unwrap(data))

    @property
    def preprocessors(self):
        return {name: wrap(value) for name, value in self._value.preprocessors.items()}


for _name, _made in vars(fk.utils.FeatureSpace).items():
    if isinstance(_made, staticmethod):
        setattr(FeatureSpace, _name, staticmethod(names.function(_made.__func__, _name)))


def _takes_variables(function):
    """Wraps a method that receives keras.Variable in Keras's tests."""

    def call(self, x):
        return function(self, unwrap(x))

    return call


for _space in (fk.regularizers, fk.constraints):
    for _class in vars(_space).values():
        if inspect.isclass(_class) and "__call__" in vars(_class):
            _class.__call__ = _takes_variables(_class.__call__)


def _masked_loss(call):
    """Wraps a loss to use the mask of its predictions, an attribute in Keras."""

    def masked(self, y_true, y_pred, sample_weight=None, mask=None):
        y_true, y_pred, sample_weight = unwrap((y_true, y_pred, sample_weight))
        if mask is None:
            mask = getattr(y_pred, "_keras_mask", None)
        return call(self, y_true, y_pred, sample_weight, mask)

    return masked


fk.losses.Loss.__call__ = _masked_loss(fk.losses.Loss.__call__)
