"""A state that does not belong to the model is rejected when a run is made."""

import jax
import jax.numpy as jnp
import pytest

import fkeras as fk
from fkeras import layers

KEY = jax.random.key(0)
BODY = fk.Sequential([fk.Input((3,)), layers.BatchNormalization(name="norm")], name="body")
MODEL = fk.Sequential([fk.Input((3,)), BODY, layers.Dense(1)]).build(KEY)
TRAINER = fk.Trainer("adam", "mse")
STATE = MODEL.init_state()
MEAN = STATE["body"]["norm"]["moving_mean"]


def test_the_state_of_the_model_is_taken():
    state = jax.tree.map(lambda a: a + 1, STATE)
    run = TRAINER.init(MODEL, KEY, state=state)
    assert float(run.state["body"]["norm"]["moving_mean"][0]) == 1.0


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("state", "kind", "message"),
    [
        ({"body/norm": STATE["body"]["norm"]}, ValueError, r"unknown entry \['body/norm'\]"),
        (
            {**STATE, "bodi": {"norm": {"moving_mean": MEAN}}},
            ValueError,
            r"unknown entry \['bodi'\]\['norm'\].*\['body'\]\['norm'\]",
        ),
        ({}, ValueError, r"\['body'\]\['norm'\]\['moving_mean'\] of .* missing"),
        (
            {"body": {"norm": {"moving_mean": MEAN}}},
            ValueError,
            r"moving_variance'\] of .* missing",
        ),
        (
            {"body": {"norm": {**STATE["body"]["norm"], "moving_mean": jnp.zeros(4)}}},
            ValueError,
            r"expected shape \(3,\) for .*moving_mean'\], received \(4,\)",
        ),
        ([MEAN], TypeError, "expected a dictionary, received list"),
    ],
)
def test_another_state_is_rejected(state, kind, message):
    with pytest.raises(kind, match=rf"Trainer.init: state: .*{message}.*init_state"):
        TRAINER.init(MODEL, KEY, state=state)


def test_a_model_without_state_takes_no_entry():
    model = fk.Sequential([fk.Input((3,)), layers.Dense(1)])
    assert TRAINER.init(model, KEY, state={}).state == {}
    with pytest.raises(ValueError, match="'norm'.*none, as this model has no state"):
        TRAINER.init(model, KEY, state={"norm": MEAN})
