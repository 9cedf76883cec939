"""Limits up to which the computations for CPUs are faster, measured by `benchmarks/cpu_forms.py`."""

#: cells of a depthwise kernel: the program has one product per cell
DEPTHWISE_CELLS = 169
#: cells of a window of max pooling: the program has one maximum per cell
POOLING_CELLS = 64
