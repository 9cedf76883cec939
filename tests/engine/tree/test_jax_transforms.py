"""Models under optax and JAX's functions: labels, donated arrays, structures, keys, constants."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, ops
from fkeras.engine.tree.donated import DonatedError

KEY = jax.random.key(0)
X = np.ones((2, 3), "float32")


def build(units=4, activation=None, name="a"):
    dense = layers.Dense(units, activation=activation, name=name)
    return fk.Sequential([fk.Input((3,)), dense, layers.Dense(1, name="b")]).build(KEY)


MODEL = build()


def one_step(optimizer, params, grads):
    deltas, _ = optimizer.update(grads, optimizer.init(params), params)
    return optax.apply_updates(params, deltas)


def test_optax_takes_labels_and_masks_that_tree_map_made():
    labels = jax.tree.map(lambda a: "train" if a.ndim > 1 else "keep", MODEL)
    kinds = {"train": optax.sgd(1.0), "keep": optax.set_to_zero()}
    grads = jax.tree.map(jnp.ones_like, MODEL)
    by_label = optax.multi_transform(kinds, labels)
    masks = jax.tree.map(lambda a: a.ndim > 1, MODEL)
    masked = optax.chain(
        optax.masked(optax.scale(0.0), jax.tree.map(np.invert, masks)), optax.sgd(1.0)
    )
    as_function = optax.multi_transform(kinds, lambda _: labels)
    for optimizer in (by_label, masked, as_function):
        new = one_step(optimizer, MODEL, grads)
        for path, old_weight, new_weight in zip(
            ("a/kernel", "a/bias", "b/kernel", "b/bias"),
            jax.tree.leaves(MODEL),
            jax.tree.leaves(new),
            strict=True,
        ):
            np.testing.assert_array_equal(
                new_weight, old_weight - 1 if "kernel" in path else old_weight
            )


@pytest.mark.exhaustive
def test_a_trainer_takes_the_same_labels():
    labels = jax.tree.map(lambda a: "train" if a.ndim > 1 else "keep", MODEL)
    by_path = {
        path: "train" if "kernel" in path else "keep"
        for path in ("a/kernel", "a/bias", "b/kernel", "b/bias")
    }
    kinds = {"train": optax.sgd(0.1), "keep": optax.set_to_zero()}
    runs = []
    for form in (labels, by_path, lambda weights: {path: by_path[path] for path in weights}):
        trainer = fk.Trainer(optax.multi_transform(kinds, form), "mse")
        runs.append(trainer.step(trainer.init(MODEL, KEY), (X, X[:, :1]))[0].model)
    assert runs[0] == runs[1] == runs[2]
    assert (runs[0].layers["a"].kernel != MODEL.layers["a"].kernel).any()
    np.testing.assert_array_equal(runs[0].layers["a"].bias, MODEL.layers["a"].bias)
    # labels of frozen weights are unused
    frozen = fk.freeze(MODEL, "a")
    trainer = fk.Trainer(optax.multi_transform(kinds, labels), "mse")
    new = trainer.step(trainer.init(frozen, KEY), (X, X[:, :1]))[0].model
    np.testing.assert_array_equal(new.layers["a"].kernel, MODEL.layers["a"].kernel)


def test_a_copy_of_labels_labels_traced_weights():
    labels = jax.tree.map(lambda a: "train" if a.ndim > 1 else "keep", MODEL)
    weights, copy = MODEL.replace(name="copy"), labels.replace(name="copy")
    seen = []
    jax.jit(lambda weights: seen.append(copy(weights)))(weights)
    assert jax.tree.leaves(seen[0]) == jax.tree.leaves(labels)


def test_labels_of_another_model_and_calls_of_labels_are_rejected():
    kinds = {"a": optax.sgd(0.1)}
    other = jax.tree.map(lambda a: "a", build(name="other"))
    trainer = fk.Trainer(optax.multi_transform(kinds, other), "mse")
    with pytest.raises(fk.FKerasError, match="no label for the weight 'a/bias'") as error:
        trainer.init(MODEL, KEY)
    assert "by path" in error.value.__notes__[-1]
    with pytest.raises(fk.FKerasError, match="its leaves are labels"):
        other(X)
    trainer = fk.Trainer(optax.multi_transform(kinds, lambda _: other), "mse")
    with pytest.raises(ValueError, match="pytree|node type") as error:  # JAX 0.10 and 0.7
        trainer.init(MODEL, KEY)
    assert "{'a/kernel': 'label', ...}" in error.value.__notes__[-1]


DIFFERENT = {
    "units": (lambda: build(5), "'a': units=4", "'a': units=5"),
    "activation": (lambda: build(activation="relu"), "activation=linear", "activation=relu"),
    "frozen": (lambda: fk.freeze(MODEL, "b"), "'b': trainable=True", "'b': trainable=False"),
    "name": (lambda: build(name="c"), "with 'a'", "with 'c'"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_mismatched_structures_show_their_first_difference(name):
    make, own_text, other_text = DIFFERENT[name]
    structure, other_structure = (jax.tree.structure(m) for m in (MODEL, make()))
    assert structure != other_structure
    assert own_text in repr(structure) and other_text in repr(other_structure)
    with pytest.raises(ValueError, match="differs from the other by") as error:
        jax.tree.map(lambda a, b: a, MODEL, make())
    assert own_text in str(error.value) and other_text in str(error.value)


def test_structures_with_other_numbers_of_weights_show_the_paths_of_both():
    x = fk.Input((3,))
    other = fk.Model(x, layers.Dense(1, name="b")(x)).build(KEY)
    model = fk.Model(x, layers.Dense(1, name="b")(layers.Dense(4, name="a")(x))).build(KEY)
    adam = fk.Trainer("adam", "mse")
    for make in (
        lambda model: model,
        lambda model: [model],
        lambda model: adam.init(model, KEY),
        lambda model: optax.adam(0.1).init(model),
    ):
        with pytest.raises(ValueError, match="a/kernel a/bias b/kernel b/bias|with 'a'|'a/kernel'"):
            jax.tree.map(lambda a, b: a, make(model), make(other))
    pairs = jax.tree_util.tree_leaves_with_path(adam.init(other, KEY))
    paths = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in pairs]
    assert paths[:2] == ["model/b/kernel", "model/b/bias"]


def test_differences_of_graphs_are_shown():
    x = fk.Input((3,))
    dense = layers.Dense(3, name="d")
    once, twice = (fk.Model(x, y).build(KEY) for y in (dense(x), dense(dense(x))))
    y = layers.Dropout(0.5, name="drop")(x)
    z = layers.Dropout(0.5, name="drop")(x, training=False)
    for a, b, own_text, other_text in (
        (once, twice, "a graph of 2 calls", "a graph of 3 calls"),
        (fk.Model(x, y), fk.Model(x, z), "training None", "training False"),
    ):
        structure, other_structure = map(jax.tree.structure, (a, b))
        assert structure != other_structure
        assert own_text in repr(structure) and other_text in repr(other_structure)
    assert "differs" not in repr(jax.tree.structure(build(units=7)))


def test_trees_of_shapes_and_other_values_compare():
    def shapes(model):
        return jax.tree.map(lambda a: a.shape, model)

    assert shapes(MODEL) == shapes(MODEL)
    assert shapes(MODEL) != shapes(build(5))
    pairs = jax.tree.map(lambda a: (a.shape, str(a.dtype)), MODEL)
    assert pairs == jax.tree.map(lambda a: (a.shape, str(a.dtype)), MODEL)
    assert pairs != jax.tree.map(lambda a: (a.shape, "int8"), MODEL)
    structs = jax.eval_shape(lambda m: m, MODEL)
    assert structs == jax.eval_shape(lambda m: m, MODEL)
    for other in (pairs, structs, jax.tree.map(lambda a: None, MODEL)):
        assert (shapes(MODEL) == other) is False
        assert (MODEL == other) is False


@pytest.mark.exhaustive
def test_a_donated_model_or_run_names_the_value_to_use():
    trainer = fk.Trainer("adam", "mse")
    run = trainer.init(jax.tree.map(jnp.array, MODEL), KEY)
    step = jax.jit(trainer.step, donate_argnums=0)
    batch = (X, X[:, :1])
    new, _ = step(run, batch)
    model = run.model
    uses = [
        lambda: model(X),
        lambda: model.apply(X, training=True, key=KEY),
        lambda: model.get_weights(),
        lambda: model == new.model,
        lambda: jax.grad(lambda m: m(X).sum())(model),
        lambda: fk.save_model("never.keras", model),
        lambda: fk.save_weights("never.npz", model),
    ]
    for use in uses:
        with pytest.raises(DonatedError, match="Use the value|Save the value"):
            use()
    for use in (
        lambda: trainer.step(run, batch),
        lambda: trainer.fit(run, *batch, verbose=0),
        lambda: trainer.evaluate(run, *batch, verbose=0),
        lambda: trainer.predict(run, X),
        lambda: trainer.run(run, batch, 1),
    ):
        with pytest.raises(DonatedError, match="run, logs = step"):
            use()
    assert new.model(X).shape == (2, 1)


KEYS = {
    "untyped": (lambda: jax.random.PRNGKey(0), "instead of jax.random.PRNGKey"),
    "number": (lambda: 3, r"received int. Make a key: jax.random.key\(3\)"),
    "none": (lambda: None, "received NoneType"),
    "several": (lambda: jax.random.split(KEY), r"array of keys of shape \(2,\)"),
    "data": (lambda: np.zeros(4, "uint32"), r"uint32\[4\]"),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", KEYS)
def test_build_init_and_calls_take_the_same_keys(name):
    make, message = KEYS[name]
    trainer = fk.Trainer("adam", "mse")
    unbuilt = fk.engine.unbuilt(MODEL)
    for use in (
        lambda: unbuilt.build(make()),
        lambda: layers.Dense(2).build(make(), (None, 3)),
        lambda: trainer.init(unbuilt, make()),
        lambda: trainer.init(MODEL, make()),
    ):
        with pytest.raises(TypeError, match=message):
            use()
    if name != "none":
        with pytest.raises(TypeError, match=message):
            MODEL.apply(X, training=True, key=make())


@pytest.mark.exhaustive
def test_keys_of_other_generators_build_and_train():
    key = jax.random.key(0, impl="rbg")
    trainer = fk.Trainer("adam", "mse")
    assert trainer.init(fk.engine.unbuilt(MODEL), key).model == fk.engine.unbuilt(MODEL).build(key)


class Positions(fk.Model):
    """Adds an embedding of the positions, as in transformers."""

    length: int
    units: int = 4

    def call(self, x):
        positions = layers.Embedding(self.length, self.units, name="places")(
            ops.arange(self.length)
        )
        return x + ops.expand_dims(positions, 0)


SEQUENCES = np.arange(40, dtype="float32").reshape(2, 5, 4)


@pytest.mark.exhaustive
def test_a_layer_called_on_a_constant_belongs_to_the_model(tmp_path):
    x = fk.Input((5, 4))
    model = fk.Model(x, layers.Dense(1)(Positions(5)(x)))
    trainer = fk.Trainer("adam", "mse", remat="full")
    run = trainer.init(model, KEY)
    inner = run.model.layers["positions"]
    table = inner.layers["places"].embeddings
    np.testing.assert_allclose(inner(SEQUENCES), SEQUENCES + np.asarray(table)[None])
    new, _ = trainer.fit(run, SEQUENCES, np.zeros((2, 5, 1), "float32"), verbose=0)
    assert (new.model.layers["positions"].layers["places"].embeddings != table).any()
    assert "places" in inner.summary(show=False)
    plain = inner.functional()
    config = layers.serialize(plain)
    assert layers.deserialize(config) == fk.engine.unbuilt(plain)
    for saved, custom_objects in ((plain, {}), (run.model, {"Positions": Positions})):
        fk.save_model(tmp_path / "m.keras", saved)
        loaded, _ = fk.load_model(tmp_path / "m.keras", custom_objects=custom_objects)
        np.testing.assert_array_equal(loaded(SEQUENCES), saved(SEQUENCES))


@pytest.mark.exhaustive
def test_state_and_randomness_of_constant_calls():
    class Noisy(fk.Model):
        def call(self, x):
            mean = layers.BatchNormalization()(np.ones((3, 4), "float32"))
            return x + ops.sum(mean, 0, keepdims=True) * layers.Dropout(0.5)(
                np.ones((1, 4), "float32")
            )

    model = Noisy().build(KEY, (None, 4))
    state = model.init_state()
    zeros = np.zeros((2, 4), "float32")
    out = model.apply(zeros, state=state, training=True, key=jax.random.key(2))
    assert out.updates["batch_normalization"]["moving_mean"][0] > 0
    plain = model(zeros, state=state)
    np.testing.assert_allclose(plain, 3 * np.ones((2, 4)), rtol=1e-2)


def test_only_calls_that_must_be_kept_are_recorded():
    embedding = layers.Embedding(5, 4).build(KEY, (5,))
    seen = []

    class Uses(fk.Model):
        table: fk.Layer

        def call(self, x):
            scaled = layers.Reshape((5, 4))(np.ones((1, 5, 2, 2), "float32"))
            seen.append(scaled)
            lifted = ops.lift(lambda a: a + embedding(np.arange(5))[None])(x)
            fixed = embedding(np.arange(5), key=KEY)
            seen.append(fixed)
            return lifted + scaled + self.table(np.arange(5)[None])

    model = Uses(embedding).build(KEY, (None, 5, 4))
    assert "table" in model.layers and model.count_params() == 20
    assert model.layers["table"].embeddings is embedding.embeddings
    assert all(isinstance(value, jax.Array) for value in seen)
    with pytest.raises(fk.FKerasError, match="has no weights yet"):
        layers.Embedding(5, 4)(np.arange(5))
