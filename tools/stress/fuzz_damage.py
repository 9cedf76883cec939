"""Random damages of valid files: of bytes, JSON, HDF5 trees and members of archives."""

from __future__ import annotations

import contextlib
import io
import json
import random
import zipfile

import h5py
import numpy as np

_ODD = (
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
    {"class_name": "Adam", "config": {"learning_rate": 0.1}, "module": "keras.optimizers"},
    {"class_name": "AUC", "config": {"num_thresholds": 10**9}, "module": "keras.metrics"},
    10**5, 10**7, 10**9, 1e9, "(a+)+$", "re:(.*.*)*x", ["(.|.)*x"],
)  # fmt: skip


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
            return rng.choice(_ODD)
        node, key = rng.choice(places)
        other, place = rng.choice(places)
        way = rng.randrange(10)
        if way < 5:
            node[key] = json.loads(json.dumps(rng.choice(_ODD)))
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
            elif way == 11 and f"{leaf}0" not in parent:
                parent.create_dataset(leaf + "0", data=np.zeros(3))
    return target.getvalue()


def damaged_table(data: bytes, rng: random.Random) -> bytes:
    """A file of safetensors whose table is another."""
    length = int.from_bytes(data[:8], "little")
    table = damaged_json(json.loads(data[8 : 8 + length]), rng)
    text = json.dumps(table).encode()
    claimed = len(text) if rng.random() < 0.9 else rng.choice((0, length, 2**40, 2**64 - 1))
    return claimed.to_bytes(8, "little") + text + data[8 + length :]


def damaged_archive(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """`(member, archive)` with one member damaged, as its checksum is of the damaged one."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        members = {name: file.read(name) for name in file.namelist()}
    # what is asked for stands in the configuration: it has half of the cases
    names = [*members, *(["config.json"] * 3 if "config.json" in members else [])]
    name = rng.choice(names)
    way = rng.randrange(6)
    if name.endswith(".json") and way > 0:
        members[name] = json.dumps(damaged_json(json.loads(members[name]), rng)).encode()
    elif name.endswith(".h5") and way > 1:
        members[name] = damaged_tree(members[name], rng)
    else:
        members[name] = damaged_bytes(members[name], rng)
    if rng.random() < 0.02:
        members.pop(rng.choice(list(members)))
    target = io.BytesIO()
    method = rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with zipfile.ZipFile(target, "w", method) as file:
        for key, value in members.items():
            file.writestr(key, value)
    return name, target.getvalue()


def damaged(data: bytes, rng: random.Random) -> tuple[str, bytes, bool]:
    """`(what, file, checked)`: a damaged file, and whether all of it was under checksums before."""
    deep = rng.random()
    if data.startswith(b"PK"):
        if deep < 0.2:
            return "its bytes", damaged_bytes(data, rng), True
        name, made = damaged_archive(data, rng)
        return name, made, False
    if data.startswith(b"GGUF") and deep < 0.8:
        return "its head", damaged_bytes(data[:2500], rng) + data[2500:], False
    if data.startswith(b"{") and deep < 0.9:
        return "its text", json.dumps(damaged_json(json.loads(data), rng)).encode(), False
    if data.startswith(b"\x89HDF") and deep >= 0.5:
        return "its tree", damaged_tree(data, rng), False
    # only files of safetensors have a table in JSON behind its length
    if deep < 0.5 or data.startswith((b"GGUF", b"{")) or data[8:9] != b"{":
        return "its bytes", damaged_bytes(data, rng), False
    return "its table", damaged_table(data, rng), False
