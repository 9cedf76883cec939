"""The form in which a compiled step computes a model: no strings, loops, recomputation, layouts on a mesh.

None of this changes a result. For a small model on one device the form is the model itself.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.engine import Layer
from fkeras.engine.strings.network import device_part
from fkeras.engine.values.argument_types import Batch
from fkeras.training.data.features import cut_of
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import M, TrainState
from fkeras.training.step import sharding
from fkeras.training.step.output_layouts import with_output_layouts
from fkeras.training.step.outputs import require_network
from fkeras.transforms.depth import with_depth
from fkeras.transforms.remat import rematerialized
from fkeras.transforms.splitting import rest_of


@dataclasses.dataclass(frozen=True)
class StepForm:
    """Prepares the values of one step, by the settings `depth`, `remat`, `mesh` and `sharding`."""

    trainer: Trainer
    training: bool = True

    def model(self, model: Layer, batch: Batch | None = None) -> Layer:
        """Returns the device part of the model, with loops, recomputation, and output layouts.

        For a batch of features, the part behind these.
        """
        trainer, model, cut = self.trainer, device_part(model), cut_of(batch)
        if cut is not None:
            model = rest_of(require_network(model), cut)
        if self.training:
            computed = with_depth(model, trainer.depth, trainer.remat, mesh=trainer.mesh)
            computed = rematerialized(computed, trainer.remat)
        else:
            computed = with_depth(model, trainer.depth, training=False, mesh=trainer.mesh)
        return with_output_layouts(trainer, computed, model)

    def batch(self, batch: Batch) -> Any:
        """Returns the batch with its rows split over the devices, if the devices share them evenly."""
        return sharding.split_rows(self.trainer, batch)

    def result(self, run: TrainState[M]) -> TrainState[M]:
        """Returns the run with the layouts that it had before the step."""
        return sharding.keep(self.trainer, run)
