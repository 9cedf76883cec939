"""A table of JAX's primitives by name, for all code that reads programs.

The names are those of the supported releases of JAX. Review them here for a new release.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: primitives that run one program once, by the parameter that holds the program
CALLS: Mapping[str, str] = MappingProxyType(
    {
        "jit": "jaxpr",
        "pjit": "jaxpr",
        "call": "call_jaxpr",
        "core_call": "call_jaxpr",
        "closed_call": "call_jaxpr",
        "checkpoint": "jaxpr",
        "remat": "jaxpr",
        "remat2": "jaxpr",
        "custom_jvp_call": "call_jaxpr",
        "custom_vjp_call": "call_jaxpr",
        "custom_vjp_call_jaxpr": "fun_jaxpr",
        # a computation with one form for each platform; the program is the form of any platform
        "platform_form": "jaxpr",
        "platform_kernel": "jaxpr",
    }
)
#: primitives that run programs several times, or one of several programs
CONTROL = frozenset({"cond", "scan", "while"})

_ONE_OPERATION = """
    add sub mul div rem neg abs sign square add_any ceil floor round max min clamp is_finite eq
    ne lt le gt ge and or xor not select_n shift_left shift_right_logical shift_right_arithmetic
    population_count clz convert_element_type reduce_precision
"""
_ONE_TRANSCENDENTAL = """
    pow sqrt rsqrt cbrt exp exp2 expm1 log log1p sin cos tan tanh atan2 erf
"""
_NO_OPERATION = """
    bitcast_convert_type copy name real imag complex conj stop_gradient device_put
    sharding_constraint random_wrap random_unwrap random_clone random_fold_in random_seed
"""
_OF_UNKNOWN_COST = """
    integer_pow polygamma zeta igamma igammac igamma_grad_a bessel_i0e bessel_i1e
    regularized_incomplete_beta lt_to le_to eq_to
"""

#: primitives that compute each element of the result from one element of each operand, with
#: `(flops, transcendentals)` of one element; None where the cost is unknown
ELEMENTWISE: Mapping[str, tuple[int, int] | None] = MappingProxyType(
    {
        **dict.fromkeys(_ONE_OPERATION.split(), (1, 0)),
        **dict.fromkeys(_ONE_TRANSCENDENTAL.split(), (0, 1)),
        **dict.fromkeys(_NO_OPERATION.split(), (0, 0)),
        **dict.fromkeys(_OF_UNKNOWN_COST.split()),
        # functions that XLA computes by formulas
        "logistic": (3, 1),
        "asin": (4, 2),
        "acos": (3, 2),
        "atan": (1, 1),
        "sinh": (10, 3),
        "cosh": (4, 2),
        "asinh": (9, 3),
        "acosh": (6, 3),
        "atanh": (4, 2),
        "erfc": (62, 1),
        "erf_inv": (37, 2),
        "lgamma": (53, 4),
        "digamma": (40, 3),
        "nextafter": (24, 0),
    }
)
#: other primitives that move, repeat, mark or draw elements, without arithmetic
MOVES = frozenset(
    [
        "reshape",
        "broadcast_in_dim",
        "transpose",
        "slice",
        "concatenate",
        "pad",
        "gather",
        "dynamic_slice",
        "dynamic_update_slice",
        "squeeze",
        "expand_dims",
        "iota",
        "rev",
        "split",
        "empty",
        "empty2",
        "optimization_barrier",
        "mesh_cast",
        "reshard",
        "pvary",
        "pcast",
        "convert_layout",
        "layout_constraint",
        "debug_callback",
        "debug_print",
        "create_token",
        "after_all",
        "scatter",
        "top_k",
        "axis_index",
        "platform_index",
        "random_split",
        "random_bits",
        "threefry2x32",
        "broadcast",
        "select_and_gather_add",
        "tile",
        "unstack",
        "stack",
        "get",
        "swap",
    ]
)
