"""`SpectralNormalization`: divides a layer's kernel by its largest singular value."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.wrapper import Wrapper
from fkeras.nn.normalization import spectral_norm

_KERNELS = ("kernel", "embeddings")


class SpectralNormalization(Wrapper):
    """Runs a layer with its kernel divided by its largest singular value.

    The division bounds the layer's Lipschitz constant, which stabilizes the critic of a GAN. Power
    iteration estimates the singular value from `vector_u`, which is state: each training call
    updates the vector.

    As in Keras, inference uses the kernel without division. Keras intends to use the divided
    kernel, which training calls assign to the trained kernel; a functional training step, as on
    JAX, loses this assignment. `always=True` divides in inference too, by the vector in the state,
    so that inference computes as training does.

    A kernel of zeros is not divided.

    Args:
        layer: a layer with a weight `kernel` or `embeddings`.
        power_iterations: number of power iterations per call.
        always: whether inference divides too. Keras has no such argument: files with it can only
            be loaded by fkeras.

    Shapes:
        Those of the wrapped layer; state vector_u (1, u) for a kernel (..., u).

    Raises:
        ValueError: for a layer without such a weight.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> dense = fk.layers.Dense(1)
        >>> layer = fk.layers.SpectralNormalization(dense, power_iterations=3, always=True)
        >>> layer = layer.build(jax.random.key(0), (None, 2))
        >>> layer, _ = layer.set_weights([jnp.array([[3.0], [4.0]]), jnp.zeros(1)])
        >>> layer(jnp.array([[5.0, 0.0]]), state=layer.init_state((None, 2)))
        Array([[3.]], dtype=float32)

    References:
        Miyato et al., 2018, Spectral normalization for generative adversarial networks,
        https://arxiv.org/abs/1802.05957
    """

    power_iterations: fk.Integer = fk.option(default=1, convert=fk.integer(minimum=1))
    always: bool = fk.option(default=False, convert=fk.boolean, kw_only=True)

    # Keras lists the kernel among the wrapper's own weights too
    _keras_form: ClassVar[fk.KerasForm] = fk.KerasForm(
        early_weights=tuple(f"layer/{name}" for name in _KERNELS)
    )

    @property
    def stateful(self) -> bool:
        return True

    def init_state(self, *specs: fk.Tree) -> dict[str, Any]:
        """Returns the initial vector, always the same values.

        Any vector that is not orthogonal to the singular vector converges.
        """
        layer = self.layer
        if not layer.built:
            # shapes suffice: an unbuilt layer is evaluated abstractly, without allocating weights
            layer = jax.eval_shape(lambda key: layer.build(key, *specs), jax.random.key(0))
        kernel = getattr(layer, self._kernel_name(layer))
        draw = fk.initializers.TruncatedNormal(stddev=0.02)
        key = fk.subkey(jax.random.key(0), "vector_u")
        vector = draw(key, (1, kernel.shape[-1]), kernel.dtype)
        return {"vector_u": vector, **super().init_state(*specs)}

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self.always:
            del config["always"]
        return config

    def forward(self, context: fk.Context, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        if not context.training and not self.always:
            return super().forward(context, *inputs, **options)
        name = self._kernel_name(self.layer)
        kernel = getattr(self.layer, name)
        old = context.state["vector_u"]
        sigma, vector = spectral_norm(kernel, old.astype(kernel.dtype), self.power_iterations)
        zero = sigma == 0
        sigma = jnp.where(zero, jnp.ones_like(sigma), sigma)
        vector = jnp.where(zero, old, vector.astype(old.dtype))
        # a new layer value with the divided kernel: gradients flow through the division
        layer = self.layer.replace(**{name: kernel / sigma})
        out = context.child("layer", mask=context.mask).run(layer, *inputs, **options)
        updates = {**context.state, "layer": out.updates} if out.updates else {}
        if context.training and self.trainable:
            updates = {**context.state, **updates, "vector_u": vector}
        return fk.Output(out.value, updates, out.losses, out.metrics, out.mask)

    def _kernel_name(self, layer: fk.Layer) -> str:
        for name in _KERNELS:
            if getattr(layer, name, None) is not None:
                return name
        raise ValueError(
            f"{self._where}: expected a layer with a weight 'kernel' or 'embeddings', received "
            f"{layer._where}, which has none. Wrap Dense, Embedding or a convolution."
        )
