"""`History`: the logs that `fit` returns together with the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from fkeras.engine import suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.training.records.state import M, TrainState

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True)
class History:
    """Logs of all epochs.

    Attributes:
        history: the values of all epochs by name; the names of validation logs begin with "val_".
        epoch: the numbers of the epochs, from 0.
        params: arguments of `fit`: epochs, steps, batch_size, samples.

    Example:
        >>> from fkeras.training import History
        >>> logs = History({"loss": [2.0, 1.0]}, [0, 1], {"epochs": 2})
        >>> logs.history["loss"], logs["loss"], "loss" in logs
        ([2.0, 1.0], [2.0, 1.0], True)
    """

    history: dict[str, list[float]]
    epoch: list[int]
    params: dict[str, Any]

    def __getitem__(self, name: str) -> list[float]:
        """Returns the values of one log: `fitted.history["loss"]`, as Keras's `history.history`."""
        if name not in self.history:
            raise ValueError(
                f"History: unknown log {name!r}.{suggest(str(name), self.history)} The logs are: "
                f"{', '.join(self.history)}."
            )
        return self.history[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.history)

    def plot(self, names: str | Sequence[str] | None = None) -> Figure:
        """Plots the logs over the epochs in a matplotlib figure, validation logs dashed.

        Args:
            names: names of logs without "val_", or None for all.

        Raises:
            ImportError: if matplotlib is not installed.
            ValueError: for an unknown name.

        Example:
            >>> from fkeras.training import History
            >>> figure = History({"loss": [2.0, 1.0]}, [0, 1], {}).plot()
            >>> figure.axes[0].get_ylabel()
            'loss'
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise missing_package("History.plot", "matplotlib", error) from error
        training_names = [name for name in self.history if not name.startswith("val_")]
        chosen = (
            training_names if names is None else [names] if isinstance(names, str) else list(names)
        )
        unknown = next((name for name in chosen if name not in training_names), None)
        if unknown is not None:
            raise ValueError(
                f"History.plot: unknown log {unknown!r}.{suggest(unknown, training_names)} The "
                f"logs are: {', '.join(training_names)}."
            )
        figure = Figure(figsize=(4.5 * max(len(chosen), 1), 3.2), layout="constrained")
        all_axes = figure.subplots(1, max(len(chosen), 1), squeeze=False)[0]
        for axes, name in zip(all_axes, chosen, strict=False):
            epochs = [epoch + 1 for epoch in self.epoch]
            axes.plot(epochs, self.history[name], label="training")
            validation_values = self.history.get(f"val_{name}", [])
            if validation_values:  # with `validation_freq` only every n-th epoch has a validation
                every = len(epochs) // len(validation_values)
                axes.plot(epochs[every - 1 :: every], validation_values, "--", label="validation")
                axes.legend()
            axes.set_xlabel("epoch")
            axes.set_ylabel(name)
        return figure


class Fitted(NamedTuple, Generic[M]):
    """Result of `Trainer.fit`: the run after the training, and the logs of its epochs.

    Attributes:
        run: the `TrainState` after the last epoch.
        history: the `History` of the training.

    Example:
        >>> import jax, numpy as np, fkeras as fk
        >>> trainer = fk.Trainer("adam", "mse")
        >>> run = trainer.init(fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), jax.random.key(0))
        >>> fitted = trainer.fit(run, np.ones((4, 2)), np.ones((4, 1)), epochs=2, verbose=0)
        >>> int(fitted.run.step), fitted.history.epoch
        (2, [0, 1])
        >>> run, history = fitted
    """

    run: TrainState[M]
    history: History
