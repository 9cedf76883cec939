"""`MixtureOfExperts`: gated feed-forward networks, of which each token uses a few."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.nn.experts import ExpertKernels, balance, expert_products, route
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.dtypes import wide_dtype


class MixtureOfExperts(fk.Layer):
    """Computes gated feed-forward networks, of which a router chooses `top_k` for each token.

    With the probabilities `p = softmax(x @ router_kernel)`, the output is the sum over the `top_k` most
    probable experts of `p * (activation(x @ gate_kernel) * (x @ up_kernel)) @ down_kernel`, with the
    kernels of the expert. Only the chosen experts are computed, with `jax.lax.ragged_dot`, or with a
    loop on CPUs.

    The router computes in float32, or in float64 for inputs of float64, and its weights are float32 with every
    dtype policy: with rounded logits a token would choose other experts.

    An expert that all tokens use is a feed-forward network beside this layer:
    `layers.Add()([experts(x), down(layers.Multiply()([gate(x), up(x)]))])`.

    Args:
        num_experts: number `e` of experts.
        hidden_dim: size `f` between the products of an expert.
        top_k: number of experts for each token.
        activation: activation function of the gate, or its name.
        renormalize: whether the probabilities of the chosen experts are divided by their sum.
        load_balancing: factor of the load balancing loss, which the layer records for each call; 0
            records none. Tokens that a mask excludes do not count.
        kernel_initializer: draws the kernels, each expert's separately.
        router: "softmax", or "sigmoid" for an independent probability of each expert.
        corrected: whether a weight `router_bias` is added to the probabilities for the choice of the experts, and not
            to their weights. Its gradient is 0: a rule of its own may balance the experts.
        groups: number of groups of adjacent experts.
        top_groups: number of groups from which a token chooses its experts: those whose most probable expert, or with
            `corrected` the sum of the two most probable, is largest.
        weighted_inputs: whether the probabilities multiply the inputs of the chosen experts, as in Llama 4, instead of
            their outputs.
        use_bias: whether biases are added to the logits of the router, and to the three products of an expert.
        limit: bound of the two hidden products, after their biases: `x @ gate_kernel` becomes at most `limit`, and
            `x @ up_kernel` is clipped to `-limit` and `limit`; None for no bound.
        gate_scale: factor `a` of the activation, `activation(a * y) / a`: `y * sigmoid(a * y)` for "silu".
        up_offset: number that is added to `x @ up_kernel` after its bias and `limit`.

    Shapes:
        (b, ..., d) -> (b, ..., d); router_kernel (d, e), gate_kernel and up_kernel (e, d, f),
        down_kernel (e, f, d), router_bias and logit_bias (e,), gate_bias and up_bias (e, f), down_bias (e, d).

    Raises:
        ValueError: for sizes that are not positive integers, a `top_k` above `num_experts` or above the experts of
            `top_groups`, `groups` that do not divide `num_experts`, a negative `load_balancing`, a `limit` or a
            `gate_scale` of 0 or less, or an input whose last axis has another size than `d`.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.MixtureOfExperts(8, 16, top_k=2, load_balancing=0.01)
        >>> layer = layer.build(jax.random.key(0), (None, None, 4))
        >>> out = layer.apply(jnp.ones((2, 5, 4)))
        >>> out.value.shape, len(out.losses)
        ((2, 5, 4), 1)

    References:
        Shazeer et al., Outrageously large neural networks (2017), https://arxiv.org/abs/1701.06538
        Fedus, Zoph and Shazeer, Switch transformers (2021), https://arxiv.org/abs/2101.03961
        DeepSeek-AI, DeepSeek-V3 technical report (2024), https://arxiv.org/abs/2412.19437
        OpenAI, gpt-oss-120b & gpt-oss-20b model card (2025), https://arxiv.org/abs/2508.10925
    """

    num_experts: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    hidden_dim: fk.Integer = fk.option(convert=fk.integer(minimum=1))
    top_k: fk.Integer = fk.option(default=2, convert=fk.integer(minimum=1))
    activation: fk.Activation = fk.option(default="silu", convert=fk.activation)
    renormalize: bool = fk.option(default=True, convert=fk.boolean)
    load_balancing: fk.Real = fk.option(default=0.0, convert=fk.real(minimum=0))
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    router: str = fk.option(default="softmax", convert=fk.choice("softmax", "sigmoid"))
    corrected: bool = fk.option(default=False, convert=fk.boolean)
    groups: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    top_groups: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    weighted_inputs: bool = fk.option(default=False, convert=fk.boolean)
    use_bias: bool = fk.option(default=False, convert=fk.boolean)
    limit: fk.OptionalReal = fk.option(default=None, convert=fk.real(above=0, optional=True))
    gate_scale: fk.Real = fk.option(default=1.0, convert=fk.real(above=0))
    up_offset: fk.Real = fk.option(default=0.0, convert=fk.real())

    router_kernel: jax.Array = fk.weight(prefix="kernel", dtype="float32", axes="de")
    gate_kernel: jax.Array = fk.weight(prefix="expert", axes="edf")
    up_kernel: jax.Array = fk.weight(prefix="expert", axes="edf")
    down_kernel: jax.Array = fk.weight(prefix="expert", axes="efd")
    router_bias: jax.Array | None = fk.weight(prefix="bias", dtype="float32", axes="e")
    logit_bias: jax.Array | None = fk.weight(prefix="bias", dtype="float32", axes="e")
    gate_bias: jax.Array = fk.weight(prefix="bias", axes="ef")
    up_bias: jax.Array = fk.weight(prefix="bias", axes="ef")
    down_bias: jax.Array = fk.weight(prefix="bias", axes="ed")

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(quantized_as="QuantizedMixtureOfExperts")
    supports_masking: ClassVar[bool] = True
    # the experts of a token depend on that token alone, although tokens are sorted by expert
    separate_positions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top_k > self.num_experts:
            raise ValueError(
                f"{self._where}: expected top_k of at most num_experts={self.num_experts}, received "
                f"{self.top_k}. A token can use each expert once."
            )
        size = self.num_experts // self.groups
        if self.num_experts % self.groups or (self.corrected and self.groups > 1 and size < 2):
            raise ValueError(
                f"{self._where}: groups: expected a divisor of num_experts={self.num_experts}, with at least two "
                f"experts in a corrected group, received {self.groups}."
            )
        if self.top_groups > self.groups or self.top_k > self.top_groups * size:
            raise ValueError(
                f"{self._where}: top_groups: expected at most groups={self.groups}, with at least top_k={self.top_k} "
                f"experts together, received {self.top_groups} groups of {size} experts."
            )

    @property
    def axis_names(self) -> fk.AxisNames:
        return fk.AxisNames(roles=fk.FrozenDict({"e": "experts", "f": "hidden"}), output="...d")

    @property
    def input_spec(self) -> fk.InputSpec:
        axes = {} if self.router_kernel is None else {-1: self.router_kernel.shape[0]}
        return fk.InputSpec(min_ndim=2, axes=axes)

    @property
    def expert_initializer(self) -> Any:
        """Draws a kernel for each expert: the axis of the experts is no input of a kernel."""

        def draw(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
            keys = jax.random.split(key, shape[0])
            return jax.vmap(lambda key: self.kernel_initializer(key, shape[1:], dtype))(keys)

        return draw

    @property
    def bias_initializer(self) -> fk.initializers.Initializer:
        """Initial value of the biases."""
        return fk.initializers.Zeros()

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        size = x.shape[-1]
        wide = (self.num_experts, size, self.hidden_dim)
        biases = {
            "logit_bias": (self.num_experts,),
            **dict.fromkeys(("gate_bias", "up_bias"), (self.num_experts, self.hidden_dim)),
            "down_bias": (self.num_experts, size),
        }
        return self.with_weights(
            key,
            router_kernel=(size, self.num_experts),
            gate_kernel=wide,
            up_kernel=wide,
            down_kernel=(self.num_experts, self.hidden_dim, size),
            router_bias=(self.num_experts,) if self.corrected else None,
            **(biases if self.use_bias else dict.fromkeys(biases)),
        )

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        kernels = map(ExpertKernels, (self.gate_kernel, self.up_kernel, self.down_kernel))
        return mixture(self, context, x, tuple(kernels))

    def _gated(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        if self.limit is not None:
            gate, up = jnp.minimum(gate, self.limit), jnp.clip(up, -self.limit, self.limit)
        activation, scale = self.activation or (lambda y: y), self.gate_scale
        gate = activation(gate) if scale == 1 else activation(scale * gate) / scale
        return gate * (up + self.up_offset if self.up_offset else up)

    def _token_mask(self, mask: fk.Mask, x: jax.Array) -> jax.Array | None:
        """Returns the mask with one entry for each token."""
        if mask is None:
            return None
        if mask.shape != x.shape[: mask.ndim] or mask.ndim >= x.ndim:
            raise ValueError(
                f"{self._where}: expected a mask of shape {format_shape(x.shape[:-1])}, received "
                f"{format_shape(mask.shape)}. A mask has an entry for each token."
            )
        shape = (*mask.shape, *(1,) * (x.ndim - 1 - mask.ndim))
        return jnp.broadcast_to(mask.reshape(shape), x.shape[:-1]).reshape(-1)


def mixture(
    layer: MixtureOfExperts, context: fk.Context, x: jax.Array, kernels: tuple[ExpertKernels, ...]
) -> fk.Output:
    """Computes the output of a layer with other kernels of the gates, of `up` and of `down` than its own."""
    tokens = x.reshape(-1, x.shape[-1])
    # `jax.tree.map` may have cast the weights of the router, too
    wide = wide_dtype(tokens.dtype)
    logits = tokens.astype(wide) @ layer.router_kernel.astype(wide)
    logits = logits if layer.logit_bias is None else logits + layer.logit_bias.astype(wide)[None]
    weights, chosen, probabilities = route(
        logits,
        layer.top_k,
        layer.renormalize,
        independent=layer.router == "sigmoid",
        bias=layer.router_bias,
        groups=layer.groups,
        top_groups=layer.top_groups,
    )
    biases = (layer.gate_bias, layer.up_bias, layer.down_bias) if layer.use_bias else None
    gate, up, down = kernels
    options = layer._gated, layer.weighted_inputs, biases
    y = expert_products(tokens, weights, chosen, gate, up, down, *options)
    losses = ()
    if layer.load_balancing:
        mask = layer._token_mask(context.mask, x)
        losses = (layer.load_balancing * balance(probabilities, chosen, mask),)
    return fk.Output(y.reshape(x.shape), losses=losses, mask=context.mask)
