"""Configurations of pretrained models: typed fields with the names of the keys of `config.json`."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, ClassVar, Self

from fkeras.authoring.engine import Rule, choice, describe, either, integer, real, several
from fkeras.engine import Configurable, FrozenDict, option, suggest
from fkeras.pretrained.tables.inert_keys import NEUTRAL, Reasons, inert_keys
from fkeras.pretrained.tables.layout import Layout

#: number of blocks or experts; bounded, since a table of names has entries for each of them
count = integer(minimum=1, maximum=10_000)
#: sizes, and numbers of tokens: positions are 32-bit integers
positive = integer(minimum=1, maximum=2**31 - 1)
optional_positive = integer(minimum=1, maximum=2**31 - 1, optional=True)
#: ids of tokens
token_id = integer(minimum=0, maximum=2**31 - 1)
# graphs compute in float32 or a smaller dtype
_SMALLEST, _LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38
#: numbers, factors and epsilons within the range of float32
number = real(minimum=-_LARGEST, maximum=_LARGEST)
factor = real(minimum=_SMALLEST, maximum=_LARGEST)
#: factors for which transformers expects an integer in most models, and rejects 10.0
whole_factor = either(integer(minimum=1, maximum=2**31 - 1), factor)
optional_factor = real(minimum=_SMALLEST, maximum=_LARGEST, optional=True)
epsilon = real(minimum=0, maximum=_LARGEST)
# entries of the list of blocks that an error shows
_SHOWN = 12


class Config(Configurable):
    """Base class of the configurations: frozen fields with the names of the keys of `config.json`.

    A subclass, such as `LlamaConfig`, declares the keys that affect the computation as fields. `read`
    rejects unknown keys, unless the value is null, false or empty. A configuration also rejects fields
    that its architecture does not have, unless the value is the default. Two configurations are equal if
    they describe the same network: `source` and `layout` are not compared.

    Args:
        model_type: the key `model_type`, which names the architecture within the family. Arguments that
            are left out have the defaults of this architecture; `dataclasses.replace` leaves no argument
            out.
        source: the mapping that `read` received; empty for a configuration that was not read. `write`
            returns this mapping, updated with the fields that changed.
        beside: the parsed JSON of other files in the folder, by name.
        layout: names, dtypes and shards of the tensors in the folder. `fk.pretrained.save` writes these
            names and shards, with the dtypes of the weights; without a layout, one file.

    Args of the family:
        vocab_size: size of the vocabulary.
        hidden_size: size of the hidden states.
        intermediate_size: hidden size of the MLP.
        num_hidden_layers: number of blocks.
        num_attention_heads: number of attention heads.
        hidden_act: activation of the MLP.
        activation_function: activation of the MLP.
        max_position_embeddings: maximum number of tokens of a sequence.
        layer_norm_eps: epsilon of the layer normalizations.
        tie_word_embeddings: whether the token embeddings are also the kernel of the logits.

    Example:
        >>> import fkeras as fk
        >>> config = fk.pretrained.LlamaConfig.read({"model_type": "mistral", "hidden_size": 64})
        >>> config.sliding_window, config.write()
        (4096, {'model_type': 'mistral', 'hidden_size': 64})
        >>> fk.pretrained.LlamaConfig.read({"model_type": "llama", "score_power": 2.0})
        Traceback (most recent call last):
        ValueError: LlamaConfig: unknown key 'score_power' with the value 2.0: unknown keys may change what the network computes. If they have no effect, remove them from config.json, or pass ignore_keys=['score_power'] to load.
    """

    model_type: str = option(default="", kw_only=True)
    source: FrozenDict[Any] = option(default=FrozenDict({}), kw_only=True)
    beside: FrozenDict[Any] = option(default=FrozenDict({}), kw_only=True)
    layout: Layout | None = option(default=None, kw_only=True)

    #: reasons, and keys that do not affect the computation; subclasses add the keys of their families
    neutral: ClassVar[Reasons] = NEUTRAL
    #: for each `model_type` the fields that transformers does not have in this architecture
    absent: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({})
    #: classes of the configurations that keys hold
    sections: ClassVar[Mapping[str, type[Config]]] = FrozenDict({})
    #: for each `model_type` the default values that differ from those of the fields
    defaults: ClassVar[Mapping[str, Mapping[str, Any]]] = FrozenDict({})
    #: keys that `canonical` converts to fields; `write` removes a key if one of its fields has changed
    aliases: ClassVar[Mapping[str, tuple[str, ...]]] = FrozenDict({})

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = self.defaults.get(self.model_type, {})
        for field in dataclasses.fields(self):
            if field.name not in self.absent.get(self.model_type, ()):
                continue
            default, value = defaults.get(field.name, field.default), getattr(self, field.name)
            if value != default:
                raise ValueError(
                    f"{type(self).__name__}: {field.name}: expected {default!r}, since transformers ignores the "
                    f"key in models of type {self.model_type!r}, received {str(value)[:80]!r}. Remove the key "
                    f"from config.json, or pass ignore_keys=[{field.name!r}] to load."
                )

    def _values(self) -> tuple:
        values = [getattr(self, field.name) for field in _own_fields(type(self))]
        return (*values, self.beside)

    def __repr__(self) -> str:
        # the defaults of the fields may be those of another architecture
        shown = self.defaults.get(self.model_type, ())
        return describe(self, ("source", "beside", "layout"), shown=tuple(shown))

    @classmethod
    def _other_defaults(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        model_type = arguments.get("model_type", cls.model_type)
        return cls.defaults.get(model_type, {}) if isinstance(model_type, str) else {}

    @classmethod
    def canonical(cls, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the mapping with the keys of other format versions converted to fields."""
        return mapping

    @classmethod
    def read(
        cls,
        mapping: Mapping[str, Any],
        beside: Mapping[str, Any] = FrozenDict({}),
        ignore_keys: Collection[str] = (),
    ) -> Self:
        """Returns the configuration that a `config.json` describes.

        Args:
            mapping: the parsed file.
            beside: the parsed JSON of other files in the folder, by name.
            ignore_keys: keys that are read as if the file did not have them; a key within another is
                "text_config.hidden_act". `write` omits these keys.

        Raises:
            ValueError: for unknown keys, a missing key, or a value out of range.
        """
        mapping = without(mapping, ignore_keys)
        reject_keys(
            cls.__name__, cls._unknown(mapping), "config.json", [f.name for f in _own_fields(cls)]
        )
        canonical, names = cls.canonical(mapping), {field.name for field in _own_fields(cls)}
        fields = {key: value for key, value in canonical.items() if key in names}
        return cls(**fields, source=FrozenDict(mapping), beside=FrozenDict(beside))

    @classmethod
    def _unknown(cls, mapping: Mapping[str, Any]) -> dict[str, Any]:
        """Returns unknown keys that are set, with their values."""
        fields = [field.name for field in _own_fields(cls)]
        known = {*fields, *cls.aliases, *cls.sections, *inert_keys(cls)}
        unknown = {}
        for key, value in mapping.items():
            if key in cls.sections and isinstance(value, Mapping):
                inner = cls.sections[key]._unknown(value)
                unknown |= {f"{key}.{name}": item for name, item in inner.items()}
            is_set = value is not None and value is not False and value not in ({}, [], ())
            if is_set and key not in known and not key.startswith("_"):
                unknown[key] = value
        return unknown

    def write(self) -> dict[str, Any]:
        """Returns the mapping for `config.json`: `source`, updated with the fields that changed."""
        mapping = dict(self.source)
        before = type(self).read(mapping, self.beside) if mapping else None
        defaults = self.defaults.get(self.model_type, {})
        fields = {**{f.name: f.default for f in _own_fields(type(self))}, **defaults}
        values = {name: getattr(self, name) for name in fields}
        if before is None:
            # some classes of transformers take null for a value of a key that they lack
            changed = {
                n for n, value in values.items() if value is not None or fields[n] is not None
            }
        else:
            changed = {name for name, value in values.items() if getattr(before, name) != value}
        for alias, names in self.aliases.items():
            if alias in mapping and changed.intersection(names):
                del mapping[alias]
                changed |= {n for n in names if n in mapping or values[n] != fields[n]}
        absent = self.absent.get(self.model_type, ())
        mapping |= {n: v for n, v in values.items() if n in changed and n not in absent}
        return thaw(mapping)


def reject_keys(
    where: str, unknown: Mapping[str, Any], file: str, names: Collection[str] = ()
) -> None:
    """Raises an error that lists all unknown keys, if there are any.

    Args:
        names: names of known keys, for hints.
    """
    if not unknown:
        return
    listed = [f"{key[:80]!r} with the value {str(value)[:80]}" for key, value in unknown.items()]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    # a key of a section resembles the name of the section
    key = next(iter(unknown))
    hint = suggest(key, names) if len(unknown) == 1 and "." not in key else ""
    raise ValueError(
        f"{where}: unknown key{'s' * (len(listed) > 1)} {', '.join(listed[:_SHOWN])}{more}: unknown keys may "
        f"change what the network computes.{hint} If they have no effect, remove them from {file}, or pass "
        f"ignore_keys={[name[:80] for name in unknown]} to load."
    )


def check_heads(config: Config, heads: str, width: str) -> None:
    """Raises an error unless the number of heads divides the width; both are names of fields."""
    number_of_heads, size = getattr(config, heads), getattr(config, width)
    if size % number_of_heads:
        raise ValueError(
            f"{type(config).__name__}: {heads}: expected a divisor of {width}={size}, received "
            f"{number_of_heads}. Correct config.json."
        )


def _own_fields(cls: type[Config]) -> list[dataclasses.Field]:
    kept = ("source", "beside", "layout")
    return [field for field in dataclasses.fields(cls) if field.name not in kept]


def without(mapping: Mapping[str, Any], keys: Collection[str]) -> Mapping[str, Any]:
    """Returns a mapping without keys, such as "dropout" or "text_config.dropout"; `keys` is a text or several."""
    keys = (keys,) if isinstance(keys, str) else keys
    if not keys:
        return mapping
    inner = [key.partition(".") for key in keys]
    return {
        key: without(value, [rest for part, _, rest in inner if part == key and rest])
        if isinstance(value, Mapping)
        else value
        for key, value in mapping.items()
        if key not in keys
    }


def block_types(*types: str) -> Rule:
    """Returns the converter of a list with a type for each block."""
    words = " and ".join(map(repr, types))
    return several(choice(*types), f"a list of {words}", least=0, optional=True)


def thaw(value: Any) -> Any:
    """Returns frozen mappings and tuples as dictionaries and lists."""
    if isinstance(value, Mapping):
        return {key: thaw(item) for key, item in value.items()}
    return [thaw(item) for item in value] if isinstance(value, tuple | list) else value
