"""The dtypes of checkpoints and of the layers that hold their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from fkeras.engine import DTypePolicy

#: compute dtypes; weights of other dtypes are cast to float32
COMPUTED = ("float32", "bfloat16", "float16")


def layer_policies(
    dtypes: Mapping[str, np.dtype], policy: DTypePolicy | None = None
) -> Callable[[str], DTypePolicy]:
    """Returns a function from the path of a layer to its dtype policy.

    Without a policy, the model computes in the most common dtype of the checkpoint. Layers that a
    half-precision checkpoint stores in float32 keep float32 weights, and compute in the common dtype.

    Args:
        dtypes: the dtypes in the checkpoint, by the paths of the weights.
        policy: dtype policy of all layers.
    """
    if policy is not None:
        return lambda path: policy
    common = common_dtype(dtypes)
    wide = {path.rpartition("/")[0] for path, dtype in dtypes.items() if dtype.name == "float32"}
    usual = DTypePolicy(common)
    mixed = usual if common == "float32" else DTypePolicy(f"mixed_{common}")
    return lambda path: mixed if path in wide else usual


def common_dtype(dtypes: Mapping[str, np.dtype]) -> str:
    """Returns the most common dtype of a checkpoint, among the compute dtypes."""
    names = [dtype.name for dtype in dtypes.values()]
    return max(COMPUTED, key=names.count)
