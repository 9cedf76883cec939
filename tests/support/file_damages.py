"""Valid model files, every damage of one key in them, and the text that the error must contain."""

import copy
import io
import json
import zipfile

import h5py

# keys with values of several types, where a wrong value may contradict another part of the file
OPEN = ("batch_shape", "kernel_size", "output_shape", "gradient_accumulation_steps", "args")
# wrong types and values; some damages leave the file valid
VALUES = (
    None,
    True,
    -1,
    7,
    2.5,
    "wrong",
    [],
    [[1], "x"],
    {},
    {"class_name": "Wrong", "config": {}},
)


def entries(tree, path=()):
    """The path of every key and list entry in JSON data, from the outside to the inside."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from entries(value, (*path, key))


def at(tree, path):
    """The value at a path."""
    for key in path:
        tree = tree[key]
    return tree


def without(tree, path):
    """A copy without the value at a path."""
    damaged = copy.deepcopy(tree)
    del at(damaged, path[:-1])[path[-1]]
    return damaged


def changed(tree, path, value):
    """A copy with another value at a path."""
    damaged = copy.deepcopy(tree)
    at(damaged, path[:-1])[path[-1]] = value
    return damaged


def damages(tree):
    """`(path, damage, damaged copy)` for every key: the key missing, and each wrong value."""
    for path in entries(tree):
        yield path, "missing", without(tree, path)
        for value in VALUES:
            if type(value) is not type(at(tree, path)) or value != at(tree, path):
                yield path, repr(value), changed(tree, path, value)


def key_of(path):
    """The innermost key of a path; the key of the list for entries of lists."""
    return next(key for key in reversed(path) if isinstance(key, str))


def layer_of(tree, path):
    """The name of the innermost layer around a path, or None."""
    name = None
    for length in range(len(path)):
        item = at(tree, path[:length])
        if isinstance(item, dict) and "class_name" in item and isinstance(item.get("config"), dict):
            module = item.get("module") or ""
            if module.startswith(("keras.layers", "keras.src")) or "inbound_nodes" in item:
                name = item.get("name") or item["config"].get("name") or name
    return name


def member_of(data, name):
    """The JSON in a member of an archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return json.loads(file.read(name))


def with_member(data, name, content):
    """The archive with other JSON in a member."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as file, zipfile.ZipFile(target, "w") as archive:
        for member in file.namelist():
            text = json.dumps(content) if member == name else file.read(member)
            archive.writestr(member, text)
    return target.getvalue()


def attribute_of(data, name):
    """The JSON in an attribute of the root of an HDF5 file."""
    with h5py.File(io.BytesIO(data)) as file:
        return json.loads(file.attrs[name])


def with_attribute(data, name, content):
    """The HDF5 file with other JSON in an attribute of its root."""
    target = io.BytesIO(data)
    with h5py.File(target, "r+") as file:
        file.attrs[name] = json.dumps(content)
    return target.getvalue()


def is_named(error, path, whole, what):
    """Whether an error names the damaged key.

    A value of the right type, or a missing key with a default, may contradict another part of the
    file. The error then names the layer.
    """
    key = key_of(path)
    if key in error.problem or key in (error.key or "").replace("]", "").replace("[", ".").split(
        "."
    ):
        return True
    value = at(whole, path)
    consistent = (
        key in OPEN
        or what in ("missing", "None")
        or what in (repr(v) for v in VALUES if type(v) is type(value))
    )
    return consistent and (error.layer is not None or "weights" in error.member)


def findings(load, data, read, write, where, every=1, first=0):
    """`(path, damage, message)` of the errors that do not name the damaged key.

    Args:
        load: opens the bytes of a file; returns the `FileError`, or None.
        data: a valid file.
        read: `(data, where) -> JSON data`.
        write: `(data, where, JSON data) -> bytes`.
        where: the member or attribute to damage.
        every: use one of this many damages.
        first: number of the first damage that is used, less than `every`.
    """
    content, unnamed = read(data, where), []
    for number, (path, what, damaged) in enumerate(damages(content)):
        if number % every != first:
            continue
        error = load(write(data, where, damaged))
        if error is not None and not is_named(error, path, content, what):
            unnamed.append((".".join(map(str, path)), what, str(error)))
    return unnamed
