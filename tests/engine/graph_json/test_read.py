"""Malformed graph configs raise one clear error that names the layer, in bounded time."""

import copy
import json
import time

import pytest

import fkeras as fk
from fkeras import layers


def _model():
    x = fk.Input((4,), name="x")
    shared = layers.Dense(4, name="shared")
    y = layers.Add(name="sum")([shared(x), shared(shared(x))])
    z = layers.Dropout(0.5, name="drop")(y[:, 1:], training=True)
    inner = fk.Model(i := fk.Input((3,), name="i"), layers.Dense(2, name="head")(i), name="inner")
    return fk.Model(x, {"out": inner(z), "mean": fk.ops.mean(z, axis=(1,))})


CONFIG = json.loads(json.dumps(_model().get_config()))
# one value of each kind; most are wrong for most keys
VALUES = (None, True, -1, 10**30, 1.5, "", "gone", [], {}, [[]], {"a": 1}, ["x", 0, 0], [1, 2, 3])


def tensor(*history):
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, 4], "dtype": "float32", "keras_history": list(history)},
    }


def item(config, name):
    return next(entry for entry in config["layers"] if entry["name"] == name)


def check_rejected(config, match):
    with pytest.raises(fk.FKerasError, match=match) as error:
        fk.Model.from_config(config)
    return error.value


def places(tree, path=()):
    yield path
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))
        else:
            yield (*path, key)


PLACES = sorted(set(places(CONFIG)) - {()}, key=str)


@pytest.mark.one_in(9)
@pytest.mark.parametrize("part", range(8))
def test_any_value_at_any_key_is_read_or_rejected(part):
    """Replaces the value of every key by a value of every kind."""
    for path in PLACES[part::8]:
        for value in VALUES[part % 3 :: 3]:
            config = copy.deepcopy(CONFIG)
            inner = config
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            _read_or_reject(config, path)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("part", range(4))
def test_any_missing_key_is_a_default_or_rejected(part):
    for path in PLACES[part::4]:
        config = copy.deepcopy(CONFIG)
        inner = config
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]
        _read_or_reject(config, path)


def _read_or_reject(config, path):
    try:
        fk.Model.from_config(config)
    except (ValueError, TypeError) as error:
        assert not isinstance(error, UnicodeError | RecursionError)
        assert str(error), path
        if path[0] == "layers" and len(path) > 3:
            names = [repr(entry["name"]) for entry in CONFIG["layers"]]
            assert any(name in str(error) for name in names), (path, str(error))


def test_layers_with_equal_names_are_rejected():
    config = copy.deepcopy(CONFIG)
    config["layers"].append(copy.deepcopy(item(config, "sum")))
    assert check_rejected(config, "'sum': two layers have this name").layer == "sum"


@pytest.mark.parametrize(
    ("history", "match"),
    [
        (("gone", 0, 0), "'drop', call 0: needs a tensor of the layer 'gone'"),
        (("shared", 3, 0), "call 3 of 'shared'.* has only 3 calls"),
        (("shared", -1, 0), "call -1 of 'shared'"),
        (("shared", 10**30, 0), "has only 3 calls"),
        (("x", 1, 0), "call 1 of 'x'"),
        (("shared", 0, 1), "output 1 of call 0 of 'shared'"),
        (("shared", 0, -1), "output -1 of call 0"),
        (("shared", "0", 0), "received list"),
        (("shared", True, 0), "received list"),
        (("shared", 0), "received list"),
        ((None, 0, 0), "received list"),
        (("drop", 0, 0), "'drop', call 0: the calls of drop form a cycle"),
        (("inner", 0, 0), "the calls of drop, inner form a cycle"),
    ],
)
def test_histories(history, match):
    config = copy.deepcopy(CONFIG)
    item(config, "drop")["inbound_nodes"][0]["args"] = [tensor(*history)]
    check_rejected(config, match)


def test_constants_and_functions():
    config = copy.deepcopy(CONFIG)
    node = item(config, "drop")["inbound_nodes"][0]
    for value, match in (
        ({"class_name": "__lambda__", "config": {"value": "code"}}, "lambda.*custom_objects"),
        ({"class_name": "__numpy__", "config": {"value": [1], "dtype": "object"}}, "constant"),
        ({"class_name": "__numpy__", "config": {"value": "x", "dtype": "int32"}}, "constant"),
        (
            {"class_name": "__numpy__", "config": {"value": [[1], [1, 2]], "dtype": "int32"}},
            "const",
        ),
        (
            {"class_name": "__slice__", "config": {"start": "0"}},
            "'start', 'stop' and 'step' of a slice",
        ),
        ({"class_name": "system", "config": {}, "module": "os"}, "there is no 'system'"),
    ):
        node["kwargs"] = {"option": value}
        check_rejected(config, f"(?s)^'drop', call 0: .*{match}")


def test_nesting_beyond_the_limit_is_rejected():
    config = copy.deepcopy(CONFIG)
    node, deep = item(config, "drop")["inbound_nodes"][0], []
    for _ in range(5000):
        deep = [deep]
    node["kwargs"] = {"option": deep}
    check_rejected(config, "^'drop', call 0: its arguments are nested deeper")
    config = {**copy.deepcopy(CONFIG), "output_layers": deep}
    check_rejected(config, "output_layers: are nested deeper")


def test_models_nested_beyond_the_recursion_limit_are_rejected():
    config = {"module": "keras", "class_name": "Functional", "config": copy.deepcopy(CONFIG)}
    for _ in range(400):
        entry = {
            **config,
            "name": "inner",
            "inbound_nodes": [{"args": [tensor("x", 0, 0)], "kwargs": {}}],
        }
        outer = {"layers": [CONFIG["layers"][0], entry], "input_layers": ["x", 0, 0]}
        config = {**config, "config": {**outer, "output_layers": ["inner", 1, 0]}}
    check_rejected(config["config"], "'inner': .*nested deeper")


def test_operations():
    config = copy.deepcopy(CONFIG)
    entry = item(config, "mean")
    for key, value, match in (
        ("class_name", "System", "'mean': unsupported operation 'System'"),
        ("class_name", 3, "'mean': expected 'class_name' as a string"),
        ("config", [], "'mean'"),
        ("config", {"axis": "x"}, "'mean', call 0"),
        ("config", {"colour": 1}, "'mean', call 0"),
        ("module", "keras.src.ops.os", None),
    ):
        changed_config = copy.deepcopy(config)
        item(changed_config, "mean")[key] = value
        if match is None:
            fk.Model.from_config(changed_config)  # the module is only a name and is not imported
        else:
            check_rejected(changed_config, match)
    entry["inbound_nodes"][0]["args"] *= 2
    check_rejected(config, "'mean', call 0: expected the arguments x")


def _chain(length, last=None):
    x = {"module": "keras.layers", "class_name": "InputLayer", "name": "x", "inbound_nodes": []}
    data = [{**x, "config": {"batch_shape": [None, 4], "name": "x"}}]
    for number in range(length):
        producer = f"d{number - 1}" if number else last or "x"
        data.append(
            {
                **{"module": "keras.layers", "class_name": "Activation", "name": f"d{number}"},
                "config": {"activation": "relu", "name": f"d{number}"},
                "inbound_nodes": [{"args": [tensor(producer, 0, 0)], "kwargs": {}}],
            }
        )
    endpoints = {"input_layers": ["x", 0, 0], "output_layers": [f"d{length - 1}", 0, 0]}
    return {"name": "chain", "layers": data[::-1], **endpoints}


@pytest.mark.exhaustive
def test_the_worst_order_of_layers_is_read_in_linear_time():
    fk.Model.from_config(_chain(10))

    def cost(length):
        start = time.process_time()
        model = fk.Model.from_config(_chain(length))
        assert len(model.layers) == length + 1
        return time.process_time() - start

    small, large = cost(300), cost(3000)
    assert large < 30 * small + 1  # a quadratic reader takes a hundred times as long


@pytest.mark.exhaustive
def test_a_cycle_among_thousands_of_calls_is_reported():
    error = check_rejected(_chain(3000, last="d2999"), "form a cycle")
    assert len(str(error)) < 400


def test_shapes_of_inputs():
    config = copy.deepcopy(CONFIG)
    entry = item(config, "x")["config"]
    for shape in ([None, -2], [None, 1.5], [None, "a b"], [None, 10**30], [[4]], "4", None, {}):
        entry["batch_shape"] = shape
        check_rejected(config, "^'x': (.*batch_shape: )?expected")
    del entry["batch_shape"]
    check_rejected(config, "^'x': expected 'batch_shape' as a list or a tuple")
    entry["batch_input_shape"] = [None, 4]  # the form of older versions
    assert fk.Model.from_config(config) == _model()


@pytest.mark.exhaustive
def test_masks_propagate_through_operations_and_sums():
    ids, x = fk.Input((5,), dtype="int32", name="ids"), fk.Input((5, 4), name="x")
    e = layers.Embedding(7, 4, mask_zero=True, name="e")(ids)
    for y in (layers.Add(name="sum")([e, x]), e * 2, layers.Concatenate(name="joined")([e, e])):
        model = fk.Model([ids, x], layers.GRU(2, name="last")(y))
        assert fk.Model.from_config(json.loads(json.dumps(model.get_config()))) == model
