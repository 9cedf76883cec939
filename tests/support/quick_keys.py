"""A cheap generator of random bits, for programs that run once.

JAX's own generator is most of the compile time of a random layer. Tests with these keys do not depend on
the quality of the bits; tests of distributions use JAX's generator.
"""

import math

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np


def _mix(x):
    """A permutation of 32 bits (Wellons, 2018: Prospecting for hash functions)."""
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def _words(key, count, salt):
    counters = jax.lax.iota("uint32", count) + np.uint32(salt)
    return _mix(_mix(counters ^ key[0]) + key[1])


def _seed(number):
    return _words(jnp.stack([number.astype("uint32"), jnp.uint32(0)]), 2, 0)


def _split(key, shape):
    return _words(key, 2 * math.prod(shape), 1 << 30).reshape(*shape, 2)


def _random_bits(key, width, shape):
    return _words(key, math.prod(shape), 1 << 31).astype(f"uint{width}").reshape(shape)


def _fold_in(key, number):
    return jnp.stack([_mix(key[0] ^ _mix(number)), _mix(key[1] + number)])


QUICK = jax.extend.random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="quick",
    tag="quick",
)
