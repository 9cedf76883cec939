"""Layers of fkeras for the classes that tests derive from `Layer`, with weights of their own."""

import dataclasses
import functools
import inspect
from typing import Any, ClassVar

import jax
import keras
from keras.src import tree

import fkeras as fk
from fka import networks
from fka.names import Unsupported, unwrap
from fkeras.engine.config.policy import cast_floats

_PLACES = {True: ("w0", "w1", "w2", "w3"), False: ("n0", "n1")}
CUSTOM_OBJECTS = {}  # classes by name, for configurations and files


class Own(networks.Weight):
    """A weight that a class of a test adds: an array of the call, or of the built layer."""

    @property
    def value(self):
        return self.owner._arrays[self.index]

    def assign(self, value):
        raise Unsupported("assignment to a weight of a class that a test derives")


class Derived(fk.Layer):
    """Calls the methods of an object of a test."""

    settings: Any = fk.option(default=(), kw_only=True)  # arguments of the class in the test
    test: Any = dataclasses.field(default=None, init=False)
    w0: Any = fk.weight()
    w1: Any = fk.weight()
    w2: Any = fk.weight()
    w3: Any = fk.weight()
    n0: Any = fk.weight(trainable=False)
    n1: Any = fk.weight(trainable=False)

    made: ClassVar[Any] = None  # the class in the test

    supports_masking = property(lambda self: self._declared("supports_masking") or False)

    def _declared(self, name):
        """Returns an attribute that the test, not its base class in fkeras, defines; None if none."""
        found = name in self.test.__dict__ or hasattr(type(self.test), name)
        return unwrap(getattr(self.test, name)) if found else None

    def __getattr__(self, name):
        is_of_cell = name in ("state_size", "output_size", "get_initial_state")
        found = self._declared(name) if is_of_cell else None
        return super().__getattr__(name) if found is None else found

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return unwrap(cls.made(**config["settings"]))

    def build(self, key, *specs):
        arrays, free = {}, {k: list(places) for k, places in _PLACES.items()}
        draw = lambda initial, shape, dtype: initial(
            jax.random.fold_in(key, len(arrays)), tuple(shape), dtype
        )

        def add_weight(shape=(), initializer=None, dtype=None, trainable=True, name=None, **more):
            if more or not free[trainable]:
                raise Unsupported(f"add_weight with {[*more]}")
            initial = fk.initializers.get(unwrap(initializer or "glorot_uniform"))
            place = free[trainable].pop(0)
            arrays[place] = draw(initial, shape, dtype or self.policy.variable_dtype)
            return Own(self.test, place)

        # such a layer is a model, and such a generator changes in the call
        unexpressed = (networks.LayerProxy, keras.random.SeedGenerator)
        if any(isinstance(v, unexpressed) for v in vars(self.test).values()):
            raise Unsupported("a class that a test derives, with layers or generators inside")
        self.test.add_weight = add_weight
        if "build" in self.test._own:
            shapes = [tree.map_structure(lambda s: tuple(s.shape), spec) for spec in specs]
            self.test.build(*shapes[: len(inspect.signature(self.test.build).parameters)])
        self.test._arrays = arrays
        return self.replace(**arrays, _built=True)

    def forward(self, context, *inputs, **options):
        names = inspect.signature(self.test.call).parameters
        for name in ("training", "mask"):
            if name in names or ("kwargs" in names and name == "training"):
                options[name] = getattr(context, name)
        dtype, before = self.policy.compute_dtype, self.test._arrays
        places = [n for n in sum(_PLACES.values(), ()) if getattr(self, n) is not None]
        arrays = {n: cast_floats(getattr(self, n), dtype) for n in places}
        self.test._arrays = arrays
        try:
            value = self.test.call(*inputs, **options)
        finally:
            self.test._arrays = before
        return fk.Output(value, mask=context.mask if self.supports_masking else None)


@functools.cache
def _class_for(made):
    found = type(made.__name__, (Derived,), {"made": made, "__module__": made.__module__})
    CUSTOM_OBJECTS[made.__name__] = found
    return found


def derived(test, options):
    """Returns the layer of fkeras for an object of a test."""
    args, kwargs = test._given
    bound = inspect.signature(type(test).__init__).bind(test, *args, **kwargs).arguments
    settings = {k: v for k, v in list(bound.items())[1:] if k != "kwargs"}
    settings |= bound.get("kwargs", {})
    layer = _class_for(type(test))(settings=unwrap(settings), **unwrap(options))
    object.__setattr__(layer, "test", test)
    return layer
