"""Plans name the kernel of each attention call."""

import jax

import fkeras as fk
from fkeras import layers


def _model(**options):
    x = fk.Input((4, 2, 8))
    inner = fk.Model(x, layers.DotProductAttention(name="attention", **options)(x, x, x))
    y = layers.DotProductAttention(kernel="cudnn", soft_cap=2.0, name="last")(x, x, inner(x))
    return fk.Model(x, layers.Dense(1)(layers.Flatten()(y)))


def test_kernels_of_a_plan():
    batch = jax.ShapeDtypeStruct((2, 4, 2, 8), "float32"), jax.ShapeDtypeStruct((2, 1), "float32")
    plan = fk.plan(_model(kernel="xla"), batch, fk.Trainer("sgd", "mse"))
    assert sorted(kernel for _, kernel in plan.kernels) == ["einsum", "xla"]
    paths = [path for path, _ in plan.kernels]
    assert any(path.endswith("/attention") for path in paths)
    assert "Attention kernels: xla in 1 call, einsum in 1 call" in str(plan)
    assert "Attention kernels" in plan._repr_html_()
