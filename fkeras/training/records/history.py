"""`History`: the logs that `fit` returns together with the run."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from fkeras.engine import suggest
from fkeras.engine.messages.html import html_table
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.migration_hints.attributes import MissingAttributeError
from fkeras.training.records.progress import format_logs
from fkeras.training.records.state import M, TrainState

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_MOST_SHOWN = 100  # epochs in a table


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
        figure: Any = Figure(figsize=(4.5 * max(len(chosen), 1), 3.2), layout="constrained")
        all_axes = figure.subplots(1, max(len(chosen), 1), squeeze=False)[0]
        for axes, name in zip(all_axes, chosen, strict=False):
            epochs = [epoch + 1 for epoch in self.epoch]
            # a line of one point would be invisible
            marker = "o" if len(epochs) == 1 else None
            axes.plot(epochs, self.history[name], label="training", marker=marker)
            validation_values = self.history.get(f"val_{name}", [])
            if validation_values:  # with `validation_freq` only every n-th epoch has a validation
                every = len(epochs) // len(validation_values)
                dots = "o--" if len(validation_values) == 1 else "--"
                axes.plot(epochs[every - 1 :: every], validation_values, dots, label="validation")
                axes.legend()
            axes.set_xlabel("epoch")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.set_ylabel(name)
        # notebooks know matplotlib's figures only after pyplot was imported
        figure._repr_png_ = functools.partial(_png, figure)
        return figure

    def _repr_html_(self) -> str:
        """Returns the logs as a table with a row for each epoch, which notebooks show."""
        first = max(len(self.epoch) - _MOST_SHOWN, 0)
        rows = []
        for position in range(first, len(self.epoch)):
            texts = (
                _log_text(values, position, len(self.epoch)) for values in self.history.values()
            )
            rows.append((str(self.epoch[position] + 1), *texts))
        columns = ("epoch", *self.history)
        note = f"<div>{first} earlier epochs are not shown.</div>" if first else ""
        return html_table(columns, rows, range(len(columns))) + note


def _log_text(values: Sequence[Any], position: int, epochs: int) -> str:
    """Returns a log of an epoch as text; with `validation_freq` some epochs have no validation."""
    every = max(epochs // len(values), 1) if values else 1
    number, rest = divmod(position + 1, every)
    if rest or not 0 < number <= len(values):
        return ""
    return format_logs({"": values[number - 1]}).strip()


def _png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    figure.savefig(stream, format="png")
    return stream.getvalue()


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

    if not TYPE_CHECKING:

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, str):
                raise TypeError(
                    f"Fitted: expected 0 for the run or 1 for the history, received {index!r}. Write `run, "
                    f"history = trainer.fit(run, x, y)`, then history[{index!r}]."
                )
            return tuple.__getitem__(self, index)

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)
