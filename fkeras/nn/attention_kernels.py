"""Attention by the kernel of the platform for which a program is lowered.

JAX's splash attention computes long sequences on TPUs, cuDNN long and short sequences on GPUs. Elsewhere blocks
of queries compute long sequences, and products of whole arrays short sequences. Kernels take no array with an entry
for each query and each key: `Pairs` describes the mask by numbers for each token.

A primitive holds the choice, as in `fkeras.nn.cpu.forms`: `jax.lax.platform_dependent` would leave kernels,
which have no forward-mode derivatives, in the programs of all platforms. The reverse-mode gradient has
kernels, too. Other derivatives are those of the program without a kernel, on all platforms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

from fkeras.nn.attention import attend, of_keys
from fkeras.nn.attention_blocks import ALL, Band, Take, by_blocks, whole
from fkeras.nn.cpu.forms import has_typed_axes
from fkeras.nn.numerics.dtypes import wide_dtype

CAUSAL: Band = (math.inf, 0)

# numbers of tokens that belong to no segment; they differ, so that these tokens attend to nothing
_NO_KEY, _NO_QUERY = -(2**31), -(2**31) + 1
# queries and keys of a block in splash attention: a smaller block does not fill the matrix unit
_BLOCK, _LANES = 512, 128
# the largest size of heads whose blocks fit into the memory of a TPU's core
_WIDTH = 256
_TPU_DTYPES = ("float32", "bfloat16")
_GPU_DTYPES = ("float16", "bfloat16")
# queries and keys of a block of cuDNN's kernel: shorter sequences fill no block
_GPU_BLOCK = 128
# the precisions of products that Pallas compiles for TPUs
_PRECISIONS = (None, "default", "bfloat16", "float32", "highest")


class Pairs(NamedTuple):
    """The pairs of queries and keys that attend, without an array of all pairs.

    A query attends to the keys of its segment within the band.

    Attributes:
        band: the number of earlier and of later positions that a query may attend to.
        query_ids: int32 (b, t), the segment of each query; None for one segment.
        key_ids: int32 (b, s), the segment of each key; None together with `query_ids`.
        positions: integers (b, t), positions of queries and keys, which increase within a segment and
            are negative at tokens without a segment; None for the indices of the tokens.
    """

    band: Band = ALL
    query_ids: jax.Array | None = None
    key_ids: jax.Array | None = None
    positions: jax.Array | None = None

    @property
    def indices(self) -> Band:
        """The number of keys before and after the index of a query that may be among its keys."""
        if self.positions is None:
            return self.band
        # positions increase in a segment, but tokens of other segments may be between
        return math.inf, 0 if self.band[1] == 0 else math.inf

    def only(self, query: Any, key: Any, shape: tuple[Any, Any, Any]) -> Pairs:
        """Returns the pairs of the tokens that no mask excludes.

        Args:
            query: Booleans (b or 1, t), False for queries that attend to nothing; None for no mask.
            key: Booleans (b or 1, s), False for keys that no query attends to; None for no mask.
            shape: b, t and s.
        """
        if query is None and key is None:
            return self
        ids = []
        for own, mask, size, number in (
            (self.query_ids, query, shape[1], _NO_QUERY),
            (self.key_ids, key, shape[2], _NO_KEY),
        ):
            own = jnp.zeros((shape[0], size), "int32") if own is None else own
            ids.append(own if mask is None else jnp.where(mask, own, jnp.full_like(own, number)))
        return self._replace(query_ids=ids[0], key_ids=ids[1])


@dataclasses.dataclass(frozen=True)
class Call:
    """The static description of a call: a parameter of the primitive.

    The operands are query, key, value, with `has_sinks` the sinks (b, heads), then the arrays of the pairs.

    Attributes:
        band: as in `Pairs`.
        has_ids: whether the pairs have segments.
        has_positions: whether the pairs have positions.
        scale: factor of the logits.
        soft_cap: bound c of the logits, which become `c * tanh(logits / c)`; None for none.
        precision: JAX's default precision of products.
        has_sinks: whether each head has one more logit, as in `attend`.
        short: whether the sequences are not long: then cuDNN is the only kernel, and the computation without a
            kernel multiplies whole arrays.
    """

    band: Band = ALL
    has_ids: bool = False
    has_positions: bool = False
    scale: float = 1.0
    soft_cap: float | None = None
    precision: str | None = None
    has_sinks: bool = False
    short: bool = False

    @property
    def differentiable(self) -> int:
        """The number of operands with derivatives, which precede the arrays of the pairs."""
        return 3 + self.has_sinks

    @property
    def number(self) -> int:
        """The number of operands."""
        return self.differentiable + 2 * self.has_ids + self.has_positions

    def pairs(self, operands: Sequence[Any]) -> Pairs:
        """Returns the pairs of a call with these operands."""
        query_ids, key_ids = operands[self.differentiable :][:2] if self.has_ids else (None, None)
        positions = operands[self.number - 1] if self.has_positions else None
        return Pairs(self.band, query_ids, key_ids, positions)

    def kernel(self, platform: str, query: Any, key: Any, value: Any) -> str | None:
        """Returns the kernel of a platform that supports the arrays, "splash" or "cudnn", or None.

        Args:
            query: array (b, t, heads, d), or its shape and dtype; `key` and `value` likewise.

        Example:
            >>> x = jnp.ones((1, 4096, 8, 64), "bfloat16")
            >>> Call(CAUSAL).kernel("tpu", x, x, x), Call(CAUSAL).kernel("cpu", x, x, x)
            ('splash', None)
        """
        sizes = (*query.shape, key.shape[1], value.shape[3])
        if not all(isinstance(n, int) and n > 0 for n in sizes):
            return None
        if not query.dtype == key.dtype == value.dtype:
            return None
        if platform == "tpu":
            fits = query.dtype.name in _TPU_DTYPES and self.precision in _PRECISIONS
            fits = fits and not self.short
            return "splash" if fits and max(query.shape[3], value.shape[3]) <= _WIDTH else None
        if platform not in ("gpu", "cuda") or query.dtype.name not in _GPU_DTYPES:
            return None
        # cuDNN limits the band of causal attention only, and only on the side of earlier keys
        causal = self.band[1] == 0 and query.shape[1] == key.shape[1]
        fits = (causal or self.band == ALL) and self.soft_cap is None and not self.has_sinks
        fits = fits and query.shape[3] == value.shape[3]
        if self.short:
            # a choice while the program runs costs more than whole arrays
            fits = fits and not self.has_ids and not self.has_positions
            fits = fits and min(query.shape[1], key.shape[1]) >= _GPU_BLOCK
        return "cudnn" if fits and query.shape[3] % 8 == 0 and query.shape[3] <= 128 else None

    def mask_of(self, operands: Sequence[jax.Array], take: Take) -> jax.Array | None:
        """Returns the mask (b or 1, 1, n, s) of the queries that `take` selects; None for all True."""
        pairs, allowed = self.pairs(operands), []
        if pairs.query_ids is not None and pairs.key_ids is not None:
            allowed.append(take(pairs.query_ids, 1)[:, :, None] == pairs.key_ids[:, None])
        query, key = (jnp.arange(x.shape[1])[None] for x in operands[:2])
        if pairs.positions is not None:
            query = key = pairs.positions
        before, after = self.band
        distance = key[:, None] - take(query, 1)[:, :, None]
        if before < math.inf:
            allowed.append(distance >= -int(before))
        if after < math.inf:
            allowed.append(distance <= int(after))
        return functools.reduce(jnp.logical_and, allowed)[:, None] if allowed else None


def has_short_kernel(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: Pairs,
    soft_cap: float | None,
    has_sinks: bool,
) -> bool:
    """Returns whether a platform has a kernel for sequences that are not long; arguments as for `Call`."""
    arrays = pairs.query_ids is not None, pairs.positions is not None
    call = Call(pairs.band, *arrays, soft_cap=soft_cap, has_sinks=has_sinks, short=True)
    return call.kernel("gpu", query, key, value) is not None


def attend_by_kernel(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    pairs: Pairs,
    scale: float,
    soft_cap: float | None = None,
    sinks: jax.Array | None = None,
    short: bool = False,
) -> jax.Array:
    """Computes attention by the kernel of the platform, else by blocks of queries, or of whole arrays if short.

    Args:
        query: array of shape (b, t, heads, d).
        key: array of shape (b, s, groups, d).
        value: array of shape (b, s, groups, f).
        soft_cap: as in `Call`.
        sinks: array of shape (1, heads), as for `attend`.
        short: as in `Call`.

    Returns:
        An array of shape (b, t, heads, f), 0 for queries that attend to no key.
    """
    if sinks is not None:
        # each row of the batch has its sinks: `jax.vmap` makes the batch longer
        sinks = jnp.broadcast_to(sinks, (query.shape[0], sinks.shape[1]))
    arrays = sinks, pairs.query_ids, pairs.key_ids, pairs.positions
    operands = (query, key, value, *(x for x in arrays if x is not None))
    has_ids, has_positions = pairs.query_ids is not None, pairs.positions is not None
    config: Any = jax.config  # JAX declares its flags at run time
    precision = config.jax_default_matmul_precision
    settings = float(scale), soft_cap, precision, sinks is not None
    call = Call(pairs.band, has_ids, has_positions, *settings, short)
    if has_typed_axes(*operands) or not any(call.kernel(p, *operands[:3]) for p in ("tpu", "gpu")):
        return _without_kernel(*operands, call=call, role="value")[0]
    return _bind(call, "value", *operands)[0]


# -- computations of a role: the value, the value whose gradient follows ("forward"), the tangent, the gradients


def _without_kernel(*operands: jax.Array, call: Call, role: str) -> list[jax.Array]:
    """Computes a role on every platform.

    A tangent takes those of query, key, value and sinks after the operands, gradients that of the value.
    """
    heads, rest = operands[: call.differentiable], operands[call.number :]

    def value(
        query: jax.Array, key: jax.Array, value: jax.Array, sinks: jax.Array | None = None
    ) -> jax.Array:
        def compute(take: Take, keys: slice, rows: jax.Array, _: jax.Array | None) -> jax.Array:
            mask = of_keys(call.mask_of(operands, take), keys)
            arguments = rows, key[:, keys], value[:, keys], mask, None, call.scale
            return attend(*arguments, soft_cap=call.soft_cap, sinks=sinks)

        if call.short:
            return compute(whole, slice(None), query, None)
        return by_blocks(compute, query, key.shape[1], band=call.pairs(operands).indices)

    return _role(value, role, heads, rest)


def _role(
    value: Callable[..., jax.Array], role: str, heads: Sequence[jax.Array], rest: Sequence[Any]
) -> list[jax.Array]:
    if role == "value":
        return [value(*heads)]
    if role == "tangent":
        return [jax.jvp(value, tuple(heads), tuple(rest))[1]]
    # XLA merges the value before its gradients with the value that the gradients compute again
    y, transposed = jax.vjp(value, *heads)
    return [y] if role == "forward" else list(transposed(*rest))


def by_splash(
    *operands: jax.Array, call: Call, role: str, interpret: bool = False
) -> list[jax.Array]:
    """Computes the value or the gradients by JAX's splash attention, the kernel of TPUs.

    Args:
        *operands: query, key, value, sinks, the arrays of the pairs, and the gradient of the value.
        role: "value" or "gradient".
        interpret: whether to interpret the kernel, which every platform does.
    """
    # Pallas takes .1 s to import
    from jax.experimental.pallas.ops.tpu import splash_attention as splash

    heads, pairs = operands[: call.differentiable], call.pairs(operands)
    query, key = heads[:2]
    (rows, length, count, _), keys = query.shape, key.shape[1]
    q_size, k_size = (min(_BLOCK, -(-n // _LANES) * _LANES) for n in (length, keys))
    q_rest, k_rest = -length % q_size, -keys % k_size
    ids = pairs.query_ids, pairs.key_ids
    if ids[0] is None and k_rest:
        ids = tuple(jnp.zeros((rows, n), "int32") for n in (length, keys))
    segments = None
    if ids[0] is not None and ids[1] is not None:
        # a query of the padding has the gradient 0, so its segment has no meaning
        q_ids = jnp.pad(ids[0], ((0, 0), (0, q_rest)))
        k_ids = jnp.pad(ids[1], ((0, 0), (0, k_rest)), constant_values=_NO_KEY)
        segments = splash.SegmentIds(q_ids, k_ids)
    shape = length + q_rest, keys + k_rest
    before, after = (None if n == math.inf else int(n) for n in call.band)
    band = splash.FullMask(shape)
    if (before, after) != (None, None):
        band = splash.LocalMask(shape, (before, after), 0)
    sizes = dict.fromkeys(("block_q", "block_q_dkv", "block_q_dq"), q_size)
    names = "block_kv", "block_kv_compute", "block_kv_dkv", "block_kv_dkv_compute", "block_kv_dq"
    sizes |= dict.fromkeys(names, k_size)

    kernel: Any = splash.make_splash_mha(
        splash.MultiHeadMask([band] * count),
        block_sizes=splash.BlockSizes(**sizes),
        head_shards=1,
        q_seq_shards=1,
        attn_logits_soft_cap=call.soft_cap,
        interpret=interpret,
    )

    def value(
        query: jax.Array, key: jax.Array, value: jax.Array, sinks: jax.Array | None = None
    ) -> jax.Array:
        query = (query.astype(wide_dtype(query.dtype)) * call.scale).astype(query.dtype)
        # JAX's gradient of the sinks has the dtype of the query
        sinks = None if sinks is None else sinks.astype(query.dtype)
        padded = (
            jnp.pad(jnp.swapaxes(x, 1, 2), ((0, 0), (0, 0), (0, rest), (0, 0)))
            for x, rest in zip((query, key, value), (q_rest, k_rest, k_rest), strict=True)
        )
        return jnp.swapaxes(jax.vmap(kernel)(*padded, segments, sinks), 1, 2)[:, :length]

    # one line for both roles: XLA merges the two calls of the kernel if their source is the same
    y, transposed = jax.vjp(value, *heads)
    present = _present(call, operands)
    result = y if role == "value" else operands[call.number]
    if present is not None:
        # numbers of rows without keys are finite or NaN, and reach no other row
        result = jnp.where(present[:, :, None, None], result, jnp.zeros_like(result))
    return [result] if role == "value" else list(transposed(result))


def _present(call: Call, operands: Sequence[jax.Array]) -> jax.Array | None:
    """Returns whether a query attends to a key, (b or 1, t); None if each query does."""
    pairs, own = call.pairs(operands), operands[0].shape[1] == operands[1].shape[1]
    own = own and call.band[0] >= 0 and call.band[1] >= 0
    if pairs.query_ids is None and (own or call.band == ALL):
        return None
    if own and pairs.positions is not None:
        # queries and keys are the same tokens
        return pairs.query_ids == pairs.key_ids
    mask = call.mask_of(operands, whole)
    return None if mask is None else jnp.any(mask, axis=-1)[:, 0]


def _by_cudnn(*operands: jax.Array, call: Call, role: str) -> list[jax.Array]:
    """Computes the value or the gradients by cuDNN, for rows of one segment."""

    def value(*heads: jax.Array) -> jax.Array:
        before, after = call.band
        return jax.nn.dot_product_attention(
            *heads,
            scale=call.scale,
            is_causal=after == 0,
            local_window_size=None if before == math.inf else (int(before), 0),
            implementation="cudnn",
        )

    # both roles call the kernel that also returns the sums for the gradient: XLA merges the two calls
    y, transposed = jax.vjp(value, *operands[:3])
    return list(transposed(operands[call.number])) if role == "gradient" else [y]


def _cudnn_program(call: Call, role: str, operands: Sequence[Any]) -> Any:
    """Returns the program of `_by_cudnn`; None if cuDNN does not compute the call, or is not installed."""
    if role == "tangent" or call.kernel("cuda", *operands[:3]) is None:
        return None
    try:
        return jax.make_jaxpr(functools.partial(_by_cudnn, call=call, role=role))(*operands)
    except (NotImplementedError, RuntimeError, ValueError):
        return None


def _are_new(devices: Any) -> bool:
    """Returns whether all GPUs have the units that cuDNN's attention needs."""
    capabilities = (getattr(device, "compute_capability", "8.0") for device in devices)
    return all(float(capability) >= 8 for capability in capabilities)


def _where_exact(
    kernel: Callable[..., list], *operands: jax.Array, call: Call, role: str, one_segment: bool
) -> list[jax.Array]:
    """Computes a role by a kernel, or by blocks for numbers that the kernel does not support.

    Args:
        one_segment: whether the kernel supports rows of one segment without padding only.
    """
    pairs, conditions = call.pairs(operands), []
    if pairs.positions is not None and not {*call.band} <= {0, math.inf}:
        # kernels count the steps of a band by indices, which may differ from positions
        steps = jnp.arange(pairs.positions.shape[1])[None]
        conditions.append(jnp.all((pairs.positions == steps) | (pairs.positions < 0)))
    if one_segment and pairs.query_ids is not None and pairs.key_ids is not None:
        first = pairs.query_ids[:, :1]
        conditions += [jnp.all(pairs.query_ids == first), jnp.all(pairs.key_ids == first)]
    if not conditions:
        return kernel(*operands)
    exact = functools.reduce(jnp.logical_and, conditions)
    return jax.lax.cond(
        exact, kernel, functools.partial(_without_kernel, call=call, role=role), *operands
    )


# -- the primitive --------------------------------------------------------------------------------

# `trace` caches programs by call, shapes, dtypes and JAX's settings
_DEFAULT = jax.jit(_without_kernel, static_argnames=("call", "role"))
#: Primitive of attention by kernels. Its parameter `jaxpr` is the program without a kernel. `cudnn` is the
#: program for GPUs, or None: JAX looks there for operations that need the devices while lowering.
KERNEL: Any = type(jax.lax.add_p)("platform_kernel")
KERNEL.multiple_results = True


def _bind(call: Call, role: str, *operands: Any) -> list[Any]:
    program = _DEFAULT.trace(*map(jax.typeof, operands), call=call, role=role).jaxpr
    # the program of a gradient also computes the value, which is removed here
    needed, _ = dce_jaxpr(program.jaxpr, [True] * len(program.out_avals), instantiate=True)
    program = program.replace(jaxpr=needed)
    cudnn = _cudnn_program(call, role, [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands])
    return KERNEL.bind(*operands, call=call, role=role, jaxpr=program, cudnn=cudnn)


@KERNEL.def_abstract_eval
def _abstract(*_: Any, jaxpr: Any, **__: Any) -> Any:
    return jaxpr.out_avals


@KERNEL.def_impl
def _evaluate(*operands: Any, call: Call, role: str, **_: Any) -> Any:
    config: Any = jax.config
    if config.jax_disable_jit:
        return _without_kernel(*operands, call=call, role=role)
    return _COMPILED(*operands, call=call, role=role)


_COMPILED = jax.jit(
    lambda *operands, call, role: _bind(call, role, *operands), static_argnames=("call", "role")
)


def _program(*operands: Any, jaxpr: Any, **_: Any) -> Any:
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *operands)


def _on_tpu(*operands: Any, call: Call, role: str, jaxpr: Any, cudnn: Any) -> Any:
    if role == "tangent" or call.kernel("tpu", *operands[:3]) is None:
        return _program(*operands, jaxpr=jaxpr)
    kernel = functools.partial(by_splash, call=call, role=role)
    return _where_exact(kernel, *operands, call=call, role=role, one_segment=False)


def _on_gpu(*operands: Any, call: Call, role: str, jaxpr: Any, cudnn: Any) -> Any:
    if cudnn is None:
        return _program(*operands, jaxpr=jaxpr)
    kernel = functools.partial(_program, jaxpr=cudnn)
    return _where_exact(kernel, *operands, call=call, role=role, one_segment=True)


def _lower_for_tpu(context: Any, *operands: Any, **params: Any) -> Any:
    # XLA does not divide kernels among devices
    devices = getattr(context.module_context.axis_context, "num_devices", None)
    function = _on_tpu if devices == 1 else _program
    return mlir.lower_fun(function, multiple_results=True)(context, *operands, **params)


def _lower_for_gpu(context: Any, *operands: Any, **params: Any) -> Any:
    # exported programs have no devices, and must not depend on a release of cuDNN
    devices = getattr(context.module_context.axis_context, "device_assignment", None) or ()
    function = _on_gpu if len(devices) == 1 and _are_new(devices) else _program
    return mlir.lower_fun(function, multiple_results=True)(context, *operands, **params)


mlir.register_lowering(KERNEL, mlir.lower_fun(_program, multiple_results=True))
mlir.register_lowering(KERNEL, _lower_for_tpu, platform="tpu")
mlir.register_lowering(KERNEL, _lower_for_gpu, platform="cuda")


def _differentiate(
    primals: Any, tangents: Any, *, call: Call, role: str, jaxpr: Any, **_: Any
) -> Any:
    if role in ("value", "forward"):
        own = map(ad.instantiate_zeros, tangents[: call.differentiable])
        # blocks compute the value again for the gradient, whole arrays keep the weights
        role = "forward" if call.short else role
        return _bind(call, role, *primals), _bind(call, "tangent", *primals, *own)
    # derivatives of higher order
    places = [n for n, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    function = _with(places, primals, jaxpr)
    own, tangents = (tuple(x[n] for n in places) for x in (primals, tangents))
    return jax.jvp(function, own, tangents)


def _with(places: Sequence[int], operands: Sequence[Any], jaxpr: Any) -> Callable[..., Any]:
    """Returns the program as a function of the operands at `places`."""

    def function(*values: Any) -> Any:
        replaced = dict(zip(places, values, strict=True))
        return _program(*(replaced.get(n, x) for n, x in enumerate(operands)), jaxpr=jaxpr)

    return function


def _transpose(
    cotangents: Any, *operands: Any, call: Call, role: str, jaxpr: Any, **_: Any
) -> list[Any]:
    places = [n for n, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    results: list[Any] = [None] * len(operands)
    if role == "tangent":
        (gradient,) = map(ad.instantiate_zeros, cotangents)
        gradients = _bind(call, "gradient", *operands[: call.number], gradient)
        for place in places:
            results[place] = gradients[place - call.number]
        return results
    specs = [jax.ShapeDtypeStruct(operands[n].aval.shape, operands[n].aval.dtype) for n in places]
    transposed = jax.linear_transpose(_with(places, operands, jaxpr), *specs)
    for place, result in zip(
        places, transposed([ad.instantiate_zeros(x) for x in cotangents]), strict=True
    ):
        results[place] = result
    return results


def _map(operands: Any, axes: Any, *, call: Call, role: str, **_: Any) -> tuple[Any, Any]:
    # all operands have the batch as the first axis: the mapped axis makes the batch longer
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    merged = []
    for x, axis in zip(operands, axes, strict=True):
        x = x[None] if axis is None else jnp.moveaxis(x, axis, 0)
        x = jnp.broadcast_to(x, (size, *x.shape[1:]))
        merged.append(x.reshape(size * x.shape[1], *x.shape[2:]))
    results = _bind(call, role, *merged)
    shapes = [(size, y.shape[0] // size, *y.shape[1:]) for y in results]
    return [y.reshape(n) for y, n in zip(results, shapes, strict=True)], [0] * len(results)


ad.primitive_jvps[KERNEL] = _differentiate
ad.primitive_transposes[KERNEL] = _transpose
batching.primitive_batchers[KERNEL] = _map
