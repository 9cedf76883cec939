"""Warns of calls for which Keras 3 computes other masks than the model that is saved.

The file stores the rules of this package beside the configuration, where Keras ignores them:
`load_model` restores the model exactly, and Keras opens the file with its own rules.
"""

from __future__ import annotations

import warnings
from typing import Any

from fkeras import layers
from fkeras.engine import Layer, Network
from fkeras.engine.call.mask_rules import KERAS
from fkeras.engine.graph.call_table import Call
from fkeras.engine.graph.walk import new_slots, run_calls
from fkeras.engine.values import structure
from fkeras.layers.merging.elementwise import Merge
from fkeras.layers.recurrent.base import Recurrent

_STEPWISE = (Recurrent, layers.Bidirectional)

#: sources of a mask: layers with their inputs; equal sources give equal masks
_Origin = frozenset[tuple]


def warn_of_masks(model: Layer, stacklevel: int) -> None:
    """Warns once with all calls for which Keras computes other masks."""
    found = _differences(model, "")
    if found:
        shown = "; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else "")
        warnings.warn(
            f"save_model: Keras will compute other numbers than this model: {shown}. fk.load_model "
            "restores the model exactly.",
            stacklevel=stacklevel + 1,
        )


def _differences(model: Layer, prefix: str) -> list[str]:
    if not isinstance(model, Network) or model.graph is None:
        return []
    graph, found = model.graph, []
    slots: list[_Origin] = new_slots(graph, [frozenset()] * len(graph.input_slots))

    def visit(number: int, call: Call) -> Any:
        layer, where = model.layers[call.layer], f"{prefix}{call.layer}"
        found.extend(_differences(layer, f"{where}/"))
        masked = [slot for slot in call.inputs if graph.masks[slot] is not None]
        if masked and call.mask_rule != KERAS and not _is_explicit(call):
            different = len(masked) < len(call.inputs) or len({slots[slot] for slot in masked}) > 1
            if _merges(layer, graph.specs[call.inputs[0]].ndim) and different:
                found.append(
                    f"the layer {where!r} merges different masks, of which Keras keeps steps that any "
                    f'input keeps (write {type(layer).__name__}(masks="any") for the same)'
                )
            elif isinstance(layer, _STEPWISE) and len(call.inputs) > 1:
                found.append(
                    f"the layer {where!r} has an initial state, with which Keras ignores the mask of "
                    "the input (pass mask=None to the call for the same)"
                )
        return structure.fill(call.value, [_origin(layer, call, masked, slots)] * len(call.outputs))

    run_calls(graph, slots, visit)
    return found


def _origin(layer: Layer, call: Call, masked: list[int], slots: list[_Origin]) -> _Origin:
    if masked and not isinstance(layer, layers.Masking):
        return frozenset().union(*(slots[slot] for slot in masked))
    return frozenset({(type(layer), getattr(layer, "mask_value", None), call.inputs)})


def _merges(layer: Layer, rank: int) -> bool:
    """Returns whether a layer combines the masks of its inputs by a rule that Keras lacks."""
    joins = isinstance(layer, layers.Concatenate) and layer.axis in (-1, rank - 1)
    return (joins or isinstance(layer, Merge)) and getattr(layer, "masks", None) == "all"


def _is_explicit(call: Call) -> bool:
    """Returns whether a call has an argument `mask`, which Keras uses too."""
    options = call.signature.options
    return "mask" in (options.keys if isinstance(options, structure.Branch) else ())
