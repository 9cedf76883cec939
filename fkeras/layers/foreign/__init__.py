"""Layers around models of other libraries: functions of JAX, modules of Flax."""
