"""A graph network learns two communities from one labeled node of each."""

import jax
import numpy as np

import fkeras as fk
from fkeras import layers, ops

rng = np.random.default_rng(0)
community = np.repeat([0, 1], 20)
odds = np.where(community[:, None] == community, 0.4, 0.03)
linked = np.triu(rng.random((40, 40)) < odds, 1)
linked |= linked.T
graph = [np.eye(40, dtype="float32"), *(ends.astype("int32") for ends in np.nonzero(linked))]


class GraphConvolution(fk.Model):
    units: int

    def call(self, nodes, senders, receivers):
        sent = ops.take(layers.Dense(self.units)(nodes), senders, axis=0)
        total = ops.segment_sum(sent, receivers, num_segments=40)
        count = ops.segment_sum(ops.ones_like(sent), receivers, num_segments=40)
        return layers.Dense(self.units, name="node")(nodes) + total / count


nodes = fk.Input(batch_shape=(40, 40))  # the rows of a batch are the nodes of the graph
edges = [fk.Input(batch_shape=(None,), dtype="int32", name=name) for name in ("from", "to")]
x = layers.ReLU()(GraphConvolution(16)(nodes, *edges))
model = fk.Model([nodes, *edges], GraphConvolution(2)(x, *edges))
labeled = np.isin(np.arange(40), [0, 20]).astype("float32")  # the weights of the loss

loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer(fk.optimizers.Adam(0.02), loss)
run, batch = trainer.init(model, jax.random.key(0)), (graph, community, labeled)
run, _ = jax.lax.scan(lambda run, _: trainer.step(run, batch), run, length=60)
assert np.mean(run.model(graph).argmax(-1) == community) > 0.9

# a round of messages is a product with the normalized adjacency matrix
first = run.model.layers["graph_convolution"]
sent, own = first.layers["dense"](graph[0]), first.layers["node"](graph[0])
mean = linked / linked.sum(1, keepdims=True)
np.testing.assert_allclose(first(*graph), own + mean @ sent, atol=1e-5)
