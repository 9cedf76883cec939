"""`History`: what `fit` returns beside the run."""

from __future__ import annotations

import dataclasses
from typing import Any

from fkeras.engine import suggest


@dataclasses.dataclass(frozen=True)
class History:
    """The logs of all epochs.

    Attributes:
        history: for each name the value of each epoch; "val_" stands before validation's names.
        epoch: the numbers of the epochs, from 0.
        params: how `fit` was called: epochs, steps, batch_size, samples.

    Example:
        >>> from fkeras.training import History
        >>> History({"loss": [2.0, 1.0]}, [0, 1], {"epochs": 2}).history["loss"]
        [2.0, 1.0]
    """

    history: dict[str, list[float]]
    epoch: list[int]
    params: dict[str, Any]

    def plot(self, names: Any = None) -> Any:
        """A matplotlib figure of the logs over the epochs, validation's dashed.

        Args:
            names: which logs, without "val_"; all where it is None.

        Raises:
            ImportError: without matplotlib.
            ValueError: for a name that was not logged.

        Example:
            >>> from fkeras.training import History
            >>> figure = History({"loss": [2.0, 1.0]}, [0, 1], {}).plot()
            >>> figure.axes[0].get_ylabel()
            'loss'
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                'History.plot: matplotlib is not installed. Run `pip install "fkeras[viz]"`.'
            ) from error
        known = [name for name in self.history if not name.startswith("val_")]
        chosen = known if names is None else [names] if isinstance(names, str) else list(names)
        unknown = next((name for name in chosen if name not in known), None)
        if unknown is not None:
            raise ValueError(
                f"History.plot: there is no log {unknown!r}.{suggest(unknown, known)} There are: "
                f"{', '.join(known)}."
            )
        figure = Figure(figsize=(4.5 * max(len(chosen), 1), 3.2), layout="constrained")
        all_axes = figure.subplots(1, max(len(chosen), 1), squeeze=False)[0]
        for axes, name in zip(all_axes, chosen, strict=False):
            epochs = [epoch + 1 for epoch in self.epoch]
            axes.plot(epochs, self.history[name], label="training")
            held = self.history.get(f"val_{name}", [])
            if held:  # a validation may not follow every epoch
                every = len(epochs) // len(held)
                axes.plot(epochs[every - 1 :: every], held, "--", label="validation")
                axes.legend()
            axes.set_xlabel("epoch")
            axes.set_ylabel(name)
        return figure
