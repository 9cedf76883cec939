"""Names of a layer: completion shows no plumbing, subclasses may use the names, help shows arguments."""

import inspect
import pydoc
import re

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.call.caches import KeepsTokens, tokens_of
from fkeras.engine.call.strings import HandlesStrings, makes_strings, reads_strings

KEY = jax.random.key(0)
PLUMBING = (
    *("autocast", "child_fields", "complete_options", "keras_form", "loses_masks", "makes_strings"),
    *(
        "masks_inputs",
        "overrides_apply",
        "reads_strings",
        "resolve",
        "transparent_field",
        "unbuilt",
    ),
    *("weight_roles", "where"),
)


def test_public_names_of_a_layer_are_for_users():
    assert not {*PLUMBING} & {*dir(layers.Dense(3))}
    fields = set(layers.Dense.__dataclass_fields__)
    names = {name for name in dir(layers.Dense(3)) if not name.startswith("_")} - fields
    assert len(names) < 23, sorted(names)


def test_rules_of_some_layers_are_no_members_of_layer():
    """Caches, strings, Keras's files and interceptions: layers declare them beside `Layer`."""
    rules = {
        name for base in (KeepsTokens, HandlesStrings) for name in vars(base) if name[1] != "_"
    }
    rules |= {"_keras_form", "_loses_masks", "_complete_options", "_computed_layer"}
    assert rules >= {"_capacity", "_makes_strings"}
    assert not rules & {*dir(fk.Layer)}
    assert len([n for n in dir(fk.Layer) if n.startswith("_") and not n.startswith("__")]) <= 10
    plain, lookup = layers.ReLU(), layers.StringLookup(vocabulary=["a"])
    assert (reads_strings(plain), makes_strings(plain), reads_strings(lookup)) == (
        False,
        False,
        True,
    )
    assert tokens_of(plain)._capacity({}) is None


class Crowded(fk.Layer):
    """A layer whose fields have the names of the plumbing."""

    autocast: bool = True
    child_fields: tuple = ("a",)
    complete_options: str = "yes"
    keras_form: str = "round"
    loses_masks: bool = False
    makes_strings: bool = True
    masks_inputs: int = 2
    overrides_apply: bool = True
    reads_strings: bool = True
    resolve: float = 2.0
    transparent_field: str = "glass"
    unbuilt: bool = True
    weight_roles: int = 3
    where: fk.Layer = fk.option(default=layers.Dense(2))
    kernel: jax.Array = fk.weight(initializer=jax.nn.initializers.ones)

    def build(self, key, x):
        return self.with_weights(key, kernel=x.shape[-1:]).replace(where=self.where.build(key, x))

    def call(self, x):
        return self.where(x * fk.engine.align(self.kernel, x.ndim)) * self.resolve


@pytest.mark.exhaustive
def test_fields_may_have_the_names_of_the_plumbing(tmp_path):
    x = fk.Input((3,))
    model = fk.Model(x, Crowded(resolve=4.0)(x)).build(KEY)
    layer = model.layers["crowded"]
    array = jnp.ones((1, 3))
    assert jnp.allclose(model(array), 4.0 * array @ layer.where.kernel)
    assert model.count_params() == 3 + 8
    custom = {"Crowded": Crowded}
    assert layers.deserialize(layers.serialize(model), custom) == fk.engine.unbuilt(model)
    fk.save_model(tmp_path / "m.keras", model, {})
    assert fk.load_model(tmp_path / "m.keras", custom_objects=custom)[0] == model
    trainer = fk.Trainer("sgd", "mse")
    run, _ = trainer.fit(trainer.init(model, KEY), array, jnp.ones((1, 2)), verbose=0)
    assert run.model != model
    with pytest.raises(ValueError, match=r"'crowded' \(Crowded\)"):
        model.layers["crowded"].set_weights([])


def test_help_and_editors_show_the_arguments_of_a_constructor():
    text = pydoc.render_doc(layers.Dense, renderer=pydoc.plaintext)
    # Python 3.13 writes one argument on each line
    compact = re.sub(r"[\s|]+", "", text)
    assert "__init__(self,units,activation=None," in compact and "_construct" not in text
    assert str(inspect.signature(layers.Dropout)).startswith(
        "(rate, noise_shape=None, seed=None, *"
    )
    assert str(inspect.signature(layers.Dropout.__init__)).startswith("(self, rate, ")
    assert str(inspect.signature(fk.losses.Huber)).startswith("(delta=1.0, reduction=")


def test_signatures_of_own_constructors():
    class Squared(fk.Layer):
        size: int = 4

        def __init__(self, root):
            super().__init__(root**2)

    class Wider(layers.Dense):
        factor: int = fk.option(default=2, kw_only=True)

    assert str(inspect.signature(Squared)) == "(root)" and Squared(3).size == 9
    assert str(inspect.signature(Wider)).endswith("dtype='float32', factor=2)")
    assert Wider(3, factor=1).units == 3


def test_a_model_without_weights():
    model = fk.Sequential([fk.Input((3,)), layers.Dense(2)])
    assert fk.engine.unbuilt(model.build(KEY)) == model
    with pytest.raises(
        TypeError, match=r"engine\.unbuilt: expected a layer or model, received int"
    ):
        fk.engine.unbuilt(3)
