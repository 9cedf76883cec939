"""Mistakes in users' programs that type checkers must find: one in each line marked `mistake`."""

from typing import Any

import jax
import numpy as np

import fkeras as fk
from fkeras import layers

x, key = fk.Input((4,)), jax.random.key(0)
images, labels = np.zeros((2, 4), "float32"), np.zeros((2, 1), "float32")
model = fk.Model(x, layers.Dense(1)(x)).build(key)
trainer = fk.Trainer("adam", "mse")
run = trainer.init(model, key)

layers.Dense(4, activatoin="relu")  # mistake
layers.Dense("ten")  # mistake
layers.Dense()  # mistake
layers.Conv2D(16)  # mistake
layers.Conv2D(16, "3")  # mistake
layers.Dropout(rate="0.5")  # mistake
layers.LSTM(4, return_sequence=True)  # mistake
layers.BatchNormalization(momentum=0.9, trainabel=False)  # mistake
fk.Input(4)  # mistake
fk.Input((4,), dtpye="int32")  # mistake
fk.Model(inputs=x, output=layers.Dense(1)(x))  # mistake
fk.Model(x, layers.Dense(1))  # mistake
fk.Sequential([layers.Dense(1), "dense"])  # mistake
fk.optimizers.Adam(lr=1e-3)  # mistake
fk.losses.MeanSquaredError(form_logits=True)  # mistake
fk.Trainer("adam", los="mse")  # mistake
trainer.fit(images, labels)  # mistake
trainer.fit(run, images, labels, epoch=3)  # mistake
trainer.evaluate(images, labels)  # mistake
trainer.init(model)  # mistake
trainer.fit(run, 3)  # mistake
trainer.fit(run, {1, 2}, labels)  # mistake
trainer.fit(run, images, 3)  # mistake
trainer.fit(run, images, labels, sample_weight=2.0)  # mistake
trainer.fit(run, images, labels, validation_data=0.2)  # mistake
trainer.evaluate(run, images, "labels")  # mistake
trainer.predict(run, 3)  # mistake
fk.losses.MeanSquaredError()("1", labels)  # mistake
fk.losses.mean_squared_error(labels, "1")  # mistake
fk.metrics.MeanSquaredError().update({}, labels, "1")  # mistake
fk.random.normal(3)  # mistake
fk.random.normal((3,), mean="0")  # mistake
fk.initializers.Zeros()(key, 3)  # mistake
run.modell  # mistake
model.aply(images)  # mistake
model.apply(images, key="0")  # mistake
layers.Dense(4).unit  # mistake
layers.Dense(4).units = 5  # mistake
fk.ops.mean(x, axes=1)  # mistake
fk.ops.meen(x)  # mistake
fk.ops.mean("x")  # mistake
fk.ops.mean(["x", "y"])  # mistake
fk.ops.sum(x, axis="batch")  # mistake
fk.ops.exp("x")  # mistake
fk.ops.elu(x, beta=1.0)  # mistake
fk.ops.elu(x=images, beta=1.0)  # mistake
fk.ops.add(x, "1")  # mistake
fk.ops.add(x, 1, 2)  # mistake
fk.ops.where(x > 0, x, "0")  # mistake
fk.ops.reshape(x, "flat")  # mistake
fk.ops.zeros("3")  # mistake
fk.ops.top_k(x, "3")  # mistake
fk.ops.stft(x, 4, 2)  # mistake
fk.ops.stft(images, 4, 2, "4")  # mistake
fk.ops.stft(images, 4, 2, 4).shape  # mistake
fk.ops.fft(images)  # mistake
fk.ops.image.resize("x", (2, 2))  # mistake
fk.ops.image.resize(images, (2, 2), interpolate="nearest")  # mistake
fk.ops.nanmean(x, axes=1)  # mistake
fk.ops.nansum("x")  # mistake
fk.ops.hamming("3")  # mistake
fk.ops.bitwise_and(1, "2")  # mistake
fk.ops.segment_sum(images, [0, 1], segments=2)  # mistake
fk.ops.top_k(x, 2).shape  # mistake
fk.datasets.mnist.load_data(3)  # mistake
fk.utils.load_img(3)  # mistake
fk.utils.to_categorical("1")  # mistake
fk.initializers.get(3)  # mistake
x + "1"  # mistake
jax.numpy.sin(x)  # mistake
float(x)  # mistake
fk.freeze("conv*")  # mistake
fk.save_model("m.keras")  # mistake
fk.callbacks.EarlyStopping(patience="3")  # mistake
fk.layers.Dens(4)  # mistake


class Scale(fk.Layer):
    factor: float = fk.option(default=1.0)

    def call(self, x: Any) -> Any:
        return x * self.faktor  # mistake


Scale(facter=2.0)  # mistake
fk.generate(model, None, [[1]], max_tokens=3)  # mistake
fk.generate(model, None, [[1]], key, sampler="greedy")  # mistake
fk.samplers.TopK("10")  # mistake
fk.samplers.Chain([fk.samplers.Greedy()])  # mistake
