"""`.lora.h5` files of KerasHub's `save_lora_weights`."""

from __future__ import annotations

from typing import Any

from fkeras.authoring.saving import is_finite, warn_not_finite
from fkeras.engine import sublayers
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.file_type import open_regular
from fkeras.host.containers.hdf5 import Store, open_store
from fkeras.host.containers.limits import Limits
from fkeras.pretrained.adapter_files.modules import filled
from fkeras.transforms import LoRA

# the names of KerasHub's default targets
_TARGETS = ("query_dense", "value_dense", "query", "value")


def read_keras_adapters(
    path: str, base: Any, alpha: float | None, limits: Limits
) -> dict[str, Any]:
    """Returns the adapters of a file by the path of the layer.

    The file has neither names nor the scale: its adapters follow the order of KerasHub's layers.

    Args:
        base: the model.
        alpha: numerator of the scale; None for the rank.

    Raises:
        FileError: for a damaged file, and for adapters of another model.
    """
    by_parent: dict[str, list[tuple[str, Any]]] = {}
    for at, layer in sublayers(base):
        parent, _, name = at.rpartition("/")
        if name in _TARGETS:
            by_parent.setdefault(parent, []).append((at, layer))
    # Keras lists the layers inside a layer in reverse: the value before the query
    targets = [
        target
        for group in by_parent.values()
        for target in sorted(group, key=lambda t: "query" in t[0].rpartition("/")[2])
    ]
    with open_regular(path) as file, open_store(file, path, "", limits) as store:
        return _read(store, path, targets, alpha)


def _read(store: Store, path: str, targets: list, alpha: float | None) -> dict[str, Any]:
    groups = sorted((g for g in store.groups("lora") if g.isdigit()), key=int)
    if not store.has("lora/vars/rank") or not groups:
        raise FileError(
            "expected the adapters of KerasHub's save_lora_weights: the rank, and a group for each "
            "adapted layer. Write the file with backbone.save_lora_weights.",
            file=path,
        )
    rank = int(store.read("lora/vars/rank", ()))
    if len(groups) != len(targets):
        raise FileError(
            f"expected adapters of the {len(targets)} layers of the model named "
            f"{', '.join(_TARGETS)}, received {len(groups)} adapters; nothing was loaded. Load the "
            "backbone that was adapted.",
            file=path,
        )
    found, broken = {}, []
    for group, (at, layer) in zip(groups, targets, strict=True):
        adapter = LoRA(rank, alpha, last_axis=True)
        reason = adapter.refusal(layer)
        if reason is not None:
            raise FileError(f"{at!r} cannot be adapted: {reason}.", file=path)
        shapes = adapter.expects(layer)
        weights = {}
        for name in ("a", "b"):
            weights[name] = store.read(f"lora/{group}/vars/lora_kernel_{name}")
            if weights[name].shape != shapes[name]:
                raise FileError(
                    f"expected lora_kernel_{name} of {at!r} of shape {shapes[name]}, received "
                    f"{weights[name].shape}; nothing was loaded. Load the backbone that was adapted.",
                    file=path,
                )
        broken += [f"{at}/{name}" for name, array in weights.items() if not is_finite(array)]
        found[at] = filled(adapter, weights)
    warn_not_finite(broken, path)
    return found
