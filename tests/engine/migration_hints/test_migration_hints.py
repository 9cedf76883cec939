"""Migration hints: messages name the code to write instead of Keras code, and this code runs."""

import dataclasses
import json
import pickle
import re
import types
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.migration_hints import keras_objects
from fkeras.engine.migration_hints.hints import hints
from fkeras.saving.models import Loaded
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)
CODE = re.compile(r"`([^`]+)`")
INPUT = fk.Input((3,))
MODEL = fk.Model(
    INPUT, layers.Dense(1, name="name")(layers.Dense(3, name="block1_dense")(INPUT))
).build(KEY)
SEQUENTIAL = fk.Sequential([fk.Input((3,)), layers.Dense(4, name="a"), layers.Dense(2, name="b")])
ADAM, AUC, TRAINER = fk.optimizers.Adam(), fk.metrics.AUC(), fk.Trainer("adam", "mse")
RUN, LOADED = TRAINER.init(MODEL, KEY), Loaded(MODEL, {})
MESH = jax.make_mesh((1,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
TOKENIZER = fk.pretrained.Tokenizer(
    {"tokenizer.json": '{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}'}
)
PRETRAINED = fk.pretrained.Loaded(MODEL, {}, TOKENIZER, fk.pretrained.Config())
X, Y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")


class Subclassed(fk.Model):
    def __init__(self, units=3):
        super().__init__()
        self.dense = layers.Dense(units)


class Assigned(fk.Layer):
    def __init__(self, units):
        super().__init__()
        self.units = units


class Holding(fk.Model):
    units: int = 2

    def call(self, x):
        self.dense = layers.Dense(self.units)
        return self.dense(x)


def _assign(value, name, new):
    setattr(value, name, new)


def _loop_and_freeze():
    for layer in MODEL.layers:
        layer.trainable = False


def _define(body):
    scope = {"fk": fk, "layers": layers}
    exec(f"class Own(fk.Layer):\n    {body}", scope)
    return scope["Own"]


def _compose(body):
    exec(f"class Own(fk.Model):\n    {body}", {"fk": fk, "layers": layers})


def _hook(body):
    hook = f"def on_epoch_end(self, epoch, run, logs): {body}"
    exec(f"class Own(fk.Callback):\n    {hook}", {"fk": fk})


# (Keras code, a part of the message)
HABITS = (
    # subclasses
    ("Subclassed()", "class Subclassed(fk.Model):"),
    ("Subclassed(5)", "def call(self, x):"),
    ("fk.Model()", "`model = fk.Model(inputs, outputs)`"),
    ("fk.Model(INPUT)", "`model = fk.Model(inputs, outputs)`"),
    ("Assigned(3)", "`units: object = fk.option(default=...)`"),
    ("Holding()(INPUT)", "call layers in `call`, or declare a field"),
    ("_define('def build(self, input_shape): ...')", "def build(self, key, x)"),
    ("_define('def call(self, x, training=None): ...')", "context.training"),
    ("_define('def call(self, x, mask=None): ...')", "context.mask"),
    ("_define('def compute_mask(self, x, mask=None): ...')", "fk.Output(x, mask="),
    ("_compose('def call(self, x, training=False): ...')", "receive training and mask"),
    # a model
    ("MODEL.compile('adam', 'mse')", "fk.Trainer("),
    ("MODEL.fit(X, Y)", "trainer.fit(run, x, y)"),
    ("MODEL.evaluate(X, Y)", "trainer.evaluate(run, x, y)"),
    ("MODEL.predict(X)", "trainer.predict(run, x)"),
    ("MODEL.train_on_batch(X, Y)", "trainer.step(run, (x, y))"),
    ("MODEL.save('m.keras')", 'fk.save_model("m.keras", model, state)'),
    ("MODEL.save_weights('m.h5')", "fk.save_weights("),
    ("MODEL.load_weights('m.h5')", "fk.load_weights("),
    ("MODEL.summary(print_fn=print)", "model.summary(show=False)"),
    ("MODEL.input", "`model.inputs`"),
    ("MODEL.output", "`model.outputs`"),
    ("MODEL.optimizer", "fk.Trainer("),
    ("MODEL.add(layers.Dense(2))", "fk.Model(model.inputs"),
    ("_assign(MODEL, 'trainable', False)", 'fk.freeze(model, "block1*")'),
    ("MODEL.get_layer('name').output", "`tensor = model.tensor('name')`"),
    ("MODEL.layers['name'].output", "fk.Model(model.inputs, model.tensor('name'))"),
    ("MODEL.layers['nam']", "Did you mean 'name'?"),
    ("MODEL.layers.name", "`model.layers['name']`"),
    ("MODEL.layers[7]", "expected an integer from -3 to 2, received 7"),
    ("MODEL.layers[1.5]", '`model.layers["dense"]`'),
    ("[layer.units for layer in MODEL.layers]", "`for layer in model.layers.values(): ...`"),
    ("_loop_and_freeze()", "`model = fk.freeze(model, 'input_layer')`"),
    ("[layer(X) for layer in MODEL.layers]", "model.layers gives names"),
    ("MODEL.layers.pop()", "cannot change"),
    ("MODEL.layers.index('name')", "`model.layers[:].index`"),
    ("MODEL.layers.__setitem__('name', 1)", "model.replace(layers="),
    # a layer
    ("layers.Dense(2).weights", "jax.tree.leaves(layer)"),
    ("layers.Dense(2).trainable_weights", "fk.partition(model)"),
    ("layers.Dense(2).add_weight(shape=(2,))", "fk.weight()"),
    ("layers.Dense(2).add_loss(1.0)", "fk.Output(x, losses="),
    ("layers.Dense(2).output_shape", "model.graph.layer('name').output_shape"),
    ("layers.Dense(2).compute_output_shape((None, 3))", "layer(fk.Input((8,))).shape"),
    ("_assign(layers.Dense(2), 'units', 3)", "layer.replace(units=...)"),
    ("_assign(layers.Dense(2), 'kernel', X)", "layer.replace(kernel=...)"),
    ("layers.Dense(2, input_shape=(3,))", "x = fk.Input((8,))"),
    ("layers.Dense(2, input_dim=3)", "x = fk.Input((8,))"),
    ("layers.Embedding(3, 2, input_length=4)", "x = fk.Input((8,))"),
    ("layers.Dense(2, weights=[X])", "set_weights(arrays)"),
    ("layers.BatchNormalization(fused=True)", "leave the argument out"),
    # a symbolic tensor
    ("INPUT.__setitem__(0, 1)", "fk.ops.slice_update(x, (0, 0), update)"),
    ("INPUT.__setitem__((slice(None), 0), 1)", "fk.ops.where(condition, value, x)"),
    ("INPUT.reshape((-1,))", "`fk.ops.reshape(x, ...)`"),
    ("INPUT.mean()", "`fk.ops.mean(x, ...)`"),
    ("INPUT.numpy()", "model(array)"),
    ("INPUT.T", "fk.ops.transpose(x)"),
    ("INPUT.get_shape()", "`x.shape`"),
    ("INPUT.meen()", "has no attribute 'meen'"),
    ("np.sin(INPUT)", "fk.ops"),
    ("keras.layers.Dense(2)(INPUT)", "instead of keras.layers"),
    # optimizers, metrics, callbacks, trainers
    ("fk.optimizers.Adam(lr=0.1)", "learning_rate"),
    ("fk.optimizers.SGD(lr=0.1)", "learning_rate"),
    ("fk.optimizers.Adam(decay=0.1)", "InverseTimeDecay("),
    ("fk.optimizers.Adam(learning_rat=0.1)", "Did you mean 'learning_rate'?"),
    ("ADAM.apply_gradients([])", "optax.apply_updates(model, deltas)"),
    ("ADAM.lr", "optimizer.learning_rate"),
    ("ADAM.iterations", "opt_state.count"),
    ("_assign(ADAM, 'learning_rate', 0.1)", "dataclasses.replace("),
    ("AUC.update_state(Y, Y)", "metric.update(state, y_true, y_pred)"),
    ("AUC.reset_state()", "metric.init()"),
    ("fk.callbacks.Callback().model", "run.model"),
    ("TRAINER.replace(loss='mae')", "dataclasses.replace(trainer"),
    ("fk.layers.get('dense')", "has no name 'get'"),
    ("fk.History({'loss': [1.0]}, [0], {})['los']", "Did you mean 'loss'?"),
    ("fk.freeze(3)", "expected a layer or model, received int"),
    ("TRAINER.compile()", "takes Keras's arguments of compile"),
    ("TRAINER.train_on_batch(X, Y)", "trainer.step(run, (x, y))"),
    ("TRAINER.fit(None, X, Y, use_multiprocessing=True)", "reads in threads"),
    ("TRAINER.fit(None, X, Y, nb_epoch=4)", "`epochs`"),
    ("TRAINER.step(RUN, (X, Y), class_weight={1: 2.5})", "trainer.step(run, (x, y, "),
    ("TRAINER.evaluate(None, X, Y, return_dict=True)", "leave the argument out"),
    ("TRAINER.predict(None, X, batchsize=4)", "Did you mean 'batch_size'?"),
    ("TRAINER.predict(X)", "`y = trainer.predict(run, x)`"),
    ("TRAINER.init(MODEL)", "`run = trainer.init(model, jax.random.key(0))`"),
    ("fk.Trainer(MODEL, 'adam', 'mse')", '`trainer = fk.Trainer("adam", "mse")`'),
    # declarations and constructors
    ("_define('units = 3')(units=4)", "`units: int = 3`"),
    ("_define('sizes: list = [1]')", "`sizes: tuple = (1,)`"),
    (
        "_define('keras_class_name = \"Old\"')",
        "`keras_form = fk.engine.KerasForm(class_name='Old')`",
    ),
    ("_assign(layers.Dense(2), 'inner', layers.Dense(3))", "make sublayers in `call`"),
    ("_assign(fk.losses.MeanSquaredError(), 'total', 1)", "`total: object = fk.option("),
    ("_assign(AUC, 'total', 1)", "a state that `init` returns"),
    ("_assign(fk.callbacks.Callback(), 'best', 1)", "self.remember(run, {'best': value})"),
    ("_hook('self.best = logs')", "self.remember(run, {'best': value})"),
    ("fk.callbacks.EarlyStopping().best", "callback.recall(run)"),
    ("layers.Flatten(INPUT)", "`y = layers.Flatten()(x)`"),
    ("layers.Flatten(X)", "`y = layers.Flatten()(x)`"),
    ("layers.Dense(10, INPUT)", "`y = layers.Dense(10)(x)`"),
    ("fk.Sequential(layers.Dense(2), layers.Dense(3))", "`fk.Sequential([first, second])`"),
    ("layers.Reshape(-1, 4)", "`layers.Reshape((-1, 4))`"),
    ("layers.LSTM(3)(INPUT)", "`x = fk.Input((None, 3))`"),
    ("layers.Conv2D(3, 3)(fk.Input((28, 28)))", "`x = fk.Input((28, 28, 1))`"),
    ("fk.freeze(MODEL, MODEL.layers['name'])", "`model = fk.freeze(model, 'name')`"),
    ("fk.freeze(MODEL, layers.Dense)", "isinstance(layer, layers.Dense)"),
    ("jax.jit(lambda run: TRAINER.fit(run, X, Y))(RUN)", "trainer.run(run, (x, y), epochs=2)"),
    # a run, and the pair of load_model
    ("RUN.predict(X)", "`y = trainer.predict(run, x)`"),
    ("RUN.summary()", "`run.model.summary()`"),
    ("RUN.save('m.keras')", '`fk.save_model("m.keras", run.model, run.state)`'),
    ("RUN.stepp", "Did you mean 'step'?"),
    ("LOADED.predict(X)", '`model, state = fk.load_model("m.keras"); y = model(x, state=state)`'),
    ("LOADED.fit(X, Y)", "fk.load_training("),
    # files
    ("fk.load_model('m.keras', compile=False)", "never compiles"),
    ("fk.load_model('m.keras', safe_mode=True)", "never runs"),
    ("fk.save_model(MODEL, 'm.keras')", "expected a path first, received Model"),
    ("fk.save_weights(MODEL, 'm.npz')", "expected a path first, received Model"),
    # transformers
    ("PRETRAINED.generate(X)", "`fk.generate(loaded.model, loaded.state, ids, ...)`"),
    ("PRETRAINED.tokeniser", "Did you mean 'tokenizer'?"),
    ("MODEL.save_pretrained('m')", "fk.pretrained.save(folder, "),
    ("fk.pretrained.from_pretrained('m')", "`loaded = fk.pretrained.load(folder)`"),
    ("fk.pretrained.AutoTokenizer", "fk.pretrained.Tokenizer.read(folder)"),
    ("fk.pretrained.load('m', torch_dtype='float16')", "fk.pretrained.load(folder, dtype="),
    ("fk.pretrained.load('m', device_map='auto')", "`mesh` and `sharding`"),
    ("fk.pretrained.load('m', load_in_8bit=True)", "fk.quantize(loaded.model, "),
    ("fk.generate(MODEL, {}, X, max_length=3)", "`max_new_tokens` counts the new tokens"),
    ("TOKENIZER('text')", "tokenizer.encode(text)"),
    ("TOKENIZER.apply_chat_template([])", "tokenizer.chat(messages, ...)"),
    ("TOKENIZER.encode('a', return_tensors='np')", "tokenizer.encode("),
    ("TOKENIZER.encod('a')", "Did you mean 'encode'?"),
    # namespaces
    ("fk.backend", "has no global state"),
    ("fk.backend.clear_session()", "has no global state"),
    ("fk.to_categorical", "`fk.utils.to_categorical`"),
    ("fk.utils.set_random_seed(0)", "jax.random.key(0)"),
    ("fk.utils.PyDataset", "trainer.fit(run, loader)"),
    ("fk.models.Model", "`fk.Model`"),
    ("fk.Variable(1.0)", "fk.weight()"),
    ("fk.mixed_precision", 'dtype="mixed_bfloat16"'),
    ("fk.distribution", "mesh=mesh"),
    ("fk.Dense(2)", "`fk.layers.Dense`"),
    ("fk.EarlyStopping()", "`fk.callbacks.EarlyStopping`"),
    ("fk.reduce_mean", "has no name 'reduce_mean'"),
    ("fk.applications.ResNet5", "has no name 'ResNet5'. Did you mean 'ResNet50'"),
    ("fk.GradientTape", "jax.grad("),
    ("fk.Sequentail", "Did you mean 'Sequential'?"),
    ("fk.layers.dense(2)", "Did you mean 'Dense'?"),
    ("fk.layers.CuDNNLSTM(2)", "layers.LSTM(4)"),
    ("fk.layers.TFSMLayer", "does not run in JAX"),
    ("fk.layers.relu", "`fk.ops.relu`"),
    ("fk.ops.reduce_mean(X)", "`fk.ops.mean(x)`"),
    ("fk.ops.image.rezise", "Did you mean 'resize'?"),
    ("fk.losses.MSE", "`fk.losses.MeanSquaredError()`"),
    ("fk.losses.meanSquaredError", "Did you mean 'MeanSquaredError'?"),
    ("fk.metrics.Acuracy()", "Did you mean 'Accuracy'?"),
    ("fk.optimizers.legacy.Adam()", "fk.optimizers.Adam()"),
    ("fk.optimizers.schedules.CosineDcay", "Did you mean 'CosineDecay'?"),
    ("fk.callbacks.BackupAndRestore('b')", "checkpoint=folder"),
    ("fk.initializers.HeNorml()", "Did you mean 'HeNormal'?"),
    ("fk.regularizers.l_2", "Did you mean 'L2'?"),
    ("fk.constraints.NonNegative", "Did you mean 'NonNeg'?"),
    ("fk.activations.rleu", "Did you mean 'relu'?"),
    ("fk.saving.register_keras_serializable", "custom_objects="),
    ("fk.saving.deserialize_keras_object", "fk.layers.deserialize(config)"),
    ("fk.saving.load_modell", "Did you mean 'load_model'?"),
    ("fk.Input((3,), ragged=True)", "layers.Masking()"),
    ("fk.Input((3,), shap=3)", "Did you mean 'shape'?"),
    ("layers.BatchNormalization().moving_mean", "model.init_state()"),
    ("MODEL.get_build_config()", "`model.inputs`"),
    ("TRAINER.jit_compile", "compiles every step"),
    ("TRAINER.get_weights()", "run.model.get_weights(run.state)"),
    ("fk.random.SeedGenerator(0)", "seed=jax.random.key(0)"),
    ("fk.quantizers.AbsMaxQuantiser", "Did you mean 'AbsMaxQuantizer'?"),
)


@pytest.mark.one_in(10)
@pytest.mark.parametrize(("expression", "part"), HABITS, ids=[row[0] for row in HABITS])
def test_a_keras_habit_gets_a_migration_hint(expression, part):
    with pytest.raises((AttributeError, TypeError, KeyError, IndexError, ValueError)) as caught:
        eval(expression, globals())
    assert part in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 8
    for code in CODE.findall(str(caught.value)):
        compile(code, expression, "exec")


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (np.log, "`jnp.log`"),
        (lambda x: x if x.mean() > 0 else -x, "`y = jnp.where(condition, a, b)`"),
    ],
)
def test_a_traced_function_that_needs_numbers_has_a_note(function, part):
    with pytest.raises((TypeError, ValueError)) as caught:
        layers.Lambda(function)(INPUT)
    assert part in "\n".join(caught.value.__notes__)


def test_no_guess_is_better_than_a_wrong_one():
    with pytest.raises(AttributeError) as caught:
        MODEL.to("gpu")
    assert "Did you mean" not in str(caught.value)


def test_the_form_of_a_subclass_runs():
    with pytest.raises(TypeError) as caught:
        Subclassed()
    code = "".join(f"{line[4:]}\n" for line in str(caught.value).splitlines() if line[:4] == "    ")
    scope = {"fk": fk, "layers": layers}
    exec(code, scope)
    assert scope["Subclassed"](units=5)(INPUT).shape == (None, 5)


@pytest.mark.exhaustive
def test_layers_by_position_as_in_keras():
    with keras_rules():
        inputs = keras.Input((3,))
        a, b = keras.layers.Dense(4, name="a"), keras.layers.Dense(2, name="b")
        keras_model = keras.Model(inputs, [b(a(inputs)), keras.layers.Dense(1, name="c")(inputs)])
        keras_sequential = keras.Sequential([keras.Input((3,)), a, b])
    x = fk.Input((3,))
    head = layers.Dense(1, name="c")(x)
    functional = fk.Model(x, [layers.Dense(2, name="b")(layers.Dense(4, name="a")(x)), head])
    for model, other in ((functional, keras_model), (SEQUENTIAL, keras_sequential)):
        for built in (model, model.build(KEY), jax.tree.map(lambda w: w, model.build(KEY))):
            assert [v.name for v in built.layers[:]][-2:] == [v.name for v in other.layers][-2:]
            assert len(built.layers[:]) == len(other.layers)
            assert built.layers[-1] is built.layers[built.layers[-1].name]
            assert [v.name for v in built.layers[1:]] == [v.name for v in other.layers[1:]]
            assert built.get_layer(index=0).name == built.layers[0].name
    assert SEQUENTIAL.layers[0].name == "a"
    assert fk.freeze(SEQUENTIAL).layers[0].name == "a"


def test_layers_stay_a_mapping_by_name():
    by_name = SEQUENTIAL.layers
    assert list(by_name) == list(by_name.keys()) == ["input_layer", "a", "b"]
    assert dict(by_name) == by_name and hash(by_name) == hash(fk.engine.FrozenDict(by_name))
    assert all(type(name) is str for name in (*by_name.keys(), *dict(by_name), *{**by_name}))
    assert "a" in by_name and 0 not in by_name and by_name.get("c") is None and len(by_name) == 3
    assert json.dumps(list(by_name)) == '["input_layer", "a", "b"]'
    restored = pickle.loads(pickle.dumps(by_name))
    assert restored == by_name and restored[0].name == "a"
    assert type(pickle.loads(pickle.dumps(next(iter(by_name))))) is str


# Keras's object, the base class of the converted object, and the function that received it
OBJECTS = (
    (lambda: keras.layers.Dense(2), fk.Layer, lambda v: fk.Sequential([v])),
    (lambda: keras.layers.Dense(2), fk.Layer, layers.TimeDistributed),
    (lambda: keras.layers.LSTM(2), fk.Layer, layers.Bidirectional),
    (lambda: keras.layers.LSTMCell(2), fk.Layer, layers.RNN),
    (lambda: keras.layers.LSTMCell(2), fk.Layer, lambda v: layers.StackedRNNCells([v])),
    (lambda: keras.layers.RandomFlip(), fk.Layer, lambda v: layers.Pipeline([v])),
    (lambda: keras.layers.ReLU(), fk.Layer, lambda v: layers.Dense(2, activation=v)),
    (lambda: keras.optimizers.Adam(), fk.optimizers.Adam, fk.Trainer),
    (lambda: keras.losses.MeanSquaredError(), fk.losses.Loss, lambda v: fk.Trainer("sgd", v)),
    (
        lambda: keras.losses.MeanSquaredError(),
        fk.losses.Loss,
        lambda v: fk.Trainer("sgd", {"a": v, "b": "mse"}),
    ),
    (
        lambda: keras.metrics.AUC(),
        fk.metrics.Metric,
        lambda v: fk.Trainer("sgd", "mse", metrics=["mae", v]),
    ),
    (
        lambda: keras.initializers.HeNormal(),
        fk.initializers.Initializer,
        lambda v: layers.Dense(2, kernel_initializer=v),
    ),
    (
        lambda: keras.regularizers.L2(0.1),
        fk.regularizers.Regularizer,
        lambda v: layers.Dense(2, kernel_regularizer=v),
    ),
    (
        lambda: keras.constraints.NonNeg(),
        fk.constraints.Constraint,
        lambda v: layers.Dense(2, kernel_constraint=v),
    ),
    (
        lambda: keras.optimizers.schedules.CosineDecay(0.1, 10),
        fk.optimizers.schedules.CosineDecay,
        fk.optimizers.Adam,
    ),
    (
        lambda: keras.DTypePolicy("mixed_bfloat16"),
        str,
        lambda v: layers.Dense(2, dtype=v),
    ),
    (lambda: keras.Input((3,)), fk.KerasTensor, lambda v: fk.Model(v, v)),
    (lambda: keras.Input((3,)), fk.KerasTensor, lambda v: layers.Dense(2)(v)),
)


@pytest.mark.parametrize("row", range(len(OBJECTS)))
def test_the_conversion_of_a_keras_object_runs(row):
    make, base, use = OBJECTS[row]
    with keras_rules():
        value = make()
    with pytest.raises(TypeError, match="of Keras") as caught:
        use(value)
    code = CODE.search(str(caught.value))[1]
    scope = {"fk": fk, "keras": keras, "value": value}
    with keras_rules():
        exec(code, scope)
    converted = scope[code.partition(" =")[0]]
    assert isinstance(converted, base)
    if base is not fk.KerasTensor:
        use(converted)


def test_keras_models_classes_functions_and_callbacks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with keras_rules():
        value = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    uses = (
        lambda: TRAINER.init(value, KEY),
        lambda: fk.save_model("m.keras", value),
        lambda: fk.save_weights("m.npz", value),
        lambda: fk.export(value, {}, "m.jax"),
        lambda: fk.freeze(value),
        lambda: fk.partition(value),
        lambda: fk.quantize(value, "int8"),
        lambda: fk.Sequential([value]),
    )
    for use in uses:
        with pytest.raises(TypeError, match="of Keras") as caught:
            use()
    scope = {"fk": fk, "value": value}
    with keras_rules():
        exec(CODE.search(str(caught.value))[1], scope)
    assert isinstance(scope["model"], fk.Sequential)
    run = TRAINER.init(SEQUENTIAL, KEY)
    for callback, hint in (
        (keras.callbacks.EarlyStopping(), "`fk.callbacks.EarlyStopping`"),
        (keras.callbacks.BackupAndRestore("b"), "checkpoint=folder"),
        (keras.callbacks.Callback(), "a subclass of `fk.callbacks.Callback`"),
        (type("Own", (keras.callbacks.Callback,), {})(), "a subclass of `fk.callbacks.Callback`"),
    ):
        with pytest.raises(TypeError, match="of Keras") as caught:
            _ = TRAINER.fit(run, X, np.ones((4, 2), "float32"), callbacks=[callback], verbose=0)
        assert hint in str(caught.value)
    for value, hint in (
        (keras.activations.relu, "`fk.activations.relu`"),
        (keras.ops.sin, "`fk.ops.sin`"),
        (keras.layers.ReLU, "`fk.layers.ReLU`"),
    ):
        with pytest.raises(TypeError, match="of Keras") as caught:
            layers.Dense(2, activation=value)
        assert hint in str(caught.value)
    layer_class = type("Own", (keras.layers.Layer,), {})
    with keras_rules(), pytest.raises(TypeError, match="a subclass of `fk.Layer`"):
        fk.Sequential([layer_class()])
    assert not keras_objects.is_from_keras(lambda x: x)


VALUES = {
    "layer": layers.Dense(2),
    "metric": AUC,
    "optimizer": ADAM,
    "callback": fk.Callback(),
    "trainer": TRAINER,
    "symbolic tensor": INPUT,
    "pretrained model": PRETRAINED,
    "tokenizer": TOKENIZER,
}
SPACES = (
    *("fkeras", "fkeras.layers", "fkeras.training.callbacks", "fkeras.random", "fkeras.optimizers"),
    *("fkeras.losses", "fkeras.metrics", "fkeras.quantizers", "fkeras.saving", "fkeras.ops"),
    *("fkeras.utils", "fkeras.pretrained"),
)


def _hints():
    """`(table, key, text)` of every hint with code."""
    for table in (*VALUES, "argument", "function argument", *SPACES):
        assert hints(table), table
        for key, text in hints(table).items():
            yield table, key, text.replace("{name}", repr("name"))


@pytest.mark.exhaustive
def test_every_hint_has_code_that_compiles():
    for table, key, text in _hints():
        assert text.count("`") % 2 == 0, (table, key)
        for code in CODE.findall(text):
            compile(code, f"{table}: {key}", "exec")


def test_no_hint_is_for_a_name_that_exists():
    for space in SPACES:
        namespace = fk if space == "fkeras" else fk.callbacks if "callbacks" in space else None
        if namespace is None:
            namespace = getattr(fk, space.partition(".")[2])
        for key in hints(space):
            assert key not in vars(namespace), f"{space} has {key}"
    for table, value in VALUES.items():
        for key in hints(table):
            assert not hasattr(value, key), f"{table}: {type(value).__name__} has {key}"


@pytest.mark.exhaustive
def test_the_code_of_every_hint_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, state = MODEL, {}
    fk.save_model("m.keras", model, state)
    fk.save_weights("m.weights.h5", model, state)
    trainer = fk.Trainer("adam", "mse")
    run = trainer.init(model, KEY)
    loader = [(X, Y)]
    layer = layers.Dense(2).build(KEY, (None, 8))
    transform = ADAM.transformation()
    config = fk.pretrained.LlamaConfig(8, 4, 4, 1, 1)
    llama = fk.pretrained.build(config).build(KEY)
    fk.pretrained.save("saves", llama, {}, config, tokenizer=TOKENIZER)

    class Counting(fk.Layer):
        units: int = 2

    common = {
        **{"fk": fk, "layers": layers, "jax": jax, "jnp": jnp, "np": np, "json": json},
        "loaded": fk.pretrained.Loaded(llama, {}, TOKENIZER, config),
        **{"tokenizer": TOKENIZER, "texts": ["a"], "rows": [[0]], "ids": X.astype(int)},
        **{"optax": optax, "dataclasses": dataclasses, "ClassVar": ClassVar},
        **{"model": model, "state": state, "trainer": trainer, "run": run, "loader": loader},
        **{"x": X, "y": Y, "key": KEY, "layer": layer, "array": X, "folder": "saves"},
        "config": layers.serialize(layer),
        **{"arrays": layer.get_weights(), "out": model.apply(X), "value": X, "mask": None},
        **{"optimizer": ADAM, "transform": transform, "opt_state": transform.init(model)},
        **{"grads": model, "loss_fn": lambda m: m(X).sum(), "labels": np.zeros(4, int)},
        **{"inputs": INPUT, "outputs": INPUT * 2, "mesh": MESH},
        **{"metric": AUC, "y_true": Y, "y_pred": Y, "Name": Counting},
        # inside the `forward` of a layer
        **{"context": fk.Context(), "name": "dense"},
        "self": types.SimpleNamespace(layer=layers.Dense(2).build(KEY, X.shape)),
    }
    scopes = {
        "metric": {"state": AUC.init(), "other": AUC.init()},
        "symbolic tensor": {
            **{"x": INPUT, "update": INPUT[:, :1], "condition": INPUT > 0, "value": INPUT},
            "model": model,
        },
        "fkeras.layers": {"x": INPUT, "y": INPUT},
        "fkeras.ops": {"x": jnp.ones((2, 2)), "y": jnp.ones((2, 2))},
    }
    executed, failures = set(), []
    for table, key, text in _hints():
        for code in CODE.findall(text):
            if code.isidentifier() or "..." in code or (code, table in scopes) in executed:
                continue
            executed.add((code, table in scopes))
            scope = {**common, **scopes.get(table, {})}
            try:
                exec(code, scope)
            except Exception as error:
                failures.append(f"{table}, {key}: {code}: {error!r}")
    assert not failures, "\n".join(failures)
    assert len(executed) > 100


def test_namespaces_report_missing_names_as_python_does():
    assert not hasattr(fk, "backend") and getattr(fk.layers, "Dens", None) is None
    with pytest.raises(ImportError):
        exec("from fkeras.layers import Dens", {})
    assert isinstance(fk.layers, types.ModuleType) and "Dense" in dir(fk.layers)
    with pytest.raises(AttributeError):
        fk.layers.__wrapped__  # noqa: B018
