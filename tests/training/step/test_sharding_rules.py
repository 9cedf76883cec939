"""Rules by role, by pattern and "fsdp": the layout of each weight, and wrong rules."""

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import fkeras as fk
from fkeras import layers
from fkeras.engine.call.building import build_shapes
from fkeras.training.step import sharding, sharding_rules
from fkeras.training.step.output_layouts import output_entries

pytestmark = pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
KEY = jax.random.key(0)
FREE = P.UNCONSTRAINED
ALL = {"heads": "model", "hidden": "model", "vocab": "model"}


def mesh(sizes=(4, 2), names=("data", "model"), **options):
    return jax.make_mesh(sizes, names, **options)


class Experts(fk.Layer):
    kernel: jax.Array = fk.weight(axes="eio", initializer=jax.nn.initializers.ones)

    @property
    def axis_names(self):
        return fk.engine.AxisNames(roles={"e": "experts", "o": "hidden"}, output="_e...")

    def build(self, key, x):
        return self.with_weights(key, kernel=(4, x.shape[-1], 8))

    def call(self, x):
        return jax.numpy.einsum("bi,eio->beo", x, self.kernel)


def encoder():
    ids = fk.Input((6,), dtype="int32")
    x = layers.Embedding(32, 16, name="embedding")(ids)
    h = layers.MultiHeadAttention(4, 4, name="attention")(x, x)
    h = layers.Dense(64, "relu", name="up")(layers.LayerNormalization(name="norm")(h))
    h = layers.Dense(16, name="down")(h)
    return fk.Model(ids, layers.Dense(5, name="scores")(x + h))


SHAPES = build_shapes(encoder())[0]


def specs(rules, model=SHAPES, on=None):
    on = mesh() if on is None else on
    rules = sharding_rules.as_rules(rules)
    sharding_rules.check_rules(on, rules, model)
    return sharding_rules.weight_specs(on, rules, model)


def test_roles_split_the_axes_of_their_letters():
    layout = {path: spec for path, spec in specs(ALL).items() if spec != P()}
    heads = {f"attention/{n}_dense/kernel": P(None, "model") for n in ("query", "key", "value")}
    biases = {f"attention/{n}_dense/bias": P("model") for n in ("query", "key", "value")}
    assert layout == {
        "embedding/embeddings": P("model"),
        **heads,
        **biases,
        "attention/output_dense/kernel": P("model"),
        "up/kernel": P(None, "model"),
        "up/bias": P("model"),
        "down/kernel": P("model"),
        "scores/kernel": P("model"),
    }
    assert specs({"hidden": ("data", "model")})["up/kernel"] == P(None, ("data", "model"))
    assert set(specs({"hidden": None, "batch": "data"}).values()) == {P()}


def test_patterns_go_before_roles_and_the_first_match_applies():
    layout = specs({**ALL, "up/*": (), "*/kernel": ("model",)})
    assert layout["up/kernel"] == layout["up/bias"] == P()
    assert layout["down/kernel"] == P("model")
    assert layout["attention/query_dense/kernel"] == P("model")
    assert layout["attention/query_dense/bias"] == P("model")


def test_fsdp_splits_the_largest_free_axis_that_divides():
    layout = specs("fsdp")
    assert layout["up/kernel"] == P(None, "data")
    assert layout["down/kernel"] == layout["norm/gamma"] == P("data")
    assert layout["scores/bias"] == P()  # 5 over 4 devices
    both = specs({**ALL, "fsdp": "data", "*/bias": ()})
    assert both["up/kernel"] == P("data", "model")
    assert both["attention/query_dense/kernel"] == P("data", "model")
    assert both["up/bias"] == P()
    # a weight that already uses the mesh axis keeps its layout
    assert specs({"hidden": "data", "fsdp": "data"})["up/kernel"] == P(None, "data")


def test_layers_of_users_have_roles():
    model = fk.Sequential([fk.Input((3,)), Experts(name="moe")])
    rules = {"experts": "data", "hidden": "model"}
    shapes = build_shapes(model)[0]
    assert specs(rules, shapes) == {"moe/kernel": P("data", None, "model")}
    assert output_entries(rules, shapes) == {"moe": ((FREE, "data"), (), True)}


def test_outputs_have_the_layout_of_their_weights():
    entries = output_entries({**ALL, "scores/*": P()}, SHAPES)
    assert entries["up"] == ((), ("model",), True)
    assert entries["embedding"] == entries["down"] == ((), (None,), True)
    assert entries["attention/query_dense"] == ((FREE, FREE, "model", None), (), False)
    assert entries["attention"] == ((), (None,), True)
    # neither layers without a rule for them, nor those that a pattern lays out
    assert "norm" not in entries
    assert "scores" not in entries
    assert output_entries({"batch": "data"}, SHAPES) == output_entries(None, SHAPES) == {}
    assert output_entries("fsdp", SHAPES)["scores"] == ((), (None,), True)


WRONG = [
    (ValueError, {"sharding": "fsdq"}, 'expected sharding="fsdp" or a dictionary'),
    (TypeError, {"sharding": ["hidden"]}, "as a dictionary, received list"),
    (TypeError, {"sharding": {3: "model"}}, "roles and patterns"),
    (TypeError, {"sharding": {"hidden": P("model")}}, "name of a mesh axis for the role 'hidden'"),
    (TypeError, {"sharding": {"hidden": 2}}, "name of a mesh axis for the role 'hidden'"),
    (TypeError, {"sharding": {"*/kernel": "model"}}, "a PartitionSpec for the path pattern"),
    (ValueError, {"sharding": {"hiden": "model"}}, "role 'hiden'. Did you mean 'hidden'"),
    (ValueError, {"sharding": {"experts": "model"}}, "its weights are: heads, hidden, vocab"),
    (ValueError, {"sharding": {"hidden": "modle"}}, "Did you mean 'model'"),
    (ValueError, {"sharding": {"batch": "date"}}, "Did you mean 'data'"),
    (ValueError, {"sharding": {"fsdp": "date"}}, "Did you mean 'data'"),
    (ValueError, {"sharding": {"up/kernel": P("data", "data")}}, "'data' would split two axes of"),
    (
        ValueError,
        {"sharding": {"heads": "rows"}, "mesh": ((8,), ("rows",))},
        r"3 more\. .* by path patterns: \{\"attention/query_dense/kernel\": PartitionSpec\(\)",
    ),
    (ValueError, {"sharding": ALL, "mesh": None}, "sharding: missing mesh"),
]


@pytest.mark.one_in(5)
@pytest.mark.parametrize(("error", "options", "message"), WRONG, ids=lambda v: str(v)[:40])
def test_wrong_rules_are_reported_before_the_weights_are_drawn(
    error, options, message, monkeypatch
):
    def draw(*_):
        raise AssertionError("the weights were drawn")

    model = encoder()
    monkeypatch.setattr(type(model), "build", draw)
    monkeypatch.setattr(sharding, "build_shapes", lambda _: (SHAPES, {}))
    sizes = options.get("mesh", ((4, 2), ("data", "model")))
    on = None if sizes is None else mesh(*sizes)
    with pytest.raises(error, match=message):
        fk.Trainer("sgd", "mse", mesh=on, sharding=options["sharding"]).init(model, KEY)


def test_one_mesh_axis_for_two_roles_of_a_weight_is_reported():
    shapes = build_shapes(fk.Sequential([fk.Input((3,)), Experts(name="moe")]))[0]
    with pytest.raises(
        ValueError, match=r"two axes of the roles 'experts', 'hidden' of 'moe/kernel'"
    ):
        specs({"experts": "model", "hidden": "model"}, shapes)
    small = build_shapes(fk.Sequential([fk.Input((3,)), layers.Dense(3)]))[0]
    with pytest.raises(ValueError, match='"fsdp" splits no weight: no axis .* into 4 equal parts'):
        specs("fsdp", small)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit, None])
def test_meshes_of_either_type_serve(kind):
    options = {} if kind is None else {"axis_types": (kind, kind)}
    given = mesh(**options)
    used: Any = fk.Trainer("sgd", "mse", mesh=given).mesh
    assert set(used.axis_types) == {AxisType.Auto}
    assert (used.devices == given.devices).all()
    with pytest.raises(ValueError, match="type Auto or Explicit, received AxisType.Manual"):
        fk.Trainer("sgd", "mse", mesh=mesh(axis_types=(AxisType.Manual,) * 2))


@pytest.mark.skipif(not hasattr(jax, "set_mesh"), reason="needs jax.set_mesh")
def test_a_mesh_in_the_context_is_reported():
    on = mesh(axis_types=(AxisType.Explicit,) * 2)
    model = fk.Sequential([fk.Input((2,)), layers.Dense(2)])
    with (
        jax.set_mesh(on),
        pytest.raises(ValueError, match="inside of jax.set_mesh .* Call the trainer outside"),
    ):
        fk.Trainer("sgd", "mse", mesh=on).init(model, KEY)


def test_the_role_batch_may_have_several_mesh_axes_or_none():
    x, y = np.ones((16, 4), "float32"), np.ones((16, 4), "float32")
    model = fk.Sequential([fk.Input((4,)), layers.Dense(4)])
    for entry, received in ((("data", "model"), 12), (None, 0)):
        trainer = fk.Trainer("sgd", "mse", mesh=mesh(), sharding={"batch": entry})
        run = trainer.init(model, KEY)
        assert float(trainer.step(run, (x, y))[1]["loss"]) > 0
        if received:
            with pytest.raises(ValueError, match="8 devices of the mesh axis .*'data', 'model'"):
                trainer.step(run, (x[:received], y[:received]))
        else:
            _ = trainer.step(run, (x[:3], y[:3]))


@pytest.mark.exhaustive
def test_key_heads_that_the_devices_cannot_share_stay_whole():
    x = fk.Input((None, 16))
    query, key = (
        layers.EinsumDense("abc,cde->abde", (None, n, 4), axis_roles={"d": role}, name=name)(x)
        for n, role, name in ((8, "heads", "query"), (2, "kv_heads", "key"))
    )
    y = layers.DotProductAttention(name="attention")(query, key, key)
    output = layers.EinsumDense("abcd,cde->abe", (None, 16), axis_roles={"c": "heads"}, name="out")
    model = fk.Model(x, output(y))
    shapes, rules = build_shapes(model)[0], {"heads": "model", "kv_heads": "model"}
    many, few = mesh((2, 4)), mesh((4, 2))
    by_heads = {"query/kernel": P(None, "model"), "out/kernel": P("model")}
    assert specs(rules, shapes, many) == {**by_heads, "key/kernel": P()}
    assert specs(rules, shapes, few) == {**by_heads, "key/kernel": P(None, "model")}
    batch = (jax.ShapeDtypeStruct((4, 3, 16), "float32"),) * 2
    plans = [
        fk.plan(model, batch, fk.Trainer("sgd", "mse", mesh=on, sharding=rules))
        for on in (many, few)
    ]
    assert [plan.whole_key_heads for plan in plans] == [("key/kernel",), ()]
    assert "Whole on every device, since the mesh cannot split their key heads: key/kernel" in str(
        plans[0]
    )
    with pytest.raises(ValueError, match="query/kernel.*cannot be split into 3 parts"):
        devices = jax.sharding.Mesh(np.array(jax.devices()[:3]).reshape(1, 3), ("data", "model"))
        specs({"heads": "model"}, shapes, devices)
