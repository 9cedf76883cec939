"""A deep equilibrium model: the output is the fixed point z = layer(z, x), with the implicit gradient."""

import jax
import jax.numpy as jnp
import numpy as np

import fkeras as fk
from fkeras import layers

z, x = fk.Input((8,)), fk.Input((4,))
h = layers.Dense(8, kernel_initializer=fk.initializers.Orthogonal(0.5))(z) + layers.Dense(8)(x)
layer = fk.Model([z, x], layers.Activation("tanh")(h)).build(jax.random.key(0))


def iterate(step, start):
    def moves(carry):
        return jnp.abs(carry[1] - carry[0]).max() > 1e-6

    return jax.lax.while_loop(moves, lambda c: (c[1], step(c[1])), (start, step(start)))[1]


@jax.custom_vjp
def equilibrium(layer, x):
    return iterate(lambda z: layer([z, x]), jnp.zeros((x.shape[0], 8)))


def forward(layer, x):
    return (z := equilibrium(layer, x)), (layer, x, z)


def backward(saved, grad):  # u = grad + u dlayer/dz is another fixed point
    _, vjp = jax.vjp(lambda layer, x, z: layer([z, x]), *saved)
    return vjp(iterate(lambda u: grad + vjp(u)[2], grad))[:2]


equilibrium.defvjp(forward, backward)
rows = np.random.default_rng(0).normal(size=(5, 4)).astype("float32")
implicit = jax.jit(jax.grad(lambda layer: jnp.sum(equilibrium(layer, rows) ** 2)))(layer)


# the same gradient through 60 calls of the layer, which stores all of them
@jax.jit
@jax.grad
def unrolled(layer):
    z, _ = jax.lax.scan(lambda z, _: (layer([z, rows]), None), jnp.zeros((5, 8)), length=60)
    return jnp.sum(z**2)


jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), implicit, unrolled(layer))
