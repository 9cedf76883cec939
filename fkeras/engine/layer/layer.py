"""`Layer`: a frozen dataclass that is a pytree.

The leaves are the declared weights and those of child layers; all other fields are static
configuration. A layer holds no state and stores nothing about its calls: a call on symbolic tensors
records a Node, a call on arrays computes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.call import caches, calls, composition
from fkeras.engine.call.building import takes_specs
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.node import SymbolicTensor, record, symbolic_arguments
from fkeras.engine.config.configurable import (
    configuration,
    convert_fields,
    convert_value,
    describe,
    from_configuration,
    make_dataclass,
    option,
)
from fkeras.engine.config.converters import boolean
from fkeras.engine.config.field_types import Policy
from fkeras.engine.config.policy import DTypePolicy, get_policy
from fkeras.engine.layer.trainable import pass_on_trainable
from fkeras.engine.layer.traits import Traits
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.tracebacks import hide_internal_frames, hides_internal_frames
from fkeras.engine.migration_hints.attributes import (
    MissingAttributeError,
    rejected_arithmetic,
    rejected_assignment,
)
from fkeras.engine.migration_hints.classes import check_class
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.tree import donated, labels, weight_lists
from fkeras.engine.tree.axes import AxisNames
from fkeras.engine.tree.places import WeightPlaces
from fkeras.engine.tree.skeleton import (
    CACHES,
    WEIGHT,
    leaves_of,
    register,
    same_leaf,
    skeleton_of,
)
from fkeras.engine.tree.sublayers import map_children, sublayers
from fkeras.engine.tree.walk import layers_in
from fkeras.engine.tree.weight_dtypes import cast_dtype
from fkeras.engine.tree.weights import lacking_weight, make_weights, reset_carries
from fkeras.engine.values.annotations import Field, Option, Skeleton, SomeLayer, Tree
from fkeras.engine.values.cache_size import CacheSize
from fkeras.engine.values.frozen import freeze_value
from fkeras.engine.values.naming import checked_name

_NO_MASK: Any = object()
#: the class of the symbolic inputs, which is the class of the outputs: `KerasTensor` is defined
#: above layers
Tensor = TypeVar("Tensor", bound=SymbolicTensor)


class Layer(Traits):
    """Maps arrays to arrays, with its weights as leaves: the base class of all layers.

    A subclass declares configuration and weights as fields, makes the weights in `build` and computes
    in `call`. A layer with state, randomness, masks, losses or training behaviour overrides `forward`
    instead, which receives the `Context` and returns an `Output`.

    Args:
        name: the layer's name in graphs and states; a graph names an unnamed layer by its class.
        trainable: False to freeze the layer's weights and all layers inside.
        dtype: a dtype policy: "float32", "mixed_bfloat16" and so on.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> class Scale(fk.Layer):
        ...     initial: float = fk.option(default=1.0)
        ...     factor: jax.Array = fk.weight()
        ...     @property
        ...     def factor_initializer(self):
        ...         return fk.initializers.Constant(self.initial)
        ...     def build(self, key, x):
        ...         return self.with_weights(key, factor=x.shape[-1:])
        ...     def call(self, x):
        ...         return x * fk.engine.align(self.factor, x.ndim)
        >>> layer = Scale(3.0).build(jax.random.key(0), (None, 2))
        >>> layer(jnp.ones((1, 2)))
        Array([[3., 3.]], dtype=float32)
    """

    name: str | None = option(default=None, convert=checked_name, kw_only=True)
    trainable: bool = option(default=True, convert=boolean, kw_only=True)
    dtype: Policy = option(default="float32", convert=get_policy, kw_only=True)

    #: whether masks may reach the layer
    supports_masking: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_class(cls, cls._transparent_field is not None)
        for hook in ("build", "init_state", "init_cache"):
            if hook in cls.__dict__:
                setattr(cls, hook, takes_specs(cls.__dict__[hook], hook))
        for method in ("__call__", "apply"):
            if method in cls.__dict__:
                setattr(cls, method, hides_internal_frames(cls.__dict__[method]))
        make_dataclass(cls)
        register(cls)

    def __post_init__(self) -> None:
        convert_fields(self)
        if not self.trainable:
            pass_on_trainable(self)

    # -- methods that authors override --------------------------------------------------------

    if TYPE_CHECKING:
        # Subclasses name the specs that they need. A type checker accepts each of these overrides
        # only for a signature with `*args: Any` and `**kwargs: Any`.
        def build(self, key: jax.Array, *specs: Tree, **named: Tree) -> Self: ...

        def init_state(self, *specs: Tree, **named: Tree) -> dict[str, Any]: ...

        def init_cache(self, *arguments: Tree, **named: Tree) -> dict[str, Any]: ...

        # optax annotates parameters as arrays and as nested iterables and mappings of arrays. This
        # declaration makes a layer an iterable; at run time only a Sequential is one.
        def __iter__(self) -> Iterator[Any]: ...

    else:

        def build(self, key: jax.Array, *specs: Tree) -> Self:
            """Returns a copy of the layer that holds weights.

            Args:
                key: a PRNG key; each weight derives its own key by name.
                specs: a spec, array or shape for each input; in a model, None for a
                    positional argument that is not an array, such as a string.

            Raises:
                FKerasError: if a class declares weights, has none of them, and no `build` of its own.
            """
            name = lacking_weight(self)
            if name is not None:
                raise FKerasError(
                    f"{self._where}: declares the weight {name!r} and has no `build`, which makes the "
                    "array. Write `def build(self, key, x): return self.with_weights(key, "
                    f"{name}=(x.shape[-1],))` with the shapes of your weights.",
                    layer=self._where,
                )
            return self

        @hides_internal_frames
        def init_state(self, *specs: Tree, slack: int = 0) -> dict[str, Any]:
            """Returns the state before the first call, without caches; `{}` for a layer without state.

            Args:
                specs: a spec, array or shape for each input.
                slack: for the former call `init_state(batch, length)`, which is `init_cache` now.
            """
            # operations have numbers among their arguments, which are no sizes of a cache
            has_cache = type(self).init_cache is not Layer.init_cache
            return caches.from_former_call(self, specs if has_cache else (), slack) or {}

        @functools.partial(takes_specs, kind="init_cache")
        def init_cache(self, size: CacheSize, *specs: Tree) -> dict[str, Any]:
            """Returns the state before the first call, with caches; without caches that of `init_state`.

            Authors of a layer with a cache write `def init_cache(self, size, *specs)`, which returns
            the entries of the cache alone, for the numbers `size.batch`, `size.length` and `size.slack`.

            Args:
                batch: number of rows.
                length: the most tokens of a row.
                specs: a spec, array or shape for each input; a model needs none.
                slack: number of the last tokens that can be taken back from a cache with a window.

            Example:
                >>> import fkeras as fk
                >>> fk.layers.Positions().init_cache(2, 16)
                {'length': Array([0, 0], dtype=int32)}
            """
            return {}

    def call(self, *inputs: Tree, **options: Option) -> Any:
        """Computes the output arrays; for layers without state, randomness or losses."""
        raise NotImplementedError(
            f"{self._where}: has neither `call` nor `forward`. Write `def call(self, x): ...`, "
            "which maps arrays to arrays."
        )

    def forward(self, context: Context, *inputs: Tree, **options: Option) -> Output:
        """Computes the `Output` of a call; passes on the mask of the input, the "and" of several masks."""
        mask = context.mask
        if isinstance(mask, list | tuple | dict):
            # inputs often share one mask
            present = {id(m): m for m in jax.tree.leaves(mask) if m is not None}.values()
            mask = functools.reduce(jnp.logical_and, present) if present else None
        return Output(self.call(*inputs, **options), mask=mask)

    @property
    def _overrides_apply(self) -> bool:
        """Whether `apply` on plain arrays does more than `Layer.apply`, such as checks of values."""
        return type(self).apply is not Layer.apply

    @property
    def input_spec(self) -> Any:
        """Requirements on the inputs: None, an `InputSpec`, or an `InputSpec` for each input."""
        return None

    @property
    def axis_names(self) -> AxisNames:
        """Roles of the letters of `weight(axes=...)`, by which `Trainer(sharding=...)` splits weights."""
        return AxisNames()

    # -- calls --------------------------------------------------------------------------------

    @overload
    def __call__(
        self,
        inputs: Tensor | Sequence[Tensor] | Mapping[str, Tensor] | Sequence[Sequence[Tensor]],
        /,
        *more: Tree,
        training: bool | None = None,
        mask: Tree = None,
        **options: Option,
    ) -> Tensor: ...

    @overload
    def __call__(
        self, first: Tree, second: Tensor, /, *more: Tree, mask: Tree = None, **options: Option
    ) -> Tensor: ...

    # A layer may return a list or a dictionary of arrays. `jax.Array` stands for these too: indexing
    # and unpacking an array type-check, and a union would reject most programs.
    @overload
    def __call__(
        self,
        *inputs: Tree,
        state: Mapping[str, Any] | None = None,
        training: bool | None = None,
        key: jax.Array | None = None,
        mask: Tree = None,
        **options: Option,
    ) -> jax.Array: ...

    def __call__(
        self,
        *inputs: Tree,
        state: Mapping[str, Any] | None = None,
        training: bool | None = None,
        key: jax.Array | None = None,
        mask: Tree = _NO_MASK,
        **options: Option,
    ) -> Any:
        """Computes the value of the layer on these inputs.

        On symbolic tensors the call is recorded and symbolic tensors come back; `training` and
        `mask`, where they are given, are then part of the graph. On arrays the value is computed.

        Raises:
            ValueError: on arrays, where the call changes state that would be lost; use `apply`.
        """
        try:
            given = {} if mask is _NO_MASK else {"mask": mask}
            mask = given.get("mask")
            plain = calls.is_plain(self, inputs, state, key, mask, options)
            stateless = state is None and key is None
            # Six cases, in this order; the arrays of a plain call exclude the first two.
            # 1. Symbolic tensors among the arguments: a call of the graph.
            if not plain and symbolic_arguments(inputs, options, mask):
                if not stateless:
                    raise TypeError(
                        f"{self._where}: a graph records neither state nor key. Pass them to the "
                        "model's apply, not to a call on symbolic tensors."
                    )
                return record(self, inputs, {**options, **given}, training)
            # 2. Labels instead of weights: optax takes the layer for a function.
            if not plain and labels.holds_labels(self):
                return labels.labels_for(self, inputs)
            # 3. Constants in the `call` of a composition: a call of its graph.
            kind = composition.tensor_class(self, inputs, options) if stateless else None
            if kind is not None:
                return record(self, inputs, {**options, **given}, training, kind=kind)
            # 4. Arrays alone: one compiled program, of which only the value is needed.
            if plain and stateless and not self._overrides_apply:
                value, updates = calls.value_and_updates(self, inputs, bool(training))
            # 5. Everything else: the value of `apply`.
            else:
                mode: Any = {"state": state, "training": bool(training), "key": key, "mask": mask}
                out = self.apply(*inputs, **mode, **options)
                value, updates = out.value, out.updates
            # 6. A changed state, which the value alone would lose.
            if updates:
                raise calls.lost_updates(self, updates)
            return value
        # not by `hides_internal_frames`, which takes half a microsecond of each call
        except BaseException as error:
            hide_internal_frames(error)
            raise

    def apply(
        self,
        *inputs: Tree,
        state: Mapping[str, Any] | None = None,
        training: bool = False,
        key: jax.Array | None = None,
        mask: Tree = None,
        **options: Option,
    ) -> Output:
        """Computes the `Output` of the layer on arrays: value, updates, losses, metrics and mask.

        Args:
            inputs: arrays, or lists, tuples and dictionaries of them.
            state: what `init_state` returned, or a later state.
            training: whether this is a training call.
            key: a PRNG key, where the call draws random numbers.
            mask: the inputs' mask.
            options: the layer's own options of a call.
        """
        try:
            plain = calls.is_plain(self, inputs, state, key, mask, options)
            if not plain and symbolic_arguments(inputs, options, mask):
                raise TypeError(
                    f"{self._where}: apply computes on arrays, received a symbolic tensor. Call the "
                    "layer instead: `y = layer(x)` records it."
                )
            try:
                return calls.apply(self, inputs, state, training, key, mask, options, plain)
            except (RuntimeError, ValueError) as error:  # JAX raises either for a donated array
                donated.check_layer(self, error, (state, inputs))
                raise
        except BaseException as error:
            hide_internal_frames(error)
            raise

    #: `forward` with the engine's checks and casts; see `Context.run`
    _checked_forward = calls.run

    # -- values -------------------------------------------------------------------------------

    @property
    def built(self) -> bool:
        """Whether the layer holds its weights; always true for a layer without weights."""
        if self.__dict__.get("_built"):
            return True
        return (
            type(self).build is Layer.build
            and lacking_weight(self) is None
            and all(child.built for path, child in sublayers(self) if path)
        )

    @property
    def policy(self) -> DTypePolicy:
        """The layer's dtype policy.

        A layer whose weights were all cast to another floating-point dtype, for example by
        `jax.tree.map`, computes in their dtype.
        """
        if not self.__dict__.get("_built") or self.dtype.name.startswith("mixed_"):
            return self.dtype
        dtype = cast_dtype(self)
        return self.dtype if dtype is None else DTypePolicy(dtype)

    @property
    def stateful(self) -> bool:
        """Whether the layer may have state."""
        return type(self).init_state is not Layer.init_state

    def replace(self, **fields: Field) -> Self:
        """Returns a copy with other values in some fields, weights included.

        `trainable` reaches all layers inside; see `fkeras.engine.layer.trainable`.
        """
        try:
            return _replaced(self, fields)
        except BaseException as error:
            hide_internal_frames(error)
            raise

    def with_weights(self, key: jax.Array, **shapes: Any) -> Self:
        """Returns a copy with weights drawn by their initializers.

        Args:
            key: a PRNG key.
            shapes: the shape of each weight by name; None leaves out a weight.
        """
        return self.replace(**make_weights(self, key, shapes), _built=True)

    def _unbuilt(self) -> Self:
        """Returns a copy without weights."""
        weights = {name: None for name in skeleton_of(self).weights}
        children = map_children(self, lambda _, child: child._unbuilt())
        return self.replace(**weights, **children, _built=False)

    def state_spec(self, *specs: Tree) -> dict[str, Any]:
        """Returns shapes and dtypes of the state, without allocating the state."""
        return jax.eval_shape(lambda: self.init_state(*specs))

    def reset_state(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the state with the carries of stateful layers at their initial values."""
        return reset_carries(self, state)

    def count_params(self) -> int:
        """Returns the number of scalars in all weights, trainable and frozen.

        Raises:
            ValueError: for a layer that is not built.
        """
        if not self.built:
            raise ValueError(
                f"{self._where}: has no weights to count yet. Build it: "
                "`layer.build(jax.random.key(0), (None, 8))`."
            )
        return sum(int(np.prod(w.shape)) for w in leaves_of(self) if w is not None)

    @property
    def at(self) -> WeightPlaces[Self]:
        """Weights by path: `model.at["dense/kernel"].set(w)` returns a copy with another array.

        `.get()` returns the array, and `.apply(function)` a copy with a function of the array.
        """
        return WeightPlaces(self)

    def get_weights(self, state: Mapping[str, Any] | None = None) -> list[np.ndarray]:
        """Returns weights and state as NumPy arrays, in Keras's order."""
        try:
            return weight_lists.get_weights(self, state)
        except (RuntimeError, ValueError) as error:  # JAX raises either for a donated array
            donated.check_layer(self, error, state)
            raise

    def set_weights(
        self, values: list[Any], state: Mapping[str, Any] | None = None
    ) -> tuple[Self, dict[str, Any]]:
        """Returns `(layer, state)` with other arrays, from a list in Keras's order."""
        try:
            result = weight_lists.set_weights(self, values, state)
        except BaseException as error:
            hide_internal_frames(error)
            raise
        line = "model, state = model.set_weights(values, state)"
        return returned(result, "Layer.set_weights", line)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments as JSON data."""
        config = configuration(self)
        first_entries = {name: config.pop(name) for name in ("name", "trainable", "dtype")}
        return {**first_entries, **config, "dtype": self.dtype.name}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates the layer of a configuration; `custom_objects` maps names to classes of users."""
        return from_configuration(cls, config, custom_objects)

    def to_json(self, **options: Any) -> str:
        """Returns `get_config` as JSON text."""
        return json.dumps(self.get_config(), **options)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        # static data first: comparing arrays may wait for the device
        if skeleton_of(self) != skeleton_of(other):
            return False
        pairs = zip(leaves_of(self), leaves_of(other), strict=True)
        try:
            return all(same_leaf(a, b) for a, b in pairs)
        except (RuntimeError, ValueError) as error:  # JAX raises either for a donated array
            for layer in (self, other):
                donated.check_layer(layer, error)
            raise

    def __hash__(self) -> int:
        # static data only: arrays have no hash, and equal layers have equal static data
        return hash(skeleton_of(self))

    def __repr__(self) -> str:
        fields = dataclasses.fields(
            self
        )  # no skeleton, which would be cached, before the end of `__init__`
        return describe(self, weights=[f.name for f in fields if WEIGHT in f.metadata])

    def __reduce__(self):
        # without caches, and through `Skeleton.join`, which runs no constructor
        return (_join, (skeleton_of(self), leaves_of(self)))

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(rejected_assignment(self, name, value))

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{self._where}: a layer is a value, so {name!r} cannot be deleted. Make a copy: "
            f"`layer.replace({name}=...)`."
        )

    if not TYPE_CHECKING:  # a type checker would accept every attribute
        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = rejected_arithmetic
        __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __neg__ = rejected_arithmetic

        def __getattr__(self, name: str) -> Any:
            # children of an unflattened layer are joined at first use; see `skeleton`
            skeleton = self.__dict__.get("_skeleton")
            if skeleton is not None and name in skeleton.children:
                value = skeleton.child(name, self.__dict__["_leaves"])
                self.__dict__[name] = value
                return value
            declared = getattr(type(self), name, None)
            if isinstance(declared, property):  # which raised an AttributeError: show that error
                return declared.__get__(self)
            raise MissingAttributeError(self, name)


def _replaced(layer: SomeLayer, fields: Mapping[str, Field]) -> SomeLayer:
    """Returns a copy of a layer with other values in some fields."""
    declared = {f.name: f for f in dataclasses.fields(layer)}
    unknown = next((f for f in fields if f not in declared and f != "_built"), None)
    if unknown is not None:
        raise TypeError(
            f"{layer._where}: there is no field {unknown!r} to replace. Its fields: "
            f"{', '.join(sorted(declared))}."
        )
    skeleton = skeleton_of(layer)
    copy = object.__new__(type(layer))
    attributes = {k: v for k, v in layer.__dict__.items() if k not in CACHES}
    attributes.update({name: getattr(layer, name) for name in skeleton.children})
    for name, value in fields.items():
        if name in skeleton.weights:
            attributes[name] = value
        elif name in declared and declared[name].init and not any(layers_in(value)):
            attributes[name] = convert_value(type(layer).__name__, declared[name], value)
        else:  # converters of child layers would drop the children's weights
            attributes[name] = freeze_value(value)
    copy.__dict__.update(attributes)
    if not copy.trainable:
        pass_on_trainable(copy)
    elif not layer.trainable:  # from frozen to trainable
        pass_on_trainable(copy, explicit=fields)
    return copy


def _join(skeleton: Skeleton, leaves: tuple) -> Layer:
    return skeleton.join(leaves)


make_dataclass(Layer)
