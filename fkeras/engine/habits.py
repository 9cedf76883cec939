"""Answers to habits of Keras that do not carry over: the line to write instead."""

from __future__ import annotations

import dataclasses
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
    ("non_trainable_weights", "trainable, frozen = fk.partition(model); state = model.init_state()"),
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
    ("reset_states", "start again from `state = model.init_state()`"),
    ("save", 'fk.save_model("m.keras", model, state)'),
    ("assign", "make a copy: layer.replace(kernel=value)"),
)


def missing_attribute(layer: Any, name: str) -> str:
    """The message for an attribute that a layer does not have."""
    for habit, instead in _ADVICE:
        if habit == name:
            return (
                f"{layer.where}: has no attribute {name!r}; a layer is a value and keeps nothing "
                f"of its calls. Instead: {instead}."
            )
    names = [n for n in dir(type(layer)) if not n.startswith("_")]
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
