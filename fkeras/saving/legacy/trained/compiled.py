"""Converts the `training_config` of legacy files (optimizer, losses, metrics) to a `Trainer`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras import losses, metrics, optimizers
from fkeras.engine import Configurable, suggest
from fkeras.engine.config.custom_objects import custom_code
from fkeras.engine.messages.key_paths import within
from fkeras.optimizers import schedules
from fkeras.saving.containers.errors import reading
from fkeras.saving.containers.strict_json import check, field
from fkeras.saving.legacy.trained.losses import keras2_hinge, keras2_squared_hinge
from fkeras.saving.legacy.trained.optimizers import Keras2Adagrad, Keras2Nadam, Keras2RMSprop
from fkeras.saving.quirks.origin import Origin
from fkeras.training import Trainer

_OLD_WORDS = types.MappingProxyType(
    {
        "huber_loss": "huber",
        "logcosh": "log_cosh",
        "cosine_proximity": "cosine_similarity",
        "cosine": "cosine_similarity",
        "kullback_leibler_divergence": "kl_divergence",
    }
)
#: hinge losses of Keras before 2.3, which do not convert targets of 0 and 1 to -1 and 1
_HINGES = types.MappingProxyType(
    {
        "hinge": keras2_hinge,
        "squared_hinge": keras2_squared_hinge,
        "Hinge": keras2_hinge,
        "SquaredHinge": keras2_squared_hinge,
    }
)
_OLD_CLASSES = types.MappingProxyType(
    {"Huber": "Huber", "LogCosh": "LogCosh", "Logcosh": "LogCosh"}
)
#: optimizer arguments of Keras 2 by their names in Keras 3
_ARGUMENTS = types.MappingProxyType({"lr": "learning_rate", "beta1": "beta_1", "beta2": "beta_2"})
#: keys of optimizer configurations that do not change the steps
_SILENT = frozenset(["jit_compile", "is_legacy_optimizer", "name", "slot_names", "carry_on"])
#: classes that only wrap a function; the configuration holds the function's name
_PLAIN = ("function", "MeanMetricWrapper", "LossFunctionWrapper")


def trainer_of(
    config: Any, names: list[str], origin: Origin, custom_objects: Mapping[str, Any]
) -> Trainer:
    """Returns the `Trainer` for a training configuration.

    Args:
        config: the training configuration.
        names: names of the model's outputs.
        origin: the program that wrote the file.
        custom_objects: the user's losses, metrics and optimizers by name.

    Raises:
        FileError: for an unknown optimizer, loss or metric.
    """
    where = origin.place()
    made = field(config, "optimizer_config", dict, **where)
    with within("optimizer_config"):
        optimizer = optimizer_of(made, origin, custom_objects)
    reader = _Reader(origin, custom_objects)
    with within("loss"):
        loss = reader.tree(config.get("loss"), "loss")
    found = {}
    for key in ("metrics", "weighted_metrics"):
        with within(key):
            found[key] = reader.metrics(config.get(key), names)
    weights = field(config, "loss_weights", (list, dict, float, type(None)), None, **where)
    with reading(origin.file, origin.member):
        return Trainer(optimizer, loss, loss_weights=weights, **found)


# -- optimizers -------------------------------------------------------------------------------


def family(config: Mapping[str, Any], origin: Origin) -> str:
    """Returns the optimizer family: "keras" (1 and 2), "tensorflow" (2.0 to 2.10) or "today".

    Example:
        >>> family({"lr": 0.1, "decay": 0.0}, Origin((2, 3, 1)))
        'keras'
    """
    if origin.major == 3 or config.get("is_legacy_optimizer") is False or "use_ema" in config:
        return "today"
    # Optimizers of tf.keras write a name, those of multi-backend Keras do not.
    return "tensorflow" if "name" in config else "keras"


def optimizer_of(config: Mapping[str, Any], origin: Origin, custom_objects: Mapping) -> Any:
    """Returns an optimizer that takes the same steps as the optimizer in the file.

    Raises:
        FileError: for an unknown optimizer or argument.
    """
    where = origin.place()
    kind = field(config, "class_name", str, **where)
    config = field(config, "config", dict, **where)
    if kind in custom_objects:
        with reading(origin.file, origin.member):
            return custom_objects[kind].from_config(dict(config))
    kind = kind.removeprefix("Custom>")  # TensorFlow 2.11 and later write the prefix
    source = family(config, origin)
    made = {_ARGUMENTS.get(k, k): v for k, v in config.items() if k not in _SILENT}
    decay = made.pop("decay", 0.0)
    # tf.keras's Nadam calls its momentum schedule "decay"; elsewhere this is the rate's decay.
    if kind == "Nadam" and source == "tensorflow":
        made["schedule_decay"], decay = decay, 0.0
    with within("config"), within("learning_rate"):
        made["learning_rate"] = _rate(made.get("learning_rate"), decay, origin, custom_objects)
    if source != "today":
        # Keras 2 means the default by None for epsilon, and no clipping by 0.
        for key in ("epsilon", "clipnorm", "clipvalue"):
            if made.get(key) is None or (key != "epsilon" and not made[key]):
                made.pop(key, None)
    # Keras clips by the norm of all gradients together, tf.keras by the norm of each gradient.
    if source == "keras" and "clipnorm" in made:
        made["global_clipnorm"] = made.pop("clipnorm")
    with within("class_name"):
        cls = _class(kind, made, source, origin)
    # Values come from the file: reject objects before a constructor sees them.
    for key, value in made.items():
        if key not in ("learning_rate", "exclude_from_weight_decay"):
            check(value, (float, bool, str, type(None)), f"the optimizer's {key!r}", **where)
    with reading(origin.file, origin.member):
        return cls.from_config(made)


def _class(kind: str, made: dict[str, Any], source: str, origin: Origin) -> Any:
    if source != "today":
        # With momentum, tf.keras adds epsilon before the root, as Keras 3 does.
        if kind == "RMSprop" and not made.get("momentum"):
            made.pop("momentum", None)
            return Keras2RMSprop
        if kind == "Adagrad":
            return Keras2Adagrad
        if kind == "Nadam":
            return Keras2Nadam
    known = {n: getattr(optimizers, n) for n in optimizers.__all__}
    known = {n: c for n, c in known.items() if isinstance(c, type) and n not in _ABSTRACT}
    if kind not in known:
        raise origin.error(
            f"there is no optimizer {kind!r:.80}.{suggest(kind, known)} Pass one of your own: "
            f"{custom_code(kind, 'YourOptimizer')}; fk.load_model opens the model alone."
        )
    return known[kind]


#: names in `optimizers` that no legacy file means: bases, states, wrappers, later optimizers
_ABSTRACT = frozenset(
    [
        "Optimizer",
        "BaseOptimizer",
        "OptimizerState",
        "OptimizerMap",
        "MultiOptimizer",
        "MultiOptimizerState",
        "LossScaleState",
        "LossScaleOptimizer",
        "ScheduleFreeAdamW",
    ]
)


def _rate(value: Any, decay: Any, origin: Origin, custom_objects: Mapping[str, Any]) -> Any:
    """Returns the learning rate: a number or a schedule."""
    where = origin.place()
    if isinstance(value, Mapping):
        name = field(value, "class_name", str, **where)
        if name not in schedules.__all__ and name not in custom_objects:
            raise origin.error(
                f"there is no schedule {name!r:.80}.{suggest(name, schedules.__all__)} Pass your own: "
                f"{custom_code(name, 'YourSchedule')}."
            )
        config = field(value, "config", dict, **where)
        with reading(origin.file, origin.member):
            if name in custom_objects:
                return custom_objects[name].from_config(dict(config))
            return schedules.deserialize({"class_name": name, "config": config})
    number = float(check(0.001 if value is None else value, float, "the learning rate", **where))
    decay = float(check(decay or 0.0, float, "the decay of the learning rate", **where))
    if decay > 0:
        # Keras 2's argument `decay`: rate / (1 + decay * step).
        return schedules.InverseTimeDecay(number, 1, decay)
    return number


# -- losses and metrics -----------------------------------------------------------------------


class _Reader:
    """Converts losses and metrics of a training configuration to those of this package."""

    def __init__(self, origin: Origin, custom_objects: Mapping[str, Any]):
        self.origin = origin
        self.custom_objects = custom_objects

    def tree(self, value: Any, kind: str) -> Any:
        """Converts a loss or metric, or lists and dictionaries of losses or metrics."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self._part(v, kind, place) for place, v in enumerate(value)]
        if isinstance(value, Mapping) and "class_name" not in value:
            return {str(k): self._part(v, kind, k) for k, v in value.items()}
        return self.one(value, kind)

    def _part(self, value: Any, kind: str, key: Any) -> Any:
        with within(key):
            if isinstance(value, Mapping) and not value:
                raise self.origin.error(f"expected a {kind}, received an empty dictionary.")
            return self.tree(value, kind)

    def metrics(self, value: Any, names: list[str]) -> Any:
        """Converts metrics; a flat list of metrics applies to every output."""
        found = self.tree(value, "metric")
        if found is None:
            return ()
        if isinstance(found, list) and any(isinstance(v, list) for v in found):
            # A nested list has one inner list for each output, in the order of the outputs.
            if len(names) == 1 and len(found) == 1:
                return found[0]
            if len(found) == len(names):
                return dict(zip(names, ([] if v is None else v for v in found), strict=True))
        if isinstance(found, list) and any(isinstance(v, list) for v in found):
            raise self.origin.error(
                f"expected metrics, or a list of metrics for each of {len(names)} outputs, received "
                f"{len(found)} entries with lists among them. The file is damaged."
            )
        if isinstance(found, list):
            found = [v for v in found if v is not None]
            return {name: found for name in names} if len(names) > 1 else found
        if isinstance(found, dict):
            return {k: v if isinstance(v, list) else [v] for k, v in found.items() if v is not None}
        return [found]

    def one(self, value: Any, kind: str) -> Any:
        """Converts a single loss or metric."""
        origin, room = self.origin, losses if kind == "loss" else metrics
        name, config = value, {}
        if isinstance(value, Mapping):
            name = field(value, "class_name", str, **origin.place())
            config = field(value, "config", (dict, str, type(None)), None, **origin.place()) or {}
            if name in _PLAIN:
                name = config if isinstance(config, str) else config.get("fn", config.get("name"))
                if isinstance(name, Mapping):
                    name = name.get("config", name.get("class_name"))
                config = {}
        name = check(name, str, f"the name of a {kind}", **origin.place())
        if name in self.custom_objects:
            return self._made(self.custom_objects[name], config)
        if kind == "loss" and origin.version < (2, 3) and not origin.tensorflow and name in _HINGES:
            return _HINGES[name]
        # The trainer chooses the variant of accuracy from the shapes, as Keras does.
        if kind == "metric" and name.lower() in ("accuracy", "acc", "crossentropy", "ce"):
            return name
        name = _OLD_WORDS.get(_OLD_CLASSES.get(name, name), name)
        found = getattr(room, name, None) if name in room.__all__ else None
        if isinstance(found, type) and issubclass(found, Configurable):
            return self._made(found, config)
        try:
            room.get(name)
        except ValueError as error:
            raise origin.error(
                f"there is no {kind} {name!r:.80}.{suggest(name, room.__all__)} Pass your own: "
                f"{custom_code(name, f'your_{kind}')}; fk.load_model opens the model alone."
            ) from error
        return name

    def _made(self, found: Any, config: Any) -> Any:
        if not isinstance(found, type):
            return found
        config = dict(config) if isinstance(config, Mapping) else {}
        # Keras 2's "auto" means the default reduction, which has no name in Keras 3.
        if config.get("reduction") in ("auto", None):
            config.pop("reduction", None)
        config.pop("fn", None)  # the wrapped function, which the class name implies
        # An axis of None or -1 is the default; classes without an argument `axis` would reject it.
        config = {k: v for k, v in config.items() if k != "axis" or v is not None}
        if config.get("axis") == -1:
            del config["axis"]
        if self.origin.major < 3:
            config.pop("dtype", None)
        with reading(self.origin.file, self.origin.member):
            for key, value in config.items():
                check(value, (float, bool, str, list, type(None)), repr(key), **self.origin.place())
            return found.from_config(config)
