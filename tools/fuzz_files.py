"""Damages good model files at random, opens them, and tells what was neither opened nor refused.

    python tools/fuzz_files.py [seconds] [seed]

Every load must give a model or raise `fk.FileError`. Anything else is a finding: another exception,
a crash, a load that asks for memory that the file does not hold or takes long, or, where the
damage is under a checksum, another model than was saved. Files are opened in child processes, so
that a crash ends one of them only. Each finding is printed with the number that makes it again:

    python tools/fuzz_files.py --again SEED:NUMBER
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import h5py
import jax
import numpy as np

import fkeras as fk

ODD = (
    None, True, False, 0, -1, 1, 2, 3.5, 10**6, 2**31, 2**63, 10**30, -(10**12), 1e-300, float("nan"),
    float("inf"), "", "x", "..", "a/b", "\0", "relu", "float32", "bfloat16", "object", "keras", "é" * 50,
    "dense", [], {}, [1], [[]], ["dense", 0, 0], ["dense", 9, 9], [None, None], {"a": 1}, [1] * 50,
    {"class_name": "Dense", "config": {"units": 3}}, {"class_name": "__tuple__", "items": [1, 2]},
    {"class_name": "function", "config": "relu", "module": "keras.activations"},
    {"class_name": "__numpy__", "config": {"value": [[1.0]], "dtype": "float32"}},
    {"class_name": "__keras_tensor__", "config": {"keras_history": ["x", 0, 0]}},
    {"class_name": "__slice__", "config": {"start": 0, "stop": 10**12, "step": 0}},
    {"class_name": "Zeros", "config": {}, "module": "keras.initializers"},
    {"class_name": "LSTM", "config": {"units": 2}, "module": "keras.layers"},
)  # fmt: skip
_SECONDS = 20
_MEMORY = 4 << 30


def models():
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


def legacy() -> bytes:
    """A file as Keras 2 wrote it."""
    target = io.BytesIO()
    config = {"name": "d", "units": 2, "activation": "relu", "batch_input_shape": [None, 3]}
    items = [{"class_name": "Dense", "config": config}]
    document = {"class_name": "Sequential", "config": {"name": "s", "layers": items}}
    loss = {"loss": "mse", "metrics": ["mae"], "sample_weight_mode": None, "loss_weights": None}
    optimizer = {"class_name": "Adam", "config": {"lr": 0.1, "decay": 0.0}}
    with h5py.File(target, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.3.1", "tensorflow"
        file.attrs["model_config"] = json.dumps(document)
        file.attrs["training_config"] = json.dumps({**loss, "optimizer_config": optimizer})
        group = file.create_group("model_weights")
        group.attrs["layer_names"] = np.array([b"d"])
        group.attrs["keras_version"], group.attrs["backend"] = "2.3.1", "tensorflow"
        one = group.create_group("d")
        one.attrs["weight_names"] = np.array([b"d/kernel:0", b"d/bias:0"])
        one["d/kernel:0"], one["d/bias:0"] = np.ones((3, 2), "f4"), np.zeros(2, "f4")
    return target.getvalue()


class Corpus:
    """The good files, and the models that they hold."""

    def __init__(self, folder: str):
        self.folder = pathlib.Path(folder)
        self.files: list[bytes] = []
        self.models: list = []
        for number, model in enumerate(models()):
            model = model.build(jax.random.key(number))
            state = model.init_state()
            path = self.folder / "good.keras"
            fk.save_model(path, model, state)
            self.files.append(path.read_bytes())
            self.models.append(fk.load_model(path))
        self.files.append(legacy())


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, put in, left out, moved, or the end cut off."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        # what describes the content lies at the beginning and at the end
        at = rng.choice(
            (
                rng.randrange(len(made)),
                rng.randrange(min(len(made), 3000)),
                len(made) - 1 - rng.randrange(min(len(made), 300)),
            )
        )
        way, length = rng.randrange(7), rng.choice((1, 2, 4, 8, 50))
        if way < 3:
            made[at] = rng.choice(
                (0, 1, 0x7F, 0x80, 0xFF, made[at] ^ 1 << rng.randrange(8), rng.randrange(256))
            )
        elif way == 3:
            made[at : at + length] = rng.choice((b"\xff", b"\0", b"\x7f")) * length
        elif way == 4:
            made[at:at] = rng.randbytes(length)
        elif way == 5:
            other = rng.randrange(len(made))
            made[at : at + length] = made[other : other + length]
        else:
            del made[at : rng.choice((at + length, len(made)))]
        if not made:
            break
    return bytes(made)


def damaged_json(value, rng: random.Random):
    """Some values changed for odd ones, left out, put in or swapped."""
    value = [json.loads(json.dumps(value))]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = []
        waiting = [value]
        while waiting:
            node = waiting.pop()
            keys = list(node) if isinstance(node, dict) else range(len(node))
            for key in keys:
                places.append((node, key))
                if isinstance(node[key], dict | list):
                    waiting.append(node[key])
        if not places:
            return rng.choice(ODD)
        node, key = rng.choice(places)
        other, place = rng.choice(places)
        way = rng.randrange(10)
        if way < 5:
            node[key] = json.loads(json.dumps(rng.choice(ODD)))
        elif way == 5:
            del node[key]
        elif way == 6:
            node[key] = json.loads(json.dumps(other[place]))
        elif way == 7 and isinstance(node, dict):
            node[rng.choice(("name", "config", "class_name", "dtype", "x"))] = node[key]
        elif way == 8 and isinstance(node, list):
            node.insert(0, json.loads(json.dumps(node[key])))
        elif isinstance(node[key], int | float):
            node[key] = node[key] * rng.choice((-1, 0, 2, 10**9))
        elif isinstance(node[key], str):
            node[key] = rng.choice((node[key].upper(), node[key][:-1], node[key] + "_1"))
    return value[0] if value else None


def damaged_tree(data: bytes, rng: random.Random) -> bytes:
    """An HDF5 file whose groups, arrays or attributes are others."""
    target = io.BytesIO(data)
    with h5py.File(target, "r+") as file:
        names: list[str] = []
        file.visit(names.append)
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(names)
            if name not in file:
                continue
            item, way = file[name], rng.randrange(12)
            parent, leaf = item.parent, name.rpartition("/")[2]
            if way < 4:
                noted = [n for n in names if n in file and len(file[n].attrs)]
                holder = file[rng.choice(noted)] if noted and rng.random() < 0.7 else file
                keys = [*holder.attrs, "name", "layer_names", "weight_names"]
                key = rng.choice(keys)
                odd = rng.choice(
                    (
                        0,
                        -1,
                        "",
                        "x",
                        b"\xff",
                        [1.5],
                        [b"a", b"a"],
                        ["d"],
                        np.array([b"d"] * 3),
                        h5py.Empty("f4"),
                        "{" * 200,
                        "[]",
                        "{}",
                        "null",
                    )
                )
                if key in holder.attrs and isinstance(holder.attrs[key], str) and way < 2:
                    with contextlib.suppress(ValueError):
                        odd = json.dumps(damaged_json(json.loads(holder.attrs[key]), rng))
                holder.attrs[key] = odd
                continue
            if leaf not in parent:  # reached by a link that was made before
                continue
            del parent[leaf]
            if way == 5:
                parent[leaf] = h5py.SoftLink("/")
            elif way == 6:
                parent[leaf] = h5py.ExternalLink("/etc/passwd", "/")
            elif way == 7:
                parent[leaf] = parent
            elif way == 8:
                parent.create_group(leaf)
            elif way == 9:
                parent.create_dataset(
                    leaf,
                    (2,) * rng.randrange(4),
                    rng.choice(("f4", "f8", "i1", "S3", "c8", "?", "f2", ">f4")),
                )
            elif way == 10:
                parent.create_dataset(
                    leaf, (1 << rng.randrange(6, 40),), "f4", chunks=(64,), compression=9
                )
            elif way == 11:
                parent.create_dataset(leaf + "0", data=np.zeros(3))
    return target.getvalue()


def case(corpus: Corpus, rng: random.Random) -> tuple[str, bytes, int | None]:
    """What was done, the file, and the number of the model that it must hold where it opens."""
    number = rng.randrange(len(corpus.files))
    data = corpus.files[number]
    if data.startswith(b"\x89HDF"):
        if rng.random() < 0.5:
            return "the bytes of a legacy file", damaged_bytes(data, rng), None
        return "the tree of a legacy file", damaged_tree(data, rng), None
    way = rng.randrange(6)
    if way == 0:
        return "the bytes of an archive", damaged_bytes(data, rng), number
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    name = rng.choice(
        (
            "config.json",
            "config.json",
            "config.json",
            "model.weights.h5",
            "model.weights.h5",
            "metadata.json",
        )
    )
    if name.endswith(".json"):
        if way == 1:
            members[name] = damaged_bytes(members[name], rng)
        else:
            members[name] = json.dumps(damaged_json(json.loads(members[name]), rng)).encode()
    else:
        damage = damaged_tree if way < 4 else damaged_bytes
        members[name] = damage(members[name], rng)
    if rng.random() < 0.02:
        members.pop(rng.choice(list(members)))
    target = io.BytesIO()
    with zipfile.ZipFile(
        target, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as file:
        for key, value in members.items():
            file.writestr(key, value)
    return f"{name} in an archive", target.getvalue(), None


def attempt(path: pathlib.Path, data: bytes, same) -> str | None:
    """What is wrong with how a file is opened, or None; `same` is the model that it must hold."""
    path.write_bytes(data)
    try:
        model, state = fk.load_model(path)
    except fk.FileError as error:
        text = str(error)
        if "more memory than there is" in text:
            return f"asks for memory: {text}"
        return None if error.file == str(path) and len(text) < 4000 else f"unclear: {text[:300]}"
    except (Exception, Late) as error:
        lines = traceback.extract_tb(error.__traceback__)
        own = [
            f"{pathlib.Path(x.filename).name}:{x.lineno}" for x in lines if "fkeras" in x.filename
        ]
        return f"{type(error).__name__}: {str(error)[:300]} ({' '.join(own[-4:])})"
    if same is not None and not (model == same[0] and same_state(state, same[1])):
        return "opens as another model than was saved"
    return None


def same_state(one, other) -> bool:
    """Whether two states hold the same numbers."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


class Late(BaseException):
    """Raised where a case takes too long; no handler of exceptions takes it for a damaged file."""


def _late(*_) -> None:
    raise Late(f"more than {_SECONDS} seconds")


def work(seed: str, first: int, seconds: float, count: int | None = None) -> None:
    """The child: cases from `first` on, each announced before it begins."""
    faulthandler.enable()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus(folder)
        size = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + _MEMORY, size + _MEMORY))
        signal.signal(signal.SIGALRM, _late)
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end and (count is None or number < first + count):
            print(f"case {number}", flush=True)
            what, data, same = case(corpus, random.Random(f"{seed}:{number}"))
            path = corpus.folder / "case.keras"
            signal.alarm(_SECONDS)
            try:
                found = attempt(path, data, None if same is None else corpus.models[same])
            except Late as error:
                found = f"Late: {error}"
            finally:
                signal.alarm(0)
            if found:
                print(f"FOUND {number} {what}: {found}", flush=True)
            number += 1
    print("end", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--work"]:
        seed, first, seconds = sys.argv[2:5]
        work(seed, int(first), float(seconds))
        return
    if sys.argv[1:2] == ["--again"]:
        seed, _, number = sys.argv[2].rpartition(":")
        work(seed, int(number), 600, 1)
        return
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = sys.argv[2] if len(sys.argv) > 2 else "0"
    end, number, findings = time.monotonic() + seconds, 0, {}
    while time.monotonic() < end:
        left = str(end - time.monotonic())
        command = [sys.executable, __file__, "--work", seed, str(number), left]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as child:
            text, errors = child.communicate()
        lines = text.splitlines()
        for line in lines:
            if line.startswith("FOUND"):
                _, place, what = line.split(" ", 2)
                key = what.split("(")[-1] if "(" in what else what[:80]
                if key not in findings:
                    print(
                        f"{what}\n    again: python tools/fuzz_files.py --again {seed}:{place}",
                        flush=True,
                    )
                findings[key] = findings.get(key, 0) + 1
        cases = [int(line.split()[1]) for line in lines if line.startswith("case")]
        if not cases:
            print(errors[-2000:])
            sys.exit("The child made no case.")
        number = cases[-1] + 1
        if child.returncode:
            print(
                f"CRASH {child.returncode}\n    again: python tools/fuzz_files.py --again {seed}:{cases[-1]}"
            )
            print(errors[-1500:], flush=True)
            findings[f"crash {cases[-1]}"] = 1
    print(
        f"{number} files, {sum(findings.values())} findings of {len(findings)} kinds, seed {seed}."
    )
    sys.exit(bool(findings))


if __name__ == "__main__":
    main()
