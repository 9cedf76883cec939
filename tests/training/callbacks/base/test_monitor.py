"""The direction in which a monitored value improves."""

import re

import keras
import pytest

from fkeras.training.callbacks.base import monitor


def test_directions_are_those_of_keras():
    for metric in (
        keras.metrics.BinaryAccuracy(),
        keras.metrics.AUC(),
        keras.metrics.Precision(),
        keras.metrics.Recall(),
        keras.metrics.MeanSquaredError(),
        keras.metrics.MeanAbsolutePercentageError(),
        keras.metrics.RootMeanSquaredError(),
        keras.metrics.KLDivergence(),
        keras.metrics.CategoricalHinge(),
        keras.metrics.LogCoshError(),
        keras.metrics.CosineSimilarity(),
        keras.metrics.F1Score(),
        keras.metrics.R2Score(),
        keras.metrics.TopKCategoricalAccuracy(),
        keras.metrics.MeanIoU(2),
    ):
        way = {"up": "max", "down": "min"}[metric._direction]
        plain = re.sub(r"_\d+$", "", metric.name)  # Keras numbers the metrics of a process
        for name in (plain, f"val_{plain}", f"head_{plain}", f"{plain}_1", f"{plain}_4_1"):
            assert monitor.direction("A", name, "auto") == way, name
    assert monitor.direction("A", "val_loss", "auto") == "min"
    assert monitor.direction("A", "acc", "min") == "min"
    with pytest.raises(ValueError, match=r"EarlyStopping\(monitor='val_mine', mode=\"max\"\)"):
        monitor.direction("EarlyStopping", "val_mine", "auto")
