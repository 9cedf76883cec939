"""`ProjectedAttention`: base class of attention with heads: projections, masks, calls."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, overload

import jax
import jax.numpy as jnp

from fkeras.engine import Context, Layer, Output, Spec, option, subkey
from fkeras.engine.call.node import is_symbolic
from fkeras.engine.config.converters import choice
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.layer.layer_types import Tensor
from fkeras.engine.tree.axes import AxisNames, weight_letters
from fkeras.engine.values.frozen import FrozenDict
from fkeras.layers.attention.scored import without_default_rows
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.products import equation_of
from fkeras.layers.quantized.projections import (
    dtypes_of,
    policy_map,
    quantization_of,
    read_policy_map,
)
from fkeras.nn.attention import (
    attend,
    attend_with_weights,
    both,
    causal_mask,
    dot_product_attention,
    window_mask,
)
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape

PROJECTIONS = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")


class ProjectedAttention(Layer):
    """Projects query, key and value to heads, attends, and projects back.

    A subclass returns the projection layers from `projections`, and declares the fields `dropout`,
    `seed`, `sliding_window`, `flash_attention` and `use_gate`.
    """

    keras_form: ClassVar[KerasForm] = KerasForm(
        input_names=("query", "value", "key"),
        option_names=("query_mask", "value_mask", "key_mask", "attention_mask"),
        training_default=None,
        groups=FrozenDict({"gate_dense": "_gate_dense"}),
    )

    #: configurations of `fk.quantizers` by field of the projection, or one for all projections
    quantization: Any = option(default=None, convert=quantization_of, kw_only=True)
    #: dtype policies of projections by field, where they differ from the layer's
    projection_dtypes: Any = option(default=None, convert=dtypes_of, kw_only=True)
    #: result for queries that attend to no key: zeros, or Keras's result
    empty_rows: str = option(default="zeros", convert=choice("zeros", "keras"), kw_only=True)

    query_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    key_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    gate_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    value_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    output_dense: EinsumDense | None = dataclasses.field(default=None, init=False)

    #: letters of the kernels: "d" features, "h" heads, "g" heads of keys and values, "k" in a head
    kernel_axes: ClassVar[Mapping[str, str]] = FrozenDict(
        dict.fromkeys(("query_dense", "key_dense", "gate_dense", "value_dense"), "dhk")
    )
    supports_masking: ClassVar[bool] = True
    #: whether Keras's layer removes the masks of its inputs, so that later calls lack them
    detaches_masks: ClassVar[bool] = False

    def __post_init__(self: Any) -> None:
        super().__post_init__()
        # one mode for all projections also names the gate, which may not exist
        if self.quantization and not self.use_gate:
            configs = {name: q for name, q in self.quantization.items() if name != "gate_dense"}
            object.__setattr__(self, "quantization", FrozenDict(configs) or None)

    def projections(self, query: Spec, value: Spec, key: Spec) -> Mapping[str, tuple]:
        """Returns for each child the unbuilt layer, and the shape to build it for."""
        raise NotImplementedError

    @property
    def axis_names(self) -> AxisNames:
        letters_by_path = {}
        for name in PROJECTIONS:
            child = getattr(self, name)
            if child is None:
                continue
            equation = equation_of(getattr(child, "layer", child))
            # the kernel of the last projection ends with the axes of the output
            letters = self.kernel_axes.get(name, "hk".ljust(len(equation.kernel) - 1, "_") + "d")
            # a quantized projection may have weights whose axes have no names
            renamed = str.maketrans(dict(zip(equation.kernel, letters, strict=True)))
            for weight_name, axes in weight_letters(child).items():
                letters_by_path[f"{name}/{weight_name}"] = axes.translate(renamed)
        roles = FrozenDict({"h": "heads", "g": "kv_heads"})
        return AxisNames(FrozenDict(letters_by_path), roles, output="...d")

    def axes_of_attention(self, rank: int) -> tuple[int, ...]:
        """Returns the axes, of `rank` axes of an input, that attention runs over."""
        raise NotImplementedError

    @property
    def query_scale(self) -> float:
        """Factor of the scores."""
        raise NotImplementedError

    def build(self, key: jax.Array, query: Any, value: Any = None, source: Any = None) -> Self:
        self._check_inputs(query, value)
        projections = self.projections(query, value, value if source is None else source)
        children = {
            name: self._coded(name, layer).build(subkey(key, name), shape)
            for name, (layer, shape) in projections.items()
        }
        return self.replace(**children, _built=True)

    def _coded(self, name: str, layer: EinsumDense) -> Layer:
        # policy first: a quantized layer wraps the layer with its final dtype
        policy = (self.projection_dtypes or {}).get(name)
        layer = layer if policy is None else layer.replace(dtype=policy)
        config = (self.quantization or {}).get(name)
        return layer if config is None else QuantizedDense.kind_for(config)(layer, config)

    def unbuilt(self) -> Self:
        """Returns a copy without weights, and without the layers that hold them."""
        return self.replace(**dict.fromkeys(PROJECTIONS), _built=False)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data, quantization as a policy map."""
        config = without_default_rows(super().get_config())
        # Keras has no such arguments: its `dtype` may be a map from layer paths to policies
        del config["quantization"], config["projection_dtypes"]
        if self.quantization or self.projection_dtypes:
            projection_maps = self.quantization or {}, self.projection_dtypes or {}
            config["dtype"] = policy_map(self.where, self.name, self.dtype, *projection_maps)
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Reads the configuration that `get_config` wrote; `custom_objects` holds user classes."""
        return super().from_config(read_policy_map(cls.__name__, config), custom_objects)

    if TYPE_CHECKING:
        # Keras's call takes query, value and key by name; `key` is also the PRNG key of JAX.
        @overload
        def __call__(
            self,
            query: Tensor,
            value: Any = None,
            key: Any = None,
            *more: Any,
            mask: Any = None,
            **options: Any,
        ) -> Tensor: ...

        @overload
        def __call__(
            self,
            query: Any = None,
            value: Any = None,
            key: Any = None,
            *more: Any,
            mask: Any = None,
            **options: Any,
        ) -> jax.Array: ...

        def __call__(self, *inputs: Any, **options: Any) -> Any: ...

        def apply(self, *inputs: Any, key: Any = None, **options: Any) -> Output: ...

    else:

        def __call__(self, *inputs: Any, key: Any = None, **options: Any) -> Any:
            """Computes the value of the layer on query, value and an optional key.

            The tensors may come by name; a `key` that is a PRNG key is the key of the call.
            """
            inputs, key, options = _by_position(self.where, inputs, key, options)
            return super().__call__(*inputs, key=key, **options)

        def apply(self, *inputs: Any, key: Any = None, **options: Any) -> Output:
            """Returns the `Output` of the layer on query, value and an optional key."""
            inputs, key, options = _by_position(self.where, inputs, key, options)
            return super().apply(*inputs, key=key, **options)

    def forward(
        self: Any,
        context: Context,
        query: jax.Array,
        value: Any = None,
        key: Any = None,
        *,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Output:
        self._check_inputs(query, value)
        masks = context.mask if isinstance(context.mask, list | tuple) else (context.mask,)
        masks = (*masks, None, None)
        if self.detaches_masks and context.attached is not None:
            query_mask = None  # Keras's layer uses the attached mask instead
        query_mask = masks[0] if query_mask is None else query_mask
        value_mask = masks[1] if value_mask is None else value_mask
        key_mask = (None if key is None else masks[2]) if key_mask is None else key_mask
        key = value if key is None else key
        if self.detaches_masks:
            context.detach_masks(query, value, key)
        if self.flash_attention and return_attention_scores:
            raise ValueError(
                f"{self.where}: expected flash_attention=None or False where scores are returned, "
                "received True. The fused kernel does not compute the scores: turn off one of the two."
            )
        axes = self.axes_of_attention(query.ndim)
        sides = (query.shape, value.shape, axes)
        mask = _padding(query_mask, query.ndim, axes, of_keys=False)
        mask = both(mask, _padding(value_mask, query.ndim, axes, of_keys=True))
        mask = both(mask, _padding(key_mask, query.ndim, axes, of_keys=True))
        mask = both(mask, _explicit(self.where, attention_mask, query.ndim, len(axes)))
        projected = [
            self._project(context, name, x)
            for name, x in (("query_dense", query), ("key_dense", key), ("value_dense", value))
        ]
        arrays: list[jax.Array] = [out.value for out in projected]
        if self.projection_dtypes:
            # projections with different policies meet here, and strict promotion would reject them
            with jax.numpy_dtype_promotion("standard"):
                common = jnp.result_type(*(array.dtype for array in arrays))
            arrays = [array.astype(common) for array in arrays]
        q, k, v = arrays
        with_dropout = self.dropout > 0 and context.training
        scores = None
        if return_attention_scores or with_dropout:
            mask = both(mask, self._order(use_causal_mask, sides))
            drop = self._drop(context) if with_dropout else None
            y, scores = attend_with_weights(q, k, v, mask, None, self.query_scale, axes, drop)
        # Keras's rule for empty rows applies only here: its other paths give zero weights
        elif query.ndim == 3 and self.dropout == 0:
            window = self._order(False, sides)
            y = dot_product_attention(
                q,
                k,
                v,
                mask=both(mask, window),
                scale=self.query_scale,
                is_causal=use_causal_mask,
                flash_attention=self.flash_attention,
                empty_rows=self.empty_rows,
            )
        else:
            mask = both(mask, self._order(use_causal_mask, sides))
            y = attend(q, k, v, mask, None, self.query_scale, axes)
        if self.gate_dense is not None:
            gate = self._project(context, "gate_dense", query)
            y, projected = y * gate.value, [*projected, gate]
        output = self._project(context, "output_dense", y)
        losses = tuple(loss for out in (*projected, output) for loss in out.losses)
        if return_attention_scores:
            return Output((output.value, scores), losses=losses, mask=(query_mask, None))
        return Output(output.value, losses=losses, mask=query_mask)

    def _project(self, context: Context, name: str, x: jax.Array) -> Output:
        return context.child(name).run(getattr(self, name), x)

    def _drop(self: Any, context: Context) -> Callable[[jax.Array], jax.Array]:
        key = context.key if self.seed is None else subkey(context.key, self.seed)
        return lambda weights: dropout(key, weights, self.dropout)

    def _order(self: Any, use_causal_mask: bool, sides: tuple) -> jax.Array | None:
        """Returns the mask of the order of steps: causal, and limited to the window."""
        query, value, axes = sides
        if not use_causal_mask and self.sliding_window is None:
            return None
        if len(axes) != 1:
            raise ValueError(
                f"{self.where}: expected one attention axis with use_causal_mask or "
                f"sliding_window, which depend on the order of steps, received the axes {axes}. "
                "Set attention_axes to the time axis, or give an attention_mask."
            )
        sizes = query[axes[0]], value[axes[0]]
        mask = causal_mask(*sizes) if use_causal_mask else None
        if self.sliding_window is not None:
            mask = both(mask, window_mask(*sizes, self.sliding_window))
        assert mask is not None
        return jnp.reshape(mask, (*(1,) * (len(query) - 1), *mask.shape))

    def _check_inputs(self, query: Any, value: Any) -> None:
        if value is None:
            raise ValueError(
                f"{self.where}: expected query and value, received one input. For self-attention "
                "write layer(x, x)."
            )
        if query.ndim < 3 or value.ndim != query.ndim:
            shapes = f"{format_shape(query.shape)} and {format_shape(value.shape)}"
            raise ValueError(
                f"{self.where}: expected query and value of shapes (b, t, d) and (b, s, f), or "
                f"both of one higher rank, received {shapes}. Add the missing axis, or reshape."
            )


def projection(rank: int, summed: int, sizes: Sequence[Any], **options: Any) -> EinsumDense:
    """Returns the layer that maps the last `summed` of `rank` axes to axes of `sizes`.

    Example:
        >>> projection(3, 1, (2, 4)).equation
        'abc,cde->abde'
    """
    letters = string.ascii_lowercase
    free, inner = letters[: rank - summed], letters[rank - summed : rank]
    outer = letters[rank : rank + len(sizes)]
    shape = (*(None,) * (len(free) - 1), *sizes)
    bias = outer if options.pop("use_bias", False) else None
    equation = f"{free}{inner},{inner}{outer}->{free}{outer}"
    return EinsumDense(equation, shape, bias_axes=bias, **options)


def check_flash(where: str, flash_attention: bool | None, dropout: float) -> None:
    """Raises an error for flash attention with dropout, which the fused kernel does not support."""
    if flash_attention and dropout > 0:
        raise ValueError(
            f"{where}: expected dropout=0 beside flash_attention=True, received {dropout}. The "
            "fused kernel has no dropout: turn off one of the two."
        )


def projection_options(layer: Any) -> dict[str, Any]:
    """Returns the arguments that every projection takes from its layer."""
    names = (
        *("use_bias", "kernel_initializer", "bias_initializer", "kernel_regularizer"),
        *("bias_regularizer", "kernel_constraint", "bias_constraint", "trainable", "dtype"),
    )
    return {name: getattr(layer, name) for name in names}


def _by_position(where: str, inputs: tuple, key: Any, options: dict) -> tuple:
    """Returns `(inputs, PRNG key, options)` with named query, value and key as positions."""
    options = dict(options)
    names = ("query", "value", "key")
    named = {name: options.pop(name) for name in names[:2] if name in options}
    # `key` is Keras's name of the third tensor, and JAX's name of the PRNG key: the dtype decides
    dtype = getattr(key, "dtype", None)
    if key is not None and (
        is_symbolic(key) or (dtype is not None and not jnp.issubdtype(dtype, jax.dtypes.prng_key))
    ):
        named["key"], key = key, None
    # named tensors can become positional only without a gap in (query, value, key)
    for name in names[len(inputs) :]:
        if name not in named:
            break
        inputs = (*inputs, named.pop(name))
    if named:
        raise TypeError(
            f"{where}: expected query, value and key once each, received {list(named)} by name "
            f"beside {len(inputs)} inputs. Write layer(query, value), or layer(query, value, key)."
        )
    return inputs, key, options


def _padding(mask: Any, rank: int, axes: tuple[int, ...], of_keys: bool) -> jax.Array | None:
    """Reshapes the mask (b, t) of queries or (b, s) of keys to the axes of the scores."""
    if mask is None:
        return None
    sizes = [*mask.shape, *(1,) * (rank - 1 - mask.ndim)]
    batch_sizes = [n for i, n in enumerate(sizes) if i not in axes]
    mask = jnp.reshape(mask if mask.dtype == jnp.bool_ else mask != 0, sizes)
    mask = jnp.moveaxis(mask, axes, range(mask.ndim - len(axes), mask.ndim))
    step_sizes, ones = [sizes[a] for a in axes], [1] * len(axes)
    return jnp.reshape(
        mask, (*batch_sizes, 1, *(ones + step_sizes if of_keys else step_sizes + ones))
    )


def _explicit(where: str, mask: Any, rank: int, attended: int) -> jax.Array | None:
    """Reshapes a mask (t, s), (b, t, s) or (b, heads, t, s) to the axes of the scores."""
    if mask is None:
        return None
    score_rank, min_rank = rank + attended, 2 * attended
    if not min_rank <= mask.ndim <= score_rank:
        raise ValueError(
            f"{where}: expected an attention_mask with {min_rank} to {score_rank} axes, such as (b, t, s), "
            f"received {format_shape(mask.shape)}. Its last axes are those of queries and keys."
        )
    mask = mask if mask.dtype == jnp.bool_ else mask != 0
    leading_sizes = mask.shape[: mask.ndim - min_rank]
    step_sizes = mask.shape[mask.ndim - min_rank :]
    return jnp.reshape(mask, (*leading_sizes, *(1,) * (score_rank - mask.ndim), *step_sizes))
