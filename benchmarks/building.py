"""Recording a 50-layer convolutional network and building its weights, against Keras 3.

    python benchmarks/building.py [rounds]

Goals: at most one compiled program, and at most 0.3 of Keras's CPU time; a graph of 5,000 layers
closes in under 10 s; memory stays constant over 10,000 discarded calls of one layer. Every contender
of a round runs in a new process, since both packages cache compiled programs.
"""

import gc
import subprocess
import sys
import time
import tracemalloc

import meter

BLOCKS = 16  # 3 layers each, and a head: 50 layers


def fkeras_network():
    import jax

    import fkeras as fk
    from fkeras import layers

    jax.random.key(0)
    start = time.process_time()
    with meter.count_compiles() as compiles:
        x = h = fk.Input((32, 32, 3))
        for block in range(BLOCKS):
            h = layers.Conv2D(32 * 2 ** (block // 4), 3, padding="same", use_bias=False)(h)
            h = layers.BatchNormalization()(h)
            h = layers.Activation("relu")(h)
        model = fk.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))
        model = model.build(jax.random.key(0))
        jax.block_until_ready(model.init_state())
    spent = time.process_time() - start
    print(f"{spent} {len(compiles)} {model.count_params()}")


def keras_network():
    import keras
    from keras import layers

    start = time.process_time()
    with meter.count_compiles() as compiles:
        x = h = keras.Input((32, 32, 3))
        for block in range(BLOCKS):
            h = layers.Conv2D(32 * 2 ** (block // 4), 3, padding="same", use_bias=False)(h)
            h = layers.BatchNormalization()(h)
            h = layers.Activation("relu")(h)
        model = keras.Model(x, layers.Dense(10)(layers.GlobalAveragePooling2D()(h)))
    spent = time.process_time() - start
    trainable = sum(int(v.value.size) for v in model.trainable_variables)
    print(f"{spent} {len(compiles)} {trainable}")


def fresh(name):
    found = subprocess.run(
        [sys.executable, __file__, name], capture_output=True, text=True, check=True
    )
    spent, compiles, params = found.stdout.split()[-3:]
    return float(spent), int(compiles), int(params)


def deep_graph():
    import fkeras as fk
    from fkeras import layers

    start = time.process_time()
    x = h = fk.Input((8,))
    for _ in range(5000):
        h = layers.Dense(8)(h)
    recorded = time.process_time()
    model = fk.Model(x, h)
    closed = time.process_time()
    assert len(model.layers) == 5001
    print(
        f"\n5,000 layers: recorded in {recorded - start:.2f} s, closed in {closed - recorded:.2f} s CPU"
    )
    layer = layers.Dense(8)
    for _ in range(100):
        layer(x)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(10_000):
        layer(x)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    print(f"10,000 throw-away calls: memory grew by {grown} bytes")
    assert grown < 100_000


def main(rounds):
    times = {"Keras 3": [], "fkeras": []}
    for number in range(rounds):
        names = [("Keras 3", "keras"), ("fkeras", "fkeras")]
        for title, name in names if number % 2 == 0 else reversed(names):
            spent, compiles, params = fresh(name)
            times[title].append(spent)
            if number == 0:
                print(f"{title}: {params:,} trainable parameters, {compiles} programs compiled")
    meter.report("recording and building a 50-layer network", times, ("fkeras", 0.3))
    deep_graph()


if __name__ == "__main__":
    if sys.argv[1:] == ["fkeras"]:
        fkeras_network()
    elif sys.argv[1:] == ["keras"]:
        keras_network()
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
