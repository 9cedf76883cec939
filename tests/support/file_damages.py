"""Valid model files, every damage of one key in them, and the text that the error must contain."""

import copy
import io
import json
import zipfile

import h5py

# these hold values of several types, which may contradict another part of the file
OPEN = ("batch_shape", "kernel_size", "output_shape", "gradient_accumulation_steps", "args")
# wrong types and wrong values; a damage that leaves the file valid is no finding
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
    """What stands at a path."""
    for key in path:
        tree = tree[key]
    return tree


def without(tree, path):
    """A copy that lacks what stands at a path."""
    made = copy.deepcopy(tree)
    del at(made, path[:-1])[path[-1]]
    return made


def changed(tree, path, value):
    """A copy with another value at a path."""
    made = copy.deepcopy(tree)
    at(made, path[:-1])[path[-1]] = value
    return made


def damages(tree):
    """`(path, what, damaged copy)` for every key: missing, and each wrong value in its place."""
    for path in entries(tree):
        yield path, "missing", without(tree, path)
        for value in VALUES:
            if type(value) is not type(at(tree, path)) or value != at(tree, path):
                yield path, repr(value), changed(tree, path, value)


def key_of(path):
    """The innermost name on a path; entries of lists go by the name of the list."""
    return next(key for key in reversed(path) if isinstance(key, str))


def layer_of(tree, path):
    """The name of the innermost layer around a path, where there is one."""
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
    with zipfile.ZipFile(io.BytesIO(data)) as file, zipfile.ZipFile(target, "w") as made:
        for member in file.namelist():
            text = json.dumps(content) if member == name else file.read(member)
            made.writestr(member, text)
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
    """Whether a refusal names the key that was damaged.

    A value of the right type, or a key that has a default, may contradict another part of the file:
    the refusal names the layer then.
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


def findings(load, data, read, write, where, every=1):
    """`(path, damage, message)` of refusals that do not name the key; `load` takes bytes.

    Args:
        load: opens the bytes of a file; raises FileError for a refusal.
        data: a good file.
        read: `(data, where) -> JSON data`.
        write: `(data, where, JSON data) -> bytes`.
        where: the member or attribute that is damaged.
        every: takes one of so many damages.
    """
    whole, found = read(data, where), []
    for number, (path, what, made) in enumerate(damages(whole)):
        if number % every:
            continue
        error = load(write(data, where, made))
        if error is not None and not is_named(error, path, whole, what):
            found.append((".".join(map(str, path)), what, str(error)))
    return found
