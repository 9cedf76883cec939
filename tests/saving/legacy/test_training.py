"""Compiled models of Keras 2.3.1: the training resumes with the same losses."""

import io

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import optimizers
from fkeras.saving.quirks.keras2_objects import Keras2Nadam, Keras2RMSprop
from fkeras.saving.trained.nadam import product_after
from tests.support.legacy_files import arrays, cases, load_training, model_file, write

COMPILED = [name for name, case in cases().items() if "losses" in case]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", COMPILED)
def test_the_next_losses_equal_those_of_keras_2(name):
    case = cases()[name]
    trainer, run = load_training(write(case["file"]))
    assert int(run.step) == int(run.opt_state.count) == 3
    batch = arrays(case["inputs"]), arrays(case["targets"])
    losses = []
    for _ in case["losses"]:
        run, logs = trainer.step(run, batch)
        losses.append(float(logs["loss"]))
    np.testing.assert_allclose(losses, case["losses"], rtol=1e-5, atol=1e-6)


def _file(version, optimizer, state=None, kernel=((1.0,), (1.0,)), **training):
    config = {"name": "one", "units": 1, "use_bias": False, "batch_input_shape": [None, 2]}
    model = {"class_name": "Sequential", "config": [{"class_name": "Dense", "config": config}]}
    weights = {"one": {"kernel:0": np.array(kernel, "float32")}}
    training = {"loss": "mse", "metrics": [], "optimizer_config": optimizer, **training}
    data = model_file(model, weights, version, training=training)
    if state is None:
        return data
    return _with_state(data, state)


def _with_state(data, state):
    target = io.BytesIO(data)
    with h5py.File(target, "r+") as file:
        group = file.create_group("optimizer_weights")
        group.attrs["weight_names"] = np.array([n.encode() for n in state])
        for name, value in state.items():
            group[name] = value
    return target.getvalue()


def _optimizer(kind, /, **config):
    return {"class_name": kind, "config": config}


def test_keras_2_clips_by_the_global_norm():
    trainer, _ = load_training(_file("2.2.4", _optimizer("SGD", lr=0.1, decay=0.0, clipnorm=2.0)))
    assert trainer.optimizer == optimizers.SGD(0.1, global_clipnorm=2.0)
    tensorflow_config = _optimizer(
        "SGD", name="SGD", learning_rate=0.1, decay=0.0, momentum=0.0, clipnorm=2.0
    )
    trainer, _ = load_training(_file("2.4.0", tensorflow_config))
    assert trainer.optimizer == optimizers.SGD(0.1, clipnorm=2.0)


@pytest.mark.exhaustive
def test_tensorflows_optimizers_and_their_state():
    config = {"name": "RMSprop", "learning_rate": 0.5, "decay": 0.0, "rho": 0.5, "momentum": 0.0}
    optimizer = _optimizer("RMSprop", **config, epsilon=0.25, centered=False)
    state = {
        "RMSprop/iter:0": np.int64(7),
        "RMSprop/one/kernel/rms:0": np.array([[4.0], [1.0]], "float32"),
    }
    trainer, run = load_training(_file("2.5.0", optimizer, state))
    assert isinstance(trainer.optimizer, Keras2RMSprop)
    x, y = np.array([[1.0, 0.0]], "float32"), np.array([[0.0]], "float32")
    run, _ = trainer.step(run, (x, y))
    gradient = 2.0  # of (w0 - 0)**2 at w0 = 1
    moved = 1 - 0.5 * gradient / (np.sqrt(0.5 * 4 + 0.5 * gradient**2) + 0.25)
    np.testing.assert_allclose(run.model.layers["one"].kernel[:, 0], [moved, 1.0], rtol=1e-6)
    assert int(run.step) == 8


def test_options_of_tensorflow_optimizers():
    config = {"name": "Nadam", "learning_rate": 0.5, "decay": 0.25, "beta_1": 0.9, "beta_2": 0.99}
    trainer, _ = load_training(_file("2.5.0", _optimizer("Nadam", **config, epsilon=1e-7)))
    assert trainer.optimizer.learning_rate == 0.5
    assert trainer.optimizer.schedule_decay == 0.25
    config = {"name": "Adam", "learning_rate": 0.5, "is_legacy_optimizer": False, "use_ema": False}
    trainer, _ = load_training(_file("2.11.0", _optimizer("Custom>Adam", **config)))
    assert trainer.optimizer == optimizers.Adam(0.5)


@pytest.mark.exhaustive
def test_nadam_of_tensorflow_2_11_resumes_without_the_stored_product():
    """The reference is TensorFlow 2.11 in eager mode, without a restart, three steps after ones.

    TensorFlow itself restarts the product when it opens the file, and a compiled graph multiplies
    the product at other times: a single weight becomes NaN.
    """
    config = {
        "name": "Nadam",
        "learning_rate": 0.1,
        "beta_1": 0.8,
        "beta_2": 0.999,
        "epsilon": 1e-7,
    }
    config |= {"is_legacy_optimizer": False, "use_ema": False, "jit_compile": False}
    state = {
        "iteration:0": np.int64(3),
        "Nadam/m/one/kernel:0": np.array([[0.34180277585983276], [0.6887240409851074]], "float32"),
        "Nadam/v/one/kernel:0": np.array([[0.00152916111983], [0.006129293702542782]], "float32"),
    }
    kernel = [[0.7303062081336975], [0.7270768880844116]]
    data = _file("2.11.0", _optimizer("Custom>Nadam", **config), state, kernel)
    trainer, run = load_training(data)
    assert float(run.opt_state.slots["product"]["one/kernel"]) == np.float32(0.08005176484584808)
    x = np.array([[1.0, 0.5], [0.25, -1.0], [-0.5, 0.75]], "float32")
    y = np.array([[0.0], [1.0], [0.5]], "float32")
    losses = []
    for _ in range(4):
        run, logs = trainer.step(run, (x, y))
        losses.append(float(logs["loss"]))
    uninterrupted = [1.2280927896499634, 1.094334363937378, 0.9725447297096252, 0.8628231883049011]
    np.testing.assert_allclose(losses, uninterrupted, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimizer", [optimizers.Nadam(beta_1=0.999), Keras2Nadam()], ids=repr)
@pytest.mark.parametrize("steps", [1, 7, 40])
def test_the_product_equals_that_of_the_training_steps(optimizer, steps):
    weights = {"w": jnp.ones(2)}
    transformation = optimizer.transformation()
    state = transformation.init(weights)
    for _ in range(steps):
        _, state = transformation.update(weights, state, weights)
    product = product_after(optimizer, steps)
    assert product.dtype == "float32"
    np.testing.assert_allclose(product, state.slots["product"]["w"], rtol=1e-5)


def test_the_product_after_2_billion_steps_is_fast():
    last = 2**31 - 2
    assert product_after(optimizers.Nadam(), last) == 0
    once = product_after(optimizers.Nadam(beta_1=1.0), 2000)
    assert product_after(optimizers.Nadam(beta_1=1.0), last) == once > 0
    slow = Keras2Nadam(beta_1=1.0, schedule_decay=1e-9)
    assert product_after(slow, last) == 0 == product_after(Keras2Nadam(beta_1=0.0), last)


def test_a_schedule_and_classes_of_losses():
    schedule = {
        "class_name": "ExponentialDecay",
        "config": {"initial_learning_rate": 0.1, "decay_steps": 10, "decay_rate": 0.5},
    }
    optimizer = _optimizer("Adam", name="Adam", learning_rate=schedule, decay=0.0, epsilon=1e-7)
    loss = {"class_name": "Huber", "config": {"reduction": "auto", "name": "huber", "delta": 2.0}}
    metric = {
        "class_name": "MeanMetricWrapper",
        "config": {"name": "mae", "dtype": "float32", "fn": "mean_absolute_error"},
    }
    data = _file("2.8.0", optimizer, loss=loss, metrics=[[metric]], weighted_metrics=None)
    trainer, _ = load_training(data)
    assert trainer.optimizer.learning_rate == optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert trainer.loss.delta == 2.0
    assert trainer.metrics == ("mean_absolute_error",)


@pytest.mark.exhaustive
def test_hinges_before_2_3_do_not_convert_targets():
    x, y = np.array([[1.0, 1.0]], "float32"), np.array([[0.0]], "float32")
    losses = []
    for version in ("2.2.4", "2.3.1"):
        trainer, run = load_training(_file(version, _optimizer("SGD", lr=0.1), loss="hinge"))
        losses.append(float(trainer.step(run, (x, y))[1]["loss"]))
    assert losses == [1.0, 3.0]  # 1 - 0 * 2, and 1 + 1 * 2


@pytest.mark.exhaustive
def test_variables_sorted_by_name_until_2_0_5():
    """Sorted, "layer_10/..." precedes "layer_2/...", unlike in the order of the layers."""
    items = [
        {"class_name": "Dense", "config": {"name": f"layer_{i}", "units": 1, "use_bias": False}}
        for i in (2, 10)
    ]
    items[0]["config"]["batch_input_shape"] = [None, 1]
    weights = {f"layer_{i}": {f"layer_{i}/kernel:0": np.ones((1, 1), "float32")} for i in (2, 10)}
    training = {
        "loss": "mse",
        "metrics": [],
        "optimizer_config": _optimizer("SGD", lr=0.1, momentum=0.5),
    }
    for version, expected in (("2.0.5", [20.0, 10.0]), ("2.0.6", [10.0, 20.0])):
        model = {"class_name": "Sequential", "config": items}
        data = model_file(model, weights, version, training=training)
        state = {"iterations": np.int64(1), "v_0": np.array([[10.0]]), "v_1": np.array([[20.0]])}
        _, run = load_training(_with_state(data, state))
        momentum = run.opt_state.slots["momentum"]
        assert [float(momentum[f"layer_{i}/kernel"][0, 0]) for i in (2, 10)] == expected


def test_keras_3_stores_a_fixed_order_and_the_changed_learning_rate():
    config = {"name": "SGD", "learning_rate": 0.5, "momentum": 0.5, "use_ema": True}
    state = {
        "SGD/iteration": np.int32(7),
        "SGD/learning_rate": np.float32(0.25),
        "SGD/model_variable_average": np.array([[3.0], [4.0]], "float32"),
        "SGD/one_kernel_momentum": np.array([[1.0], [2.0]], "float32"),
    }
    optimizer = _optimizer("SGD", **config)
    trainer, run = load_training(_file("3.3.0", optimizer, state))
    assert int(run.step) == 7 and trainer.optimizer.learning_rate == 0.5
    assert float(run.opt_state.learning_rate) == 0.25
    slots = {name: slot["one/kernel"][:, 0].tolist() for name, slot in run.opt_state.slots.items()}
    assert slots == {"momentum": [1.0, 2.0], "average": [3.0, 4.0]}
    state["SGD/one_kernel_momentum"] = np.ones((3, 1), "float32")
    with pytest.raises(fk.FileError, match=r"momentum of 'one/kernel' of shape \(2, 1\)") as error:
        load_training(_file("3.3.0", optimizer, state))
    assert (error.value.member, error.value.layer) == ("/optimizer_weights", "one")
    del state["SGD/one_kernel_momentum"]
    with pytest.raises(fk.FileError, match="expected 4 arrays for 1 weights, received 3"):
        load_training(_file("3.3.0", optimizer, state))


def test_the_state_of_another_optimizer_is_rejected():
    optimizer = _optimizer("SGD", lr=0.1, momentum=0.5)
    state = {"iterations": np.int64(1), "m": np.ones((3, 1), "float32")}
    with pytest.raises(fk.FileError, match=r"optimizer_weights.*'one'.*\(2, 1\).*\(3, 1\)"):
        load_training(_file("2.3.1", optimizer, state))
    state = {"iterations": np.int64(1)}
    with pytest.raises(fk.FileError, match="belongs to another optimizer"):
        load_training(_file("2.3.1", optimizer, state))


def test_a_model_that_was_not_compiled_has_no_training():
    with pytest.raises(fk.FileError, match="was not compiled"):
        load_training(write(cases()["image"]["file"]))


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"optimizer_config": _optimizer("Adma", lr=0.1)}, "unknown optimizer 'Adma'.*Adam"),
        ({"optimizer_config": _optimizer("OptimizerState", lr=0.1)}, "unknown optimizer"),
        ({"optimizer_config": _optimizer("SGD", lr="much")}, "expected the learning rate"),
        (
            {"optimizer_config": _optimizer("SGD", lr={"class_name": "os.system"})},
            "unknown schedule",
        ),
        ({"optimizer_config": 3}, "optimizer_config"),
        ({"loss": "msee"}, "unknown loss 'msee'"),
        ({"loss": {"class_name": "Trainer", "config": {}}}, "unknown loss 'Trainer'"),
        ({"metrics": ["acuracy"]}, "unknown metric"),
        ({"loss_weights": "all"}, "loss_weights"),
    ],
)
def test_bad_training_configurations_are_rejected(changes, word):
    training = {"optimizer": _optimizer("SGD", lr=0.1), **changes}
    optimizer = training.pop("optimizer_config", training.pop("optimizer"))
    with pytest.raises(fk.FileError, match=f"(?s)training_config.*{word}"):
        load_training(
            _file("2.3.1", optimizer, **{k: v for k, v in training.items() if k != "optimizer"})
        )
