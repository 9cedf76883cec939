"""Properties of a network that are read off its compiled program."""

from __future__ import annotations

import re
from typing import Any

import jax

from fkeras.engine.values import structure
from fkeras.engine.values.spec import as_probes

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_SIZE = 32  # for the axes of unknown size


def uses_training(network: Any) -> bool:
    """Returns whether a training call and an inference call compute different programs."""
    graph = network.graph
    slots = graph.input_slots
    specs = dict(zip(slots, as_probes([graph.specs[s] for s in slots], _SIZE), strict=True))
    inputs = structure.fill(graph.inputs, specs)

    def program(training: bool) -> str:
        def compute(key: Any, x: Any) -> Any:
            built = network.build(key)
            state = built.init_state(x)
            return built.apply(x, state=state, training=training, key=key)

        # a printed program contains the addresses of functions, which differ between two traces
        return _ADDRESS.sub("", str(jax.make_jaxpr(compute)(jax.random.key(0), inputs)))

    return program(True) != program(False)
