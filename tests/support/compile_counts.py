"""Counts the programs that XLA compiles."""

import contextlib

import jax


@contextlib.contextmanager
def count_compiles():
    """Yields a list with one entry for each program that XLA compiles inside the block."""
    events = []
    counting = True

    def listen(event, duration, **_):
        if counting and event.endswith("backend_compile_duration"):
            events.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    yield events
    counting = False
    # JAX 0.7.2 has no public function that removes one listener: a silent one stays registered
    unregister = getattr(jax.monitoring, "unregister_event_duration_listener", None)
    if unregister is not None:
        unregister(listen)
