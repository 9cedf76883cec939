"""Converts the `training_config` of legacy files (optimizer, losses, metrics) to a `Trainer`."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras import losses, metrics, optimizers
from fkeras.authoring.engine import custom_code, public_names, within
from fkeras.authoring.saving import (
    Keras2Adagrad,
    Keras2Nadam,
    Keras2RMSprop,
    Origin,
    keras2_hinge,
    keras2_squared_hinge,
)
from fkeras.engine import Configurable, suggest
from fkeras.host.containers.errors import reading
from fkeras.host.containers.strict_json import ParsedJson, check, field
from fkeras.optimizers import schedules
from fkeras.training import Trainer

_OLD_NAMES = types.MappingProxyType(
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
    config: Mapping[str, Any], names: list[str], origin: Origin, custom_objects: Mapping[str, Any]
) -> Trainer:
    """Returns the `Trainer` for a training configuration."""
    where = origin.place()
    optimizer_config = field(config, "optimizer_config", dict, **where)
    with within("optimizer_config"):
        optimizer = optimizer_of(optimizer_config, origin, custom_objects)
    reader = _Reader(origin, custom_objects)
    with within("loss"):
        loss = reader.tree(config.get("loss"), "loss")
    metrics_by_key = {}
    for key in ("metrics", "weighted_metrics"):
        with within(key):
            metrics_by_key[key] = reader.metrics(config.get(key), names)
    weights = field(config, "loss_weights", (list, dict, float, type(None)), None, **where)
    with reading(origin.file, origin.member):
        return Trainer(optimizer, loss, loss_weights=weights, **metrics_by_key)


# -- optimizers -------------------------------------------------------------------------------


def family(config: Mapping[str, Any], origin: Origin) -> str:
    """Returns the optimizer family: "keras" (1 and 2), "tensorflow" (2.0 to 2.10) or "today"."""
    if origin.major == 3 or config.get("is_legacy_optimizer") is False or "use_ema" in config:
        return "today"
    # Optimizers of tf.keras write a name, those of multi-backend Keras do not.
    return "tensorflow" if "name" in config else "keras"


def optimizer_of(config: Mapping[str, Any], origin: Origin, custom_objects: Mapping) -> Any:
    """Returns an optimizer that takes the same steps as the optimizer in the file."""
    where = origin.place()
    kind = field(config, "class_name", str, **where)
    config = field(config, "config", dict, **where)
    if kind in custom_objects:
        with reading(origin.file, origin.member):
            return custom_objects[kind].from_config(dict(config))
    kind = kind.removeprefix("Custom>")  # TensorFlow 2.11 and later write the prefix
    source = family(config, origin)
    options = {_ARGUMENTS.get(k, k): v for k, v in config.items() if k not in _SILENT}
    decay = options.pop("decay", 0.0)
    # tf.keras's Nadam calls its momentum schedule "decay"; elsewhere this is the rate's decay.
    if kind == "Nadam" and source == "tensorflow":
        options["schedule_decay"], decay = decay, 0.0
    with within("config"), within("learning_rate"):
        options["learning_rate"] = _rate(
            options.get("learning_rate"), decay, origin, custom_objects
        )
    if source != "today":
        # Keras 2 means the default by None for epsilon, and no clipping by 0.
        for key in ("epsilon", "clipnorm", "clipvalue"):
            if options.get(key) is None or (key != "epsilon" and not options[key]):
                options.pop(key, None)
    # Keras clips by the norm of all gradients together, tf.keras by the norm of each gradient.
    if source == "keras" and "clipnorm" in options:
        options["global_clipnorm"] = options.pop("clipnorm")
    with within("class_name"):
        cls = _class(kind, options, source, origin)
    # Values come from the file: reject objects before a constructor sees them.
    for key, value in options.items():
        if key not in ("learning_rate", "exclude_from_weight_decay"):
            check(value, (float, bool, str, type(None)), f"the optimizer's {key!r}", **where)
    with reading(origin.file, origin.member):
        return cls.from_config(options)


def _class(kind: str, options: dict[str, Any], source: str, origin: Origin) -> Any:
    if source != "today":
        # With momentum, tf.keras adds epsilon before the root, as Keras 3 does.
        if kind == "RMSprop" and not options.get("momentum"):
            options.pop("momentum", None)
            return Keras2RMSprop
        if kind == "Adagrad":
            return Keras2Adagrad
        if kind == "Nadam":
            return Keras2Nadam
    classes = {n: getattr(optimizers, n) for n in public_names(optimizers)}
    classes = {n: c for n, c in classes.items() if isinstance(c, type) and n not in _ABSTRACT}
    if kind not in classes:
        raise origin.error(
            f"unknown optimizer {kind!r:.80}.{suggest(kind, classes)} Pass your own class: "
            f"{custom_code(kind, 'YourOptimizer')}; fk.load_model opens the model alone."
        )
    return classes[kind]


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


def _rate(
    value: ParsedJson, decay: ParsedJson, origin: Origin, custom_objects: Mapping[str, Any]
) -> Any:
    """Returns the learning rate: a number or a schedule."""
    where = origin.place()
    if isinstance(value, Mapping):
        name = field(value, "class_name", str, **where)
        if name not in public_names(schedules) and name not in custom_objects:
            raise origin.error(
                f"unknown schedule {name!r:.80}.{suggest(name, public_names(schedules))} Pass your own "
                f"class: {custom_code(name, 'YourSchedule')}."
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

    def tree(self, value: ParsedJson, kind: str) -> Any:
        """Converts a loss or metric, or lists and dictionaries of losses or metrics."""
        if value is None:
            return None
        if isinstance(value, list):
            return [self._part(v, kind, place) for place, v in enumerate(value)]
        if isinstance(value, Mapping) and "class_name" not in value:
            return {str(k): self._part(v, kind, k) for k, v in value.items()}
        return self.convert(value, kind)

    def _part(self, value: ParsedJson, kind: str, key: str | int) -> Any:
        with within(key):
            if isinstance(value, Mapping) and not value:
                raise self.origin.error(f"expected a {kind}, received an empty dictionary.")
            return self.tree(value, kind)

    def metrics(self, value: ParsedJson, names: list[str]) -> Any:
        """Converts metrics; a flat list of metrics applies to every output."""
        converted = self.tree(value, "metric")
        if converted is None:
            return ()
        if isinstance(converted, list) and any(isinstance(v, list) for v in converted):
            # A nested list has one inner list for each output, in the order of the outputs.
            if len(names) == 1 and len(converted) == 1:
                return converted[0]
            if len(converted) == len(names):
                return dict(zip(names, ([] if v is None else v for v in converted), strict=True))
        if isinstance(converted, list) and any(isinstance(v, list) for v in converted):
            raise self.origin.error(
                f"expected metrics, or a list of metrics for each of {len(names)} outputs, received "
                f"{len(converted)} entries with lists among them. The file is damaged."
            )
        if isinstance(converted, list):
            converted = [v for v in converted if v is not None]
            return {name: converted for name in names} if len(names) > 1 else converted
        if isinstance(converted, dict):
            return {
                k: v if isinstance(v, list) else [v] for k, v in converted.items() if v is not None
            }
        return [converted]

    def convert(self, value: ParsedJson, kind: str) -> Any:
        """Converts a single loss or metric."""
        origin, library = self.origin, losses if kind == "loss" else metrics
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
            return self._construct(self.custom_objects[name], config)
        if kind == "loss" and origin.version < (2, 3) and not origin.tensorflow and name in _HINGES:
            return _HINGES[name]
        # The trainer chooses the variant of accuracy from the shapes, as Keras does.
        if kind == "metric" and name.lower() in ("accuracy", "acc", "crossentropy", "ce"):
            return name
        name = _OLD_NAMES.get(_OLD_CLASSES.get(name, name), name)
        library_object = getattr(library, name, None) if name in public_names(library) else None
        if isinstance(library_object, type) and issubclass(library_object, Configurable):
            return self._construct(library_object, config)
        try:
            library.get(name)
        except ValueError as error:
            raise origin.error(
                f"unknown {kind} {name!r:.80}.{suggest(name, public_names(library))} Pass your own "
                f"{kind}: {custom_code(name, f'your_{kind}')}; fk.load_model opens the model alone."
            ) from error
        return name

    def _construct(self, function_or_class: Callable[..., Any], config: ParsedJson) -> Any:
        if not isinstance(function_or_class, type):
            return function_or_class
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
            return function_or_class.from_config(config)
