"""Migration hints for attributes and methods of Keras objects that fkeras's values do not have."""

from __future__ import annotations

import dataclasses
import sys
from types import MappingProxyType
from typing import Any

from fkeras.engine.messages.errors import suggest

_TRAINER = (
    'trainer = fk.Trainer(optimizer="adam", loss="mse"); run = trainer.init(model, '
    "jax.random.key(0))"
)
_FIT = f"`{_TRAINER}; run, history = trainer.fit(run, x, y)`"
_PARTITION = "`trainable, frozen = fk.partition(model)`"
_OUT = "`out = model.apply(x, state=state, training=True, key=key)`"
_VIEW = "the graph knows the calls of a layer: "

# hints by attribute; {name} is replaced by the repr of the layer's name
_LAYER = MappingProxyType(
    {
        "compile": f"optimizer, loss and metrics belong to a Trainer: {_FIT}",
        "fit": f"a Trainer trains: {_FIT}",
        "fit_generator": f"fit takes generators too: {_FIT}",
        "evaluate": "`logs = trainer.evaluate(run, x, y)`",
        "evaluate_generator": "`logs = trainer.evaluate(run, x, y)`",
        "predict": "`y = trainer.predict(run, x)`, or call the model: `y = model(x, state=state)`",
        "predict_generator": "`y = trainer.predict(run, x)`",
        "predict_classes": "`classes = trainer.predict(run, x).argmax(-1)`",
        "predict_proba": "`y = trainer.predict(run, x)`",
        "predict_on_batch": "`y = model(x, state=state)`",
        "train_on_batch": "`run, logs = trainer.step(run, (x, y))`",
        "train_step": "`run, logs = trainer.step(run, (x, y))`",
        "make_train_function": "`run, logs = trainer.step(run, (x, y))`",
        "test_on_batch": "`logs = trainer.evaluate(run, x, y)`",
        "test_step": "`logs = trainer.evaluate(run, x, y)`",
        "predict_step": "`y = model(x, state=state)`",
        "compute_loss": 'pass a function of targets and predictions: `trainer = fk.Trainer("adam", '
        "lambda y, p: (y - p) ** 2)`",
        "compute_metrics": '`trainer = fk.Trainer("adam", "mse", metrics=["mae"])`',
        "compiled": f"optimizer, loss and metrics belong to a Trainer: {_FIT}",
        "optimizer": f"the optimizer belongs to a Trainer, its state to the run: {_FIT}",
        "loss": f"the loss belongs to a Trainer: {_FIT}",
        "metrics_names": "the logs have the names: `names = list(trainer.evaluate(run, x, y))`",
        "history": "`run, history = trainer.fit(run, x, y)`",
        "stop_training": "a callback returns `fk.Stop()` from `on_epoch_end`",
        "run": "inside forward: `out = context.child(name).run(self.layer, x)`; elsewhere: `layer.apply`",
        "weights": "`arrays = jax.tree.leaves(layer)`, or `layer.get_weights(state)` with the state",
        "variables": "`arrays = jax.tree.leaves(layer)`; the state is a separate dictionary",
        "trainable_weights": _PARTITION,
        "trainable_variables": _PARTITION,
        "non_trainable_weights": f"{_PARTITION}; moving statistics: `state = model.init_state()`",
        "non_trainable_variables": f"{_PARTITION}; moving statistics: `state = model.init_state()`",
        "losses": f"a call returns the losses: {_OUT}; `out.losses`",
        "updates": f"a call returns the updates: {_OUT}; `state = state | out.updates`",
        "metrics": f"a call returns the metrics: {_OUT}; `out.metrics`",
        "add_weight": "declare a field `kernel: jax.Array = fk.weight()` and create the "
        "array in build: `def build(self, key, x): return self.with_weights(key, "
        "kernel=(x.shape[-1], self.units))`",
        "add_variable": "declare a field `kernel: jax.Array = fk.weight()` and create the "
        "array in build: `def build(self, key, x): return self.with_weights(key, "
        "kernel=(x.shape[-1], self.units))`",
        "add_loss": "return the loss from forward: `def forward(self, context, x): return "
        "fk.Output(x, losses=(fk.ops.mean(x),))`",
        "add_update": "return the new state from forward: `def forward(self, context, x): return "
        'fk.Output(x, updates={"count": context.state["count"] + 1})`',
        "add_metric": "return the metric from forward: `def forward(self, context, x): return "
        'fk.Output(x, metrics={"mean": fk.ops.mean(x)})`',
        "input": f"{_VIEW}`tensor = model.graph.layer({{name}}).input`; all inputs: `model.inputs`",
        "output": "`tensor = model.tensor({name})` is the symbolic output, for `fk.Model("
        "model.inputs, model.tensor({name}))`; all outputs: `model.outputs`",
        "input_shape": f"{_VIEW}`shape = model.graph.layer({{name}}).input_shape`",
        "output_shape": f"{_VIEW}`shape = model.graph.layer({{name}}).output_shape`",
        "input_mask": f"{_VIEW}`mask = model.graph.layer({{name}}).input_mask`",
        "output_mask": f"{_VIEW}`mask = model.graph.layer({{name}}).output_mask`",
        **{
            f"get_{end}_{what}at": f"{_VIEW}`model.graph.layer({{name}}).get_{end}_{what}at(0)`"
            for end in ("input", "output")
            for what in ("", "shape_", "mask_")
        },
        "inbound_nodes": f"{_VIEW}`view = model.graph.layer({{name}})`",
        "outbound_nodes": f"{_VIEW}`view = model.graph.layer({{name}})`",
        "reset_states": "`state = layer.reset_state(state)`",
        "states": "the state is a separate dictionary: `state = model.init_state()`",
        "save": '`fk.save_model("m.keras", model, state)`',
        "save_weights": '`fk.save_weights("m.weights.h5", model, state)`',
        "load_weights": '`model, state = fk.load_weights("m.weights.h5", model, state)`',
        "export": '`fk.export(model, state, "m.jax")`',
        "to_yaml": "`text = model.to_json()`",
        "clone": "a model is a value and needs no copy; `model.unbuilt()` has no weights",
        "add": "a graph is closed: `model = fk.Model(model.inputs, layers.Dense(2)(model.outputs))`",
        "pop": '`model = fk.Model(model.inputs, model.tensor("name"))` ends at another layer',
        "compute_output_shape": "a symbolic call infers the shape: `layer(fk.Input((8,))).shape`",
        "compute_output_spec": "a symbolic call infers the shape: `layer(fk.Input((8,))).shape`",
        "compute_mask": "forward returns the mask: `fk.Output(value, mask=mask)`",
        "stateless_call": _OUT,
        "symbolic_call": "`y = layer(fk.Input((8,)))`",
        "dtype_policy": "`layer.dtype`",
        "compute_dtype": "`layer.dtype.compute_dtype`",
        "variable_dtype": "`layer.dtype.variable_dtype`",
        "input_dtype": "`layer.dtype.compute_dtype`",
        "quantize": '`small = fk.quantize(model, "int8")`',
        "quantization_mode": '`small = fk.quantize(model, "int8")`',
        "trainable_state": '`model = fk.freeze(model, "block1*")`',
        "path": "a layer is known by its name in `model.layers`",
        "run_eagerly": "call the model without a Trainer: `y = model(x, state=state)`",
        "jit_compile": "a Trainer compiles every step",
        "distribute_strategy": 'split the batch with `fk.Trainer("adam", "mse", mesh=mesh)`',
        "call_fn": _OUT,
        "moving_mean": "moving statistics are state: `state = model.init_state()`, then `run.state`",
        "moving_variance": "moving statistics are state: `state = model.init_state()`, then "
        "`run.state`",
        "metrics_variables": "the sums of the metrics are in the run: `run.metrics`",
        "rematerialized_call": '`model = fk.rematerialized(model, "full")`',
        "save_own_variables": "`arrays = layer.get_weights(state)`",
        "load_own_variables": "`layer, state = layer.set_weights(arrays, state)`",
        "get_build_config": "a model keeps the shapes of its inputs: `model.inputs`",
        "build_from_config": "a model keeps the shapes of its inputs: `model.inputs`",
        "get_metrics_result": "`logs = trainer.evaluate(run, x, y)`",
        "reset_metrics": "`run = trainer.reset_metrics(run)`",
        "get_compile_config": "`config = trainer.get_config()`",
        "state_dict": "`arrays = jax.tree.leaves(layer)`",
        "parameters": "`arrays = jax.tree.leaves(layer)`",
        "train": "`training` is an argument of the call: " + _OUT,
        "eval": "`training` is an argument of the call: `y = model(x, state=state)`",
    }
)
# hints by attribute for assignments such as `layer.trainable = False`
_ASSIGNED = MappingProxyType(
    {"trainable": 'freeze layers in a copy: `model = fk.freeze(model, "block1*")`, or fk.unfreeze'}
)
_METRIC = MappingProxyType(
    {
        "update_state": "`state = metric.update(state, y_true, y_pred)`, from `state = "
        "metric.init()`",
        "reset_state": "`state = metric.init()`",
        "reset_states": "`state = metric.init()`",
        "merge_state": "`state = metric.merge(state, other)`",
        "stateless_update_state": "`state = metric.update(state, y_true, y_pred)`",
        "stateless_result": "`value = metric.result(state)`",
        "variables": "`state = metric.init()`",
        "add_variable": '`def init(self, y_pred=None): return {"total": jnp.zeros(())}`',
        "add_weight": '`def init(self, y_pred=None): return {"total": jnp.zeros(())}`',
    }
)
_INIT = "`transform = optimizer.transformation(); opt_state = transform.init(model)`"
_UPDATE = (
    f"{_INIT}, then `deltas, opt_state = transform.update(grads, opt_state, model); model = "
    "optax.apply_updates(model, deltas)`"
)
_OPTIMIZER = MappingProxyType(
    {
        "apply_gradients": _UPDATE,
        "apply": _UPDATE,
        "minimize": f"`grads = jax.grad(loss_fn)(model)`, then {_UPDATE}",
        "get_gradients": "`grads = jax.grad(loss_fn)(model)`",
        "stateless_apply": _UPDATE,
        "build": _INIT,
        "init": _INIT,
        "update": _UPDATE,
        "lr": "`optimizer.learning_rate`",
        "replace": "`optimizer = dataclasses.replace(optimizer, learning_rate=0.01)`",
        "iterations": "`opt_state.count` counts the updates",
        "variables": f"the optimizer's arrays are a separate value: {_INIT}",
        "weights": f"the optimizer's arrays are a separate value: {_INIT}",
        "get_weights": "`arrays = jax.tree.leaves(opt_state)`",
        "set_weights": "`run = run.replace(opt_state=opt_state)`",
        "decay": "`optimizer = fk.optimizers.Adam(fk.optimizers.schedules.InverseTimeDecay(0.1, "
        "100, 0.5))`",
    }
)
_CALLBACK = MappingProxyType(
    {
        "model": "every hook receives the run: `model = run.model`",
        "params": "a field of the callback: `epochs: int = fk.option(default=1)`",
        "set_model": "every hook receives the run: `model = run.model`",
        "set_params": "a field of the callback: `epochs: int = fk.option(default=1)`",
        "validation_data": "pass the data to the constructor of the callback",
    }
)
_TRAINERS = MappingProxyType(
    {
        **{
            name: _LAYER[name]
            for name in (
                *("train_on_batch", "test_on_batch", "train_step", "test_step", "metrics_names"),
                *("stop_training", "history", "weights", "trainable_variables"),
                *("fit_generator", "evaluate_generator", "predict_generator", "save_weights"),
                *("save", "load_weights", "export"),
            )
        },
        "compile": f"the constructor takes Keras's arguments of compile: {_FIT}",
        "predict_on_batch": "`y = trainer.predict(run, x)`",
        "replace": '`trainer = dataclasses.replace(trainer, loss="mae")`',
        "summary": "`model.summary()`",
        "compute_metrics": '`trainer = fk.Trainer("adam", "mse", metrics=["mae"])`',
        "jit_compile": "a Trainer compiles every step",
        "run_eagerly": "call `trainer.step` inside `with jax.disable_jit(): ...` to debug",
        "get_weights": "the weights are in the run: `arrays = run.model.get_weights(run.state)`",
        "set_weights": "the weights are in the run: `run = run.replace(model=model, state=state)`",
        "layers": "`model.layers`",
        "model": "the model is in the run: `model = run.model`",
        "state": "the state is in the run: `state = run.state`",
    }
)
_TENSOR = MappingProxyType(
    {
        "T": "`fk.ops.transpose(x)`",
        "at": "`fk.ops.slice_update(x, (0, 0), update)`, or `fk.ops.where(condition, value, x)`",
        "astype": '`fk.ops.cast(x, "float16")`',
        "size": "`x.shape`",
        "numpy": "`model(array)` computes numbers",
        "item": "`model(array)` computes numbers",
        "tolist": "`model(array)` computes numbers",
        "eval": "`model(array)` computes numbers",
        "block_until_ready": "`model(array)` computes numbers",
        "assign": "`fk.ops.where(condition, value, x)`",
        "assign_add": "`x = x + value`",
        "flatten": "`layers.Flatten()(x)`",
        "dim": "`x.ndim`",
        "view": "`fk.ops.reshape(x, (-1, 3))`",
        "permute": "`fk.ops.transpose(x, (0, 1))`",
        "unsqueeze": "`fk.ops.expand_dims(x, -1)`",
        "get_shape": "`x.shape`",
        "set_shape": "`fk.ops.reshape(x, (-1, 3))`",
        "op": "`x.node`",
        "_keras_history": "`x.node`, `x.index`",
        "_keras_shape": "`x.shape`",
        "sum": "`fk.ops.sum(x, axis=1)`",
        "copy": "a symbolic tensor is a value: use `x` itself",
    }
)
# base class, noun for the message, hints; the first row whose class is a base of the value applies
_TABLES = (
    ("Metric", "metric", _METRIC),
    ("BaseOptimizer", "optimizer", _OPTIMIZER),
    ("Callback", "callback", _CALLBACK),
    ("Trainer", "trainer", _TRAINERS),
    ("SymbolicTensor", "symbolic tensor", _TENSOR),
    ("Layer", "layer", _LAYER),
)


class MissingAttributeError(AttributeError):
    """A missing attribute of a layer, model or other value; builds its message lazily.

    Most of these errors are raised and discarded by `getattr(layer, name, default)`, once for each
    layer of a deep network. The search for similar names therefore runs when the message is read.
    """

    def __str__(self) -> str:
        if len(self.args) != 2:  # raised with a message, as any AttributeError
            return super().__str__()
        return missing_attribute(*self.args)


def missing_attribute(value: Any, name: str) -> str:
    """Returns the error message for a missing attribute.

    Args:
        value: a layer, a model, a Trainer, a metric, an optimizer, a callback or a tensor.
        name: the attribute.

    Example:
        >>> import fkeras as fk
        >>> print(missing_attribute(fk.layers.Dense(2, name="head"), "output_shape"))
        'head' (Dense): has no attribute 'output_shape'; a layer is a value and records nothing about its calls. Instead: the graph knows the calls of a layer: `shape = model.graph.layer('head').output_shape`.
    """
    cls = type(value)
    # compared by name: importing the classes here would be circular
    bases = {base.__name__ for base in cls.__mro__}
    noun, table = next(((n, t) for base, n, t in _TABLES if base in bases), ("value", {}))
    where = _where(value)
    if name in table:
        calls_note = " and records nothing about its calls" if noun == "layer" else ""
        layer = getattr(value, "name", None) if noun == "layer" else None
        remedy = table[name].replace("{name}", repr(layer or "name"))
        if name in ("input", "output") and hasattr(cls, f"{name}s"):
            remedy = f"`model.{name}s`"
        article = "an" if noun[0] in "aeiou" else "a"
        return (
            f"{where}: has no attribute {name!r}; {article} {noun} is a value{calls_note}. Instead: "
            f"{remedy}."
        )
    if noun == "symbolic tensor" and name in _public("fkeras.ops"):
        return f"{where}: has no attribute {name!r}. Instead: `fk.ops.{name}(x, ...)`."
    names = [n for n in dir(cls) if not n.startswith("_")]
    names += [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return f"{where}: has no attribute {name!r}.{suggest(name, names)}"


def _where(value: Any) -> str:
    cls = type(value).__name__
    # not getattr: a missing name would raise another MissingAttributeError
    name = value.__dict__.get("name") if hasattr(value, "__dict__") else None
    return f"{name!r} ({cls})" if isinstance(name, str) else cls


def _public(module: str) -> Any:
    return getattr(sys.modules.get(module), "__all__", ())


def rejected_assignment(layer: Any, name: str, value: Any = None) -> str:
    """Returns the error message for the assignment `layer.name = value`.

    Args:
        layer: the layer.
        name: the attribute.
        value: the assigned value.

    Example:
        >>> import fkeras as fk
        >>> print(rejected_assignment(fk.layers.Dense(2), "units", 3))
        Dense: a layer is a value, so 'units' cannot be set. Instead, make a copy: `layer = layer.replace(units=...)`.
    """
    where, cls = _where(layer), type(layer)
    declared = {f.name for f in dataclasses.fields(layer)}
    if name in _ASSIGNED:
        remedy = _ASSIGNED[name]
    elif name in declared:
        remedy = f"make a copy: `layer = layer.replace({name}=...)`"
    # a model that is assigned a layer, as in the `__init__` of a Keras subclass
    elif getattr(cls, "transparent_field", None) and hasattr(type(value), "transparent_field"):
        remedy = (
            f"call layers in `call`, or declare a field: `{name}: fk.Layer = fk.option(default=...)`; "
            "a subclass of fk.Model has no `__init__`"
        )
    else:
        remedy = (
            f"declare a field in the class: `{name}: object = fk.option(default=...)`; the fields are "
            "the arguments of the constructor, and the class has no `__init__`"
        )
    return f"{where}: a layer is a value, so {name!r} cannot be set. Instead, {remedy}."
