"""Answers to habits of Keras that do not carry over: the line to write instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from fkeras.engine.errors import suggest

_TRAINER = (
    'trainer = fk.Trainer(optimizer="adam", loss="mse"); run = trainer.init(model, '
    "jax.random.key(0)); run, history = trainer.fit(run, x, y)"
)
# pairs rather than a dictionary: nothing in a module can change
_ADVICE = (
    ("compile", f"what is compiled here is a Trainer: {_TRAINER}"),
    ("fit", f"training is a Trainer's: {_TRAINER}"),
    ("evaluate", "evaluation is a Trainer's: logs = trainer.evaluate(run, x, y)"),
    ("predict", "call the model, `y = model(x, state=state)`, or trainer.predict(run, x)"),
    ("train_on_batch", "run, logs = trainer.step(run, (x, y))"),
    ("test_on_batch", "logs = trainer.evaluate(run, x, y)"),
    ("predict_on_batch", "y = model(x, state=state)"),
    ("weights", "the leaves are the weights: jax.tree.leaves(layer), or layer.get_weights(state)"),
    ("variables", "jax.tree.leaves(layer) are the weights, the state stands beside the layer"),
    ("trainable_weights", "trainable, frozen = fk.partition(model)"),
    ("trainable_variables", "trainable, frozen = fk.partition(model)"),
    (
        "non_trainable_weights",
        "trainable, frozen = fk.partition(model); state = model.init_state()",
    ),
    ("non_trainable_variables", "state = model.init_state(), and fk.partition(model) for frozen"),
    ("losses", "they come with a call: out = model.apply(x, state=state); out.losses"),
    ("updates", "they come with a call: out = model.apply(x, state=state); out.updates"),
    ("metrics", "they come with a call: out = model.apply(x, state=state); out.metrics"),
    ("add_weight", "declare a field `kernel: Array = fk.weight()` and make it in build"),
    ("add_loss", "return it: fk.Output(value, losses=(loss,)) from forward"),
    ("add_update", "return it: fk.Output(value, updates=new_state) from forward"),
    ("add_metric", 'return it: fk.Output(value, metrics={"name": value}) from forward'),
    ("input", 'it is a query on a graph: model.graph.layer("name").input'),
    ("output", 'it is a query on a graph: model.graph.layer("name").output'),
    ("input_shape", 'it is a query on a graph: model.graph.layer("name").input_shape'),
    ("output_shape", 'it is a query on a graph: model.graph.layer("name").output_shape'),
    ("get_input_at", 'it is a query on a graph: model.graph.layer("name").get_input_at(0)'),
    ("get_output_at", 'it is a query on a graph: model.graph.layer("name").get_output_at(0)'),
    ("reset_states", "state = layer.reset_state(state)"),
    ("save", 'fk.save_model("m.keras", model, state)'),
    ("assign", "make a copy: layer.replace(kernel=value)"),
)

_INPUT = "a graph starts with its shape: x = fk.Input((8,), batch_size=None); y = layer(x)"
_ARGUMENTS = (
    ("input_shape", _INPUT),
    ("batch_input_shape", _INPUT),
    ("input_dim", _INPUT),
    ("input_dtype", 'an input has its own dtype: fk.Input((8,), dtype="int32")'),
    ("batch_size", _INPUT),
    ("weights", "layer, state = layer.build(key, shape).set_weights(list, state)"),
    ("autocast", "it is declared in the class: autocast: ClassVar[bool] = False"),
)


def unknown_argument(where: str, name: str, names: Sequence[str]) -> str:
    """The message for a constructor's argument that does not exist."""
    for habit, instead in _ARGUMENTS:
        if habit == name:
            return f"{where}: there is no argument {name!r}. Instead: {instead}."
    return (
        f"{where}: there is no argument {name!r}.{suggest(name, names)} It takes: "
        f"{', '.join(names) or 'no arguments'}."
    )


class MissingAttributeError(AttributeError):
    """An attribute that a layer does not have.

    The advice is put together when somebody reads it: most are caught by `getattr(layer, name,
    default)`, once for each layer of a deep network.
    """

    def __str__(self) -> str:
        return missing_attribute(*self.args)


def missing_attribute(layer: Any, name: str) -> str:
    """The message for an attribute that a layer does not have."""
    for habit, instead in _ADVICE:
        if habit == name:
            return (
                f"{layer.where}: has no attribute {name!r}; a layer is a value and keeps nothing "
                f"of its calls. Instead: {instead}."
            )
    names = [f.name for f in dataclasses.fields(layer)]
    names += [n for n in dir(type(layer)) if not n.startswith("_")]
    return f"{layer.where}: has no attribute {name!r}.{suggest(name, names)}"


def refused_assignment(layer: Any, name: str) -> str:
    """The message for `layer.name = value`."""
    if name == "trainable":
        instead = 'freeze in a copy: model = fk.freeze(model, "block1*"), or fk.unfreeze'
    elif any(name == f.name for f in dataclasses.fields(layer)):
        instead = f"make a copy: layer = layer.replace({name}=...)"
    else:
        instead = f"declare a field in the class: `{name}: type = fk.option(default)`"
    return f"{layer.where}: a layer is a value, so {name!r} cannot be set. Instead, {instead}."
