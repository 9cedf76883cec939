"""Metrics (first form)."""
from __future__ import annotations
from typing import Any
import jax.numpy as jnp
from fkeras.engine.config import Configurable, lookup, option
class Accuracy(Configurable):
    name: str = option("accuracy")
    kind: str = option("sparse")
    def init(self): return {"total": jnp.zeros(()), "count": jnp.zeros(())}
    def update(self, state, y_true, y_pred, sample_weight=None, mask=None):
        y = jnp.asarray(y_true)
        if self.kind == "sparse":
            hit = (jnp.argmax(y_pred, -1) == y.reshape(y_pred.shape[:-1]))
        elif self.kind == "binary":
            hit = (jnp.asarray(y_pred) > 0.5).astype("int32") == y.astype("int32"); hit = hit.reshape(hit.shape[0], -1).all(-1)
        else: hit = jnp.argmax(y_pred, -1) == jnp.argmax(y, -1)
        hit = hit.astype("float32"); w = jnp.ones_like(hit)
        if sample_weight is not None: w = w * sample_weight
        if mask is not None: w = w * mask.astype("float32")
        return {"total": state["total"] + (hit * w).sum(), "count": state["count"] + w.sum()}
    def merge(self, a, b): return {k: a[k] + b[k] for k in a}
    def result(self, s): return s["total"] / jnp.maximum(s["count"], 1e-12)
def get(identifier: Any, custom_objects=None): return lookup(identifier, "metric", {"accuracy": Accuracy})
def resolve(identifier, y_true, y_pred, loss=None):
    if isinstance(identifier, str):
        kind = "sparse" if len(y_true.shape) < len(y_pred.shape) else "binary" if y_pred.shape[-1] == 1 else "categorical"
        return Accuracy(kind=kind)
    return identifier
