"""`TensorBoard`: writes logs, learning rate, weights, embeddings and graph for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras.atomic_files.atomic import as_path
from fkeras.engine import Network, option, to_mermaid
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.config.field_types import Integer, Path
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.tree.local_arrays import check_local
from fkeras.engine.values.frozen import ArrayConstant
from fkeras.training.callbacks.base import files
from fkeras.training.callbacks.base.callback import Callback, Stop, default_name
from fkeras.training.callbacks.base.snapshot import weights_of
from fkeras.training.callbacks.reporting import clock, events, pictures
from fkeras.training.callbacks.reporting import logs as reports
from fkeras.training.callbacks.reporting.profiler import Profiler
from fkeras.training.records.state import TrainState
from fkeras.transforms.graph.probing import probe

_WHERE = "TensorBoard"

_batch = integer(minimum=0)
_PROFILE = (
    "expected a number of a batch, (first, last) with 1 <= first <= last, or 0 for no profile, "
    "received {!r}. Write profile_batch=(10, 20)."
)


def _profile_batch(value: object) -> tuple[int, int] | int:
    # Keras also accepts "10,20"
    parts = value.split(",") if isinstance(value, str) else value
    parts = list(parts) if isinstance(parts, list | tuple) else [parts]
    try:
        batches = [_batch(int(part) if isinstance(part, str) else part) for part in parts]
    except (TypeError, ValueError):
        batches = []
    if batches == [0]:
        return 0
    first, last = (batches * 2)[:2] if len(batches) in (1, 2) else (0, 0)
    if not 1 <= first <= last:
        raise ValueError(_PROFILE.format(value))
    return first, last


def _metadata(value: object) -> Any:
    if value is None or isinstance(value, str | os.PathLike):
        return None if value is None else as_path(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: as_path(path) for name, path in value.items()}
    raise TypeError(
        "expected a path, a dictionary of paths by name of an embedding layer, or None, received "
        f"{describe_value(value)}. Write embeddings_metadata={{'words': 'words.tsv'}}."
    )


def _places(probes: Any) -> Any:
    """Returns selectors from their form as a configuration, in which a list is a tuple."""
    # coordinates are a tuple of the name of a layer and numbers
    is_list = isinstance(probes, tuple) and not any(isinstance(part, int) for part in probes)
    return list(probes) if is_list else probes


def _selectors(value: Any) -> Any:
    """Returns selectors of layers unchanged: names, functions, coordinates, and lists of these."""
    is_list = isinstance(value, list | tuple)
    parts = value if is_list else [] if value is None else [value]
    is_function = [callable(part) and not isinstance(part, type) for part in parts]
    kinds = (str, int, tuple) if is_list else (str,)
    if all(isinstance(p, kinds) or known for p, known in zip(parts, is_function, strict=True)):
        return value
    raise ValueError(
        "expected the name or pattern of a layer, a function, coordinates such as ('dense', 0), a list "
        f"of these, or None, received {describe_value(value)}. Write probes='block*'."
    )


def _samples(value: Any) -> Any:
    """Returns inputs of a model unchanged: an array of samples, or a list or dictionary of arrays."""
    if isinstance(value, Mapping) and value:
        return {name: _samples(part) for name, part in value.items()}
    array: Any = getattr(value, "array", value)
    if isinstance(array, list | tuple) and any(np.ndim(part) for part in array):
        return type(array)(_samples(part) for part in array)
    if value is None or (np.ndim(array) and np.asarray(array).dtype != object):
        return value
    raise ValueError(
        "expected an array of inputs with a batch axis, a list or dictionary of arrays, or None, "
        f"received {describe_value(value)}. Write samples=x[:64]."
    )


def _inputs(samples: object) -> Any:
    """Returns inputs from their form as a configuration."""
    if isinstance(samples, Mapping):
        return {name: _inputs(value) for name, value in samples.items()}
    if isinstance(samples, tuple):
        return [_inputs(value) for value in samples]
    return samples.array if isinstance(samples, ArrayConstant) else samples


def _numbered(value: object) -> list[tuple[str, Any]]:
    """Returns the arrays of a value; those of several outputs with their numbers."""
    leaves = jax.tree.leaves(value)
    return [(f":{n}" if len(leaves) > 1 else "", leaf) for n, leaf in enumerate(leaves)]


class TensorBoard(Callback):
    """Writes logs for TensorBoard, which shows them with `tensorboard --logdir logs`.

    As in Keras, training logs are in `log_dir/train` and validation logs in `log_dir/validation`,
    under names such as "epoch_loss", with the epoch as step. Each folder has one file, to which a
    resumed training appends. Requires the package tensorboardX; profiles need the plugin xprof.

    Args:
        log_dir: folder for the files; missing folders are created.
        histogram_freq: number of epochs between histograms of the weights; 0 for no histograms.
        write_graph: whether to write the graph of the model, as Mermaid text.
        write_images: whether to write the weights as gray images too, in the epochs of the
            histograms. The smallest value of a weight is black, the largest white. A kernel of a
            convolution becomes a table of its input channels (rows) and filters (columns). Weights
            with more than four axes or four million numbers have no image.
        write_steps_per_second: whether to write the steps per second of each epoch, and of the
            steps between two logs within an epoch. The first value after a resume is too small
            or missing.
        update_freq: "epoch" writes logs once per epoch. "batch" or a number of steps also writes
            logs within an epoch as "batch_loss" with the step, after the device call that completes
            this number of steps, and validation logs as "evaluation_loss_vs_iterations" too.
        profile_batch: a step, or the first and the last step, whose trace is recorded as by
            `Profiler`, counted from 1 since `init`; 0 for no trace.
        embeddings_freq: number of epochs between copies of the vectors of all layers `Embedding`
            for TensorBoard's projector; 0 for no copies.
        embeddings_metadata: file with a line for each vector, such as the words, relative to
            `log_dir`; or a dictionary of files by path of the embedding layer.
        probes: selectors of layers, as for `transforms.probe`, whose outputs for `samples` are
            written as histograms in the epochs of the histograms, under names such as
            "body_ib-0/output".
        samples: inputs of the model for `probes`; the values are those of inference.

    Raises:
        ImportError: if tensorboardX is not installed.
        OSError: if the folder cannot be written.
        ValueError: for `write_images` or `probes` without `histogram_freq` and `embeddings_metadata`
            without `embeddings_freq`; for `probes` without `samples` and probes that match no layer;
            for a model without layers `Embedding` if `embeddings_freq` is set.

    Example:
        >>> from fkeras.training.callbacks import TensorBoard
        >>> TensorBoard("logs/first", histogram_freq=5)
        TensorBoard('logs/first', 5)
    """

    reports_only: ClassVar[bool] = True

    log_dir: Path = option(default="logs", convert=as_path)
    histogram_freq: Integer = option(default=0, convert=integer(minimum=0))
    write_graph: bool = option(default=True, convert=boolean)
    write_images: bool = option(default=False, convert=boolean)
    write_steps_per_second: bool = option(default=False, convert=boolean)
    update_freq: Any = option(default="epoch", convert=reports.period)
    profile_batch: Any = option(default=0, convert=_profile_batch)
    embeddings_freq: Integer = option(default=0, convert=integer(minimum=0))
    embeddings_metadata: Any = option(default=None, convert=_metadata)
    probes: Any = option(default=None, convert=_selectors, kw_only=True)
    samples: Any = option(default=None, convert=_samples, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for argument, frequency in (
            ("write_images", "histogram_freq"),
            ("embeddings_metadata", "embeddings_freq"),
            ("probes", "histogram_freq"),
        ):
            if getattr(self, argument) and not getattr(self, frequency):
                raise ValueError(
                    f"{_WHERE}: {argument} has no effect without {frequency}, which is 0. Write "
                    f"{frequency}=1 for every epoch."
                )
        if (self.probes is None) != (self.samples is None):
            raise ValueError(
                f"{_WHERE}: expected probes and samples together, received "
                f"{'samples' if self.probes is None else 'probes'} alone. Write probes='block*', "
                "samples=x[:64], with inputs of the model."
            )

    @property
    def _watches_batches(self) -> bool:
        """Returns whether the callback writes logs or records a trace within an epoch."""
        return self.update_freq != "epoch" or self.profile_batch != 0

    @property
    def reads_weights(self) -> bool:
        """Returns whether histograms, images or embeddings of the weights are written."""
        return bool(self.histogram_freq or self.embeddings_freq)

    def on_train_begin(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        reports.service(_WHERE, "tensorboardX.summary")
        files.require_folder(_WHERE, "log_dir", self.log_dir)
        if self.write_graph and isinstance(run.model, Network):
            # four spaces of indentation make a code block in Markdown
            text = "\n".join(f"    {line}" for line in to_mermaid(run.model).splitlines())
            self._file("train").write([events.text("graph", text)], 0)
        if self.embeddings_freq:
            pictures.check_projector(_WHERE, run.model, self.embeddings_metadata)
        if self.probes is not None:
            self._probed(run)  # a wrong selector or sample fails before the first step
        if self.write_steps_per_second:
            run = self._restart_clock(run, ("shown",))
        return self._profile("on_train_begin", run)

    def on_epoch_begin(self, epoch: int, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self._restart_clock(run, ("began", "shown")) if self.write_steps_per_second else None

    def on_batch_end(
        self, step: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        run = self._profile("on_batch_end", run, step, logs)
        if self.update_freq == "epoch" or not reports.due(self, run, step, self.update_freq):
            return run
        summaries = _scalars({**logs, **self._speed(run, "shown")}, "batch_")
        self._file("train").write(summaries, step)
        run = self.remember(run, {**self._memory(run), "step": step})
        return self._restart_clock(run, ("shown",)) if self.write_steps_per_second else run

    def on_train_end(self, run: TrainState[Any]) -> TrainState[Any] | Stop | None:
        return self._profile("on_train_end", run)

    def on_epoch_end(
        self, epoch: int, run: TrainState[Any], logs: Mapping[str, float]
    ) -> TrainState[Any] | Stop | None:
        training_logs = {name: value for name, value in logs.items() if not name.startswith("val_")}
        validation_logs = {
            name[4:]: value for name, value in logs.items() if name not in training_logs
        }
        speed = self._speed(run, "began")
        summaries = _scalars({**training_logs, **reports.rate(run), **speed}, "epoch_")
        if self.histogram_freq and epoch % self.histogram_freq == 0:
            summaries += self._weights(run)
            summaries += [
                events.histogram(f"{name}/output", np.asarray(value, "float64").ravel())
                for name, value in self._probed(run).items()
            ]
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            metadata = pictures.check_projector(_WHERE, run.model, self.embeddings_metadata)
            pictures.write_projector(self.log_dir, run.model, metadata)
        # hides events that an interrupted training wrote for this epoch and later epochs. Not with
        # batch logs: their steps are larger numbers, so their events would be hidden too
        hides_later = self.update_freq == "epoch"
        self._file("train").write(summaries, epoch, anew=hides_later)
        if validation_logs:
            summaries = _scalars(validation_logs, "epoch_")
            self._file("validation").write(summaries, epoch, anew=hides_later)
            if not hides_later:
                named = {f"{name}_vs_iterations": v for name, v in validation_logs.items()}
                self._file("validation").write(_scalars(named, "evaluation_"), int(run.step))

    def _file(self, part: str) -> events.EventFile:
        return events.EventFile(os.path.join(self.log_dir, part))

    def _weights(self, run: TrainState[Any]) -> list[Any]:
        summaries = []
        for path, weight in weights_of(run).items():
            values = np.asarray(check_local(weight, _WHERE, path), "float64")
            summaries.append(events.histogram(f"{path}/histogram", values))
            image = pictures.picture(values) if self.write_images else None
            if image is not None:
                summaries.append(events.image(f"{path}/image", image))
        return summaries

    def _probed(self, run: TrainState[Any]) -> dict[str, Any]:
        """Returns the values of the probes for the samples, by name."""
        if self.probes is None:
            return {}
        probed = probe(run.model, _places(self.probes))
        # the call of a network is compiled once for equal models
        _, values = probed(_inputs(self.samples), state=run.state)
        return {
            f"{key}{number}": check_local(leaf, _WHERE, key)
            for key, value in values.items()
            for number, leaf in _numbered(value)
        }

    def _profile(self, hook: str, run: TrainState[Any], *arguments: Any) -> Any:
        """Returns the run after a hook of the callback that records the trace."""
        if self.profile_batch == 0:
            return run
        name = f"{self.name or default_name(self)}_profile"
        profiler = Profiler(self.log_dir, *self.profile_batch, name=name)
        before = (arguments[0], run, *arguments[1:]) if arguments else (run,)
        result = getattr(profiler, hook)(*before)
        return run if result is None else result

    def _memory(self, run: TrainState[Any]) -> Mapping[str, Any]:
        # checkpoints of fkeras before steps per second hold a number
        memory = self.recall(run)
        return memory if isinstance(memory, Mapping) else {}

    def _restart_clock(self, run: TrainState[Any], names: tuple[str, ...]) -> Any:
        start = {"step": int(run.step), "time": clock.now()}
        return self.remember(run, {**self._memory(run), **dict.fromkeys(names, start)})

    def _speed(self, run: TrainState[Any], name: str) -> dict[str, float]:
        """Returns the steps per second since a time as a log; empty without this time."""
        start = self._memory(run).get(name)
        steps = 0 if start is None else int(run.step) - int(start["step"])
        seconds = 0.0 if start is None else clock.seconds_since(start["time"])
        return {"steps_per_second": steps / seconds} if steps > 0 and seconds > 0 else {}


def _scalars(logs: Mapping[str, Any], prefix: str) -> list[Any]:
    return [events.scalar(name, value) for name, value in reports.flat(logs, prefix).items()]
