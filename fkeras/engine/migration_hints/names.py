"""Migration hints for names in Keras's and TensorFlow's namespaces that fkeras does not have."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from types import MappingProxyType
from typing import Any

from fkeras.engine.messages.errors import suggest

_MIXED = '`layers.Dense(2, dtype="mixed_bfloat16")`: each layer has its own dtype policy'
_VARIABLE = "declare weights with `fk.weight()`; other arrays are state, a dictionary"
_MESH = (
    '`fk.Trainer("adam", "mse", mesh=mesh)` splits batches; its argument sharding splits weights'
)
_KEY = "`key = jax.random.key(0)` is passed to build, init and apply"
_NOTHING = "fkeras has no global state to clear or set"
_CUSTOM = '`fk.load_model("m.keras", custom_objects={"Name": Name})` names custom classes'
_PACKAGE = MappingProxyType(
    {
        "backend": f"{_NOTHING}; functions of arrays are in `fk.ops`",
        "K": "`fk.ops` has the functions of arrays",
        "clear_session": _NOTHING,
        "config": f"{_NOTHING}; a layer has the arguments dtype and data_format",
        "set_random_seed": _KEY,
        "models": "`fk.Model`, `fk.Sequential`, `fk.load_model` and `fk.save_model`; a model is a "
        "value and needs no clone_model",
        "clone_model": "a model is a value and needs no copy; `model.unbuilt()` has no weights",
        "model_from_json": "`model = fk.Model.from_config(json.loads(model.to_json()))`",
        "Function": "`fk.Model(inputs, outputs)`",
        "Functional": "`fk.Model(inputs, outputs)`",
        "Operation": "`fk.ops.lift(jnp.sin)(x)` makes a layer of a function",
        "Quantizer": "`fk.quantizers.AbsMaxQuantizer`",
        "distillation": "a Trainer with an objective of your own, as in examples/distillation.py",
        "legacy": "fk.load_model opens and converts the files of Keras 1 and 2",
        "Variable": _VARIABLE,
        "mixed_precision": _MIXED,
        "dtype_policies": '`fk.DTypePolicy("mixed_bfloat16")`',
        "FloatDTypePolicy": '`fk.DTypePolicy("mixed_bfloat16")`',
        "distribution": _MESH,
        "distribute": _MESH,
        "device": "`jax.default_device(jax.devices()[0])` is a context manager",
        "data": "any iterable of batches is a source: `trainer.fit(run, loader)`",
        "preprocessing": "layers such as `layers.RandomFlip()` and `layers.TextVectorization()`",
        "wrappers": f"a Trainer has fit, evaluate and predict: {_MESH}",
        "tree": "`jax.tree` has map, leaves and structure",
        "name_scope": "`jax.named_scope`",
        "RematScope": '`fk.Trainer("adam", "mse", remat="full")`',
        "remat": '`fk.Trainer("adam", "mse", remat="full")`',
        "StatelessScope": "calls are pure: `out = model.apply(x, state=state, training=True, key=key)`",
        "SymbolicScope": "`y = layer(fk.Input((8,)))`",
        "visualization": "`dot = fk.to_dot(model)`",
        "version": "`fk.__version__`",
        "register_keras_serializable": _CUSTOM,
        "custom_object_scope": _CUSTOM,
        "CustomObjectScope": _CUSTOM,
        "function": "`jax.jit`",
        "GradientTape": "`grads = jax.grad(loss_fn)(model)`",
        "constant": "`jnp.asarray(array)`",
        "Tensor": "`jax.Array`, or the symbolic `fk.KerasTensor`",
        "placeholder": "`fk.Input((8,))`",
        "Session": "`y = model(x, state=state)`",
        "keras": "`fk.layers`, `fk.losses` and so on are at the top level",
        "math": "`fk.ops`",
        "linalg": "`fk.ops.linalg`",
    }
)
_LAYERS = MappingProxyType(
    {
        "TFSMLayer": "a TensorFlow SavedModel does not run in JAX; `layers.JaxLayer` takes "
        "functions of JAX",
        "TorchModuleWrapper": "a PyTorch module does not run in JAX; `layers.FlaxLayer` takes "
        "modules of Flax",
        "CuDNNLSTM": "`layers.LSTM(4)`",
        "CuDNNGRU": "`layers.GRU(4)`",
        "SyncBatchNormalization": "`layers.BatchNormalization()`, whose statistics are those of the whole "
        "batch under a mesh",
        "ThresholdedReLU": "`layers.Lambda(lambda x: x * (x > 1.0))`",
        "Merge": "`layers.Add()`, `layers.Concatenate()`, and so on",
        "merge": "`layers.add([x, y])`, `layers.concatenate([x, y])`, and so on",
        "experimental": "`layers.Normalization()`, `layers.RandomFlip()`, and so on",
        "Linear": "`layers.Dense(2)`",
        "BatchNorm": "`layers.BatchNormalization()`",
        "LayerNorm": "`layers.LayerNormalization()`",
        "Conv": "`layers.Conv2D(8, 3)`",
        "Sequential": "`fk.Sequential([layers.Dense(2)])`",
        "Model": "`fk.Model(inputs, outputs)`",
    }
)
_CALLBACKS = MappingProxyType(
    {
        "BackupAndRestore": "`trainer.fit(run, x, y, checkpoint=folder)`, which also resumes",
        "OrbaxCheckpoint": "`trainer.fit(run, x, y, checkpoint=folder)`, which writes with orbax",
        "History": "`run, history = trainer.fit(run, x, y)`",
        "ProgbarLogger": "`fk.callbacks.ProgressBar`, or `trainer.fit(run, x, y, verbose=1)`",
        "BaseLogger": "`run, history = trainer.fit(run, x, y)`",
        "RemoteMonitor": "`fk.callbacks.LambdaCallback(on_epoch_end=lambda epoch, run, logs: None)`",
        "CallbackList": "a list: `callbacks=[...]`",
    }
)
_RANDOM = MappingProxyType(
    {
        "SeedGenerator": "a key: `fk.random.normal((2, 3), seed=jax.random.key(0))`",
        "Generator": "a key: `fk.random.normal((2, 3), seed=jax.random.key(0))`",
        "set_seed": _KEY,
        "seed": _KEY,
        "stateless_normal": "`fk.random.normal((2, 3), seed=jax.random.key(0))`",
    }
)
_OPTIMIZERS = MappingProxyType(
    {
        "legacy": "`fk.optimizers.Adam()`, and so on; files of Keras 1 and 2 are converted",
        "experimental": "`fk.optimizers.Adam()`, and so on",
        "AdamOptimizer": "`fk.optimizers.Adam()`",
        "adam_v2": "`fk.optimizers.Adam()`",
    }
)
_SHORT = (
    ("MSE", "MeanSquaredError"),
    ("MAE", "MeanAbsoluteError"),
    ("MAPE", "MeanAbsolutePercentageError"),
    ("MSLE", "MeanSquaredLogarithmicError"),
    ("KLD", "KLDivergence"),
    ("BCE", "BinaryCrossentropy"),
)


def _abbreviation_hints(namespace: str) -> dict[str, str]:
    """The hints for abbreviations, in capital and small letters."""
    rows = [(spelling, name) for short, name in _SHORT for spelling in (short, short.lower())]
    return {spelling: f"`fk.{namespace}.{name}()`" for spelling, name in rows}


_LOSSES = MappingProxyType(
    {
        "Reduction": '`fk.losses.MeanSquaredError(reduction="sum_over_batch_size")`',
        **_abbreviation_hints("losses"),
    }
)
_METRICS = MappingProxyType(_abbreviation_hints("metrics"))
_SAVING = MappingProxyType(
    {
        **dict.fromkeys(
            ("register_keras_serializable", "custom_object_scope", "CustomObjectScope"), _CUSTOM
        ),
        **dict.fromkeys(("get_registered_object", "get_registered_name"), _CUSTOM),
        "get_custom_objects": _CUSTOM,
        "serialize_keras_object": "`config = fk.layers.serialize(layer)`",
        "deserialize_keras_object": "`layer = fk.layers.deserialize(config)`",
        "KerasFileEditor": '`model, state = fk.load_model("m.keras")` opens the file as values',
    }
)
_QUANTIZERS = MappingProxyType(
    {
        "Quantizer": "`fk.quantizers.AbsMaxQuantizer`",
        "fake_quant_with_min_max_vars": "`fk.ops.round(fk.ops.clip(x, 0, 1) * 255) / 255`",
        "QuantizationConfig": '`fk.quantize(model, "int8")`',
    }
)
# functions of TensorFlow, PyTorch and Keras's old backend
_OPS = MappingProxyType(
    {
        **{
            f"reduce_{name}": f"`fk.ops.{name}(x)`"
            for name in ("sum", "mean", "max", "min", "prod")
        },
        "reduce_all": "`fk.ops.all(x)`",
        "reduce_any": "`fk.ops.any(x)`",
        "reduce_logsumexp": "`fk.ops.logsumexp(x)`",
        "reduce_std": "`fk.ops.std(x)`",
        "concat": "`fk.ops.concatenate([x, y])`",
        "cat": "`fk.ops.concatenate([x, y])`",
        "pow": "`fk.ops.power(x, 2)`",
        "mul": "`fk.ops.multiply(x, y)`",
        "sub": "`fk.ops.subtract(x, y)`",
        "div": "`fk.ops.divide(x, y)`",
        "gather": "`fk.ops.take(x, 0, axis=0)`",
        "gather_nd": "`fk.ops.take(x, 0, axis=0)`",
        "range": "`fk.ops.arange(3)`",
        "fill": "`fk.ops.full((2, 3), 1.0)`",
        "clip_by_value": "`fk.ops.clip(x, 0, 1)`",
        "clamp": "`fk.ops.clip(x, 0, 1)`",
        "int_shape": "`x.shape`",
        "stop_grad": "`fk.ops.stop_gradient(x)`",
        "random_normal": "`fk.random.normal((2, 3), seed=jax.random.key(0))`",
        "random_uniform": "`fk.random.uniform((2, 3), seed=jax.random.key(0))`",
        "batch_dot": "`fk.ops.matmul(x, y)`",
        "permute_dimensions": "`fk.ops.transpose(x, (0, 1))`",
        "variable": _VARIABLE,
        "placeholder": "`fk.Input((8,))`",
        "gradients": "`grads = jax.grad(loss_fn)(model)`",
        "function": "`jax.jit`",
        "py_function": "`fk.ops.lift(jnp.sin)(x)`",
        "numpy_function": "`fk.ops.lift(jnp.sin)(x)`",
    }
)
_ITERABLE = "any iterable of batches is a source: `trainer.fit(run, loader)`"
_UTILS = MappingProxyType(
    {
        "set_random_seed": _KEY,
        "clear_session": _NOTHING,
        "PyDataset": _ITERABLE,
        "Sequence": _ITERABLE,
        "get_file": "the modules of `fk.datasets` download their files; Python's "
        "urllib.request.urlretrieve downloads others",
        "Progbar": "`fk.callbacks.ProgressBar`",
        "Config": "a frozen dataclass of Python",
        "serialize_keras_object": "`fk.layers.serialize(layer)`",
        "deserialize_keras_object": "`fk.layers.deserialize(fk.layers.serialize(layer))`",
        "get_source_inputs": "`model.inputs`",
        "is_keras_tensor": "`isinstance(x, fk.KerasTensor)`",
        "standardize_dtype": "`jnp.dtype(jnp.float32).name`",
        "pack_x_y_sample_weight": "a tuple (x, y, sample_weight)",
        "unpack_x_y_sample_weight": "a tuple: x, y, sample_weight = batch",
        "enable_interactive_logging": "`trainer.fit(run, x, y, verbose=1)`",
        "disable_interactive_logging": "`trainer.fit(run, x, y, verbose=0)`",
        "is_interactive_logging_enabled": f"{_NOTHING}; fit has the argument verbose",
        "bounding_boxes": "`fk.ops.image`, `layers.Resizing` and other image layers move boxes",
        "legacy": "`fk.layers.deserialize(fk.layers.serialize(layer))`",
        **{
            name: _CUSTOM
            for name in (
                *("CustomObjectScope", "custom_object_scope", "get_custom_objects"),
                *("get_registered_name", "get_registered_object", "register_keras_serializable"),
            )
        },
    }
)
_TABLES = MappingProxyType(
    {
        "fkeras": _PACKAGE,
        "fkeras.layers": _LAYERS,
        "fkeras.training.callbacks": _CALLBACKS,
        "fkeras.random": _RANDOM,
        "fkeras.optimizers": _OPTIMIZERS,
        "fkeras.losses": _LOSSES,
        "fkeras.metrics": _METRICS,
        "fkeras.quantizers": _QUANTIZERS,
        "fkeras.saving": _SAVING,
        "fkeras.ops": _OPS,
        "fkeras.utils": _UTILS,
    }
)
# namespaces searched for a name that is missing in the namespace of the error
_SPACES = (
    *("layers", "ops", "losses", "metrics", "optimizers", "optimizers.schedules", "activations"),
    *("initializers", "regularizers", "constraints", "random", "training.callbacks", "quantizers"),
    *("ops.image", "ops.linalg", "ops.nn", "ops.numpy", "utils", "datasets", ""),
)


# namespaces without a `__getattr__` from here: `callbacks`, `utils` and `datasets` are imported at
# first use, and the package has its own `__getattr__`, which performs these imports
_LATE = ("training.callbacks", "utils", "datasets", "")
# most namespaces have these names, so a hint at another namespace would not help
_SHARED = ("get", "serialize", "deserialize")


class MissingNameError(AttributeError):
    """A missing name of a public namespace; builds its message when the message is read."""

    def __str__(self) -> str:
        return missing_name(*self.args) if len(self.args) == 2 else super().__str__()


def explain_unknown_names(*modules: str) -> None:
    """Adds a `__getattr__` to public namespaces whose error has a hint or the nearest name.

    The package calls this function after importing its namespaces. A `def __getattr__` in their
    source code would prevent type checkers from reporting unknown names.

    Args:
        modules: the namespaces; by default all namespaces imported with the package.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Dens
        ... except AttributeError as error:
        ...     print(error)
        fk.layers: has no name 'Dens'. Did you mean 'Dense'?
    """
    for module in modules or [f"fkeras.{space}" for space in _SPACES if space not in _LATE]:
        setattr(sys.modules[module], "__getattr__", _error_of(module))  # noqa: B010


def _error_of(module: str) -> Callable[[str], Any]:
    def raise_missing_name(name: str) -> Any:
        raise MissingNameError(module, name)

    return raise_missing_name


def missing_name(module: str, name: str) -> str:
    """Returns the error message for a name that a namespace does not have.

    Args:
        module: the namespace, such as "fkeras.layers".
        name: the missing name.

    Example:
        >>> missing_name("fkeras", "Dense")
        "fk: has no name 'Dense'. Instead: `fk.layers.Dense`."
        >>> missing_name("fkeras.ops", "reduce_mean")
        "fk.ops: has no name 'reduce_mean'. Instead: `fk.ops.mean(x)`."
    """
    where = f"{_display_name(module)}: has no name {name!r}."
    remedy = _TABLES.get(module, {}).get(name)
    if remedy is not None:
        return f"{where} Instead: {remedy}."
    for space, names in _other_namespaces(module):
        if name in names and name not in _SHARED:
            return f"{where} Instead: `{_display_name(space)}.{name}`."
    module_names = _names(module)
    near_name = next(
        (candidate for candidate in module_names if _normalized(candidate) == _normalized(name)),
        None,
    )
    if near_name is not None:
        return f"{where} Did you mean {near_name!r}?"
    return where + suggest(name, module_names)


def _normalized(name: str) -> str:
    return name.replace("_", "").lower()


def _display_name(module: str) -> str:
    return module.replace("fkeras", "fk", 1).replace("fk.training.callbacks", "fk.callbacks")


def _names(module: str) -> Sequence[str]:
    # access by attribute: the package's __getattr__ imports a namespace that is not loaded yet
    _, _, path = module.partition(".")
    package = sys.modules["fkeras"]
    namespace = operator.attrgetter(path)(package) if path else package
    return getattr(namespace, "__all__", None) or [n for n in dir(namespace) if n[0] != "_"]


def _other_namespaces(module: str) -> Iterator[tuple[str, Sequence[str]]]:
    for space in _SPACES:
        name = f"fkeras.{space}" if space else "fkeras"
        if name != module:
            yield name, _names(name)
