"""The order of a model's layers equals Keras's order, which numbers the weights in Keras's files."""

import json
import random

import pytest

import fkeras as fk
from tests.support.keras_oracle import keras, keras_rules


class Drawn:
    """One random graph, in either library: branches, shared layers, nested models."""

    def __init__(self, k, seed):
        self.k, self.rng, self.count = k, random.Random(seed), 0

    def name(self):
        self.count += 1
        # names whose alphabetical order differs from their order of creation
        return f"{'zyxwvu'[self.count % 6]}{self.count}"

    def dense(self):
        return self.k.layers.Dense(4, name=self.name())

    def inner(self):
        k, rng = self.k, self.rng
        inputs = [k.Input((4,), name=self.name()) for _ in range(2)]
        dense = self.dense()
        joined = k.layers.Add(name=self.name())([dense(inputs[0]), dense(inputs[1])])
        outputs = rng.choice([joined, [joined, dense(joined)]])
        if rng.random() < 0.3:
            return k.Model(inputs, {"b": joined, "a": dense(joined)}, name=self.name())
        return k.Model(inputs, outputs, name=self.name())

    def call(self, kind, a, b, shared):
        k, rng = self.k, self.rng
        if kind == 0:
            return [self.dense()(a)]
        if kind == 1:
            return [k.layers.Add(name=self.name())([a, b])]
        if kind == 2 and shared:
            return [rng.choice(shared)(a)]
        if kind == 3:
            joined = k.layers.Concatenate(name=self.name())([a, b])
            return [self.dense()(joined)]
        if kind == 4:
            model = self.inner()
            values = flat(model([a, b]))
            return [*values, *flat(model([values[-1], b]))] if rng.random() < 0.5 else values
        if kind == 5:
            return [k.layers.Dropout(0.2, name=self.name())(a, training=rng.choice([None, True]))]
        if kind == 6:
            return [k.layers.Subtract(name=self.name())([a, b[:, ::-1]])]
        shared.append(self.dense())
        return [shared[-1](a)]

    def model(self):
        k, rng, shared = self.k, self.rng, []
        inputs = [k.Input((4,), name=self.name()) for _ in range(rng.randint(1, 4))]
        tensors = list(inputs)
        for _ in range(rng.randint(3, 12)):
            kind, a, b = rng.randrange(8), rng.choice(tensors), rng.choice(tensors)
            tensors.extend(self.call(kind, a, b, shared))
        outputs = rng.sample(tensors[len(inputs) :], min(3, len(tensors) - len(inputs)))
        form = rng.randrange(4)
        if form == 0:
            outputs = outputs[0]
        elif form == 1:
            outputs = {"zyx"[i]: value for i, value in enumerate(outputs)}
        if form == 2:
            inputs = {"cabd"[i]: value for i, value in enumerate(inputs)}
        return k.Model(inputs, outputs, name="m")


def flat(value):
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return list(value) if isinstance(value, list | tuple) else [value]


def through_json(config):
    return json.loads(json.dumps(config))


def theirs_without_operations(model):
    return [name for name, layer in model.layers.items() if not isinstance(layer, fk.ops.Operation)]


@pytest.mark.one_in(12)
@pytest.mark.parametrize("seed", range(24))
def test_layers_are_in_the_order_of_keras(seed):
    with keras_rules():
        keras_model = Drawn(keras, seed).model()
        data = through_json(keras_model.get_config())
        expected = [layer.name for layer in keras_model.layers]
    model_here = Drawn(fk, seed).model()
    read = fk.Model.from_config(data)
    written_config = through_json(model_here.get_config())
    with keras_rules():
        restored = keras.Model.from_config(through_json(written_config))
        reread = keras.Model.from_config(through_json(read.get_config()))
        assert [layer.name for layer in restored.layers] == expected
        assert [layer.name for layer in reread.layers] == expected
    assert theirs_without_operations(model_here) == expected
    assert theirs_without_operations(read) == expected
    assert [i["name"] for i in read.get_config()["layers"]] == [i["name"] for i in data["layers"]]
    assert fk.Model.from_config(written_config) == model_here
    # the order of layers in the data has no effect
    random.Random(seed).shuffle(data["layers"])
    assert fk.Model.from_config(data) == read
