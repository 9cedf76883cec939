"""Muon gives embeddings to AdamW."""

import jax
import jax.numpy as jnp

from fkeras import optimizers


def test_muon_gives_embeddings_to_adamw():
    weights = {"embedding_1/embeddings": jnp.ones((3, 2)), "dense/kernel": jnp.ones((3, 2))}
    state = optimizers.Muon().transformation().init(weights)
    assert list(jax.tree.leaves(state.slots["velocity"])[0].shape) == [3, 2]
    assert state.slots["velocity"]["dense/kernel"] is None
    state = optimizers.Muon(exclude_layers=["^dense"]).transformation().init(weights)
    assert state.slots["velocity"]["dense/kernel"].shape == (3, 2)
    changed = optimizers.Muon(exclude_embeddings=False).transformation().init(weights)
    assert "velocity" not in changed.slots
