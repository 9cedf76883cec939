"""Models of one call of a row of the layer table."""

import jax

import fkeras as fk


def model_of(case):
    """A model of one call of the row, its state, and its inputs; the mask is the last input."""
    rows = case.arrays()[0]
    leading = jax.tree.leaves(rows)[0].shape[0] if "stateful=True" in repr(case.layer) else None
    arrays = case.arrays(seed=3, batch=leading or 4)
    mask, options = case.mask_array(), dict(case.options)

    def symbol(array):
        return fk.Input(batch_shape=(leading, *array.shape[1:]), dtype=array.dtype)

    symbols = jax.tree.map(symbol, arrays)
    inputs, values = (
        jax.tree.leaves(symbols, is_leaf=fk.engine.is_symbolic),
        jax.tree.leaves(arrays),
    )
    if mask is not None:
        options["mask"] = symbol(mask.astype(bool))
        inputs.append(options["mask"])
        rows = values[0].shape[0]
        values.append(mask.repeat(2, axis=0)[:rows])
    model = fk.Model(inputs, case.layer(*symbols, **options)).build(jax.random.key(0))
    return model, model.init_state(), values, leading
