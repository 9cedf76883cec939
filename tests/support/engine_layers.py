"""Small layers for the tests of the engine."""

import jax
import jax.numpy as jnp

import fkeras as fk


class Affine(fk.Layer):
    """x @ kernel + bias: a complete layer as an author writes it."""

    units: int = fk.option()
    kernel: jax.Array | None = fk.weight(initializer=fk.initializers.GlorotUniform())
    bias: jax.Array | None = fk.weight(initializer=fk.initializers.Zeros())

    def build(self, key, x):
        return self.with_weights(key, kernel=(x.shape[-1], self.units), bias=(self.units,))

    def call(self, x):
        y = jnp.tensordot(x, self.kernel, axes=1)
        return y + fk.engine.align(self.bias, y.ndim)


class Checked(fk.Layer):
    """Returns twice the first input; `spec` is the input spec."""

    spec: fk.InputSpec | tuple | None = fk.option(default=None)

    @property
    def input_spec(self):
        return self.spec

    def call(self, *inputs):
        return jax.tree.leaves(inputs)[0] * 2


class Noisy(fk.Layer):
    """Adds one loss and one update in each call, and a penalty on the weight."""

    scale_regularizer: fk.regularizers.L2 | None = fk.option(default=fk.regularizers.L2(0.5))
    scale: jax.Array | None = fk.weight(initializer=fk.initializers.Ones())

    def build(self, key, x):
        return self.with_weights(key, scale=(x.shape[-1],))

    def init_state(self, x):
        return {"calls": jnp.zeros(())}

    def forward(self, context, x):
        y = x * fk.engine.align(self.scale, x.ndim)
        moves = context.training and self.trainable
        updates = {"calls": context.state["calls"] + 1} if moves else {}
        return fk.Output(y, updates=updates, losses=(jnp.mean(jnp.square(y)),))


class Tally(fk.Layer):
    """Reports the mean of its input under a name, and returns the input."""

    label: str = fk.option()

    def forward(self, context, x):
        return fk.Output(x, metrics={self.label: jnp.mean(x)})
