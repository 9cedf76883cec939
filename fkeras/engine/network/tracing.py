"""Questions about a network that its own program answers."""

from __future__ import annotations

import re
from typing import Any

import jax

from fkeras.engine.values import structure
from fkeras.engine.values.spec import as_probes

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_SIZE = 32  # of the axes that the graph leaves open


def uses_training(network: Any) -> bool:
    """Whether a training call of the network computes something else than an inference call."""
    graph = network.graph
    slots = graph.input_slots
    specs = dict(zip(slots, as_probes([graph.specs[s] for s in slots], _SIZE), strict=True))
    inputs = structure.fill(graph.inputs, specs)

    def program(training: bool) -> str:
        def compute(key: Any, x: Any) -> Any:
            built = network.build(key)
            state = built.init_state(x)
            return built.apply(x, state=state, training=training, key=key)

        # functions in a program are printed with their addresses
        return _ADDRESS.sub("", str(jax.make_jaxpr(compute)(jax.random.key(0), inputs)))

    return program(True) != program(False)
