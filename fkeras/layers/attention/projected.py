"""`ProjectedAttention`: base class of attention with heads: projections, masks, calls."""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self, overload

import jax
import jax.numpy as jnp

from fkeras import constraints, initializers, regularizers
from fkeras.engine import Context, Layer, Output, Spec, option, subkey
from fkeras.engine.call.node import is_symbolic
from fkeras.engine.config.converters import boolean, choice, either, integer, probability
from fkeras.engine.config.field_types import (
    Constraint,
    Initializer,
    OptionalInteger,
    Real,
    Regularizer,
)
from fkeras.engine.layer.keras_form import KerasForm
from fkeras.engine.layer.layer_types import Tensor
from fkeras.engine.tree.axes import AxisNames, weight_letters
from fkeras.engine.values.frozen import FrozenDict
from fkeras.layers.attention.score_masks import score_mask
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
from fkeras.nn.attention import attend, attend_with_weights, dot_product_attention
from fkeras.nn.noise import dropout
from fkeras.nn.numerics.axes import format_shape

PROJECTIONS = ("query_dense", "key_dense", "gate_dense", "value_dense", "output_dense")


class ProjectedAttention(Layer):
    """Projects query, key and value to heads, attends, and projects back.

    A subclass returns the projection layers from `projections`. The fields of its sizes come first in
    Keras's order of arguments: a base class on the right of this class declares them.

    Args of the family:
        dropout: probability of dropping an attention weight in training.
        use_bias: whether the projections have biases.
        sliding_window: number of steps in each direction, including the step itself, that a step
            attends to; None for all.
        flash_attention: whether to use cuDNN's fused kernel, which needs a GPU and a 16-bit float
            type; None is False. (Keras uses the kernel whenever possible.)
        kernel_initializer: draws the kernels.
        bias_initializer: draws the biases.
        kernel_regularizer: penalty on each kernel.
        bias_regularizer: penalty on each bias.
        activity_regularizer: penalty on the output of each projection, divided by the batch size.
        kernel_constraint: projection of the kernels after each update.
        bias_constraint: projection of the biases after each update.
        use_gate: whether to multiply the means by a sigmoid of an additional projection of the
            query.
        seed: folded into the key of each call; None uses the key alone.
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

    _keras_form: ClassVar[KerasForm] = KerasForm(
        input_names=("query", "value", "key"),
        option_names=("query_mask", "value_mask", "key_mask", "attention_mask"),
        training_default=None,
        groups=FrozenDict({"gate_dense": "_gate_dense"}),
    )

    dropout: Real = option(default=0.0, convert=probability)
    use_bias: bool = option(default=True, convert=boolean)
    sliding_window: OptionalInteger = option(
        default=None, convert=integer(minimum=1, optional=True)
    )
    flash_attention: bool | None = option(default=None, convert=either(boolean, optional=True))
    kernel_initializer: Initializer = option(default="glorot_uniform", convert=initializers.get)
    bias_initializer: Initializer = option(default="zeros", convert=initializers.get)
    kernel_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    bias_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    activity_regularizer: Regularizer = option(default=None, convert=regularizers.get)
    kernel_constraint: Constraint = option(default=None, convert=constraints.get)
    bias_constraint: Constraint = option(default=None, convert=constraints.get)
    use_gate: bool = option(default=False, convert=boolean)
    seed: OptionalInteger = option(default=None, convert=integer(optional=True))

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

    def __post_init__(self) -> None:
        super().__post_init__()
        # one mode for all projections also names the gate, which may not exist
        if self.quantization and not self.use_gate:
            configs = {name: q for name, q in self.quantization.items() if name != "gate_dense"}
            object.__setattr__(self, "quantization", FrozenDict(configs) or None)
        if self.flash_attention and self.dropout > 0:
            raise ValueError(
                f"{self._where}: expected dropout=0 beside flash_attention=True, received "
                f"{self.dropout}. The fused kernel has no dropout: turn off one of the two."
            )

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

    def __call__(self, *inputs: Any, key: Any = None, **options: Any) -> Any:
        """Computes the value of the layer on query, value and an optional key.

        The tensors may come by name; a `key` that is a PRNG key is the key of the call.
        """
        inputs, key, options = _by_position(self._where, inputs, key, options)
        return super().__call__(*inputs, key=key, **options)

    def apply(self, *inputs: Any, key: Any = None, **options: Any) -> Output:
        """Returns the `Output` of the layer on query, value and an optional key."""
        inputs, key, options = _by_position(self._where, inputs, key, options)
        return super().apply(*inputs, key=key, **options)

    def forward(
        self,
        context: Context,
        query: jax.Array,
        value: Any = None,
        source: Any = None,
        *,
        query_mask: Any = None,
        value_mask: Any = None,
        key_mask: Any = None,
        attention_mask: Any = None,
        return_attention_scores: bool = False,
        use_causal_mask: bool = False,
    ) -> Output:
        """Computes the `Output`; `source` is the tensor that Keras calls `key`, by default `value`."""
        self._check_inputs(query, value)
        masks = self._input_masks(context, query_mask, value_mask, key_mask, source is not None)
        source = value if source is None else source
        if self.detaches_masks:
            context.detach_masks(query, value, source)
        if self.flash_attention and return_attention_scores:
            raise ValueError(
                f"{self._where}: expected flash_attention=None or False where scores are returned, "
                "received True. The fused kernel does not compute the scores: turn off one of the two."
            )
        # Keras's rule for empty rows applies only here: its other paths give zero weights
        is_plain = query.ndim == 3 and self.dropout == 0 and not return_attention_scores
        axes = self.axes_of_attention(query.ndim)
        mask = score_mask(
            self._where,
            query.shape,
            value.shape,
            axes,
            masks,
            attention_mask,
            use_causal_mask and not is_plain,
            self.sliding_window,
        )
        inputs = {"query_dense": query, "key_dense": source, "value_dense": value}
        projected = [self._project(context, name, x) for name, x in inputs.items()]
        q, k, v = self._of_one_dtype([out.value for out in projected])
        drop = self._drop(context) if self.dropout > 0 and context.training else None
        scores = None
        if is_plain:
            y = dot_product_attention(
                q,
                k,
                v,
                mask=mask,
                scale=self.query_scale,
                is_causal=use_causal_mask,
                flash_attention=self.flash_attention,
                empty_rows=self.empty_rows,
            )
        elif return_attention_scores or drop is not None:
            y, scores = attend_with_weights(q, k, v, mask, None, self.query_scale, axes, drop)
        else:
            y = attend(q, k, v, mask, None, self.query_scale, axes)
        if self.gate_dense is not None:
            gate = self._project(context, "gate_dense", query)
            y, projected = y * gate.value, [*projected, gate]
        output = self._project(context, "output_dense", y)
        losses = tuple(loss for out in (*projected, output) for loss in out.losses)
        if return_attention_scores:
            return Output((output.value, scores), losses=losses, mask=(masks[0], None))
        return Output(output.value, losses=losses, mask=masks[0])

    def _input_masks(
        self, context: Context, query_mask: Any, value_mask: Any, key_mask: Any, has_source: bool
    ) -> tuple[Any, Any, Any]:
        """Returns the masks of query, value and key: explicit masks, else those of the inputs."""
        masks = context.mask if isinstance(context.mask, list | tuple) else (context.mask,)
        masks = (*masks, None, None)
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

    def _project(self, context: Context, name: str, x: jax.Array) -> Output:
        return context.child(name).run(getattr(self, name), x)

    def _drop(self, context: Context) -> Callable[[jax.Array], jax.Array]:
        dropout_key = context.key if self.seed is None else subkey(context.key, self.seed)
        return lambda weights: dropout(dropout_key, weights, self.dropout)

    def _check_inputs(self, query: Any, value: Any) -> None:
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


def projection_options(layer: ProjectedAttention) -> dict[str, Any]:
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
