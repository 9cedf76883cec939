"""`EinsumDense`: a dense layer whose product with the kernel is an einsum equation."""

from __future__ import annotations

import dataclasses
import math
import re
import string
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.axis_roles import hidden
from fkeras.nn.cpu.broadcasting import for_rows
from fkeras.nn.cpu.products import row_product
from fkeras.nn.numerics.axes import format_shape
from fkeras.nn.numerics.dtypes import wide_dtype

# the three forms of Keras's EinsumDense; other einsum equations have no rule for the kernel's shape
_LEFT = re.compile(r"\.\.\.([a-zA-Z]+),([a-zA-Z]+)->\.\.\.([a-zA-Z]+)")
_RIGHT = re.compile(r"([a-zA-Z]{2,})\.\.\.,([a-zA-Z]+)->([a-zA-Z]+)\.\.\.")
_PLAIN = re.compile(r"([a-zA-Z]+),([a-zA-Z]+)->([a-zA-Z]+)")
# initializers whose scale depends on fan-in and fan-out: which kernel axes are inputs and outputs
_SCALED = (
    fk.initializers.VarianceScaling,
    fk.initializers.GlorotUniform,
    fk.initializers.GlorotNormal,
    fk.initializers.HeUniform,
    fk.initializers.HeNormal,
    fk.initializers.LecunUniform,
    fk.initializers.LecunNormal,
)


@dataclasses.dataclass(frozen=True)
class Equation:
    """Parsed einsum equation: letters of input, kernel and output, and the side of the ellipsis.

    Raises:
        ValueError: where the text has another form, or the size of a letter is undefined.

    Example:
        >>> equation = Equation.parse("...x,xy->...y")
        >>> equation.kernel, equation.ellipsis
        ('xy', 'left')
    """

    input: str
    kernel: str
    output: str
    ellipsis: str | None

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Parses an equation such as "abc,cd->abd"."""
        forms = ((_PLAIN, None), (_LEFT, "left"), (_RIGHT, "right"))
        for form, ellipsis in forms:
            match = form.fullmatch(text) if isinstance(text, str) else None
            if match:
                inputs, kernel, output = match.groups()
                equation = cls(inputs, kernel, output, ellipsis)
                equation._check(text)
                return equation
        raise ValueError(
            f"EinsumDense: equation: expected a form such as 'abc,cd->abd', '...x,xy->...y' or "
            f"'ab...,bc->ac...', received {text!r}. Write input, comma, kernel, '->', output, "
            "without blanks."
        )

    def spelled(self, ndim: int) -> Equation:
        """Replaces the ellipsis by unused letters, for an input of `ndim` axes.

        Example:
            >>> Equation.parse("...x,xy->...y").spelled(3).text
            'abx,xy->aby'
        """
        # letters of the equation are not reused: einsum would sum over a repeated letter
        used_letters = {*self.input, *self.kernel, *self.output}
        unused_letters = [letter for letter in string.ascii_letters if letter not in used_letters]
        new_letters = "".join(unused_letters[: ndim - len(self.input)])
        if self.ellipsis == "right":
            return Equation(self.input + new_letters, self.kernel, self.output + new_letters, None)
        return Equation(new_letters + self.input, self.kernel, new_letters + self.output, None)

    @property
    def text(self) -> str:
        """The equation in the syntax of `einsum`, without the ellipsis."""
        return f"{self.input},{self.kernel}->{self.output}"

    def _check(self, text: str) -> None:
        io_letters = set(self.input) | set(self.output)
        for letters, source, where in (
            (
                self.kernel,
                io_letters,
                "it occurs in the kernel, but neither in the input nor in the output",
            ),
            (self.output, set(self.input) | set(self.kernel), "it occurs only in the output"),
        ):
            unsized_letter = next((letter for letter in letters if letter not in source), None)
            if unsized_letter is not None:
                raise ValueError(
                    f"EinsumDense: equation: expected sizes for every axis, received {text!r}, "
                    f"where {unsized_letter!r} has no size: {where}. Add the letter to another "
                    "term, such as the input."
                )

    def sizes(self, shape: Sequence[Any], output_shape: Sequence[Any], where: str) -> dict:
        """Returns the size of each letter (None where unknown) for an input of `shape`.

        Raises:
            ValueError: where the shapes do not match the letters, or give a letter two sizes.
        """
        ellipsis_rank = len(shape) - len(self.input)
        if ellipsis_rank < 0 or (ellipsis_rank and self.ellipsis is None):
            raise ValueError(
                f"{where}: expected an input with the axes {self.input!r}, received "
                f"{format_shape(shape)}. Write one letter per axis, or an ellipsis."
            )
        # output_shape has no batch axis, which an ellipsis on the left covers
        batched = 0 if self.ellipsis == "left" and ellipsis_rank else 1
        letters = self.output[batched:]
        ellipsis_sizes = tuple(output_shape[len(letters) :])
        if self.ellipsis == "right" and ellipsis_rank and len(ellipsis_sizes) == ellipsis_rank:
            # Keras accepts sizes for the axes of the ellipsis too, but uses the input's sizes
            self._check_ellipsis(shape[len(self.input) :], ellipsis_sizes, where)
            output_shape = output_shape[: len(letters)]
        if len(output_shape) != len(letters):
            raise ValueError(
                f"{where}: expected output_shape with a size for each of {list(letters)}, received "
                f"{tuple(output_shape)}. Leave the batch axis out, and give None for sizes that "
                "follow from the input."
            )
        start = ellipsis_rank if self.ellipsis == "left" else 0
        sizes = {letter: shape[start + i] for i, letter in enumerate(self.input)}
        for letter, size in zip(letters, output_shape, strict=True):
            # compare known sizes only: an axis of unknown size is None or symbolic
            input_size = sizes.get(letter)
            if size is not None and isinstance(input_size, int) and size != input_size:
                raise ValueError(
                    f"{where}: expected the same size of axis {letter!r} in input and output, "
                    f"received {input_size} in the input {format_shape(shape)} and {size} in "
                    f"output_shape={tuple(output_shape)}. Give None there."
                )
            sizes[letter] = input_size if size is None else size
        return sizes

    def _check_ellipsis(
        self, input_sizes: Sequence[Any], output_sizes: Sequence[Any], where: str
    ) -> None:
        for size, output_size in zip(input_sizes, output_sizes, strict=True):
            if output_size is not None and isinstance(size, int) and size != output_size:
                raise ValueError(
                    f"{where}: expected output_shape with the sizes {tuple(input_sizes)} of the input, or "
                    f"None, for the axes of the ellipsis, received {tuple(output_sizes)}. Give None there."
                )


def einsum_dense(
    x: jax.Array, kernel: jax.Array, equation: str, bias: jax.Array | None = None
) -> jax.Array:
    """Computes `einsum(equation, x, kernel) + bias`.

    Args:
        x: array with the axes before the comma of the equation.
        kernel: array with the axes between comma and "->".
        equation: einsum equation such as "abc,cd->abd".
        bias: array that broadcasts against the last axes of the product, or None.

    Returns:
        An array with the axes after "->".
    """
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        x = x.astype(kernel.dtype)
    axes = _summed_axes(equation)
    y = jnp.einsum(equation, x, kernel) if axes is None else row_product(x, kernel, axes)
    return add_bias(y, bias)


def _summed_axes(equation: str) -> int | None:
    """Returns the number of last axes of x and first axes of the kernel that a plain product sums."""
    operands, result = equation.split("->")
    x, kernel = operands.split(",")
    axes = len([letter for letter in x if letter in kernel])
    plain = x[len(x) - axes :] == kernel[:axes] and result == x[: len(x) - axes] + kernel[axes:]
    return axes if axes and plain and len(set(result)) == len(result) else None


def add_bias(y: jax.Array, bias: jax.Array | None) -> jax.Array:
    """Computes `y + bias` in the dtype of `y`; the axes of the bias are the last axes of `y`, None adds nothing.

    For a bias of another dtype, the sum is in float32 or float64, and so is the sum over rows in the gradient of the bias.
    XLA's TPU compiler would cast a bias and its gradient in operations of their own, and its CPU compiler sums slowly in
    16 bits.
    """
    if bias is None:
        return y
    if bias.dtype == y.dtype:
        return y + for_rows(bias, y)
    dtype = wide_dtype(y.dtype)
    return (y.astype(dtype) + for_rows(bias.astype(dtype), y)).astype(y.dtype)


def _equation(value: fk.Field) -> str:
    Equation.parse(value)
    return value


_sizes = fk.several(
    fk.integer(minimum=1, optional=True),
    "a positive size, or a tuple of sizes and None",
    single=True,
    least=0,
    hint="For 'abc,cd->abd' with 8 outputs: (None, 8).",
)


def _roles(value: fk.Field) -> Mapping[str, str] | None:
    valid = isinstance(value, Mapping) and all(
        isinstance(n, str) and len(n) == 1 and isinstance(role, str) for n, role in value.items()
    )
    if value is not None and not valid:
        raise ValueError(
            "EinsumDense: axis_roles: expected None or a role for each of some letters of the kernel, "
            f"such as {{'d': 'heads'}}, received {value!r}. Name the letters by the equation."
        )
    return fk.FrozenDict(value) if value else None


class EinsumDense(fk.Layer):
    """Computes `activation(einsum(equation, x, kernel) + bias)`.

    The letters between comma and arrow are the axes of the kernel. Kernel axes that also occur in
    the output are output axes; the layer sums over the others. The layer passes a mask on if the
    time axis, axis 1, has the same position in input and output.

    Args:
        equation: "ab,bc->ac" with any letters. An ellipsis at the start ("...x,xy->...y") or at the
            end ("ab...,bc->ac...") matches any number of axes.
        output_shape: sizes of the output after the batch axis; None for sizes that equal those of
            the input. Omit the axes of an ellipsis; sizes of an ellipsis on the right ("ab...") are
            accepted.
        bias_axes: letters of the output axes that the bias spans; None for no bias.
        activity_regularizer: as in `Dense`, by keyword only.
        axis_roles: roles of letters of the kernel, by which `Trainer(sharding=...)` splits it, such
            as {"d": "heads"}; None for "hidden" on the wider side. Keyword only; Keras's layer has no
            such argument.
        Other arguments: those of `Dense`.

    Shapes:
        the input's letters -> the output's letters. The kernel has the sizes of its letters. The
        bias spans the output axes from the first letter in `bias_axes` on, with size 1 for letters
        that `bias_axes` omits.

    Raises:
        ValueError: for an equation of another form, or contradictory sizes.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.EinsumDense("abc,cd->abd", (None, 4), bias_axes="d")
        >>> layer = layer.build(jax.random.key(0), (None, None, 3))
        >>> layer(jnp.ones((2, 5, 3))).shape, layer.kernel.shape, layer.bias.shape
        ((2, 5, 4), (3, 4), (4,))
    """

    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        training_default=None, quantized_as="QuantizedDense"
    )
    # `add_bias` takes the bias in the variable dtype
    _uncast: ClassVar[tuple[str, ...]] = ("bias",)

    equation: str = fk.option(convert=_equation)
    output_shape: fk.Shape = fk.option(convert=_sizes)
    activation: fk.Activation = fk.option(default=None, convert=fk.activation)
    bias_axes: str | None = fk.option(default=None, convert=fk.text(optional=True))
    kernel_initializer: fk.Initializer = fk.option(default="glorot_uniform", convert=fk.initializer)
    bias_initializer: fk.Initializer = fk.option(default="zeros", convert=fk.initializer)
    kernel_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    bias_regularizer: fk.Regularizer = fk.option(default=None, convert=fk.regularizer)
    kernel_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    bias_constraint: fk.Constraint = fk.option(default=None, convert=fk.constraint)
    activity_regularizer: fk.Regularizer = fk.option(
        default=None, convert=fk.regularizer, kw_only=True
    )
    axis_roles: Mapping[str, str] | None = fk.option(default=None, convert=_roles, kw_only=True)

    kernel: jax.Array = fk.weight()
    bias: jax.Array | None = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        equation = Equation.parse(self.equation)
        left, right = ("...", "") if equation.ellipsis == "left" else ("", "...")
        output = f"{left}{equation.output}{right if equation.ellipsis else ''}"
        letters_by_name = {"kernel": equation.kernel}
        if self.bias_axes is not None:
            letters = self._bias_letters(equation)
            bias = "".join(n if n in self.bias_axes else "_" for n in letters)
            # an ellipsis on the right adds axes of size 1, which a built bias shows
            ndim = len(bias) if self.bias is None else self.bias.ndim
            letters_by_name["bias"] = bias.ljust(ndim, "_")
        return fk.AxisNames(fk.FrozenDict(letters_by_name), self._axis_roles(equation), output)

    def _axis_roles(self, equation: Equation) -> Mapping[str, str]:
        if self.kernel is None:
            return fk.FrozenDict()
        summed = "".join(n for n in equation.kernel if n not in equation.output)
        created = "".join(n for n in equation.kernel if n not in equation.input)
        # a kernel with a matrix for each index of an axis: a mixture of experts
        experts = {n: "experts" for n in equation.kernel if n not in summed + created}
        if self.axis_roles is not None:
            return fk.FrozenDict({**self.axis_roles, **experts})
        sizes = dict(zip(equation.kernel, self.kernel.shape, strict=True))
        return fk.FrozenDict({**hidden(summed, created, sizes), **experts})

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if self.axis_roles is None:  # Keras has no such argument
            del config["axis_roles"]
        return config

    def __post_init__(self) -> None:
        super().__post_init__()
        equation = Equation.parse(self.equation)
        unknown = [n for n in self.axis_roles or () if n not in equation.kernel]
        if unknown:
            raise ValueError(
                f"EinsumDense: axis_roles: expected letters of the kernel {equation.kernel!r}, "
                f"received {unknown}. Name the axes that the roles split."
            )
        letters = equation.output
        axes = self.bias_axes
        if axes is not None and (not axes or any(letter not in letters for letter in axes)):
            raise ValueError(
                f"EinsumDense: bias_axes: expected letters of the output {letters!r}, received "
                f"{axes!r}. For a bias over the last axis give {letters[-1]!r}; None for no bias."
            )

    @property
    def supports_masking(self) -> bool:
        """Whether the time axis, axis 1 of the input, is also axis 1 of the output."""
        equation = Equation.parse(self.equation)
        if equation.ellipsis == "left":
            return len(equation.input) == 1 or equation.input[0] == equation.output[0]
        return len(equation.input) == 2 or equation.input[:2] == equation.output[:2]

    def _loses_masks(self, masks: Sequence[Any]) -> bool:
        # Keras drops masks for every equation
        return True

    @property
    def input_spec(self) -> fk.InputSpec:
        equation = Equation.parse(self.equation)
        rank = len(equation.input)
        axes = {}
        if self.kernel is not None:
            # a built layer fixes the sizes of those input axes that are also kernel axes
            sizes = dict(zip(equation.kernel, self.kernel.shape, strict=True))
            start = -rank if equation.ellipsis == "left" else 0
            axes = {start + i: sizes[n] for i, n in enumerate(equation.input) if n in sizes}
        if equation.ellipsis is None:
            return fk.InputSpec(ndim=rank, axes=axes)
        return fk.InputSpec(min_ndim=rank, axes=axes)

    def build(self, key: jax.Array, x: fk.SpecLike) -> Self:
        equation = Equation.parse(self.equation)
        sizes = equation.sizes(x.shape, self.output_shape, self._where)
        kernel = tuple(sizes[letter] for letter in equation.kernel)
        bias = None
        if self.bias_axes is not None:
            # size 1 for the axes in between: the bias then broadcasts against the last axes
            bias_letters = self._bias_letters(equation)
            bias = tuple(sizes[n] if n in self.bias_axes else 1 for n in bias_letters)
            if equation.ellipsis == "right":
                bias = (*bias, *(1,) * (x.ndim - len(equation.input)))
        input_axes = getattr(self.kernel_initializer, "input_axes", None)
        is_scaled = isinstance(self.kernel_initializer, _SCALED) and input_axes is None
        if not is_scaled or None in kernel:
            return self.with_weights(key, kernel=kernel, bias=bias)
        # As in Keras, fan-in and fan-out are those of the equation. For three or more axes, the
        # initializers would compute the fans of a convolution kernel, so the kernel is drawn as a
        # matrix (inputs, outputs) and then reshaped.
        outputs = [i for i, letter in enumerate(equation.kernel) if letter in equation.output]
        inputs = [i for i in range(len(kernel)) if i not in outputs]
        matrix = tuple(math.prod(kernel[i] for i in axes) for axes in (inputs, outputs))
        layer = self.with_weights(key, kernel=matrix, bias=bias)
        folded = jnp.reshape(layer.kernel, tuple(kernel[i] for i in (*inputs, *outputs)))
        inverse_order = np.argsort(np.array((*inputs, *outputs)))
        return layer.replace(kernel=jnp.transpose(folded, tuple(int(i) for i in inverse_order)))

    def _bias_letters(self, equation: Equation) -> str:
        """Returns the letters of the output from the first letter of the bias on."""
        return equation.output[min(map(equation.output.index, self.bias_axes or "")) :]

    def call(self, x: jax.Array) -> jax.Array:
        y = einsum_dense(x, self.kernel, self.equation, self.bias)
        return y if self.activation is None else self.activation(y)
