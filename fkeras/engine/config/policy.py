"""Dtype policies: the dtype of a layer's weights and the dtype of its computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.engine.config.configurable import Configurable, option
from fkeras.engine.config.converters import dtype_name
from fkeras.engine.config.policy_maps import quantization
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.values.annotations import Field, Leaf, Tree
from fkeras.engine.values.spec import STRING

NAMES = ("float32", "bfloat16", "float16", "float64", "mixed_bfloat16", "mixed_float16")
_COMPLEX = ("complex64", "complex128")
_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _policy_name(name: str) -> str:
    policy_name = name if isinstance(name, str) else dtype_name(name)
    if policy_name not in (*NAMES, *_INTEGERS, *_COMPLEX, STRING):
        hint = suggest(name, NAMES) if isinstance(name, str) else ""
        raise ValueError(
            f"There is no dtype policy {describe_value(name)}.{hint} Known: {', '.join(NAMES)}."
        )
    return policy_name


class DTypePolicy(Configurable):
    """Dtype policy: weights in `variable_dtype`, computation in `compute_dtype`.

    Args:
        name: a dtype, or "mixed_bfloat16" / "mixed_float16": float32 weights with computation in
            bfloat16 / float16.

    Raises:
        ValueError: for an unknown name.

    Example:
        >>> import fkeras as fk
        >>> policy = fk.DTypePolicy("mixed_bfloat16")
        >>> policy.variable_dtype, policy.compute_dtype
        ('float32', 'bfloat16')
    """

    _keras_module: ClassVar[str] = "keras"
    name: str = option(convert=_policy_name)

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> DTypePolicy:
        """Creates a policy from Keras's configuration of a policy or of a uniform policy map.

        Raises:
            ValueError: for a quantized policy, or a map with different policies by path.
        """
        quantized = quantization(config)
        if quantized is not None:
            raise ValueError(
                "DTypePolicy: expected a floating-point policy, received the quantized policy "
                f"{quantized['mode']!r:.40}. Only Dense, EinsumDense, Embedding and ReversibleEmbedding "
                "are quantized: fk.quantize(model, 'int8')."
            )
        if "policy_map" not in config:
            if "name" not in config:
                raise ValueError(
                    "expected the name of a dtype policy such as 'float32', received "
                    f"{describe_value(dict(config))}."
                )
            # null means the default; fkeras has no global policy, so the default is float32
            return cls(config["name"] or "float32")
        default = get_policy(config.get("default_policy"))
        policies = config["policy_map"]
        all_policies = policies.values() if isinstance(policies, Mapping) else [policies]
        if any(get_policy(policy) != default for policy in all_policies):
            raise ValueError(
                "DTypePolicy: expected one policy, received different policies by layer path. Give "
                "each layer its own dtype before the model is saved."
            )
        return default

    @property
    def variable_dtype(self) -> str:
        return "float32" if self.name.startswith("mixed_") else self.name

    @property
    def compute_dtype(self) -> str:
        return self.name.removeprefix("mixed_")


def get_policy(value: Field) -> DTypePolicy:
    """Converts a name, a dtype, a policy or Keras's JSON form to a policy; None is float32."""
    policy = any_policy(value)
    if policy.name in (STRING, *_COMPLEX):
        raise ValueError(
            f"Layers have no {policy.name} dtype; only inputs do: fk.Input(shape, "
            f"dtype={policy.name!r}). Leave the argument out."
        )
    return policy


def any_policy(value: Field) -> DTypePolicy:
    """Converts like `get_policy`, and also accepts the dtypes of inputs: "string", "complex64"."""
    if value is None:
        return DTypePolicy("float32")
    if isinstance(value, DTypePolicy):
        return value
    if isinstance(value, str) and quantization(value) is not None:
        return DTypePolicy.from_config({"name": value})
    if isinstance(value, Mapping):
        config = value.get("config", value)
        return DTypePolicy.from_config(config if isinstance(config, Mapping) else {"name": config})
    return DTypePolicy(value)


def cast_floats(tree: Tree, dtype: str) -> Tree:
    """Casts the floating-point arrays of a tree to `dtype`; other leaves are unchanged."""

    def cast(value: Field) -> Leaf:
        # integers and booleans keep their dtype: token ids above 256 are not exact in bfloat16
        kind = getattr(value, "dtype", None)
        if kind is None or not jnp.issubdtype(kind, jnp.floating) or kind == dtype:
            return value
        return jnp.asarray(value, dtype=dtype)

    return jax.tree.map(cast, tree)
