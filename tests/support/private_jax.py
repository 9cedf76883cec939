"""The only use of private names of JAX in the tests: a quicker lowering of programs.

Checked with JAX 0.7.2 and 0.10.2. Where a version of JAX has no such names, the tests only take
longer.
"""

import functools
import threading


def share_mlir_contexts():
    """Makes JAX lower all programs of a thread in one MLIR context.

    JAX makes a context for each program, and loading all dialects into a context takes longer than
    lowering a small program. A context is not thread-safe, so each thread has one of its own.
    """
    try:
        from jax._src.interpreters import mlir
    except ImportError:
        return
    new_context = getattr(mlir, "make_ir_context", None)
    if new_context is not None:
        context_of = functools.cache(lambda thread: new_context())
        mlir.make_ir_context = lambda: context_of(threading.get_ident())
