"""Applies and reverts differences of models, as patches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.models.partition import require_layer
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.annotations import Leaf
from fkeras.engine.values.frozen import FrozenDict
from fkeras.transforms.comparison.differences import Difference
from fkeras.transforms.comparison.fingerprinting import array_digest, fingerprint_of, weight_digests

Model = TypeVar("Model", bound=Layer)
_SHOWN = 3


class ConflictError(FKerasError):
    """Two patches change the same weight or both change the structure, or a patched weight differs.

    Attributes:
        paths: the weights in conflict; empty for the structure.

    Example:
        >>> ConflictError("apply: two patches change 'head/kernel'.", ("head/kernel",)).paths
        ('head/kernel',)
    """

    def __init__(self, message: str, paths: tuple[str, ...] = ()):
        super().__init__(message)
        self.paths = paths

    def __reduce__(self):
        return (type(self), (str(self), self.paths), self.__dict__)


@hides_internal_frames
def apply(model: Model, *patches: Difference) -> Model:
    """Returns the model with the changes of patches: `apply(a, diff(a, b)) == b`.

    A patch fits the model from which it was made, bit by bit. The result equals the other model bit
    by bit; weights that do not change are the same arrays. A changed weight has the devices of the
    old weight of the same shape.

    Several patches of one base are combined: at most one changes the structure (layers, their
    configuration or the graph), and no two change the same weight, even to the same values. Their
    order does not matter. Patches that follow each other are applied one after the other:
    `apply(apply(a, diff(a, b)), diff(b, c)) == c`.

    Args:
        model: the model that is the base of the patches.
        patches: differences from `diff`, or from `fk.load_patch`.

    Raises:
        TypeError: for a value that is no layer, and for a patch that is no difference.
        FKerasError: for a model that is not the base of a patch, and for a damaged patch.
        ConflictError: if two patches change the same weight, if two patches change the structure, or
            if a weight that a patch changes has other values than in the base.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import transforms
        >>> a, b = (fk.layers.Dense(2).build(jax.random.key(seed), (None, 3)) for seed in (0, 1))
        >>> patch = transforms.diff(a, b)
        >>> transforms.apply(a, patch) == b, transforms.revert(b, patch) == a
        (True, True)
    """
    patch = _combined(model, patches, "apply")
    result = _move(model, patch, "apply")
    return returned(result, "transforms.apply", "model = transforms.apply(model, patch)", depth=2)


@hides_internal_frames
def revert(model: Model, *patches: Difference) -> Model:
    """Returns the model without the changes of patches: `revert(b, diff(a, b)) == a`.

    Args:
        model: the result of `apply`, bit by bit.
        patches: the patches of that call, in any order.

    Raises:
        TypeError: for a value that is no layer, and for a patch that is no difference.
        FKerasError: for a model that is not the result of applying the patches to their base.
        ConflictError: as for `apply`.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import layers, transforms
        >>> patch = transforms.diff(layers.Dropout(0.1), layers.Dropout(0.2))
        >>> transforms.revert(layers.Dropout(0.2), patch)
        Dropout(0.1)
    """
    patch = _combined(model, patches, "revert").inverse()
    result = _move(model, patch, "revert")
    return returned(result, "transforms.revert", "model = transforms.revert(model, patch)", depth=2)


def _combined(model: Layer, patches: tuple[Difference, ...], verb: str) -> Difference:
    """Returns one patch with the changes of all patches, whose target is "" if there are several."""
    require_layer(model, f"transforms.{verb}")
    for patch in patches:
        if not isinstance(patch, Difference):
            raise TypeError(
                f"transforms.{verb}: expected a patch, received {type(patch).__name__}. Pass the result "
                "of transforms.diff(a, b) or of fk.load_patch(path)."
            )
    if not patches:
        raise TypeError(
            f"transforms.{verb}: expected at least one patch, received none. Write "
            f"transforms.{verb}(model, transforms.diff(a, b))."
        )
    combined = patches[0]
    for number, patch in enumerate(patches[1:], 2):
        combined = _joined(combined, patch, f"transforms.{verb}, patch {number}")
    return combined


def _joined(one: Difference, two: Difference, where: str) -> Difference:
    if one.base != two.base:
        raise FKerasError(
            f"{where}: expected patches of one base, received fingerprints {one.base[:8]} and "
            f"{two.base[:8]}. Apply patches that follow each other one after the other."
        )
    if one.structure is not None and two.structure is not None:
        raise ConflictError(
            f"{where}: conflict: two patches change layers, configuration or graph. Apply the first "
            "patch, and make the second one from its result."
        )
    if two.structure is not None:
        one, two = two, one
    # `two` changes weights only: its paths are those of the base
    kept_paths = {old: new for new, old in one.carried.items()}
    paths = tuple(path for path in two.after if path not in kept_paths)
    if paths:
        raise ConflictError(
            f"{where}: conflict: two patches change {_listed(paths)}. Apply the first patch, and make "
            "the second one from its result.",
            paths,
        )
    changed = {kept_paths[path]: array for path, array in two.after.items()}
    return Difference(
        one.base,
        "",
        one.outlines,
        one.structure,
        FrozenDict({**one.before, **two.before}),
        FrozenDict({**one.after, **changed}),
        FrozenDict({new: old for new, old in one.carried.items() if new not in changed}),
        (*one.changes, *two.changes),
    )


def _move(model: Layer, patch: Difference, verb: str) -> Any:
    """Returns the target of a patch; the base or the target may have an unknown fingerprint, ""."""
    leaves = dict(zip(skeleton_of(model).names, leaves_of(model), strict=True))
    digests = weight_digests(model, f"transforms.{verb}")
    _check_base(model, patch, dict(zip(leaves, digests, strict=True)), verb)
    skeleton = skeleton_of(model) if patch.structure is None else patch.structure[1]
    new_leaves = []
    for path in skeleton.names:
        if path in patch.after:
            new_leaves.append(_placed(patch.after[path], leaves.get(path)))
        else:
            old_path = patch.carried.get(path, "")
            new_leaves.append(leaves.get(old_path))
    result = skeleton.join(new_leaves)
    # protects from damaged files, and checks the base of several reverted patches
    actual = fingerprint_of(result, weight_digests(result, f"transforms.{verb}"))
    if patch.target and actual != patch.target:
        raise FKerasError(
            f"transforms.{verb}, {model._where}: expected a result with the fingerprint "
            f"{patch.target[:8]}, received {actual[:8]}. The patch is damaged, or the model is not a "
            "result of these patches."
        )
    return result


def _placed(array: np.ndarray, old: Leaf) -> Leaf:
    if isinstance(old, np.ndarray):
        return array
    new: Any = jnp.asarray(array)
    if new.dtype != array.dtype:  # float64 without jax_enable_x64
        return array
    if isinstance(old, jax.Array) and old.shape == new.shape:
        return jax.device_put(new, old.sharding)
    return new


def _check_base(
    model: Layer, patch: Difference, digests: Mapping[str, str | None], verb: str
) -> None:
    where = f"transforms.{verb}, {model._where}"
    noun = "base" if verb == "apply" else "result"
    actual = fingerprint_of(model, list(digests.values()))
    if actual == patch.base:
        return
    if patch.target and actual == patch.target:
        raise FKerasError(
            f"{where}: expected the {noun} of the patch, received a model to which this was done "
            f"already. Call transforms.{'revert' if verb == 'apply' else 'apply'} for the other direction."
        )
    paths = tuple(p for p, a in patch.before.items() if digests.get(p) != array_digest(a, p))
    is_same_outline = fingerprint_of(model) == patch.outlines[0]
    if paths and (is_same_outline or not patch.base):
        raise ConflictError(
            f"{where}: conflict: {_listed(paths)}, which the patch changes, has other values than in the "
            f"{noun} of the patch. Use that model, or make the patch from this one.",
            paths,
        )
    if not patch.base:  # several patches: the fingerprint of the result is checked
        return
    other = "weights" if is_same_outline else "layers, configuration or shapes of weights"
    raise FKerasError(
        f"{where}: expected the {noun} of the patch (fingerprint {patch.base[:8]}), received a "
        f"model with other {other} (fingerprint {actual[:8]}). Use that model, or make the patch from "
        "this one with transforms.diff."
    )


def _listed(paths: tuple[str, ...]) -> str:
    rest = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return f"{', '.join(map(repr, paths[:_SHOWN]))}{rest}"
