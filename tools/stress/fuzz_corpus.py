"""Valid files of every kind that fkeras opens, with their content."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import h5py
import jax
import numpy as np

import fkeras as fk
from tests.pretrained import gguf_files, tokenizer_folders
from tests.pretrained.checks import DATA, split
from tests.support.legacy_files import cases, file_bytes, write

_FROM_KERAS_2 = ("optimizer_nadam", "shared", "sequence")
# whose attention says nothing of its codes, which are packed as once, or which lack zeros
_QUANTIZED = ("int4", "int4, h5", "gptq/4/2", "lost, symmetric")


@dataclasses.dataclass(frozen=True)
class Good:
    """A file that opens.

    Attributes:
        what: what it is, and what opens it.
        data: its bytes.
        name: the name that it must have.
        open: opens the file at a path.
        holds: what it opens as.
    """

    what: str
    data: bytes
    name: str
    open: Callable[[pathlib.Path], Any]
    holds: Any


def _models() -> Iterator[Any]:
    """Good models, small ones, of many kinds of layers."""
    layers = fk.layers
    x = fk.Input((8, 4), name="x")
    words = fk.Input((8,), name="words", dtype="int32")
    y = layers.LSTM(3, return_sequences=True, name="lstm")(x)
    z = layers.Embedding(7, 3, name="embedding")(words)
    y = layers.Add(name="add")([y, z])
    y = layers.MultiHeadAttention(2, 2, name="attention")(y, y)
    y = layers.BatchNormalization(name="norm")(y, training=False)
    shared = layers.Dense(3, activation="gelu", name="shared")
    y = layers.Concatenate(name="both")([shared(y), shared(shared(y))])
    y = fk.ops.expand_dims(fk.ops.mean(y, axis=1) * 2.0, 1)[:, 0]
    inner = fk.Sequential([fk.Input((6,)), layers.Dense(2), layers.Dropout(0.1)], name="inner")
    yield fk.Model({"x": x, "words": words}, [inner(y), layers.Dense(1, name="out")(y)])
    image = fk.Input((8, 8, 2))
    y = layers.Conv2D(2, 3, padding="same", kernel_regularizer=fk.regularizers.L2(0.1))(image)
    y = layers.GroupNormalization(2)(layers.MaxPooling2D()(y))
    y = layers.Bidirectional(layers.GRU(2))(layers.Reshape((16, 2))(y))
    yield fk.Model(image, layers.Rescaling(0.5)(y))
    yield fk.Sequential([fk.Input((4,)), layers.Dense(3, activation="relu"), layers.PReLU()])
    # options that are sizes of no array in the file
    image = fk.Input((8, 8, 3), batch_size=2)
    dense = layers.SpectralNormalization(layers.Dense(3), power_iterations=2, always=True)
    y = layers.RandAugment()(layers.AdaptiveAveragePooling2D((3, 3))(dense(image)))
    y = layers.UpSampling2D(2)(layers.Resizing(4, 5)(layers.ZeroPadding2D(1)(y)))
    y = layers.LSTM(2, stateful=True, unroll=True)(layers.Reshape((80, 3))(y))
    y = layers.CategoryEncoding(4, output_mode="one_hot")(fk.ops.argmax(y, axis=-1))
    sound = fk.Input((600,))
    heard = layers.MelSpectrogram(num_mel_bins=4, fft_length=64, sequence_stride=32)(sound)
    yield fk.Model([image, sound], [layers.RepeatVector(3)(y), heard])
    # codes of 8 and of 4 bits, and scales of floats of 8 bits
    words = fk.Input((6,), dtype="int32")
    y = layers.Embedding(7, 4, name="embedding")(words)
    y = layers.MultiHeadAttention(2, 2, name="attention", quantization="int4/2")(y, y)
    y = layers.Dense(3, name="dense")(layers.EinsumDense("abc,cd->abd", (None, 3), name="sum")(y))
    coded = fk.Model(words, layers.Dense(2, name="out")(y)).build(jax.random.key(0))
    coded = fk.quantize(fk.quantize(coded, "int8", ["embedding", "dense"]), "int4/2", "sum")
    yield fk.quantize(coded, fk.quantizers.Float8QuantizationConfig(3), "out")


def _trainings() -> Iterator[tuple[Any, Any]]:
    """Models, and what they are trained by."""
    layers, optimizers, metrics = fk.layers, fk.optimizers, fk.metrics
    rate = optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    first = fk.Sequential([fk.Input((4,)), layers.Dense(3), layers.BatchNormalization()])
    yield first, fk.Trainer(optimizers.Adam(rate, amsgrad=True), "mse", ["mae", metrics.AUC(9)])
    x = fk.Input((4,))
    a, b = layers.Dense(3, name="a"), layers.Dense(2, name="b", activation="softmax")
    pairs = {"a/*": optimizers.SGD(0.1, momentum=0.9), "re:.*/(bias|beta)": "nadam", "*": "adamw"}
    one = {"a": fk.losses.Huber(2.0), "b": "categorical_crossentropy"}
    other = {"a": [metrics.R2Score()], "b": ["accuracy", metrics.F1Score(), metrics.MeanIoU(2)]}
    trainer = fk.Trainer(optimizers.MultiOptimizer(pairs), one, other, loss_weights={"a": 0.5})
    yield fk.Model(x, {"a": a(x), "b": b(a(x))}), trainer
    muon = optimizers.Muon(exclude_layers=["out", "dense.*"], use_ema=True)
    scaled = optimizers.LossScaleOptimizer(muon)
    metric = metrics.SensitivityAtSpecificity(0.5, num_thresholds=7)
    last = fk.Sequential([fk.Input((4,)), layers.Dense(3), layers.Dense(1, "sigmoid", name="out")])
    yield last, fk.Trainer(scaled, "binary_crossentropy", weighted_metrics=[metric])


def _quantized() -> dict[str, Any]:
    """What Keras 3 wrote of quantized models; see tools/references/keras_quantized_reference.py."""
    path = pathlib.Path(__file__).resolve().parents[2] / "tests/data/keras_quantized.json"
    return json.loads(path.read_text())["cases"]


def _legacy() -> bytes:
    """A file as Keras 2 wrote it, of a model in the midst of a training."""
    target = io.BytesIO()
    config = {"name": "d", "units": 2, "activation": "relu", "batch_input_shape": [None, 3]}
    items = [{"class_name": "Dense", "config": config}]
    document = {"class_name": "Sequential", "config": {"name": "s", "layers": items}}
    loss = {"loss": "mse", "metrics": ["mae"], "sample_weight_mode": None, "loss_weights": None}
    optimizer = {"class_name": "Adam", "config": {"lr": 0.1, "decay": 0.0}}
    kernel, bias = np.ones((3, 2), "f4"), np.zeros(2, "f4")
    with h5py.File(target, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.3.1", "tensorflow"
        file.attrs["model_config"] = json.dumps(document)
        file.attrs["training_config"] = json.dumps({**loss, "optimizer_config": optimizer})
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([b"d"])
        group.attrs["keras_version"], group.attrs["backend"] = "2.3.1", "tensorflow"
        one = group.create_group("d")
        one.attrs["weight_names"] = np.array([b"d/kernel:0", b"d/bias:0"])
        one["d/kernel:0"], one["d/bias:0"] = kernel, bias
        state = {"Adam/iterations:0": np.int64(3)}
        state |= {f"training/Adam/{slot}_0:0": kernel for slot in "mv"}
        state |= {f"training/Adam/{slot}_1:0": bias for slot in "mv"}
        names = ["Adam/iterations:0", *(f"training/Adam/{s}_{n}:0" for s in "mv" for n in (0, 1))]
        group = file.create_group("optimizer_weights")
        group.attrs["weight_names"] = np.array([name.encode() for name in names])
        for name in names:
            group[name] = state[name]
    return target.getvalue()


class Corpus:
    """The good files.

    Args:
        folder: where files are written while they are made, and opened.

    Attributes:
        goods: the files.
        folder: as above.
    """

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)
        self.goods: list[Good] = []
        for number, model in enumerate(_models()):
            model = model.build(jax.random.key(number))
            state = model.init_state()
            data = self._saved("m.keras", fk.save_model, model, state)
            self._add("an archive", data, "m.keras", fk.load_model)
            if number == 0:
                self._add_weights(model, state, data)
        for number, (model, trainer) in enumerate(_trainings()):
            run = trainer.init(model, jax.random.key(number))
            path = self.folder / "t.keras"
            fk.save_model(path, run.model, run.state, trainer=trainer, run=run)
            self._add("the training in an archive", path.read_bytes(), "t.keras", fk.load_training)
        files = [_legacy(), *(write(cases()[name]["file"]) for name in _FROM_KERAS_2)]
        for data in files:
            self._add("a legacy file", data, "m.h5", fk.load_model)
            with h5py.File(io.BytesIO(data)) as file:
                trained = "training_config" in file.attrs
            if trained:
                self._add("the training in a legacy file", data, "m.h5", fk.load_training)
        for name in _QUANTIZED:
            case, suffix = _quantized()[name], "h5" if "h5" in name else "keras"
            self._add("codes of Keras", file_bytes(case), f"q.{suffix}", fk.load_model)
        model = fk.load_model(self.folder / "m.h5")[0]
        self._add("the weights in a legacy file", data, "m.h5", _loader(model))
        self._add_pretrained()

    def _add_weights(self, model: Any, state: Any, archive: bytes) -> None:
        load = _loader(fk.engine.unbuilt(model))
        self._add("the weights in an archive", archive, "m.keras", load)
        for name in ("m.weights.h5", "m.safetensors", "m.npz"):
            data = self._saved(name, fk.save_weights, model, state)
            self._add(f"the weights in {name.partition('.')[2]}", data, name, load)

    def _add_pretrained(self) -> None:
        """Adds a GGUF file, and folders of which one file is damaged."""
        gguf_files.write("qwen3", self.folder / "m.gguf")
        data = (self.folder / "m.gguf").read_bytes()
        self._add("a GGUF file", data, "m.gguf", fk.pretrained.load)
        for name in ("config.json", "model.safetensors", "model.safetensors.index.json"):
            folder = self.folder / f"{name}_folder"
            shutil.copytree(DATA / "mistral", folder, ignore=shutil.ignore_patterns("*.npz"))
            if name.endswith(".index.json"):
                split(folder)
            self._add_folder(folder, name)
        for name in ("bert_accents", "qwen2", "whisper_german", "llama_legacy", "t5_few", "siglip"):
            self._add_vocabulary(name)

    def _add_vocabulary(self, kind: str) -> None:
        """Adds the files of a tokenizer without tokenizer.json, of which one is damaged."""

        def load(path: pathlib.Path) -> Any:
            tokenizer = fk.pretrained.Tokenizer.read(path.parent)
            if tokenizer is not None:
                # damaged tables of replacements fail only where a text needs them
                with contextlib.suppress(ValueError):
                    tokenizer.decode(tokenizer.encode("the ﬁ ½ </s> 漢", special_tokens=False))
            return tokenizer, {}

        for name in tokenizer_folders.files(kind):
            folder = self.folder / f"{kind}_{name}_folder"
            folder.mkdir()
            tokenizer_folders.write(folder, kind)
            data = (folder / name).read_bytes()
            self._add(f"{name} of the tokenizer {kind}", data, f"{folder.name}/{name}", load)

    def _add_folder(self, folder: pathlib.Path, name: str) -> None:
        def load(path: pathlib.Path) -> Any:
            return fk.pretrained.load(path.parent)

        data = (folder / name).read_bytes()
        self._add(f"{name} of a folder", data, f"{folder.name}/{name}", load)

    def _saved(self, name: str, save: Callable, model: Any, state: Any) -> bytes:
        save(self.folder / name, model, state)
        return (self.folder / name).read_bytes()

    def _add(self, what: str, data: bytes, name: str, load: Callable) -> None:
        path = self.folder / name
        path.write_bytes(data)
        self.goods.append(Good(what, data, name, load, load(path)))


def _loader(model: Any) -> Callable[[pathlib.Path], Any]:
    return lambda path: fk.load_weights(path, model)


def same(one: Any, other: Any) -> bool:
    """Whether two pairs of a model or trainer, and of a state or run, are the same to the bit."""
    leaves, structure = jax.tree.flatten(one[1])
    others, as_well = jax.tree.flatten(other[1])
    pairs = zip(leaves, others, strict=False)
    return (
        one[0] == other[0]
        and structure == as_well
        and all(np.array_equal(_plain(a), _plain(b), equal_nan=True) for a, b in pairs)
    )


def _plain(array: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    array = np.asarray(array)
    return array if array.dtype.kind in "biufc" else array.astype("float32")
