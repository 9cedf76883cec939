"""`diff`: the difference of two models, which is also a patch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.models.partition import require_layer
from fkeras.engine.tree.local_arrays import check_local
from fkeras.engine.tree.skeleton import Skeleton
from fkeras.engine.values.annotations import Leaf
from fkeras.engine.values.frozen import FrozenDict
from fkeras.transforms.comparison.changes import Change, changes_text
from fkeras.transforms.comparison.comparing import compare_models, compare_parts, weight_change
from fkeras.transforms.comparison.fingerprinting import array_digest, fingerprint_of
from fkeras.transforms.comparison.matching import Part


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Difference:
    """The changes that lead from one model to another, and all that is needed to make them.

    `diff` makes differences. A difference prints as a review of the changes, iterates over the
    changes, and is false if the models are equal. `transforms.apply` and `transforms.revert` use a
    difference as a patch; `fk.save_patch` writes a file. The arrays of a difference are copies on the
    host.

    Attributes:
        base: fingerprint of the first model, with weights.
        target: fingerprint of the second model, with weights.
        outlines: fingerprints of both models without weights.
        structure: layers, configuration and graph of both models; None if these are equal.
        before: weights of the first model by path, which are not in the second.
        after: weights of the second model by path, which are not in the first.
        carried: paths of the other weights of the first model, by path in the second.
        changes: the changes.

    Example:
        >>> import fkeras as fk
        >>> from fkeras import transforms
        >>> one, two = fk.layers.Dense(3), fk.layers.Dense(4)
        >>> difference = transforms.diff(one, two)
        >>> bool(difference), [(change.field, change.after) for change in difference]
        (True, [('units', 4)])
    """

    base: str
    target: str
    outlines: tuple[str, str]
    structure: tuple[Skeleton, Skeleton] | None
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]
    carried: Mapping[str, str]
    changes: tuple[Change, ...]

    def inverse(self) -> Difference:
        """Returns the difference from the second model to the first, without a list of changes."""
        return Difference(
            self.target,
            self.base,
            (self.outlines[1], self.outlines[0]),
            None if self.structure is None else (self.structure[1], self.structure[0]),
            self.after,
            self.before,
            FrozenDict({old: new for new, old in self.carried.items()}),
            (),
        )

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Difference):
            return NotImplemented
        return (self.base, self.target) == (other.base, other.target)

    def __hash__(self) -> int:
        return hash((self.base, self.target))

    def __repr__(self) -> str:
        return changes_text(self.changes)


def listed(patch: Difference) -> Difference:
    """Returns a difference from a file with its list of changes."""
    if patch.structure is None:
        paths = dict.fromkeys((*patch.before, *patch.after))
        changes = [weight_change(p, patch.before.get(p), patch.after.get(p)) for p in paths]
        return dataclasses.replace(patch, changes=tuple(changes))
    # a carried weight is not in the file: its path in the base stands for its digest
    kept = ({old: old for old in patch.carried.values()}, patch.carried)
    parts = []
    for skeleton, arrays, carried in zip(
        patch.structure, (patch.before, patch.after), kept, strict=True
    ):
        digests = {path: array_digest(array) for path, array in arrays.items()} | dict(carried)
        parts.append(Part(skeleton, tuple(digests.get(path) for path in skeleton.names)))
    leaves = [dict(carried) | dict(a) for carried, a in zip(kept, (patch.before, patch.after))]  # noqa: B905
    changes = compare_parts(*parts, *leaves).changes
    return dataclasses.replace(patch, changes=tuple(changes))


@hides_internal_frames
def diff(a: Layer, b: Layer) -> Difference:
    """Returns the difference of two models: layers, configuration, calls and weights.

    Layers are matched by name, and by structure and weights where names differ: a renamed layer is a
    rename, not a removal and an addition. Names such as "dense_1", which a graph gives, count less
    than names of the user.

    The difference is false exactly if `a == b`: dtypes count, NaN equals NaN, and `-0.0` equals
    `0.0`. Shapes of outputs are not listed, because they follow from layers and inputs.

    Args:
        a: a layer or model, built or not.
        b: the other layer or model.

    Raises:
        TypeError: for a value that is no layer; for an object in a configuration that has no
            fingerprint, see `fingerprint`.
        ValueError: for weights that are being traced, or are spread over several processes.

    Example:
        >>> import jax, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> x = fk.Input((4,), name="x")
        >>> a = fk.Model(x, layers.Dense(2, name="head")(layers.Dense(3, name="body")(x)))
        >>> h = layers.Dropout(0.5)(layers.Dense(3, name="trunk")(x))
        >>> b = fk.Model(x, layers.Dense(2, use_bias=False, name="head")(h))
        >>> print(transforms.diff(a, b))
        5 differences: 2 layers, 1 setting, 2 calls
        Layers
          + dropout  Dropout(0.5)
          > trunk    was body
        Configuration
          ~ head  use_bias  True -> False
        Calls
          ~ head_ib-0     head(body) -> head(dropout)
          + dropout_ib-0  dropout(trunk)
    """
    for model in (a, b):
        require_layer(model, "transforms.diff")
    comparison, one, two = compare_models(a, b, "transforms.diff")
    same_structure = one.skeleton == two.skeleton
    return Difference(
        fingerprint_of(a, one.digests),
        fingerprint_of(b, two.digests),
        (fingerprint_of(a), fingerprint_of(b)),
        None if same_structure else (one.skeleton, two.skeleton),
        _copies(comparison.first, set(comparison.carried.values())),
        _copies(comparison.second, set(comparison.carried)),
        FrozenDict(comparison.carried),
        tuple(comparison.changes),
    )


def _copies(leaves: Mapping[str, Leaf], carried: set[str]) -> FrozenDict[np.ndarray]:
    copies = {}
    for path, leaf in leaves.items():
        if leaf is not None and path not in carried:
            # a copy: a training step may donate the array of the model
            copies[path] = np.array(check_local(leaf, "transforms.diff", path))
            copies[path].setflags(write=False)
    return FrozenDict(copies)
