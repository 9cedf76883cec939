"""Finds the value of fkeras that takes the place of an object of Keras."""

import functools
import importlib
import inspect
import re
import types
import unittest

import jax
import jax.numpy as jnp
import keras
import keras.src

import fkeras as fk

MISSING = object()
USES = []  # grows when a test calls fkeras


class Unsupported(unittest.SkipTest, AttributeError):  # noqa: N818
    """Skips a test that the adapter cannot run."""


class _SymbolicMeta(type):
    def __call__(cls, shape, dtype="float32", sparse=False, ragged=False, name=None, **options):
        if sparse or ragged:
            raise Unsupported("sparse or ragged tensors")
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        dtype = keras.src.backend.standardize_dtype(dtype)
        return fk.Input(batch_shape=shape, dtype=dtype, name=name)

    def __instancecheck__(cls, x):
        return isinstance(x, fk.KerasTensor)


class KerasTensor(metaclass=_SymbolicMeta):
    """Creates symbolic tensors of fkeras."""


def is_symbolic(x):
    return isinstance(x, fk.KerasTensor)


def unwrap(x):
    """Returns arguments of Keras's tests as fkeras takes them."""
    from fka import networks, proxies

    USES.append(None)
    if isinstance(x, proxies.Proxy):
        if x._value is None and not x._composes:
            x._derive()
        if x._value is None:
            raise Unsupported("an object of a class that a test derives as an argument")
        return x._value
    if isinstance(x, types.FunctionType) and "of_fkeras" in x.__dict__:
        return x.of_fkeras
    if isinstance(x, networks.Weight | keras.Variable):
        return x.value
    if isinstance(x, keras.DTypePolicy):
        return x.name
    if isinstance(x, keras.random.SeedGenerator):
        return x._initial_seed if isinstance(x._initial_seed, int) else 0
    if isinstance(x, keras.quantizers.QuantizationConfig):
        raise Unsupported("configurations of Keras's quantization")
    if type(x).__module__.startswith(("jax.experimental.sparse", "scipy.sparse")):
        raise Unsupported("sparse or ragged tensors")
    if hasattr(x, "_fields"):
        return type(x)(*map(unwrap, x))
    if type(x) in (list, tuple):
        return type(x)(map(unwrap, x))
    return {k: unwrap(v) for k, v in x.items()} if type(x) is dict else x


def wrap(x):
    """Returns a value of fkeras in the wrapper that tests change."""
    from fka import proxies

    if isinstance(x, types.FunctionType) and x.__module__.startswith("fkeras."):
        return function(x, x.__name__)
    is_value = isinstance(x, proxies.ROOTS) or type(x).__name__ == "LossScaleOptimizer"
    return proxies.wrapped(x) if is_value else x


def flat(tree):
    if isinstance(tree, list | tuple):
        return [leaf for branch in tree for leaf in flat(branch)]
    return flat(list(tree.values())) if isinstance(tree, dict) else [tree]


# ------------------------------------------------------------------ public names

_SPACES = """ops ops.image ops.linalg ops.nn ops.numpy layers losses metrics optimizers
optimizers.schedules activations initializers regularizers constraints random utils applications
quantizers callbacks""".split()


def _at(root, path):
    return functools.reduce(getattr, path.split("."), root)


def _public():
    table = {}
    for space in _SPACES:
        for name, value in vars(_at(keras, space)).items():
            if not name.startswith("_") and not isinstance(value, types.ModuleType):
                table.setdefault(id(value), []).append((space, name))
    for name in ("Model", "Sequential", "Input", "Layer", "InputSpec"):
        table[id(getattr(keras, name))] = [("", name)]
    return table


_PUBLIC = _public()


def _ours(space, name):
    try:
        return _at(fk, f"{space}.{name}" if space else name)
    except Exception:  # errors of omitted names say why
        return MISSING


def stand_in(path, name):
    """Returns the adapter's own object for `keras.path.name`, or `MISSING`."""
    from fka import cases, networks

    if name == "KerasTensor":
        return KerasTensor
    if name == "compute_output_spec" and path.startswith("src.backend"):
        return lambda function, *args, **kwargs: function(*args, **kwargs)
    if path.startswith("src.testing") and name == "TestCase":
        return cases.TestCase
    if name in ("Model", "Functional", "Sequential") and re.match(r"(src)?(\.?models.*)?$", path):
        return networks.Sequential if name == "Sequential" else networks.Model
    if name in ("Trainer", "JAXTrainer") and "trainer" in path:
        return networks.Trained
    if name == "Callback" and "callbacks" in path:
        return networks.Callback
    if name == "clone_model":
        return networks.clone_model
    if name in ("load_model", "save_model") and re.search(r"(saving|models|saving_api)$", path):
        return getattr(networks, name)
    return MISSING


def translated(value):
    """Returns fkeras's object for an object of Keras, or the object where fkeras has none."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
        return importlib.import_module("fka" + name[5:]) if name.startswith("keras.") else value
    return _translated(value) if callable(value) and value.__hash__ else value


@functools.cache
def _translated(value):
    from fka import proxies

    for space, public in _PUBLIC.get(id(value), ()):
        if (found := _ours(space, public)) is not MISSING:
            return _adapted(found, space, public)
    module, name = getattr(value, "__module__", "") or "", getattr(value, "__name__", "")
    if inspect.isclass(value) and issubclass(value, keras.Layer):
        found = _ours("layers", name)
        return value if found is MISSING else proxies.class_for(found)
    if inspect.isclass(value) and issubclass(value, keras.Operation):
        return _operation_class(value)
    for start, space in (
        ("keras.src.applications.imagenet_utils", "applications.imagenet_utils"),
        ("keras.src.ops", "ops"),
        ("keras.src.quantizers", "quantizers"),
    ):
        if module.startswith(start) and callable(value):
            if (found := _ours(space, name)) is not MISSING:
                return _adapted(found, "ops" if space == "ops" else space, name)
    return value


def _adapted(found, space, name):
    from fka import networks, proxies

    if name in ("Model", "Sequential"):
        return getattr(networks, name)
    if name == "FeatureSpace":
        return proxies.FeatureSpace
    if space == "random":
        return _random(found)
    if inspect.isclass(found):
        if issubclass(found, proxies.ROOTS) or space == "optimizers":
            return proxies.class_for(found)
        found.__init__ = _counted(found.__init__)
        return found
    return function(found, name) if callable(found) else found


def _counted(method):
    @functools.wraps(method)
    def call(*args, **kwargs):
        return method(*unwrap(args), **unwrap(kwargs))

    return call


_WRAPPERS = {}  # of functions of fkeras, so that tests may compare functions


def channels_first():
    return keras.config.image_data_format() == "channels_first"


def function(found, name):
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        signature = inspect.Signature()

    @functools.wraps(found, updated=())
    def call(*args, **kwargs):
        if "data_format" in signature.parameters and channels_first():  # global in Keras
            if signature.bind_partial(*args, **kwargs).arguments.get("data_format") is None:
                kwargs["data_format"] = "channels_first"
        if "seed" in signature.parameters and isinstance(found, fk.ops.Op):
            kwargs["seed"] = _seed(kwargs.get("seed"))
        return wrap(found(*unwrap(args), **unwrap(kwargs)))

    call.__name__, call.of_fkeras = name, found
    return _WRAPPERS.setdefault(found, call) if found.__hash__ else call


def _seed(seed):
    from fka import proxies

    if seed is None:
        return proxies.next_key()
    if isinstance(seed, keras.random.SeedGenerator):
        return jax.random.wrap_key_data(jnp.asarray(seed.next(), "uint32"), impl="threefry2x32")
    return seed


def _random(found):
    @functools.wraps(found, updated=())
    def call(*args, **kwargs):
        arguments = inspect.signature(found).bind(*args, **kwargs).arguments
        arguments = unwrap({**arguments, "seed": _seed(arguments.get("seed"))})
        if any(is_symbolic(x) for x in flat(arguments)):
            raise Unsupported("random functions of symbolic tensors: the seed is a key")
        return found(**arguments)

    return call


# ------------------------------------------------------------------ classes of operations


def _function_of(operation):
    module = importlib.import_module(operation.__module__)
    name = operation.__name__
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name))
    for candidate in (snake.lower(), name.lower(), snake.lower().replace("_", "")):
        if inspect.isfunction(found := getattr(module, candidate, None)):
            return found
    functions = [f for _, f in inspect.getmembers(module, inspect.isfunction)]
    calls = re.compile(rf"\b{name}\(")
    return next((f for f in functions if calls.search(inspect.getsource(f))), None)


def _named(function, *args, **kwargs):
    """Returns `(arguments by name, arguments of *args)` of a call of a method."""
    bound = inspect.signature(function).bind(None, *args, **kwargs).arguments
    named, positional = {}, ()
    for name, value in list(bound.items())[1:]:
        kind = inspect.signature(function).parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            positional = value
        else:
            named.update(value if kind is inspect.Parameter.VAR_KEYWORD else {name: value})
    return named, positional


def _operation_class(original):
    """Returns a class whose objects call the function that creates operations of this class."""
    target = _function_of(original)
    if target is None:
        return original
    call_target, parameters = translated(target), inspect.signature(target).parameters

    class Operation:
        def __init__(self, *args, name=None, **kwargs):
            self.options = _named(original.__init__, *args, **kwargs)[0]

        def __call__(self, *args, **kwargs):
            named, rest = _named(original.call, *args, **kwargs)
            named = {**self.options, **named}
            first = []
            for name, parameter in parameters.items():
                if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                    first += rest
                if parameter.kind is inspect.Parameter.KEYWORD_ONLY or name not in named:
                    break
                first.append(named.pop(name))
            return call_target(*first, **named)

        symbolic_call = compute_output_spec = call = __call__

    Operation.__name__ = original.__name__
    return Operation
