"""The scaling of rotary frequencies, from the keys of `config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fkeras.engine import FrozenDict
from fkeras.layers import rotary
from fkeras.pretrained.tables.config import factor, positive

_ORIGINAL = "original_max_position_embeddings"
_KINDS = FrozenDict(
    {
        "linear": rotary.Linear,
        "dynamic": rotary.Dynamic,
        "llama3": rotary.Llama3,
        "yarn": rotary.Yarn,
        "longrope": rotary.LongRope,
    }
)


def flat(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Converts the key `rope_parameters` of a `config.json` to the keys of transformers 4.

    Version 5 of transformers writes one key, `rope_parameters`; version 4 writes `rope_theta`,
    `rope_scaling` and `partial_rotary_factor`. The type "default" means no scaling.
    """
    result = {key: value for key, value in mapping.items() if key != "rope_parameters"}
    # transformers reads `rope_scaling` before `rope_parameters`
    name = "rope_scaling" if mapping.get("rope_scaling") else "rope_parameters"
    given = mapping.get(name)
    if not isinstance(given, Mapping):
        return {**result, "rope_scaling": given} if given else result
    scaling = dict(given)
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in scaling:
            result[key] = scaling.pop(key)
    # old files have the key "type" instead of "rope_type", and old files of Phi 3 have the type "su"
    kind = scaling.pop("rope_type", None) or scaling.get("type", "default")
    if scaling and kind == "default" and not {"rope_type", "type"} & set(given):
        raise ValueError(
            f"{name}: expected the key 'rope_type', received {str(scaling)[:80]}. Correct "
            "config.json."
        )
    scaling.pop("type", None)
    kind = "longrope" if kind == "su" else kind
    result["rope_scaling"] = None if kind == "default" else {"rope_type": kind, **scaling}
    return result


def scaling_of(
    scaling: Mapping[str, Any] | None, max_positions: int, original: int | None = None
) -> rotary.Scaling | None:
    """Returns the scaling for `layers.RotaryEmbedding` from the key `rope_scaling` of `flat`.

    Args:
        scaling: the mapping, or None.
        max_positions: `max_position_embeddings` of the configuration.
        original: `original_max_position_embeddings` of the configuration, which takes precedence over
            the key in the mapping.

    Raises:
        ValueError: for an unknown type, unknown or missing keys, or a value out of range.
    """
    if scaling is None:
        return None
    options = {key: value for key, value in scaling.items() if value is not None}
    kind = options.pop("rope_type", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(
            f"rope_scaling: expected a type among {', '.join(_KINDS)}, received {str(kind)[:80]!r}."
        )
    stated = positive.check(f"rope_scaling: {_ORIGINAL}", options.pop(_ORIGINAL, max_positions))
    # transformers ignores the original context length for the type "dynamic"
    if kind != "linear":
        options[_ORIGINAL] = max_positions if kind == "dynamic" else original or stated
    if kind == "yarn":
        options.setdefault("factor", max_positions / options[_ORIGINAL])
    if kind == "longrope":
        growth = options.pop("factor", max_positions / options[_ORIGINAL])
        growth = factor.check("rope_scaling: factor", growth)
        options["max_position_embeddings"] = round(growth * options[_ORIGINAL])
    try:
        return _KINDS[kind](**options)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rope_scaling: {error}") from error
