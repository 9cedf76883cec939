"""`ProjectedAttention`: base class of attention with heads: projections, masks, calls."""

from __future__ import annotations

import dataclasses
import math
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeVar, overload

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import is_symbolic
from fkeras.layers.attention.attention import check_steps, without_default_rows
from fkeras.layers.attention.score_masks import as_booleans, score_mask
from fkeras.layers.common import authoring as fk
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized.dense import QuantizedDense
from fkeras.layers.quantized.products import equation_of
from fkeras.layers.quantized.projections import (
    dtypes_of,
    policy_map,
    quantization_of,
    read_policy_map,
)
from fkeras.nn.attention import attend, attend_with_weights, both
from fkeras.nn.attention_blocks import Take, whole
from fkeras.nn.attention_choice import dot_product_attention
from fkeras.nn.attention_kernels import Pairs
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape

Shaped = TypeVar("Shaped", jax.Array, fk.Spec)

PROJECTIONS = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")


class ProjectedAttention(fk.Layer):
    """Projects query, key and value to heads, attends, and projects back.

    A subclass returns the projection layers from `projections`. The fields of its sizes come first in
    Keras's order of arguments: a base class on the right of this class declares them.

    Args of the family:
        dropout: probability of dropping an attention weight in training.
        use_bias: whether the projections have biases.
        sliding_window: number of steps in each direction, including the step itself, that a step
            attends to; None for all.
        flash_attention: True for cuDNN's fused kernel, which needs a GPU and a 16-bit float type;
            False for products of whole arrays; None for the best computation of the platform: long
            sequences by a kernel or by blocks of queries, without an array of all scores, and 16-bit
            floats without padding on a GPU by cuDNN.
        kernel_initializer: draws the kernels.
        bias_initializer: draws the biases.
        kernel_regularizer: penalty on each kernel.
        bias_regularizer: penalty on each bias.
        activity_regularizer: penalty on the output of each projection, divided by the batch size.
        kernel_constraint: projection of the kernels after each update.
        bias_constraint: projection of the biases after each update.
        use_gate: whether to multiply the means by a sigmoid of an additional projection of the
            query.
        seed: takes the place of the layer's name in the key of each call, so that layers with equal
            seeds draw equally; None for the name.
        quantization: "int8" or another mode of `fk.quantizers` for all projections, or a
            dictionary by projection name, such as "query_dense"; None for floats. Keyword only.
        projection_dtypes: dtype policies by projection name, where they differ from the layer's,
            such as {"query_dense": "mixed_bfloat16"}; None for no difference. Keyword only.
        empty_rows: result for queries that attend to no key: "zeros", or "keras" for Keras's rule.
            Layers from Keras's files have "keras". Keyword only.

    Call of the family:
        query_mask, value_mask, key_mask: masks of shapes (b, t), (b, s), (b, s); None for the
            masks of the inputs.
        attention_mask: a mask (t, s), (b, t, s) or (b, heads, t, s).
        return_attention_scores: whether to also return the attention weights (b, heads, t, s)
            before dropout.
        use_causal_mask: whether step t attends only to the steps up to t.
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        input_names=("query", "value", "key"),
        option_names=("query_mask", "value_mask", "key_mask", "attention_mask"),
        training_default=None,
        groups=fk.FrozenDict({"gate_dense": "_gate_dense"}),
    )

    dropout: fk.Real = fk.option(default=0.0, convert=fk.probability)
    use_bias: bool = fk.option(default=True, convert=fk.boolean)
    sliding_window: fk.OptionalInteger = fk.option(
        default=None, convert=fk.integer(minimum=1, optional=True)
    )
    flash_attention: bool | None = fk.option(
        default=None, convert=fk.either(fk.boolean, optional=True)
    )
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    kernel_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    activity_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    kernel_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    use_gate: bool = fk.option(default=False, convert=fk.boolean)
    seed: fk.OptionalInteger = fk.option(default=None, convert=fk.integer(optional=True))

    #: configurations of `fk.quantizers` by field of the projection, or one for all projections
    quantization: Any = fk.option(default=None, convert=quantization_of, kw_only=True)
    #: dtype policies of projections by field, where they differ from the layer's
    projection_dtypes: Any = fk.option(default=None, convert=dtypes_of, kw_only=True)
    #: result for queries that attend to no key: zeros, or Keras's result
    empty_rows: str = fk.option(default="zeros", convert=fk.choice("zeros", "keras"), kw_only=True)

    query_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    key_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    gate_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    value_dense: EinsumDense | None = dataclasses.field(default=None, init=False)
    output_dense: EinsumDense | None = dataclasses.field(default=None, init=False)

    #: letters of the kernels: "d" features, "h" heads, "g" heads of keys and values, "k" in a head
    kernel_axes: ClassVar[Mapping[str, str]] = fk.FrozenDict(
        dict.fromkeys(("query_dense", "key_dense", "gate_dense", "value_dense"), "dhk")
    )
    supports_masking: ClassVar[bool] = True
    #: whether Keras's layer removes the masks of its inputs, so that later calls lack them
    detaches_masks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        # one mode for all projections also names the gate, which may not exist
        if self.quantization and not self.use_gate:
            configs = {name: q for name, q in self.quantization.items() if name != "gate_dense"}
            object.__setattr__(self, "quantization", fk.FrozenDict(configs) or None)
        if self.flash_attention and self.dropout > 0:
            raise ValueError(
                f"{self._where}: expected dropout=0 beside flash_attention=True, received "
                f"{self.dropout}. The fused kernel has no dropout: turn off one of the two."
            )

    def projections(self, query: fk.Spec, value: fk.Spec, key: fk.Spec) -> Mapping[str, tuple]:
        """Returns for each child the unbuilt layer, and the shape to build it for."""
        raise NotImplementedError

    @property
    def axis_names(self) -> fk.AxisNames:
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
            for weight_name, axes in fk.weight_letters(child).items():
                letters_by_path[f"{name}/{weight_name}"] = axes.translate(renamed)
        roles = fk.FrozenDict({"h": "heads", "g": "kv_heads"})
        return fk.AxisNames(fk.FrozenDict(letters_by_path), roles, output="...d")

    def axes_of_attention(self, rank: int) -> tuple[int, ...]:
        """Returns the axes, of `rank` axes of an input, that attention runs over."""
        raise NotImplementedError

    @property
    def query_scale(self) -> float:
        """Factor of the scores."""
        raise NotImplementedError

    def build(
        self,
        key: jax.Array,
        query: fk.Spec,
        value: fk.Spec | None = None,
        source: fk.Spec | None = None,
    ) -> Self:
        value = self._checked(query, value)
        projections = self.projections(query, value, value if source is None else source)
        children = {
            name: self._coded(name, layer).build(fk.subkey(key, name), shape)
            for name, (layer, shape) in projections.items()
        }
        return self.replace(**children, _built=True)

    def _coded(self, name: str, layer: EinsumDense) -> fk.Layer:
        # policy first: a quantized layer wraps the layer with its final dtype
        policy = (self.projection_dtypes or {}).get(name)
        layer = layer if policy is None else layer.replace(dtype=policy)
        config = (self.quantization or {}).get(name)
        return layer if config is None else QuantizedDense.kind_for(config)(layer, config)

    def _unbuilt(self) -> Self:
        """Returns a copy without weights, and without the layers that hold them."""
        return self.replace(**dict.fromkeys(PROJECTIONS), _built=False)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data, quantization as a policy map."""
        config = without_default_rows(super().get_config())
        # Keras has no such arguments: its `dtype` may be a map from layer paths to policies
        del config["quantization"], config["projection_dtypes"]
        if self.quantization or self.projection_dtypes:
            projection_maps = self.quantization or {}, self.projection_dtypes or {}
            config["dtype"] = policy_map(self._where, self.name, self.dtype, *projection_maps)
        return config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Reads the configuration that `get_config` wrote; `custom_objects` holds user classes."""
        return super().from_config(read_policy_map(cls.__name__, config), custom_objects)

    # Keras's call takes query, value and key by name; `key` is also the PRNG key of JAX
    @overload
    def __call__(
        self,
        query: fk.Tensor,
        value: fk.Field = None,
        key: jax.Array | None = None,
        *more: fk.Tree,
        mask: fk.Tree = None,
        **options: fk.Option,
    ) -> fk.Tensor: ...

    @overload
    def __call__(
        self,
        query: fk.Tree = None,
        value: fk.Field = None,
        key: jax.Array | None = None,
        *more: fk.Tree,
        mask: fk.Tree = None,
        **options: fk.Option,
    ) -> jax.Array: ...

    def __call__(self, *inputs: fk.Tree, key: jax.Array | None = None, **options: fk.Option) -> Any:
        """Computes the value of the layer on query, value and an optional key.

        The tensors may come by name; a `key` that is a PRNG key is the key of the call.
        """
        inputs, key, options = _by_position(self._where, inputs, key, options)
        return super().__call__(*inputs, key=key, **options)

    def apply(
        self, *inputs: fk.Tree, key: jax.Array | None = None, **options: fk.Option
    ) -> fk.Output:
        """Returns the `Output` of the layer on query, value and an optional key."""
        inputs, key, options = _by_position(self._where, inputs, key, options)
        return super().apply(*inputs, key=key, **options)

    def forward(
        self,
        context: fk.Context,
        query: jax.Array,
        value: jax.Array | None = None,
        source: jax.Array | None = None,
        *,
        query_mask: fk.Mask = None,
        value_mask: fk.Mask = None,
        key_mask: fk.Mask = None,
        attention_mask: fk.Mask = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> fk.Output:
        """Computes the `Output`; `source` is the tensor that Keras calls `key`, by default `value`."""
        value = self._checked(query, value)
        masks = self._input_masks(context, query_mask, value_mask, key_mask, source is not None)
        source = value if source is None else source
        check_steps(self._where, value.shape, source.shape)
        if self.detaches_masks:
            context.detach_masks(query, value, source)
        inputs = {"query_dense": query, "key_dense": source, "value_dense": value}
        if self.gate_dense is not None:
            inputs["gate_dense"] = query
        projected = {name: self._project(context, name, x) for name, x in inputs.items()}
        sizes = query.shape, value.shape
        attended, scores = self._attend(
            context,
            projected,
            sizes,
            masks,
            attention_mask,
            return_attention_scores,
            use_causal_mask,
        )
        if self.gate_dense is not None:
            attended = attended * projected["gate_dense"].value
        output = self._project(context, "output_dense", attended)
        losses = tuple(loss for out in (*projected.values(), output) for loss in out.losses)
        if return_attention_scores:
            return fk.Output((output.value, scores), losses=losses, mask=(masks[0], None))
        return fk.Output(output.value, losses=losses, mask=masks[0])

    def _attend(
        self,
        context: fk.Context,
        projected: Mapping[str, fk.Output],
        sizes: tuple[tuple[int, ...], tuple[int, ...]],
        masks: tuple[fk.Mask, fk.Mask, fk.Mask],
        attention_mask: fk.Mask,
        with_scores: bool,
        is_causal: bool,
    ) -> tuple[jax.Array, jax.Array | None]:
        """Returns the means of values for each head, and the attention weights where a path has them.

        Args:
            sizes: the shapes of query and value before their projection.
        """
        if self.flash_attention and with_scores:
            raise ValueError(
                f"{self._where}: expected flash_attention=None or False where scores are returned, "
                "received True. The fused kernel does not compute the scores: turn off one of the two."
            )
        rank = len(sizes[0])
        axes = self.axes_of_attention(rank)
        # the fused kernels of one axis apply the order of steps
        in_order = rank == 3 and not with_scores
        order = is_causal and not in_order, self.sliding_window

        def mask_of(take: Take) -> jax.Array | None:
            return score_mask(self._where, *sizes, axes, masks, attention_mask, *order, take)

        heads = [projected[name].value for name in ("query_dense", "key_dense", "value_dense")]
        q, k, v = self._of_one_dtype(heads)
        drops = self.dropout > 0 and context.training
        key = context.seeded_key(self.seed) if drops else None
        if in_order:
            y = dot_product_attention(
                q,
                k,
                v,
                mask=mask_of,
                scale=self.query_scale,
                is_causal=is_causal,
                flash_attention=self.flash_attention,
                # Keras's rule applies only here: its other computations give zero weights
                empty_rows=self.empty_rows if self.dropout == 0 else "zeros",
                pairs=self._pairs(sizes, masks, attention_mask),
                drop=None if key is None else (key, self.dropout),
            )
            return y, None
        mask, scale = mask_of(whole), self.query_scale
        if key is None and not with_scores:
            return attend(q, k, v, mask, None, scale, axes), None

        drop = None if key is None else lambda weights: dropout(key, weights, self.dropout)
        return attend_with_weights(q, k, v, mask, None, scale, axes, drop)

    def _pairs(
        self, sizes: tuple[Any, Any], masks: tuple[Any, Any, Any], attention_mask: fk.Mask
    ) -> Pairs | None:
        """Returns the pairs that the masks of a call allow, without their order; None for arrays."""
        if attention_mask is not None:
            return None
        reach = math.inf if self.sliding_window is None else self.sliding_window - 1
        query, *keys = (None if mask is None else as_booleans(mask) for mask in masks)
        (rows, length, *_), (_, steps, *_) = sizes
        return Pairs((reach, reach)).only(query, both(*keys), (rows, length, steps))

    def _input_masks(
        self,
        context: fk.Context,
        query_mask: fk.Mask,
        value_mask: fk.Mask,
        key_mask: fk.Mask,
        has_source: bool,
    ) -> tuple[fk.Mask, fk.Mask, fk.Mask]:
        """Returns the masks of query, value and key: explicit masks, else those of the inputs."""
        masks = context.input_masks(3)
        if self.detaches_masks and context.attached is not None:
            query_mask = None  # Keras's layer uses the attached mask instead
        return (
            masks[0] if query_mask is None else query_mask,
            masks[1] if value_mask is None else value_mask,
            (masks[2] if has_source else None) if key_mask is None else key_mask,
        )

    def _of_one_dtype(self, arrays: list[jax.Array]) -> list[jax.Array]:
        """Casts arrays of projections with different policies, which strict promotion would reject."""
        if not self.projection_dtypes:
            return arrays
        with jax.numpy_dtype_promotion("standard"):
            common = jnp.result_type(*(array.dtype for array in arrays))
        return [array.astype(common) for array in arrays]

    def _project(self, context: fk.Context, name: str, x: jax.Array) -> fk.Output:
        return context.child(name).run(getattr(self, name), x)

    def _checked(self, query: Shaped, value: Shaped | None) -> Shaped:
        """Returns the value, after the checks of the ranks."""
        if value is None:
            raise ValueError(
                f"{self._where}: expected query and value, received one input. For self-attention "
                "write layer(x, x)."
            )
        if query.ndim < 3 or value.ndim != query.ndim:
            shapes = f"{format_shape(query.shape)} and {format_shape(value.shape)}"
            raise ValueError(
                f"{self._where}: expected query and value of shapes (b, t, d) and (b, s, f), or "
                f"both of one higher rank, received {shapes}. Add the missing axis, or reshape."
            )
        return value


def projection(rank: int, summed: int, sizes: Sequence[Any], **options: fk.Option) -> EinsumDense:
    """Returns the layer that maps the last `summed` of `rank` axes to axes of `sizes`."""
    letters = string.ascii_lowercase
    free, inner = letters[: rank - summed], letters[rank - summed : rank]
    outer = letters[rank : rank + len(sizes)]
    shape = (*(None,) * (len(free) - 1), *sizes)
    bias = outer if options.pop("use_bias", False) else None
    equation = f"{free}{inner},{inner}{outer}->{free}{outer}"
    return EinsumDense(equation, shape, bias_axes=bias, **options)


def projection_options(layer: ProjectedAttention) -> dict[str, Any]:
    """Returns the arguments that every projection takes from its layer."""
    names = (
        "use_bias",
        "kernel_initializer",
        "bias_initializer",
        "kernel_regularizer",
        "bias_regularizer",
        "kernel_constraint",
        "bias_constraint",
        "trainable",
        "dtype",
    )
    return {name: getattr(layer, name) for name in names}


def _by_position(
    where: str, inputs: tuple, named_key: fk.Leaf, options: Mapping[str, Any]
) -> tuple[tuple, jax.Array | None, dict[str, Any]]:
    """Returns `(inputs, PRNG key, options)` with named query, value and key as positions.

    Args:
        named_key: the argument `key` of a call: in Keras the third tensor, in JAX the PRNG key.
    """
    options = dict(options)
    names = ("query", "value", "key")
    named = {name: options.pop(name) for name in names[:2] if name in options}
    # the dtype decides which of the two a key is
    dtype = getattr(named_key, "dtype", None)
    is_random = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    is_tensor = is_symbolic(named_key) or (dtype is not None and not is_random)
    if is_tensor:
        named["key"] = named_key
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
    return inputs, None if is_tensor else named_key, options
