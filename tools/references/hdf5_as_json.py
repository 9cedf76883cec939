"""The tree of an HDF5 file as JSON data; shared by the scripts that run old versions of Keras."""

import h5py
import numpy as np


def number(x):
    return float(str(np.float32(x)))


def listed(array):
    array = np.asarray(array)
    if array.dtype.kind == "f":
        return [number(x) for x in array.ravel()]
    return [int(x) for x in array.ravel()]


def packed(array):
    array = np.asarray(array)
    return {"dtype": str(array.dtype), "shape": list(array.shape), "values": listed(array)}


def attribute(value):
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray):
        return [v.decode() if isinstance(v, bytes) else str(v) for v in value]
    return value


def tree(path):
    attributes, arrays = {}, {}

    def visit(name, item):
        found = {k: attribute(v) for k, v in item.attrs.items()}
        if found:
            attributes[name] = found
        if isinstance(item, h5py.Dataset):
            arrays[name] = packed(item[()])

    with h5py.File(path, "r") as file:
        visit("", file)
        file.visititems(visit)
    return {"attributes": attributes, "arrays": arrays}
