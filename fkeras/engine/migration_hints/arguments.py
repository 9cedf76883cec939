"""Migration hints for arguments that Keras accepts and fkeras does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, ParamSpec, TypeVar

from fkeras.engine.messages.errors import suggest

_P = ParamSpec("_P")
_T = TypeVar("_T")
_INPUT = "a graph starts with its shape: `x = fk.Input((8,)); y = layer(x)`"
_NOT_NEEDED = "leave the argument out"
_DECAY = (
    "pass a schedule: `fk.optimizers.Adam(fk.optimizers.schedules.InverseTimeDecay(0.001, "
    "decay_steps=1, decay_rate=0.01))`; `weight_decay` is decoupled weight decay"
)
# arguments of constructors; the hint applies if the constructor does not declare the argument
_ARGUMENTS = MappingProxyType(
    {
        "input_shape": _INPUT,
        "batch_input_shape": _INPUT,
        "input_dim": _INPUT,
        "batch_size": _INPUT,
        "input_length": _INPUT,
        "input_dtype": 'an input has its own dtype: `x = fk.Input((8,), dtype="int32")`',
        "weights": "`layer, state = layer.build(key, (None, 8)).set_weights(arrays)`",
        "autocast": "declare it in the class: `autocast: ClassVar[bool] = False`",
        "dynamic": _NOT_NEEDED,
        "fused": _NOT_NEEDED,
        "implementation": _NOT_NEEDED,
        "virtual_batch_size": _NOT_NEEDED,
        "keras_api_name": _NOT_NEEDED,
        "lr": "`learning_rate`, as in `fk.optimizers.Adam(learning_rate=0.001)`",
        "decay": _DECAY,
        "beta1": "`fk.optimizers.Adam(beta_1=0.9)`",
        "beta2": "`fk.optimizers.Adam(beta_2=0.999)`",
        "b1": "`fk.optimizers.Adam(beta_1=0.9)`",
        "b2": "`fk.optimizers.Adam(beta_2=0.999)`",
        "betas": "`fk.optimizers.Adam(beta_1=0.9, beta_2=0.999)`",
        "eps": "`epsilon`, as in `fk.optimizers.Adam(epsilon=1e-7)`",
        "rho": "`rho` belongs to RMSprop and Adadelta: `fk.optimizers.RMSprop(rho=0.9)`",
        "jit_compile": "a Trainer compiles every step; " + _NOT_NEEDED,
        "run_eagerly": "call `trainer.step` inside `with jax.disable_jit(): ...` to debug",
        "steps_per_execution": "`trainer.fit(run, x, y, steps_per_execution=10)`",
        "auto_scale_loss": "`fk.optimizers.Adam(loss_scale_factor=1024.0)`",
        "sample_weight_mode": _NOT_NEEDED,
        "target_tensors": "a loss function receives targets and predictions: "
        '`fk.Trainer("adam", lambda y, p: (y - p) ** 2)`',
        "init": "`kernel_initializer`, as in `layers.Dense(2, kernel_initializer="
        '"glorot_uniform")`',
        "W_regularizer": '`kernel_regularizer`, as in `layers.Dense(2, kernel_regularizer="l2")`',
        "b_regularizer": '`bias_regularizer`, as in `layers.Dense(2, bias_regularizer="l2")`',
        "bias": "`use_bias`, as in `layers.Dense(2, use_bias=False)`",
        "output_dim": "`units`, as in `layers.Dense(2)`",
        "nb_filter": "`filters`, as in `layers.Conv2D(8, 3)`",
        "border_mode": '`padding`, as in `layers.Conv2D(8, 3, padding="same")`',
        "subsample": "`strides`, as in `layers.Conv2D(8, 3, strides=2)`",
        "dim_ordering": '`data_format`, as in `layers.Conv2D(8, 3, data_format="channels_last")`',
        "period": 'save every few epochs with `fk.callbacks.ModelCheckpoint("m.npz", '
        "save_freq=1)`, whose unit is batches",
        "metrics_names": "`metrics`",
        "in_features": "the width of the input is inferred: `layers.Dense(2)`",
        "out_features": "`units`, as in `layers.Dense(2)`",
        "in_channels": "the channels of the input are inferred: `layers.Conv2D(8, 3)`",
        "out_channels": "`filters`, as in `layers.Conv2D(8, 3)`",
        "features": "`units` or `filters`, as in `layers.Dense(2)` and `layers.Conv2D(8, 3)`",
        "p": "`rate`, as in `layers.Dropout(0.5)`",
    }
)
_WORKERS = (
    "batches are read in one thread; to use workers, pass a loader: `trainer.fit(run, loader)`"
)
# arguments of functions and methods; these take precedence over the table above
_FUNCTIONS = MappingProxyType(
    {
        "compile": "fk.load_model never compiles, and fk.load_training also loads the optimizer; "
        + _NOT_NEEDED,
        "safe_mode": "code from a file never runs; " + _NOT_NEEDED,
        "overwrite": "saving replaces the file; " + _NOT_NEEDED,
        "include_optimizer": '`fk.save_model("m.keras", model, state, trainer=trainer, run=run)` '
        "saves the optimizer too",
        "save_format": "the file extension selects the format; " + _NOT_NEEDED,
        "zipped": _NOT_NEEDED,
        "print_fn": "`text = model.summary(show=False)` returns the table",
        "line_length": _NOT_NEEDED,
        "positions": _NOT_NEEDED,
        "expand_nested": "`model.summary(nested=True)`",
        "show_trainable": _NOT_NEEDED,
        "workers": _WORKERS,
        "use_multiprocessing": _WORKERS,
        "max_queue_size": _WORKERS,
        "nb_epoch": "`epochs`, as in `trainer.fit(run, x, y, epochs=2)`",
        "return_dict": "the logs are always a dictionary; " + _NOT_NEEDED,
        "reset_metrics": "`run = trainer.reset_metrics(run)`",
        "sparse": "arrays are dense: `x = fk.Input((8,))`",
        "ragged": "pad the sequences and mask the padding: `y = layers.Masking()(x)`",
        "callbacks": "only `trainer.fit` calls callbacks; " + _NOT_NEEDED,
    }
)


def unknown_argument(where: str, name: str, names: Sequence[str]) -> str:
    """Returns the error message for an unknown argument.

    Args:
        where: the class or function.
        name: the unknown argument.
        names: the known arguments.

    Example:
        >>> unknown_argument("Adam", "lr", ("learning_rate",))
        "Adam: there is no argument 'lr'. Instead: `learning_rate`, as in `fk.optimizers.Adam(learning_rate=0.001)`."
        >>> unknown_argument("Dense", "unit", ("units",))
        "Dense: there is no argument 'unit'. Did you mean 'units'? It takes: units."
    """
    remedy = _ARGUMENTS.get(name)
    if remedy is not None:
        return f"{where}: there is no argument {name!r}. Instead: {remedy}."
    return (
        f"{where}: there is no argument {name!r}.{suggest(name, names)} It takes: "
        f"{', '.join(names) or 'no arguments'}."
    )


def explains_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wraps a function so that the error for an unknown argument has a migration hint.

    Example:
        >>> @explains_arguments
        ... def load(path): ...
        >>> try:
        ...     load("m.keras", safe_mode=False)
        ... except TypeError as error:
        ...     print(error)
        load: there is no argument 'safe_mode'. Instead: code from a file never runs; leave the argument out.
    """
    # read from the code object: inspect.signature is slow at import, once for each function
    code = function.__code__  # type: ignore[attr-defined]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    parameters = frozenset(names)

    @functools.wraps(function)
    def explained(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not parameters.issuperset(kwargs):
            unknown = next(name for name in kwargs if name not in parameters)
            raise TypeError(_unknown_option(function.__name__, unknown, names))
        return function(*args, **kwargs)

    return explained


def check_path_first(path: Any, where: str, call: str) -> None:
    """Rejects a model passed as the path, as in Keras's `save_model(model, path)`.

    Args:
        path: the first argument.
        where: the function, for the message.
        call: the correct call, for the message.

    Raises:
        TypeError: if `path` is a layer or a model.

    Example:
        >>> check_path_first("m.keras", "save_model", "fk.save_model(path, model)")
    """
    # an attribute of every layer class; the class itself cannot be imported here, as its module
    # imports the migration hints
    if hasattr(type(path), "transparent_field"):
        raise TypeError(
            f"{where}: expected a path first, received {type(path).__name__}. Write `{call}`."
        )


def _unknown_option(where: str, name: str, names: Sequence[str]) -> str:
    remedy = _FUNCTIONS.get(name)
    if remedy is not None:
        return f"{where}: there is no argument {name!r}. Instead: {remedy}."
    return unknown_argument(where, name, [n for n in names if n != "self"])
