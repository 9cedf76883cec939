"""Optuna proposes hyperparameters, and a population trains eight proposals at once."""

import argparse
import math

import jax
import optuna  # type: ignore[import-not-found]
from digits_data import load_digits

import fkeras as fk
from fkeras import layers
from fkeras.training.population import SuccessiveHalving

fk.utils.cache_programs()  # the second start compiles nothing

parser = argparse.ArgumentParser()
parser.add_argument("--short", action="store_true")
short = parser.parse_args().short
rounds, epochs, rows = (2, 2, 256) if short else (4, 8, 3000)

(x_train, y_train), (x_test, y_test) = load_digits()
x_train, y_train = x_train[:rows], y_train[:rows]
hidden = [layers.Flatten(), layers.Dense(64, activation="relu")]
model = fk.Sequential([fk.Input((28, 28, 1)), *hidden, layers.Dense(10)])
loss = fk.losses.SparseCategoricalCrossentropy(from_logits=True)
trainer = fk.Trainer(fk.optimizers.Adam(clipnorm=1.0), loss, metrics=["accuracy"])


def propose(trial):
    """Returns the hyperparameters of one member."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True),
        "beta_1": trial.suggest_float("beta_1", 0.5, 0.99),
        "clipnorm": trial.suggest_float("clipnorm", 0.01, 1.0, log=True),
        "seed": trial.number,
    }


optuna.logging.set_verbosity(optuna.logging.WARNING)
sampler = optuna.samplers.TPESampler(seed=0, constant_liar=True)  # for trials that run together
study = optuna.create_study(direction="maximize", sampler=sampler)
for _round in range(rounds):
    trials = [study.ask() for _ in range(8)]
    population = fk.populate(trainer, members=[propose(trial) for trial in trials])
    runs = population.init(model, jax.random.key(0))
    runs, history = population.fit(
        runs,
        x_train,
        y_train,
        epochs=epochs,
        validation_split=0.2,
        rules=[SuccessiveHalving("val_accuracy", every=epochs // 2)],
        verbose=0,
    )
    accuracies = history["val_accuracy"]
    for index, trial in enumerate(trials):
        reached = [float(values[index]) for values in accuracies]  # NaN after the member stopped
        study.tell(trial, max(value for value in reached if not math.isnan(value)))

best = fk.populate(trainer, members=[study.best_params])
run = best.member(best.init(model, jax.random.key(0)), 0)
run, _ = best.trainer.fit(run, x_train, y_train, epochs=epochs, verbose=0)
accuracy = best.trainer.evaluate(run, x_test, y_test, verbose=0)["accuracy"]
shown = ", ".join(f"{name} {value:.2g}" for name, value in study.best_params.items())
print(f"best of {len(study.trials)}: {shown}; test accuracy {accuracy:.2%}")
