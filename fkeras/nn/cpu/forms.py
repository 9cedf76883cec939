"""Operations with a separate computation for CPUs, chosen when a program is lowered.

XLA's CPU backend has fast kernels for few kinds of convolutions and none for pooling. A `Form`
holds two computations of the same function: `fast` for CPUs, `default` for all other platforms.

A primitive holds the choice, not `jax.lax.platform_dependent`: a conditional would leave branches
and residuals of the CPU in the programs of other platforms, and would store the intermediate
arrays of `fast` for the backward pass. All derivatives of a form are forms again.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import jax
import jax.core
from jax.interpreters import ad, batching, mlir
from jax.interpreters.partial_eval import dce_jaxpr

Spec = jax.ShapeDtypeStruct
Axes = tuple[int | None, ...]


class Form(abc.ABC):
    """A function of arrays with a default computation and a fast computation for CPUs.

    A form may have its own computation for TPUs, and its own gradients; under `jax.vmap` TPUs use the
    default computation.

    Subclasses are frozen dataclasses: a form is a static parameter of the primitive.

    Attributes:
        linear: numbers of the operands in which the function is linear, if the others are constant.
            The function has no derivative for other operands, unless `tangent_form` returns one.
        rows: numbers of the operands whose first axis is the batch. If `rows` is not empty, the
            first axis of the result is the batch, too.
        loops: whether `jax.vmap` over other operands computes one member after the other.
        together: whether `jax.vmap` of `default` needs the mapped axis in all operands.
    """

    linear: tuple[int, ...] | ClassVar[tuple[int, ...]] = ()
    rows: tuple[int, ...] | ClassVar[tuple[int, ...]] = ()
    loops: bool | ClassVar[bool] = False
    together: bool | ClassVar[bool] = False

    def suits(self, *operands: Any) -> bool:
        """Returns whether `fast` is able to compute these operands, and faster than `default`.

        Args:
            *operands: arrays, or their shapes and dtypes.
        """
        return True

    @abc.abstractmethod
    def default(self, *operands: jax.Array) -> jax.Array:
        """Computes the function on platforms other than CPUs."""

    @abc.abstractmethod
    def fast(self, *operands: jax.Array) -> jax.Array:
        """Computes the function on CPUs."""

    def transformed(self, *operands: jax.Array) -> jax.Array:
        """Computes the function on CPUs in gradients, and in `jax.vmap` over other operands than rows."""
        return self.fast(*operands)

    def tpu(self, *operands: jax.Array) -> jax.Array:
        """Computes the function on TPUs."""
        return self.default(*operands)

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        """Computes the gradient for one operand on CPUs."""
        return _transposed(self.transformed, number, spec, operands)

    def default_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        """Computes the gradient for one operand on platforms other than CPUs."""
        return _transposed(self.default, number, spec, operands)

    def tpu_gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        """Computes the gradient for one operand on TPUs."""
        return self.default_gradient(number, spec, *operands)

    @property
    def has_tpu(self) -> bool:
        """Whether TPUs have a computation of their own."""
        return type(self).tpu is not Form.tpu

    def tangent_form(self, number: int) -> Form | None:
        """Returns the form that computes the tangent for an operand in which it is not linear.

        Its operands are those of this form and the tangent of the operand.
        """
        return None

    def adjoint(self, number: int, spec: Spec, operands: Sequence[Any]) -> jax.Array:
        """Computes the gradient for a linear operand; the arguments are those of `gradient`."""
        return bind(Adjoint(self, number, spec), *operands)


@dataclasses.dataclass(frozen=True)
class On(Form):
    """Whether the program is for a platform: a constant, so that XLA removes the selects that read it.

    Args:
        platform: "cpu", "tpu", or "gpu" for all other platforms.
    """

    platform: str

    def default(self) -> jax.Array:
        return jax.numpy.full((), self.platform == "gpu")

    def fast(self) -> jax.Array:
        return jax.numpy.full((), self.platform == "cpu")

    def tpu(self) -> jax.Array:
        return jax.numpy.full((), self.platform == "tpu")


@dataclasses.dataclass(frozen=True)
class Adjoint(Form):
    """The gradient of a form for one of its linear operands.

    Args:
        form: the form.
        number: the number of the operand, which the gradient of the result replaces.
        spec: shape and dtype of the operand.
    """

    form: Form
    number: int
    spec: Spec

    @property
    def linear(self) -> tuple[int, ...]:
        return self.form.linear

    @property
    def rows(self) -> tuple[int, ...]:
        return self.form.rows if self.number in self.form.rows else ()

    @property
    def loops(self) -> bool:
        return self.form.loops

    @property
    def together(self) -> bool:
        return self.form.together

    def default(self, *operands: jax.Array) -> jax.Array:
        return self.form.default_gradient(self.number, self.spec, *operands)

    @property
    def has_tpu(self) -> bool:
        return type(self.form).tpu_gradient is not Form.tpu_gradient

    def tpu(self, *operands: jax.Array) -> jax.Array:
        return self.form.tpu_gradient(self.number, self.spec, *operands)

    def fast(self, *operands: jax.Array) -> jax.Array:
        spec = self.spec
        if self.number in self.form.rows:
            # `Batched` merges a mapped axis with the batch
            spec = Spec((operands[self.number].shape[0], *spec.shape[1:]), spec.dtype)
        return self.form.gradient(self.number, spec, *operands)

    def adjoint(self, number: int, spec: Spec, operands: Sequence[Any]) -> jax.Array:
        if number == self.number:
            return bind(self.form, *operands)
        # the gradients of a function of two linear operands are the same sum of products
        swapped = list(operands)
        swapped[number], swapped[self.number] = operands[self.number], operands[number]
        return bind(Adjoint(self.form, number, spec), *swapped)


@dataclasses.dataclass(frozen=True)
class Batched(Form):
    """A form that `jax.vmap` maps over an axis of its operands.

    Args:
        form: the form.
        axes: 0 for each operand with the mapped axis, None for the others.
    """

    form: Form
    axes: Axes

    @property
    def linear(self) -> tuple[int, ...]:
        return self.form.linear

    @property
    def loops(self) -> bool:
        return self.form.loops

    @property
    def together(self) -> bool:
        return self.form.together

    def default(self, *operands: jax.Array) -> jax.Array:
        if not self.together:
            return jax.vmap(self.form.default, self.axes)(*operands)
        pairs = list(zip(operands, self.axes, strict=True))
        size = next(x.shape[0] for x, axis in pairs if axis == 0)
        shapes = [x.shape if axis == 0 else (size, *x.shape) for x, axis in pairs]
        arrays = [
            jax.numpy.broadcast_to(x, shape) for (x, _), shape in zip(pairs, shapes, strict=True)
        ]
        return jax.vmap(self.form.default)(*arrays)

    def fast(self, *operands: jax.Array) -> jax.Array:
        if not self._merges:
            return self._each(self.form.transformed, self.axes, operands)
        y = self.form.fast(*self._merged(operands))
        return y.reshape(*self._leading(operands), *y.shape[1:])

    def gradient(self, number: int, spec: Spec, *operands: jax.Array) -> jax.Array:
        inner = Spec(spec.shape[1:] if self.axes[number] == 0 else spec.shape, spec.dtype)
        if not self._merges or (self.axes[number] is None and number in self.form.rows):
            axes = tuple(0 if n == number else axis for n, axis in enumerate(self.axes))
            gradient = functools.partial(self.form.gradient, number, inner)
            gradients = self._each(gradient, axes, operands)
            return gradients if self.axes[number] == 0 else gradients.sum(0)
        if number in self.form.rows:
            size, rows = self._leading(operands)
            inner = Spec((size * rows, *inner.shape[1:]), spec.dtype)
        gradient = self.form.gradient(number, inner, *self._merged(operands, number))
        return gradient.reshape(spec.shape)

    def tangent_form(self, number: int) -> Form | None:
        inner = self.form.tangent_form(number)
        return None if inner is None else Batched(inner, (*self.axes, self.axes[number]))

    def _each(
        self, function: Callable[..., jax.Array], axes: Axes, operands: Sequence[jax.Array]
    ) -> jax.Array:
        """Applies a function to each member of the mapped axis."""
        if not self.form.loops:
            return jax.vmap(function, axes)(*operands)
        mapped = [x for x, axis in zip(operands, axes, strict=True) if axis == 0]

        def member(arrays: Sequence[jax.Array]) -> jax.Array:
            rest = iter(arrays)
            pairs = zip(operands, axes, strict=True)
            return function(*(x if axis is None else next(rest) for x, axis in pairs))

        return jax.lax.map(member, mapped)

    @property
    def _merges(self) -> bool:
        """Whether the mapped axis and the batch are one longer batch."""
        places = enumerate(self.axes)
        return bool(self.form.rows) and all(a is None or n in self.form.rows for n, a in places)

    def _leading(self, operands: Sequence[jax.Array]) -> tuple[int, int]:
        shape = next(x.shape for x, axis in zip(operands, self.axes, strict=True) if axis == 0)
        return shape[0], shape[1]

    def _merged(self, operands: Sequence[jax.Array], number: int | None = None) -> list[jax.Array]:
        """Returns the operands with one batch; the operand `number` is a gradient of the result."""
        size, _ = self._leading(operands)
        merged = []
        for place, (x, axis) in enumerate(zip(operands, self.axes, strict=True)):
            if place in self.form.rows or place == number:
                if axis is None and place != number:
                    x = jax.numpy.broadcast_to(x, (size, *x.shape))
                x = x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])
            merged.append(x)
        return merged


def _transposed(
    function: Callable[..., jax.Array], number: int, spec: Spec, operands: Sequence[jax.Array]
) -> jax.Array:
    def linear(operand: Any) -> jax.Array:
        return function(*operands[:number], operand, *operands[number + 1 :])

    return jax.linear_transpose(linear, spec)(operands[number])[0]


def compute(form: Form, *operands: jax.Array) -> jax.Array:
    """Computes a form: fast on CPUs, by default elsewhere.

    Example:
        >>> import jax.numpy as jnp
        >>> class Double(Form):
        ...     linear = (0,)
        ...     def default(self, x): return 2.0 * x
        ...     def fast(self, x): return x + x
        >>> jax.grad(lambda x: compute(Double(), x))(3.0)
        Array(2., dtype=float32)
    """
    default = has_typed_axes(*operands) or not form.suits(*operands)
    return form.default(*operands) if default else bind(form, *operands)


def has_typed_axes(*operands: jax.Array) -> bool:
    """Returns whether JAX's types hold axes of a mesh, which only its own primitives convert."""
    meshes = [jax.sharding.get_abstract_mesh(), *(jax.typeof(x).sharding.mesh for x in operands)]
    return any(mesh.manual_axes or mesh.explicit_axes for mesh in meshes)


def bind(form: Form, *operands: Any) -> Any:
    """Adds a form to the program that JAX traces."""
    program = _DEFAULT.trace(*map(jax.typeof, operands), form=form).jaxpr
    # the program of a tangent also computes the value, which is removed here
    needed, _ = dce_jaxpr(program.jaxpr, [True], instantiate=True)
    return FORM.bind(*operands, form=form, jaxpr=program.replace(jaxpr=needed))


# `trace` caches programs by form, shapes, dtypes and JAX's settings
_DEFAULT = jax.jit(lambda *operands, form: form.default(*operands), static_argnames="form")
#: primitive of all forms. Its parameter `jaxpr` is the program of the default computation.
# The class is that of JAX's operations: `jax.extend.core` would import Pallas, in 0.1 s.
FORM: Any = type(jax.lax.add_p)("platform_form")


@FORM.def_abstract_eval
def _abstract(*_: Any, form: Form, jaxpr: Any) -> Any:
    return jaxpr.out_avals[0]


@FORM.def_impl
def _evaluate(*operands: Any, form: Form, jaxpr: Any) -> Any:
    # without jit, JAX's own operations compute, so that `jax_debug_nans` names them
    config: Any = jax.config  # JAX declares its flags at run time
    if config.jax_disable_jit:
        return form.default(*operands)
    return _COMPILED(*operands, form=form)


_COMPILED = jax.jit(lambda *operands, form: bind(form, *operands), static_argnames="form")


def _lower_default(*operands: Any, form: Form, jaxpr: Any) -> Any:
    return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *operands)[0]


def _lower_fast(*operands: Any, form: Form, jaxpr: Any) -> Any:
    return form.fast(*operands)


def _lower_tpu(*operands: Any, form: Form, jaxpr: Any) -> Any:
    if form.has_tpu:
        return form.tpu(*operands)
    return _lower_default(*operands, form=form, jaxpr=jaxpr)


mlir.register_lowering(FORM, mlir.lower_fun(_lower_default, multiple_results=False))
mlir.register_lowering(FORM, mlir.lower_fun(_lower_tpu, multiple_results=False), platform="tpu")
mlir.register_lowering(FORM, mlir.lower_fun(_lower_fast, multiple_results=False), platform="cpu")


def _differentiate(primals: Any, tangents: Any, *, form: Form, jaxpr: Any) -> Any:
    out = FORM.bind(*primals, form=form, jaxpr=jaxpr)
    terms = []
    for number, tangent in enumerate(tangents):
        if type(tangent) is ad.Zero:
            continue
        if number in form.linear:
            terms.append(bind(form, *primals[:number], tangent, *primals[number + 1 :]))
        elif (tangent_form := form.tangent_form(number)) is not None:
            terms.append(bind(tangent_form, *primals, tangent))
    if not terms:
        return out, ad.Zero(jax.typeof(out).to_tangent_aval())
    return out, functools.reduce(ad.add_jaxvals, terms)


def _transpose(cotangent: Any, *operands: Any, form: Form, jaxpr: Any) -> list[Any]:
    (number,) = (n for n, operand in enumerate(operands) if ad.is_undefined_primal(operand))
    aval = operands[number].aval
    result = cotangent
    if type(cotangent) is ad.Zero:
        result = ad.Zero(aval)
    else:
        filled = (*operands[:number], cotangent, *operands[number + 1 :])
        result = form.adjoint(number, Spec(aval.shape, aval.dtype), filled)
    return [result if n == number else None for n in range(len(operands))]


def _map(operands: Any, axes: Any, *, form: Form, jaxpr: Any) -> tuple[Any, int]:
    moved = [
        x if axis is None else jax.numpy.moveaxis(x, axis, 0)
        for x, axis in zip(operands, axes, strict=True)
    ]
    return bind(Batched(form, tuple(a if a is None else 0 for a in axes)), *moved), 0


ad.primitive_jvps[FORM] = _differentiate
ad.primitive_transposes[FORM] = _transpose
batching.primitive_batchers[FORM] = _map
