"""Steps that update only the rows of tables that a batch reads."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import fkeras as fk
from fkeras import layers, optimizers
from fkeras.optimizers import Rowwise
from fkeras.training.step import step, touched

ROWS, WIDTH = 200, 4
IDS = np.random.default_rng(0).integers(0, 30, (8, 5)).astype("int32")
TARGETS = np.random.default_rng(1).normal(size=(8, 1)).astype("float32")


def model(rows=ROWS, mask_zero=True, **options):
    ids = fk.Input((5,), dtype="int32")
    h = layers.Embedding(rows, WIDTH, name="items", mask_zero=mask_zero, **options)(ids)
    return fk.Model(ids, layers.Dense(1, name="head")(layers.GlobalAveragePooling1D()(h)))


def run_of(optimizer, network=None, **options):
    trainer = fk.Trainer(optimizer, "mse", **options)
    return trainer, trainer.init(model() if network is None else network, jax.random.key(0))


def trained(optimizer, network=None, steps=2, ids=IDS, **options):
    trainer, run = run_of(optimizer, network, **options)
    for _ in range(steps):
        run, _ = trainer.step(run, (ids, TARGETS))
    return run


def table(run):
    return run.model.layers["items"].embeddings


def assert_equal_runs(one, two, tolerance=0.0):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            continue
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    "inner",
    [
        optimizers.SGD(0.1),
        optimizers.Adagrad(0.1),
        optimizers.SGD(0.1, global_clipnorm=0.01),
        optimizers.LossScaleOptimizer("adagrad"),
        optimizers.MultiOptimizer({"items/*": optimizers.Adagrad(0.5), "*": "sgd"}),
        optax.adagrad(0.1),
    ],
    ids=["sgd", "adagrad", "clipped", "scaled", "several", "optax"],
)
def test_updates_equal_those_of_complete_tables(inner):
    assert_equal_runs(trained(Rowwise(inner)), trained(inner), 1e-8)


def test_one_table_of_two_and_a_shared_table():
    left, right = fk.Input((5,), dtype="int32"), fk.Input((5,), dtype="int32")
    shared = layers.Embedding(ROWS, WIDTH, name="shared")
    other = layers.Embedding(ROWS, WIDTH, name="other")
    h = layers.Concatenate()([shared(left), shared(right), other(right)])
    network = fk.Model([left, right], layers.Dense(1)(layers.GlobalAveragePooling1D()(h)))
    ids = [IDS, IDS + 100]
    rows = trained(Rowwise("adagrad", tables=["shared"]), network, ids=ids)
    assert_equal_runs(rows, trained("adagrad", network, ids=ids), 1e-8)


def test_rows_that_no_batch_reads_keep_their_slots():
    run = trained(Rowwise(optimizers.Adam(0.1, weight_decay=0.1)))
    _, start = run_of("adam")
    read = np.isin(np.arange(ROWS), IDS)
    changed = (table(run) != table(start)).any(axis=1)
    np.testing.assert_array_equal(changed, read)
    slots = run.opt_state.slots["momentum"]["items/embeddings"]
    np.testing.assert_array_equal(slots.any(axis=1), read & (np.arange(ROWS) != 0))


def test_the_program_computes_no_array_of_the_size_of_the_table():
    trainer, run = run_of(Rowwise("adam"), model(rows=5_000))
    program = jax.make_jaxpr(lambda r: step.train_step(trainer, r, (IDS, TARGETS))[0])(run)
    large = {
        equation.primitive.name
        for equation in program.eqns
        for variable in equation.outvars
        if variable.aval.shape[:1] == (5_000,)
    }
    assert large == {"scatter"}


def test_fit_equals_fit_of_complete_tables():
    runs = []
    for inner in (Rowwise("adagrad"), "adagrad"):
        trainer, run = run_of(inner, on_nonfinite="skip")
        runs.append(trainer.fit(run, IDS, TARGETS, batch_size=3, epochs=2, verbose=0)[0])
    assert_equal_runs(*runs, 1e-7)


@pytest.mark.exhaustive
def test_a_step_that_is_not_finite_changes_no_row():
    trainer, run = run_of(Rowwise("adagrad"), on_nonfinite="skip")
    new, fine = step.guarded_step(trainer, run, (IDS, np.full_like(TARGETS, np.inf)))
    assert not fine
    np.testing.assert_array_equal(table(new), table(run))


def test_a_batch_that_may_read_all_rows_updates_the_complete_table():
    small = model(rows=30)
    moved = trained(Rowwise(optimizers.SGD(0.1, momentum=0.9)), small, steps=3)
    assert_equal_runs(moved, trained(optimizers.SGD(0.1, momentum=0.9), small, steps=3))


@pytest.mark.exhaustive
def test_invalid_ids_give_nan_and_change_no_row():
    trainer, run = run_of(Rowwise("sgd"), on_nonfinite="ignore")
    new, logs = trainer.step(run, (np.full((8, 5), -1, "int32"), TARGETS))
    assert np.isnan(logs["loss"])
    np.testing.assert_array_equal(table(new), table(run))


@pytest.mark.exhaustive
def test_ids_of_other_dtypes():
    for dtype in ("int8", "uint8", "uint32"):
        run = trained(Rowwise("sgd"), ids=IDS.astype(dtype))
        assert_equal_runs(run.model, trained("sgd").model)


@pytest.mark.exhaustive
def test_remat_frozen_tables_and_thawed_tables():
    assert_equal_runs(trained(Rowwise("adagrad"), remat="full"), trained("adagrad"), 1e-8)
    trainer, run = run_of(Rowwise("adagrad"))
    frozen = run.replace(model=fk.freeze(run.model, "items"))
    with pytest.raises(fk.FKerasError, match="matches none"):
        trainer.step(frozen, (IDS, TARGETS))
    assert trainer.step(run, (IDS, TARGETS))[0].step == 1


@pytest.mark.exhaustive
def test_tables_on_a_mesh():
    if len(jax.devices()) < 4:
        pytest.skip("needs four devices")
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model"))
    expected = trained("adagrad")
    for sharding in ("fsdp", {"vocab": "model"}):
        if sharding == "fsdp":
            mesh_ = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("data",))
        else:
            mesh_ = mesh
        run = trained(Rowwise("adagrad"), mesh=mesh_, sharding=sharding)
        assert_equal_runs(run.model, expected.model, 1e-7)
        assert not table(run).sharding.is_fully_replicated


class Tied(fk.Layer):
    """Logits by the table of an embedding."""

    table: fk.Layer

    def build(self, key, ids):
        return self.replace(table=self.table.build(key, ids))

    def call(self, ids):
        h = self.table(ids).mean(axis=1)
        return h @ self.table.embeddings.T


def test_tables_that_cannot_be_updated_by_rows():
    batch = (IDS, TARGETS)

    def refused(optimizer, network, match):
        trainer, run = run_of(optimizer, network)
        with pytest.raises(fk.FKerasError, match=match):
            _ = trainer.step(run, batch)

    refused(Rowwise("sgd", tables=["itms"]), model(), "'itms' matches none.*items/embeddings")
    refused(Rowwise("sgd"), model(embeddings_regularizer="l2"), "has embeddings_regularizer")
    refused(Rowwise("sgd"), model(embeddings_constraint="unit_norm"), "has embeddings_constraint")
    refused(Rowwise("adafactor"), model(), "no row for each row of the table")
    ids = fk.Input((5,), dtype="int32")
    tied = fk.Model(ids, layers.Dense(1)(Tied(layers.Embedding(ROWS, WIDTH))(ids)))
    refused(Rowwise("sgd"), tied, "used outside of the calls")
    ids = fk.Input((5, 3), dtype="int32")
    inside = layers.TimeDistributed(layers.Embedding(ROWS, WIDTH))(ids)
    mapped = fk.Model(ids, layers.Dense(1)(layers.Flatten()(inside)))
    trainer, run = run_of(Rowwise("sgd"), mapped)
    ids = np.zeros((8, 5, 3), "int32")
    try:
        new, _ = trainer.step(run, (ids, TARGETS))
    except fk.FKerasError as error:
        assert "hides its ids" in str(error)
    else:
        expected, _ = fk.Trainer("sgd", "mse").step(run, (ids, TARGETS))
        assert_equal_runs(new.model, expected.model)


def test_options_that_are_refused():
    for inner in (None, Rowwise("sgd")):
        with pytest.raises(TypeError, match="Rowwise: inner_optimizer: expected an optimizer for"):
            Rowwise(inner)
    for inner in (
        optimizers.SGD(0.1, gradient_accumulation_steps=2),
        optax.MultiSteps(optax.sgd(0.1), 2),
    ):
        with pytest.raises(ValueError, match="accumulates gradients"):
            Rowwise(inner)
    for outer in (optimizers.LossScaleOptimizer, lambda o: optimizers.MultiOptimizer({"*": o})):
        with pytest.raises(TypeError, match="Rowwise"):
            outer(Rowwise("sgd"))


def test_a_view_without_tables_is_the_run():
    _, run = run_of("sgd")
    view = touched.View(run)
    assert view.mapped(run.model) is run.model and not view.ids
