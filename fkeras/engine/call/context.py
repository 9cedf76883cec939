"""`Context` and `Output`: the environment of a call and its result.

`Context` replaces Keras's learning phase, call context and seed generators; `Output` replaces
`add_update`, `add_loss`, `add_metric` and `compute_mask`. Both are passed along explicitly: no scope,
registry or thread-local value holds a part of a call.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax

from fkeras.engine.values.annotations import Layer, Leaf, Option, Tree
from fkeras.engine.values.random import fold_in

_SAME: Any = object()
# base of the number of a nested call: above the number of calls of a layer, and odd, so that no index
# is lost modulo 2**32
_INDICES = 1_000_003


class Context:
    """The environment of a layer's `forward`: state, mode, PRNG key and mask.

    Attributes:
        state: the layer's own state; `{}` for a layer without state.
        training: whether this is a training call.
        mask: the mask of the input: an array or None, a list of them for a list of inputs, a tuple of
            them for a layer with several positional inputs.
        step_mask: the mask for the steps of a layer that takes more tensors by name, such as a
            recurrent layer with `initial_state`: equals `mask`, or is None where Keras 3 computes
            without the mask.
        attached: masks by array under Keras 3's mask rule, otherwise None.
        around_block: a function of functions, such as `jax.checkpoint`, applied to the body of each
            loop over repeated blocks; None for no function.
        where: the caller's name for the layer, for messages.
        around: `(where, layer, inputs, compute) -> output`, which handles each call inside and may call
            `compute(layer, inputs)`, or None; a trainer with a mesh lays out activations by this
            function.

    Example:
        >>> import fkeras as fk
        >>> fk.Context(training=True).training
        True
    """

    __slots__ = (
        "_key",
        "_path",
        "_step_mask",
        "around_block",
        "around",
        "attached",
        "mask",
        "state",
        "training",
        "where",
    )

    def __init__(
        self,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: Leaf = None,
        mask: Tree = None,
        where: str = "",
    ):
        self.state = {} if state is None else state
        self.training = training
        self.mask = mask
        self.where = where
        self.attached: Any = None
        self.around: Callable[[str, Any, tuple, Callable], Output] | None = None
        self.around_block: Any = None
        self._step_mask = _SAME
        self._key = key
        # salt and index of this call and of the calls around it, outermost first
        self._path: tuple[tuple[Any, Any], ...] = ()

    @property
    def step_mask(self) -> Tree:
        # unset means "the mask", which `AttachedMasks.receive` may still change after construction
        return self.mask if self._step_mask is _SAME else self._step_mask

    @step_mask.setter
    def step_mask(self, mask: Tree) -> None:
        self._step_mask = mask

    def detach_masks(self, *arrays: Leaf) -> None:
        """Detaches the masks of arrays under Keras 3's mask rule; no effect under other rules."""
        if self.attached is not None:
            for array in arrays:
                self.attached.attach(array, None)

    def input_masks(self, count: int) -> tuple[Any, ...]:
        """Returns a mask or None for each of the first `count` inputs.

        Example:
            >>> import fkeras as fk
            >>> fk.Context(mask=("first", None)).input_masks(3), fk.Context().input_masks(1)
            (('first', None, None), (None,))
        """
        masks = self.mask if isinstance(self.mask, list | tuple) else (self.mask,)
        return (*masks, *(None,) * count)[:count]

    @property
    def has_key(self) -> bool:
        """Whether the call has a PRNG key."""
        return self._key is not None

    @property
    def key(self) -> jax.Array:
        """The PRNG key of this call: a function of the key of `apply` and of names and indices of calls.

        Raises:
            ValueError: if the call has no key.
        """
        # derived only when read: most layers draw nothing, and each `fold_in` is traced
        key = self._root
        for salt, _ in self._path:
            key = fold_in(key, salt)
        return key

    def seeded_key(self, seed: int | None) -> jax.Array:
        """Returns the key of this call for a layer's `seed`, which takes the place of the names.

        Layers with equal seeds draw equally in calls of equal index; another call of the same layer
        draws other numbers.

        Args:
            seed: an integer, or None for `key`.

        Example:
            >>> import jax, fkeras as fk
            >>> context = fk.Context(key=jax.random.key(0))
            >>> a, b = context.child("a"), context.child("b")
            >>> bool(a.seeded_key(7) == b.seeded_key(7)), bool(a.key == b.key)
            (True, False)
        """
        if seed is None:
            return self.key
        call: Any = 0
        # the digits are the indices: the number of a first call is 0 at each depth of nested models
        for _, index in self._path:
            call = call * _INDICES + index
        return fold_in(fold_in(self._root, seed), call)

    @property
    def _root(self) -> jax.Array:
        if self._key is None:
            raise ValueError(
                f"{self.where or 'This layer'}: draws random numbers in this call and needs a key. "
                "Pass a key, `.apply(x, training=True, key=jax.random.key(0))`, and another key at "
                "each step."
            )
        return self._key

    def repeat(self, index: Leaf) -> Context:
        """Returns the context of repetition number `index` of this call, which draws other numbers.

        Args:
            index: an integer or a traced integer.

        Example:
            >>> import jax, fkeras as fk
            >>> context = fk.Context(key=jax.random.key(0))
            >>> bool(context.repeat(0).key == context.repeat(1).key)
            False
        """
        context = copy.copy(self)
        context._path = (*self._path, (index, index))
        return context

    def run(self, layer: Layer, *inputs: Tree, **options: Option) -> Output:
        """Calls a layer in this context, inside the `forward` of another layer.

        Args:
            layer: a built layer.
            inputs: arrays, already traced or not.
            options: the layer's own options of a call.

        Example:
            >>> import jax, jax.numpy as jnp, fkeras as fk
            >>> class Twice(fk.Layer):
            ...     inner: fk.Layer
            ...     def forward(self, context, x):
            ...         return context.child("inner").run(self.inner, 2 * x)
            >>> Twice(fk.layers.ReLU())(jnp.array([-1.0, 2.0]))
            Array([0., 4.], dtype=float32)
        """
        if self.around is None:
            return layer._checked_forward(self, *inputs, **options)

        def compute(layer: Layer, inputs: tuple) -> Output:
            return layer._checked_forward(self, *inputs, **options)

        return self.around(self.where, layer, inputs, compute)

    def child(
        self,
        name: str,
        index: Leaf = 0,
        *,
        state: Tree = _SAME,
        training: Any = _SAME,
        mask: Tree = None,
        salt: Leaf = None,
    ) -> Context:
        """The context of call number `index` of the child `name`, with the child's state and key.

        Args:
            name: the child's name in this layer.
            index: number of the call among the child's calls, a traced integer for a call in a loop;
                each call draws other random numbers.
            state: the child's state; `self.state[name]` by default.
            training: the mode; that of this context by default.
            mask: the mask of the child's inputs.
            salt: the number that derives the child's key, a traced integer for a call in a loop; by
                default `call_salt(name, index)`.
        """
        # by name: the numbers of a layer do not depend on the layers around it
        salt = call_salt(name, index) if salt is None else salt
        # a subclass, such as the writer of ONNX files, also runs the calls inside
        context = type(self)(
            state=self.state.get(name, {}) if state is _SAME else state,
            training=self.training if training is _SAME else training,
            key=self._key,
            mask=mask,
            where=f"{self.where}/{name}" if self.where else name,
        )
        context._path = (*self._path, (salt, index))
        context.attached, context.around = self.attached, self.around
        context.around_block = self.around_block
        return context


def call_salt(name: str, index: int) -> str:
    """Returns the text that derives the key of call number `index` of the child `name`."""
    return f"{name}:{index}"


def _no_array(self: Output, *args: object) -> Any:
    raise TypeError(
        "Output: expected an array, received the result of `apply`. Write `out.value` for the array, and "
        "`out.updates` for the next state: `y, updates = out.value, out.updates`."
    )


@dataclasses.dataclass(frozen=True)
class Output:
    """The result of a call.

    Attributes:
        value: the output array, or a list, tuple or dictionary of arrays.
        updates: `{}` if no state changed, otherwise the layer's complete new state, so that
            `state | updates` is the next state.
        losses: scalars to add to the loss.
        metrics: scalars to report, by name.
        mask: the mask of `value`: an array or None, a list of them for several values.
        names_updates: whether the constructor received `updates`, also `{}`. Not part of the pytree:
            transformations of JAX reset it to False.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2).build(jax.random.key(0), (None, 3))
        >>> out = layer.apply(jnp.ones((1, 3)))
        >>> out.value.shape, out.updates, out.losses
        ((1, 2), {}, ())
    """

    value: Any
    updates: dict[str, Any] = None  # type: ignore[assignment]
    losses: tuple = ()
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)
    mask: Any = None
    names_updates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        # not a field: outputs with and without the argument have the same structure as pytrees
        if self.updates is None:
            self.__dict__["updates"] = {}
        else:
            self.__dict__["names_updates"] = True

    if not TYPE_CHECKING:
        # NumPy then calls the methods of this class
        __array_ufunc__ = None
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = __pow__ = _no_array
        __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __float__ = __len__ = _no_array
        __lt__ = __le__ = __gt__ = __ge__ = __iter__ = __getitem__ = __array__ = _no_array

        def __getattr__(self, name: str) -> Any:
            remedy = f" Write `out.value.{name}`." if hasattr(jax.Array, name) else ""
            raise AttributeError(f"Output: has no attribute {name!r}.{remedy}")


_FIELDS = ("value", "updates", "losses", "metrics", "mask")
_KEYS = tuple(map(jax.tree_util.GetAttrKey, _FIELDS))


def _flatten(out: Output) -> tuple[tuple, None]:
    return (out.value, out.updates, out.losses, out.metrics, out.mask), None


def _flatten_with_keys(out: Output) -> tuple[tuple, None]:
    return tuple(zip(_KEYS, _flatten(out)[0], strict=True)), None


def _unflatten(_: None, children: Iterable) -> Output:
    out = object.__new__(Output)
    out.__dict__.update(zip(_FIELDS, children, strict=True))
    return out


jax.tree_util.register_pytree_with_keys(Output, _flatten_with_keys, _unflatten, _flatten)
