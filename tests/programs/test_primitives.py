"""The table of primitives knows those of the installed JAX."""

import jax
from jax.extend.core import primitives

from fkeras.programs.primitives import CALLS, CONTROL, ELEMENTWISE, MOVES

# products, reductions, decompositions, collectives and others: each reader of programs has rules of its own
OTHERS = frozenset(
    """
    approx_top_k argmax argmin cholesky conv_general_dilated cumlogsumexp cummax cummin cumprod
    cumsum custom_lin custom_linear_solve dot_general eig eigh fft hessenberg householder_product lu
    qr random_gamma ragged_dot ragged_dot_general reduce reduce_and reduce_max reduce_min reduce_or
    reduce_prod reduce_sum reduce_window reduce_window_max reduce_window_min reduce_window_sum
    reduce_xor rng_bit_generator rng_uniform scatter-add scatter-max scatter-min scatter-mul
    scatter-sub schur select_and_scatter select_and_scatter_add sort svd triangular_solve
    tridiagonal tridiagonal_solve
    all_gather all_to_all pmax pmin pmean ppermute pgather pbroadcast psum psum_scatter
    ragged_all_to_all reduce_scatter pure_callback io_callback xla_pmap custom_transpose_call
    """.split()
)


def known_to_jax():
    return {value.name for value in vars(primitives).values() if hasattr(value, "bind")}


def test_each_primitive_of_jax_has_one_place():
    places = {"CALLS": CALLS, "CONTROL": CONTROL, "ELEMENTWISE": ELEMENTWISE, "MOVES": MOVES}
    places["OTHERS"] = OTHERS
    names = known_to_jax()
    assert len(names) > 150
    unknown = sorted(name for name in names if not any(name in place for place in places.values()))
    # decide what a new primitive is: its row in fkeras/programs/primitives.py, or a name above
    assert not unknown, f"jax {jax.__version__} has other primitives: {unknown}"
    for name in names:
        assert sum(name in place for place in places.values()) == 1, name
