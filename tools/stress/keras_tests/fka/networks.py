"""Layers and models that change, around values of fkeras."""

import contextlib
import dataclasses
import functools
import inspect
import itertools

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src import tree

import fkeras as fk
from fka import proxies
from fka.names import KerasTensor, Unsupported, flat, is_symbolic, unwrap, wrap
from fka.proxies import Proxy, next_key
from fkeras.engine.call.strings import reads_strings
from fkeras.engine.config.keras_form import keras_form
from fkeras.layers.image.common.base import ImageLayer, ImageShape


class Weight:
    """A weight of a layer: a position in Keras's order of weights, or a name in the state."""

    attribute = None

    def __init__(self, owner, index):
        self.owner, self.index = owner, index

    @property
    def value(self):
        if isinstance(self.index, str):
            return self.owner._state[self.index]
        return jnp.asarray(self.owner.get_weights()[self.index])

    def assign(self, value):
        if isinstance(self.index, str):
            new = jnp.asarray(value, self.value.dtype)
            self.owner._state = {**self.owner._state, self.index: new}
            return
        values = self.owner.get_weights()
        values[self.index] = np.asarray(value)
        self.owner.set_weights(values)

    constraint = property(lambda self: self._option("constraint"))
    regularizer = property(lambda self: self._option("regularizer"))
    shape = property(lambda self: tuple(self.value.shape))
    dtype = property(lambda self: str(self.value.dtype))
    name = path = property(lambda self: f"w{self.index}")

    def _option(self, kind):
        return getattr(self.owner._value, f"{self.attribute}_{kind}", None)

    def numpy(self):
        return np.asarray(self.value)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.value, dtype)

    def __jax_array__(self):
        return self.value

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.value, name)

    __hash__ = object.__hash__


def _delegated(method):
    return lambda self, *args: getattr(self.value, method)(*unwrap(args))


for _operation in """add radd sub rsub mul rmul truediv rtruediv pow rpow matmul rmatmul neg lt le
gt ge eq ne getitem len""".split():
    setattr(Weight, f"__{_operation}__", _delegated(f"__{_operation}__"))


def _is_shape(x):
    return isinstance(x, list | tuple) and all(v is None or isinstance(v, int) for v in x)


def _mapped(function, shapes):
    """Applies a function to each shape in a tree of shapes."""
    if _is_shape(shapes):
        return function(tuple(shapes))
    if isinstance(shapes, list | tuple):
        return type(shapes)(_mapped(function, s) for s in shapes)
    if isinstance(shapes, dict):
        return {k: _mapped(function, s) for k, s in shapes.items()}
    return shapes


def _masks(x):
    return tree.map_structure(lambda v: getattr(v, "_keras_mask", None), x)


def _is_text(x):
    dtype = getattr(x, "dtype", None)
    return isinstance(x, str) or getattr(dtype, "kind", "f") in "USOT"


# methods of a class in a test that the layers of `derived` do not call
_HOOKS = {"train_step", "test_step", "predict_step", "compute_loss", "compute_metrics", "dtype"}
_HOOKS |= {"compute_mask", "save_own_variables", "load_own_variables", "get_build_config"}


class LayerProxy(Proxy):
    """A layer with its state, and the losses of its last call."""

    _fk = fk.Layer
    _parts = _trainer = _run = _starts = None
    _seen = ()  # the inputs of the first call

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls)
        self.__dict__["_given"] = args, kwargs
        return self

    def __init__(self, *args, **kwargs):
        for key in ("input_shape", "batch_input_shape"):  # Keras's old way to start a model
            if key in kwargs:
                shape = tuple(kwargs.pop(key))
                self._starts = shape if key[0] == "b" else (None, *shape)
        if self._in_test:
            tests = [c for c in type(self).__mro__ if issubclass(c, LayerProxy) and c._in_test]
            own = {n for c in tests for n, v in vars(c).items() if callable(v) or n == "dtype"}
            own -= {"__init__", "get_config"}
            computes = "call" in own and self._fk in (fk.Layer, fk.Model)
            mixed = any(c.__module__.startswith("keras.") for c in type(self).__mro__)
            if own & _HOOKS or mixed or (own and not computes):
                raise Unsupported(f"a class that a test derives: {self._fk.__name__}")
            if computes:
                takes = inspect.signature(self.call).parameters
                self._own, self._base_options = own, kwargs
                if own != {"call"} or {"training", "mask", "kwargs"} & {*takes}:
                    self._derive()
                return
        super().__init__(*args, **kwargs)

    @classmethod
    def from_config(cls, config, custom_objects=None):
        from fka.derived import CUSTOM_OBJECTS

        if cls._in_test:
            return cls(**config.get("settings", config))
        known = {**(unwrap(custom_objects) or {}), **CUSTOM_OBJECTS}
        return proxies.wrapped(cls._fk.from_config(config, custom_objects=known))

    def _derive(self):
        """Holds a layer that calls the methods of the class in the test."""
        from fka.derived import derived

        self._hold(derived(self, self._base_options))

    @property
    def _composes(self):
        """Whether the class in the test is a model of the layers inside."""
        is_model = issubclass(self._fk, fk.Model)
        return is_model or any(isinstance(v, Proxy) for v in vars(self).values())

    def _hold(self, value):
        if getattr(value, "masks", None) == "all":  # Keras's rule, which its files have
            value = value.replace(masks="any")
        self._value, self._state, self._inited, self.losses = value, {}, False, []

    def __setattr__(self, name, value):
        fields = () if self._value is None else dataclasses.fields(self._value)
        if name in {f.name for f in fields}:
            self._value = self._value.replace(**{name: unwrap(value)})
        elif name[0] == "_" or name == "losses" or self._in_test:
            object.__setattr__(self, name, value)
        else:
            raise Unsupported(f"assignment to layer.{name}")

    # ------------------------------------------------------------ building and calling

    @property
    def built(self):
        return self._value is not None and bool(self._value.built)

    def build(self, *shapes, **named):
        if type(self._value).__name__.endswith("Embedding") and shapes in ((), (None,)):
            shapes = ((None,),)  # Keras's embeddings need no shape
        order = [f"{n}_shape" for n in keras_form(self._value).input_names]
        shapes += tuple(named[n] for n in sorted(named, key=[*order, *named].index))
        self._build(*_mapped(tuple, shapes))

    def _build(self, *specs):
        if self._value is None:  # a class with `call`, which composes layers
            inputs = [tree.map_structure(_spec, s) for s in specs]
            self._hold(fk.Model(inputs[0] if len(inputs) == 1 else inputs, self.call(*inputs)))
            specs = ()
        if not self._value.built:
            self._value = self._value.build(next_key(), *specs)
        if not self._inited:
            self._state, self._inited = dict(self._value.init_state(*specs)), True

    def _arguments(self, args, kwargs):
        """Returns `(inputs, options)` of fkeras's call for the arguments of Keras's call."""
        layer, inputs, options = self._value, list(args), dict(kwargs)
        for name in list(keras_form(layer).input_names)[len(inputs) :]:
            value = options.pop(name, None)
            if value is not None:
                inputs.append(value)
        if len(inputs) == 2 and type(layer).__name__.startswith("Global"):
            options["mask"] = inputs.pop()
        if hasattr(layer, "state_size"):
            inputs += [options.pop("states")] if "states" in options else []
            if len(inputs) == 2:
                states = inputs[1] if isinstance(inputs[1], list | tuple) else [inputs[1]]
                stacked = hasattr(layer, "cells")
                inputs[1] = [
                    [s] if stacked and not isinstance(s, list | tuple) else s for s in states
                ]
        if type(layer).__name__.endswith("Attention") and len(inputs) in (2, 3):
            masks = [options.pop(f"{n}_mask", None) for n in ("query", "value", "key")]
            if any(m is not None for m in masks):
                options["mask"] = tuple(masks[: len(inputs)])
        for name in ("mask", "training"):
            if options.get(name, 0) is None:
                del options[name]
        return inputs, options

    def __call__(self, *args, **kwargs):
        if self._value is None and not self._composes:
            self._derive()
        if self._value is None:
            if kwargs or any(map(is_symbolic, flat(list(args)))):
                return self.call(*args, **kwargs)
            self._build(*args)
        inputs, options = self._arguments(unwrap(args), unwrap(kwargs))
        leaves = flat([inputs, options])
        on_host = reads_strings(self._value) or any(map(_is_text, leaves))
        if any(map(is_symbolic, leaves)):
            if not self._value.built and not on_host:
                with contextlib.suppress(TypeError, AttributeError):  # the call builds the layer
                    self._build(*inputs)
            return self._value(*inputs, **options)
        if on_host:
            options.pop("training", None)
            out = self._value(*inputs, **options)
            is_number = lambda v: isinstance(v, np.ndarray) and v.dtype.kind in "iufb"
            return tree.map_structure(lambda v: jnp.asarray(v) if is_number(v) else v, out)
        if "mask" not in options and self._value.supports_masking:
            masks = [_masks(x) for x in inputs]
            if any(m is not None for m in flat(masks)):
                options["mask"] = masks[0] if len(masks) == 1 else tuple(masks)
        training = bool(options.pop("training", keras_form(self._value).training_default))
        self._seen = self._seen or tuple(inputs)
        self._build(*inputs)
        out = self._value.apply(
            *inputs, state=self._state, training=training, key=next_key(), **options
        )
        self._state = {**self._state, **out.updates}
        self.losses = list(out.losses)
        values, masks = flat([out.value]), flat([out.mask])
        if len(values) == len(masks):
            for value, mask in zip(values, masks, strict=True):
                if mask is not None and not isinstance(value, jax.core.Tracer):
                    keras.src.backend.set_keras_mask(value, mask)
        return out.value

    def compute_output_shape(self, *shapes, **named):
        shapes += (named.pop("input_shape"),) if "input_shape" in named else ()
        inputs = {k.removesuffix("_shape"): _mapped(KerasTensor, v) for k, v in named.items()}
        out = self(*_mapped(KerasTensor, shapes), **inputs)
        return tree.map_structure(lambda t: tuple(t.shape), out)

    def compute_output_spec(self, *args, **kwargs):
        return self(*args, **kwargs)

    def compute_mask(self, inputs, mask=None, previous_mask=None):
        ones = lambda x: jnp.ones([d or 2 for d in x.shape], str(x.dtype)) if is_symbolic(x) else x
        mask = mask if mask is not None else previous_mask
        inputs, mask = tree.map_structure(ones, unwrap((inputs, mask)))
        self._build(inputs)
        return self._value.apply(inputs, state=self._state, key=next_key(), mask=mask).mask

    def reset_state(self):
        self._state = dict(self._value.reset_state(self._state))

    reset_states = reset_state

    def adapt(self, *args, **kwargs):
        self._value = self._value.adapt(*unwrap(args), **unwrap(kwargs))

    def set_vocabulary(self, *args, **kwargs):
        self._value = self._value.set_vocabulary(*unwrap(args), **unwrap(kwargs))

    def quantize(self, mode=None, config=None, type_check=True, **options):
        quantization = config if config is not None else mode
        if isinstance(quantization, keras.quantizers.QuantizationConfig):
            raise Unsupported("configurations of Keras's quantization")
        self._value = fk.quantize(self._value, quantization, **options)
        self._state, self._inited = {}, False

    # ------------------------------------------------------------ weights

    def get_weights(self):
        return list(self._value.get_weights(self._state)) if self._value.built else []

    def set_weights(self, values):
        arrays = [np.asarray(unwrap(v)) for v in values]
        self._value, self._state = self._value.set_weights(arrays, self._state)

    def _order(self):
        """Returns the layer with marks in place of its weights, and the marks in Keras's order."""
        mark = lambda x: np.zeros(np.shape(x), getattr(x, "dtype", "f4"))
        is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        marked = jax.tree.map(mark, self._value)
        state = jax.tree.map(lambda x: np.zeros(2) if is_key(x) else mark(x), self._state)
        return marked, [id(m) for m in marked.get_weights(state)]

    def _some(self, trained):
        if not self._value.built:
            return []
        marked, order = self._order()
        moved = {id(x) for x in jax.tree.leaves(fk.partition(marked)[0])}
        return [Weight(self, i) for i, m in enumerate(order) if trained in (None, m in moved)]

    weights = variables = property(lambda self: self._some(None))
    trainable_weights = trainable_variables = property(lambda self: self._some(True))
    non_trainable_weights = non_trainable_variables = property(lambda self: self._some(False))
    _trainable_variables = property(lambda self: self._some(True))
    compute_dtype = property(lambda self: self._value.policy.compute_dtype)
    variable_dtype = property(lambda self: self._value.policy.variable_dtype)
    dtype_policy = property(lambda self: keras.dtype_policies.get(self._value.policy.name))

    def _inner(self, layer):
        """Returns the proxy of a layer inside, which does not change this layer."""
        inner = wrap(layer)
        if isinstance(self._state.get(layer.name), dict):
            inner._state, inner._inited = dict(self._state[layer.name]), True
        return inner

    def __getattr__(self, name):
        if name.startswith("transform_") and isinstance(self._value, ImageLayer):
            return functools.partial(_hook, self._value, name)
        if name == "layers" and isinstance(self._value, fk.Network):
            layers = [self._value.layers[name] for name in self._value.layers]
            hidden = fk.layers.InputLayer if isinstance(self, Sequential) else ()
            return [self._inner(x) for x in layers if not isinstance(x, hidden)]
        if name in self.__dict__.get("_state", ()):
            return Weight(self, name)
        value = super().__getattr__(name)
        if isinstance(value, jax.Array):
            leaves = jax.tree.leaves(self._value)
            place = next((i for i, x in enumerate(leaves) if x is value), None)
            marked, order = self._order()
            mark = None if place is None else id(jax.tree.leaves(marked)[place])
            if mark in order:
                value = Weight(self, order.index(mark))
                value.attribute = name
        elif isinstance(value, list | tuple) and any(isinstance(v, fk.Layer) for v in value):
            return [wrap(v) for v in value]
        return value


def _hook(layer, name, data, transformation, training=True):
    """Calls a hook of an image layer with Keras's arguments: an image alone, and numbers."""
    given = dict(unwrap(transformation))
    sizes = given.pop("input_shape", (0, 0, 0))
    given = {k: jnp.asarray(v) for k, v in given.items()}
    if "flips" in given:  # a draw for each direction in fkeras
        flips = given["flips"].ravel()
        given = {d: flips & (d in layer.mode) for d in ("vertical", "horizontal")}
    data = jax.tree.map(lambda a: jnp.asarray(a, "float32"), unwrap(data))
    if name != "transform_bounding_boxes":
        alone = data.ndim == 3
        out = getattr(layer, name)(data[None] if alone else data, given)
        return out[0] if alone and isinstance(layer, fk.layers.RandomPerspective) else out
    count = len(data["boxes"]) if "permutation_order" in given else 1
    last = (4,) if count == 1 else ()
    boxes = {"boxes": data["boxes"].reshape(count, -1, *last)}
    boxes["labels"] = data["labels"].reshape(count, -1)
    out = getattr(layer, name)(boxes, given, ImageShape(count, *map(int, sizes)))
    alone = type(layer).__name__ in ("RandomFlip", "RandomTranslation")  # without a batch axis
    return {k: v[0] for k, v in out.items()} if alone else out


class Trained:
    """Adds Keras's methods of training and saving to a layer: its `compile` makes a trainer."""

    _run = _trainer = None

    def compile(self, optimizer="rmsprop", loss=None, metrics=None, loss_weights=None, **options):
        weighted = unwrap(options.pop("weighted_metrics", None)) or ()
        self._steps = options.pop("steps_per_execution", 1)
        self._trainer = fk.Trainer(
            unwrap(optimizer),
            unwrap(loss),
            unwrap(metrics) or (),
            loss_weights=loss_weights,
            weighted_metrics=weighted,
        )
        self._run = None

    def _ready(self, x, y=None):
        """Builds the layer and begins the training, if needed; returns the data and targets."""
        if self._trainer is None:
            raise ValueError("call compile first")
        x, first = _peeked(unwrap(x))
        self._shaped(first)
        if self._run is None:
            self._run = self._trainer.init(self._network(first), next_key())
        return x, unwrap(y)

    def _network(self, x):
        """Returns the layer as a model with inputs."""
        if isinstance(self._value, fk.Network):
            return self._value
        return fk.Sequential([tree.map_structure(_spec, x), self._value])

    def _shaped(self, x):
        """Builds the layer for arrays, with an input in front of a `Sequential`."""
        if not self.built:
            specs = tree.map_structure(_spec, x)
            if isinstance(self, Sequential) and self._value.graph is None:
                self._value = fk.Sequential([specs, *map(unwrap, self._parts)])
            self._build(specs)

    def _after(self, run):
        is_network = isinstance(self._value, fk.Network)
        self._value = run.model if is_network else run.model.layers[-1]
        self._run, self._state = run, dict(run.state)

    def fit(self, x=None, y=None, **options):
        options.setdefault("verbose", 0)
        x, y = self._ready(x, y)
        if self._steps != 1:
            options["steps_per_execution"] = self._steps
        options["callbacks"] = [
            c.bridged(self) if isinstance(c, Callback) else c
            for c in options.get("callbacks") or ()
        ]
        run, history = self._trainer.fit(self._run, x, y, **unwrap(options))
        self._after(run)
        self.history = history
        return history

    def evaluate(self, x=None, y=None, return_dict=False, **options):
        x, y = self._ready(x, y)
        logs = self._trainer.evaluate(self._run, x, y, **unwrap(options))
        return logs if return_dict else _listed(logs)

    def predict(self, x, batch_size=None, verbose=0, steps=None, **options):
        x, first = _peeked(unwrap(x))
        self._shaped(first)
        trainer, run = self._trainer, self._run
        if run is None:
            trainer = fk.Trainer("sgd", "mse")
            run = trainer.init(self._network(first), next_key())
        return trainer.predict(run, x, batch_size, verbose, steps, **options)

    def train_on_batch(self, x, y=None, sample_weight=None, class_weight=None, return_dict=False):
        x, y = self._ready(x, y)
        if class_weight is not None:
            classes = np.asarray(unwrap(y)).reshape(len(y), -1)
            classes = classes.argmax(-1) if classes.shape[1] > 1 else classes[:, 0].astype(int)
            weights = np.array([class_weight.get(number, 1.0) for number in classes.tolist()])
            sample_weight = weights if sample_weight is None else sample_weight * weights
        batch = (x, y) if sample_weight is None else (x, y, sample_weight)
        run, logs = self._trainer.step(self._run, unwrap(batch))
        self._after(run)
        logs = {k: float(v) for k, v in logs.items()}
        return logs if return_dict else _listed(logs)

    def test_on_batch(self, x, y=None, sample_weight=None, return_dict=False):
        return self.evaluate(x, y, return_dict, sample_weight=sample_weight, verbose=0)

    def predict_on_batch(self, x):
        return self.predict(x)

    input = property(lambda self: self._value.inputs)
    output = property(lambda self: self._value.outputs)

    @property
    def optimizer(self):
        optimizer = wrap(self._trainer.optimizer)
        if hasattr(getattr(self._run, "opt_state", None), "learning_rate"):
            optimizer.learning_rate = self._run.opt_state.learning_rate
        return optimizer

    def save(self, path, overwrite=True, **options):
        if not self.built and self._parts and self._parts[0]._seen:
            self._shaped(self._parts[0]._seen[0])
        fk.save_model(str(path), self._value, self._state, **options)

    def save_weights(self, path, overwrite=True, **options):
        fk.save_weights(str(path), self._value, self._state, **options)

    def load_weights(self, path, **options):
        self._value, self._state = fk.load_weights(str(path), self._value, self._state, **options)

    def __setattr__(self, name, value):
        if name == "history":
            name = "_history"
        super().__setattr__(name, value)


def _peeked(x):
    """Returns the data and the inputs of their first batch."""
    if isinstance(x, np.ndarray | jax.Array | dict | list | tuple):
        return x, x
    if isinstance(x, keras.utils.PyDataset):
        first = x[0]
    elif hasattr(x, "__next__"):
        first = next(x)
        x = itertools.chain([first], x)
    else:
        first = next(iter(x))
    return x, first[0] if isinstance(first, tuple | list) else first


class Callback:
    """A base class with Keras's hooks; `bridged` calls them from hooks of fkeras."""

    model = None

    def _nothing(self, *args):
        pass

    on_train_begin = on_train_end = on_epoch_begin = on_epoch_end = _nothing
    on_train_batch_end = on_test_begin = on_batch_begin = on_batch_end = _nothing

    def bridged(self, model):
        if unknown := [n for n in dir(self) if n.startswith("on_") and not hasattr(Callback, n)]:
            raise Unsupported(f"hooks {unknown}")
        self.model = model
        return fk.callbacks.LambdaCallback(
            on_train_begin=lambda run: self.on_train_begin({}),
            on_train_end=lambda run: self.on_train_end({}),
            on_epoch_begin=self._begin,
            on_epoch_end=lambda epoch, run, logs: self.on_epoch_end(epoch, dict(logs)),
            on_batch_end=self._end_of_batch,
            on_test_begin=lambda run: self.on_test_begin({}),
        )

    def _begin(self, epoch, run):
        self._first = self._next = int(run.step)
        self.on_epoch_begin(epoch, {})

    def _end_of_batch(self, step, run, logs):
        # fkeras has no hook at the beginning; Keras counts the last execution as a full one
        begin = self._next - self._first
        self.on_batch_begin(begin, {})
        for hook in (self.on_train_batch_end, self.on_batch_end):
            hook(begin + self.model._steps - 1, dict(logs))
        self._next = step


def _spec(array):
    if is_symbolic(array):
        return array
    dtype = str(np.asarray(array).dtype).replace("64", "32")
    return fk.Input(batch_shape=(None, *np.shape(array)[1:]), dtype=dtype)


def _listed(logs):
    return list(logs.values()) if len(logs) > 1 else next(iter(logs.values()))


class Model(Trained, LayerProxy):
    """A model of inputs and outputs, or of the `call` of a class in a test."""

    _fk = fk.Model

    def __init__(self, *args, **kwargs):
        if self._in_test:
            return super().__init__(*args, **kwargs)
        if not (args or kwargs):
            raise Unsupported("a model without inputs")
        self._hold(fk.Model(*unwrap(args), **unwrap(kwargs)))
        self._build()

    def _build(self, *specs):
        super()._build(*(() if isinstance(self._value, fk.Network) else specs))


class Sequential(Trained, LayerProxy):
    """A list of layers, which grows."""

    _fk = fk.Sequential

    def __init__(self, layers=None, **kwargs):
        if self._in_test:
            raise Unsupported("a class that a test derives from Sequential")
        self._parts, self._options = list(layers or []), kwargs
        self._make()

    def _make(self):
        parts = list(map(unwrap, self._parts))
        if parts and getattr(self._parts[0], "_starts", None):
            parts.insert(0, fk.Input(batch_shape=self._parts[0]._starts))
        self._hold(fk.Sequential(parts, **unwrap(self._options)))
        if self._value.graph is not None:
            self._build()

    def add(self, layer):
        self._parts.append(layer)
        self._make()

    def build(self, *shapes):
        if self._value.graph is None:
            super().build(*shapes)
        else:
            self._value.build(next_key(), *_mapped(tuple, shapes))

    def _build(self, *specs):
        super()._build(*(() if self._value.graph is not None else specs))


proxies.CLASSES.update({fk.Model: Model, fk.Sequential: Sequential})


def load_model(path, custom_objects=None, compile=True, safe_mode=True):
    from fka.derived import CUSTOM_OBJECTS

    custom_objects = {**(unwrap(custom_objects) or {}), **CUSTOM_OBJECTS}
    value, state = fk.load_model(str(path), custom_objects=custom_objects)
    model = proxies.wrapped(value)
    model._state, model._inited = dict(state), True
    return model


def save_model(model, path, **options):
    model.save(path, **options)


def clone_model(model, **options):
    if options:
        raise Unsupported("clones that functions change")
    return type(model).from_config(model.get_config())
