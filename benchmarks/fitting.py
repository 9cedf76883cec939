"""`fit`, one compiled step and `predict` against the same in raw JAX, and against Keras's `fit`.

    python benchmarks/fitting.py [rounds] [network ...]

Networks: mlp (4 x Dense(64), batch 32: dispatch-bound), convnet, lstm, transformer. All sides have
the same data, start from the same weights, and must end with the same loss. Goals for the mlp: fit
at most 1.15 of a raw scan over 32 steps and 0.25 of Keras's fit, a compiled step 1.05 of the raw
one, predict of one row 1.2 of the raw call. For the others fit at most 1.03 of the raw loop.
"""

import sys

import meter  # isort: skip  (it sets up XLA before jax is there)

import jax
import jax.numpy as jnp
import networks
import numpy as np
import optax

import fkeras as fk

ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 9
NAMES = sys.argv[2:] or list(networks.TABLE)
EPOCHS, SCAN = 3, 32
optimizer = optax.adam(1e-3)


def cross_entropy(logits, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean()


def raw_step(forward):
    def step(carry, batch):
        params, state, opt_state = carry
        x, y = batch

        def loss_fn(params):
            logits, new = forward(params, state, x)
            return cross_entropy(logits, y), new

        (loss, new), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
        deltas, opt_state = optimizer.update(grads, opt_state, params)
        return (optax.apply_updates(params, deltas), new, opt_state), loss

    return step


def measure(name):
    network = networks.TABLE[name]
    x, y, size = network.data()
    trainer = fk.Trainer(
        fk.optimizers.Adam(1e-3, epsilon=1e-8),
        fk.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    run = trainer.init(network.model(), jax.random.key(0))
    params, state = network.raw_weights(run.model), network.raw_state(run.state)
    step = raw_step(network.raw)
    single = jax.jit(step, donate_argnums=0)
    scanned = jax.jit(lambda c, xs, ys: jax.lax.scan(step, c, (xs, ys)), donate_argnums=0)
    steps = len(x) // size
    xs, ys = x.reshape(steps, size, *x.shape[1:]), y.reshape(steps, size)

    def fresh():
        carry = (params, state, optimizer.init(params))
        return jax.tree.map(lambda a: jax.device_put(np.array(a)), carry)

    def by_scan():
        carry = fresh()
        for _ in range(EPOCHS):
            parts = []
            for i in range(0, steps, SCAN):
                carry, losses = scanned(carry, xs[i : i + SCAN], ys[i : i + SCAN])
                parts.append(losses)
            loss = float(np.concatenate(parts).mean())
        return loss

    def by_steps():
        carry = fresh()
        for _ in range(EPOCHS):
            parts = []
            for i in range(steps):
                carry, loss = single(carry, (xs[i], ys[i]))
                parts.append(loss)
            loss = float(np.mean([float(p) for p in parts]))
        return loss

    def by_fit():
        _, history = trainer.fit(run, x, y, size, EPOCHS, verbose=0, shuffle=False)
        return history.history["loss"][-1]

    raw = by_scan if network.loop == "scan" else by_steps
    sides = {f"raw ({network.loop})": raw, "raw again": raw, "fit": by_fit}
    if network.keras is not None:
        keras_model = network.keras(run.model, run.state)
        start = keras_model.get_weights()

        def by_keras():
            keras_model.set_weights(start)
            keras_model.optimizer.iterations.assign(0)
            for variable in keras_model.optimizer.variables:
                if "learning_rate" not in variable.path:
                    variable.assign(np.zeros(variable.shape, variable.dtype))
            log = keras_model.fit(x, y, size, EPOCHS, verbose=0, shuffle=False)
            return log.history["loss"][-1]

        sides["keras fit"] = by_keras
    losses = {side: function() for side, function in sides.items()}
    expected = losses["fit"]
    for side, loss in losses.items():
        assert abs(loss - expected) < 2e-2 * max(abs(expected), 0.1), (side, losses)
    first = f"raw ({network.loop})"
    assert next(iter(sides)) == first
    times = meter.compare(sides, ROUNDS)
    title = f"{name}: {EPOCHS} epochs of {steps} steps, batch {size}"
    meter.report(title, times, ("fit", 1.15 if name == "mlp" else 1.03))
    if "keras fit" in sides:
        pair = {side: times[side] for side in ("keras fit", "fit")}
        meter.report("the same against Keras", pair, ("fit", 0.25))


def measure_step():
    network = networks.TABLE["mlp"]
    x, y, size = network.data()
    trainer = fk.Trainer(optimizer, fk.losses.SparseCategoricalCrossentropy(from_logits=True))
    run = trainer.init(network.model(), jax.random.key(0))
    params = network.raw_weights(run.model)
    single = jax.jit(raw_step(network.raw), donate_argnums=0)
    compiled = jax.jit(trainer.step, donate_argnums=0)
    batch = (jnp.asarray(x[:size]), jnp.asarray(y[:size]))

    def raw():
        carry = jax.tree.map(jnp.copy, (params, {}, optimizer.init(params)))
        for _ in range(500):
            carry, loss = single(carry, batch)
        return float(loss)

    def ours():
        one = jax.tree.map(jnp.copy, run)
        for _ in range(500):
            one, logs = compiled(one, batch)
        return float(logs["loss"])

    assert abs(raw() - ours()) < 1e-4
    sides = {"raw step": raw, "raw again": raw, "jit(trainer.step)": ours}
    meter.report("mlp: 500 single steps", meter.compare(sides, ROUNDS), ("jit(trainer.step)", 1.05))


def measure_predict():
    network = networks.TABLE["mlp"]
    x, _, _ = network.data()
    trainer = fk.Trainer(optimizer, fk.losses.SparseCategoricalCrossentropy(from_logits=True))
    run = trainer.init(network.model(), jax.random.key(0))
    params = network.raw_weights(run.model)
    forward = jax.jit(lambda params, x: network.raw(params, {}, x)[0])
    row = x[:1]

    def raw():
        for _ in range(500):
            out = np.asarray(forward(params, row))
        return out

    def ours():
        for _ in range(500):
            out = trainer.predict(run, row)
        return out

    np.testing.assert_allclose(raw(), ours(), rtol=1e-5)
    sides = {"raw call": raw, "raw again": raw, "predict": ours}
    times = meter.compare(sides, ROUNDS)
    meter.report("mlp: predict of one row, 500 times", times, ("predict", 1.2))


for name in NAMES:
    if name in networks.TABLE:
        measure(name)
if "mlp" in NAMES:
    measure_step()
    measure_predict()
