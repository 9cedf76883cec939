"""`TestCase`: Keras's assertions, and the checks of `run_layer_test` on values of fkeras."""

import json
import pathlib
import tempfile
import unittest

import jax
import jax.numpy as jnp
import keras
import numpy as np
from keras.src import tree
from keras.src.backend import standardize_dtype
from keras.src.testing import test_case

import fkeras as fk
from fka import names, networks, proxies
from fka.derived import CUSTOM_OBJECTS
from fka.names import KerasTensor, Unsupported, flat
from fkeras.engine.call.strings import reads_strings


class _Raises:
    """Accepts any error but those of a broken test, since fkeras has other words and types."""

    def __init__(self, expected):
        self.expected, self.exception = expected, None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            raise AssertionError(f"NOT RAISED: {self.expected}")
        self.exception = error
        if issubclass(kind, unittest.SkipTest):
            return False
        broken = (AttributeError, NameError, AssertionError)
        is_expected = issubclass(kind, self.expected)
        return is_expected or (issubclass(kind, Exception) and not issubclass(kind, broken))


_SPACES = (
    (fk.layers, fk.Layer),
    (fk.losses, fk.losses.Loss),
    (fk.metrics, fk.metrics.Metric),
    (fk.optimizers, fk.optimizers.Optimizer),
    (fk.initializers, fk.initializers.Initializer),
    (fk.regularizers, fk.regularizers.Regularizer),
    (fk.constraints, fk.constraints.Constraint),
    (fk.optimizers.schedules, fk.optimizers.schedules.LearningRateSchedule),
)


class TestCase(test_case.TestCase):
    """Replaces `keras.src.testing.TestCase`."""

    def assertRaises(self, expected, *args, **kwargs):  # noqa: N802
        if not args:
            return _Raises(expected)
        with _Raises(expected):
            args[0](*args[1:], **kwargs)

    def assertRaisesRegex(self, expected, regex, *args, **kwargs):  # noqa: N802
        return self.assertRaises(expected, *args, **kwargs)

    def assertWarnsRegex(self, expected, regex, *args, **kwargs):  # noqa: N802
        return self.assertWarns(expected, *args, **kwargs)

    def convert_to_numpy(self, x):
        x = names.unwrap(x)
        if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x = jax.random.key_data(x)
        return (
            np.array([np.asarray(v) for v in x]) if isinstance(x, list | tuple) else np.asarray(x)
        )

    def assertSparse(self, x, sparse=True):  # noqa: N802
        if sparse:
            raise Unsupported("sparse or ragged tensors")

    assertRagged = assertSparse  # noqa: N815

    def run_class_serialization_test(self, instance, custom_objects=None):
        value = names.unwrap(instance)
        text = _text(value)
        self._custom = {**(names.unwrap(custom_objects) or {}), **CUSTOM_OBJECTS}
        known = {"custom_objects": self._custom} if isinstance(value, fk.Layer) else {}
        again = type(value).from_config(value.get_config(), **known)
        self.assertEqual(text, _text(again))
        for space, base in _SPACES:
            if isinstance(value, base):
                data = json.loads(json.dumps(space.serialize(value), default=_plain))
                self.assertEqual(text, _text(space.deserialize(data, **known)))
        return names.wrap(again)

    def run_layer_test(
        self,
        layer_cls,
        init_kwargs,
        input_shape=None,
        input_dtype=None,
        input_data=None,
        call_kwargs=None,
        *,
        supports_masking=None,
        expected_mask_shape=None,
        run_training_check=True,
        run_mixed_precision_check=True,
        assert_built_after_instantiation=False,
        **expected,
    ):
        if expected.get("input_sparse") or expected.get("input_ragged"):
            raise Unsupported("sparse or ragged tensors")
        is_ours = isinstance(layer_cls, type) and issubclass(layer_cls, networks.LayerProxy)
        if not is_ours or layer_cls._in_test:
            raise Unsupported("a class that a test derives: Layer")
        call_kwargs = call_kwargs or {}
        if input_shape is not None and input_dtype is None:
            input_dtype = tree.map_shape_structure(lambda _: "float32", input_shape)

        def make(**more):
            return layer_cls(**{**(init_kwargs or {}), **more})

        def call(layer, x):
            return layer(**x, **call_kwargs) if isinstance(x, dict) else layer(x, **call_kwargs)

        def symbols():
            if input_shape is None:
                kind = lambda x: KerasTensor(np.shape(x), np.asarray(x).dtype)
                return tree.map_structure(kind, input_data)
            return _structure(KerasTensor, input_shape, input_dtype)

        def check(layer, output=None, is_computed=True):
            self.assertTrue(layer.built)
            counts = {"trainable_weights": layer.trainable_weights}
            counts["non_trainable_weights"] = layer.non_trainable_weights
            if is_computed and output is not None:
                counts["losses"] = layer.losses
            for name, found in counts.items():
                if expected.get(f"expected_num_{name}") is not None:
                    self.assertLen(found, expected[f"expected_num_{name}"], msg=name)
            if output is None:
                return
            if (shapes := expected.get("expected_output_shape")) is not None:
                fits = lambda shape, x: (
                    len(shape) == len(x.shape)
                    and all(e in (None, d) for e, d in zip(shape, x.shape, strict=True))
                )
                found = tree.map_structure_up_to(output, fits, shapes, output)
                received = tree.map_structure(lambda x: x.shape, output)
                self.assertTrue(all(tree.flatten(found)), f"shapes {shapes}, received {received}")
            if (dtypes := expected.get("expected_output_dtype")) is not None:
                found = tree.map_structure(lambda x: standardize_dtype(x.dtype), output)
                self.assertEqual(dtypes, found, "dtypes of outputs")
            if is_computed and expected.get("expected_output") is not None:
                values = tree.flatten(expected["expected_output"])
                for value, x in zip(values, tree.flatten(output), strict=True):
                    self.assertAllClose(x, value, msg="unexpected output")

        layer = make()
        self.run_class_serialization_test(layer, expected.get("custom_objects"))
        if supports_masking and not layer._value.supports_masking:
            raise AssertionError("the layer does not support masks")
        if input_data is None and input_shape is None:
            return
        if assert_built_after_instantiation:
            self.assertTrue(layer.built)
        shape = input_shape
        if shape is None:
            shape = tree.map_structure(lambda x: tuple(np.shape(x)), input_data)
        if isinstance(shape, dict):
            layer.build(**{f"{k.removesuffix('_shape')}_shape": v for k, v in shape.items()})
        else:
            layer.build(shape)
        check(layer)
        layer = make()
        check(layer, call(layer, symbols()), is_computed=False)
        layer, data = make(), input_data
        if data is None:
            draw = lambda s, d: (keras.random.uniform(s, dtype="float32") * 3).astype(d)
            data = _structure(draw, input_shape, input_dtype)
        check(layer, call(layer, data))
        if expected_mask_shape is not None:
            masks = layer.compute_mask(data)
            if masks is None:
                raise Unsupported("compute_mask")
            self.assertEqual(tuple(expected_mask_shape), tuple(masks.shape))
        if run_training_check:
            self._training(layer, data, call_kwargs)
        if run_mixed_precision_check:
            layer = make(dtype="mixed_float16")
            halves = lambda t: KerasTensor(
                t.shape,
                "float16" if layer._value._autocast and "float" in str(t.dtype) else t.dtype,
            )
            recorded = flat([call(layer, tree.map_structure(halves, symbols()))])
            for a, b in zip(flat([call(layer, data)]), recorded, strict=True):
                self.assertEqual(str(a.dtype), str(b.dtype), "computed and recorded dtype")
            self.assertNotIn("float16", [w.dtype for w in layer.weights])
        self._saved(make(), symbols(), call)

    def _training(self, layer, data, call_kwargs):
        args, kwargs = ([], data) if isinstance(data, dict) else ([data], {})
        inputs, options = layer._arguments(*names.unwrap((args, {**kwargs, **call_kwargs})))
        options.pop("training", None)
        trained, frozen = fk.partition(layer._value)
        state, key = layer._state, proxies.next_key()

        def score(trained):
            out = fk.combine(trained, frozen).apply(
                *inputs, state=state, training=True, key=key, **options
            )
            floats = [x for x in flat([out.value]) if jnp.issubdtype(x.dtype, jnp.floating)]
            terms = [x.astype("float32") for x in floats] + list(out.losses)
            return sum(map(jnp.sum, terms), jnp.float32(0)), out.updates

        if not reads_strings(layer._value):
            gradients, _ = jax.jit(jax.grad(score, has_aux=True))(trained)
            self.assertTrue(all(jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)))

    def _saved(self, layer, inputs, call):
        if isinstance(inputs, dict):
            return
        model = fk.Model(inputs, call(layer, inputs))
        model = model if model.built else model.build(proxies.next_key())
        state = model.init_state()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "model.keras")
            fk.save_model(path, model, state)
            again, again_state = fk.load_model(path, custom_objects=self._custom)
        weights = zip(model.get_weights(state), again.get_weights(again_state), strict=True)
        for a, b in weights:
            np.testing.assert_array_equal(a, b)


def _plain(x):
    if isinstance(x, np.ndarray | np.generic):
        return x.tolist()
    return x.get_config() if hasattr(x, "get_config") else repr(x)


def _text(value):
    return json.dumps(value.get_config(), sort_keys=True, default=_plain)


def _structure(function, shape, dtype):
    if test_case.is_shape_tuple(shape):
        return function(tuple(shape), dtype)
    if isinstance(shape, dict):
        return {
            k.removesuffix("_shape"): _structure(function, v, dtype[k]) for k, v in shape.items()
        }
    return type(shape)(_structure(function, s, d) for s, d in zip(shape, dtype, strict=True))
