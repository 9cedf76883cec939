"""Warnings for statements that drop a result, in scripts, notebooks, functions and under tools."""

import functools
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.engine.migration_hints.dropped import DroppedResultWarning, returned

KEY = jax.random.key(0)
X, Y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
MODEL = fk.Sequential([fk.Input((3,)), layers.Dense(1, name="head")]).build(KEY)
TRAINER = fk.Trainer("adam", "mse")
RUN = TRAINER.init(MODEL, KEY)


class Value:
    def twin(self, *args, **kwargs):
        return returned(1, "Value.twin", "value = value.twin()")


VALUE = Value()


def messages(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(one.message) for one in found if one.category is DroppedResultWarning]


DROPS = """
VALUE.twin()
VALUE.twin(1, x=2)
VALUE.twin(*[1], **{})
(VALUE
 .twin(1,
       2))
for i in [1]: VALUE.twin(VALUE.twin(i))
try: VALUE.twin()
finally: pass
with warnings.catch_warnings(): VALUE.twin()
VALUE.twin(); x = 1
if X is not None: VALUE.twin()
"""
KEEPS = """
x = VALUE.twin()
_ = VALUE.twin()
[].extend(map(VALUE.twin, [1]))
list(map(VALUE.twin, [1]))
sorted([1, 2], key=VALUE.twin)
[VALUE.twin() for _ in [1]]
repr(VALUE.twin())
(lambda: VALUE.twin())()
functools.partial(VALUE.twin)()
import threading; thread = threading.Thread(target=VALUE.twin); thread.start(); thread.join()
"""


def _pieces(text):
    lines, piece = text.strip().splitlines(), []
    for line in lines:
        if piece and not line.startswith((" ", "finally")):
            yield "\n".join(piece)
            piece = []
        piece.append(line)
    yield "\n".join(piece)


def _in_function(code):
    scope = {**globals()}
    exec("def run():\n" + "\n".join(f"    {line}" for line in code.splitlines()), scope)
    return scope["run"]


@pytest.mark.one_in(19)
@pytest.mark.parametrize("mode", ["function", "module", "warm", "traced"])
@pytest.mark.parametrize(
    ("code", "count"),
    [*((code, 1) for code in _pieces(DROPS)), *((code, 0) for code in _pieces(KEEPS))],
)
def test_a_statement_that_drops_a_result_warns(code, count, mode):
    call = _in_function(code)
    if mode == "module":
        call = functools.partial(exec, code, {**globals()})
    if mode == "warm":  # Python specializes the instructions of a function that runs often
        messages(lambda: [call() for _ in range(50)])
    before = sys.gettrace()
    if mode == "traced":
        sys.settrace(lambda *_: lambda *_: None)
    try:
        found = messages(call)
    finally:
        sys.settrace(before)
    assert len(found) == count
    assert all("Write `value = value.twin()`" in text for text in found)


@pytest.mark.exhaustive
def test_a_displayed_result_is_not_dropped():
    assert messages(lambda: exec(compile("VALUE.twin()", "cell", "single"), {**globals()})) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_monitoring_tools_change_nothing():
    events = sys.monitoring.events
    sys.monitoring.use_tool_id(4, "test")
    try:
        for event in (events.CALL, events.LINE, events.INSTRUCTION):
            sys.monitoring.register_callback(4, event, lambda *_: None)
        sys.monitoring.set_events(4, events.CALL | events.LINE | events.INSTRUCTION)
        assert len(messages(_in_function("VALUE.twin()"))) == 1
        assert messages(_in_function("x = VALUE.twin()")) == []
    finally:
        sys.monitoring.free_tool_id(4)


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("TRAINER.fit(RUN, X, Y, verbose=0)", "run, history = trainer.fit(run, x, y)"),
        ("TRAINER.init(MODEL, KEY)", "run = trainer.init(model, key)"),
        ("TRAINER.step(RUN, (X, Y))", "run, logs = trainer.step(run, batch)"),
        ("TRAINER.run(RUN, (X, Y), 1)", "run, logs = trainer.run(run, data, epochs)"),
        ("TRAINER.reset_metrics(RUN)", "run = trainer.reset_metrics(run)"),
        ("MODEL.build(KEY)", "layer = layer.build(key, shape)"),
        ("MODEL.add(layers.Dense(2))", "model = model.add(layer)"),
        ("MODEL.pop()", "model = model.pop()"),
        ("MODEL.set_weights(MODEL.get_weights())", "model, state = model.set_weights("),
        ("layers.Dense(2).build(KEY, (None, 3))", "layer = layer.build(key, shape)"),
        ("layers.Normalization().adapt(X)", "layer = layer.adapt(data)"),
        ("layers.StringLookup().adapt(['a'])", "layer = layer.adapt(data)"),
        ("layers.StringLookup().set_vocabulary(['a'])", "layer = layer.set_vocabulary("),
        ("layers.Discretization(num_bins=2).adapt(X)", "layer = layer.adapt(data)"),
        ("fk.freeze(MODEL, 'head')", "model = fk.freeze(model, pattern)"),
        ("fk.unfreeze(MODEL)", "model = fk.unfreeze(model, pattern)"),
        ("fk.quantize(MODEL)", "model = fk.quantize(model)"),
        ("fk.dequantize(MODEL)", "model = fk.dequantize(model)"),
        ("fk.rename(MODEL, prefix='a')", "model = fk.rename(model, names)"),
        ("fk.rematerialized(MODEL, 'full')", "model = fk.rematerialized(model, policy)"),
    ],
)
def test_a_keras_statement_names_the_line_to_write(statement, line):
    call = _in_function(statement)
    (message,) = messages(call)
    assert f"`{line}" in message and "drops the value" in message
    # with `python -W error` the same text is an exception at the statement
    with pytest.raises(DroppedResultWarning, match="drops the value"):
        call()


def test_fit_warns_before_the_first_step():
    class Steps(fk.Callback):
        def on_train_begin(self, run):
            raise AssertionError("trained")

    with pytest.raises(DroppedResultWarning) as caught:
        TRAINER.fit(RUN, X, Y, verbose=0, callbacks=[Steps()])
    assert caught.traceback[0].lineno is not None


@pytest.mark.exhaustive
def test_a_training_that_is_stored_may_drop_its_result(tmp_path):
    saver = fk.callbacks.ModelCheckpoint(tmp_path / "m.npz")
    assert messages(_in_function("TRAINER.fit(RUN, X, Y, verbose=0)")) != []
    scope = {
        "TRAINER": TRAINER,
        "RUN": RUN,
        "X": X,
        "Y": Y,
        "saver": saver,
        "folder": tmp_path / "c",
    }
    for argument in ("callbacks=[saver]", "checkpoint=folder"):
        code = f"TRAINER.fit(RUN, X, Y, verbose=0, {argument})"
        assert messages(functools.partial(exec, code, dict(scope))) == []


def test_an_error_is_not_replaced_by_the_warning():
    with pytest.raises(ValueError, match="zzz"):
        fk.freeze(MODEL, "zzz")


@pytest.mark.exhaustive
def test_a_script_warns_at_the_statement(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import fkeras as fk\nlayer = fk.layers.Dense(2)\nfk.freeze(layer)\nx = fk.freeze(layer)\n"
    )
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    assert ran.stderr.count("DroppedResultWarning") == 1
    assert "script.py:3: DroppedResultWarning: fk.freeze" in ran.stderr
    strict = [sys.executable, "-W", "error::UserWarning", script]
    ran = subprocess.run(strict, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and "line 3" in ran.stderr and "fk.freeze" in ran.stderr


@pytest.mark.exhaustive
def test_a_function_that_no_python_code_calls_returns():
    program = (
        "import atexit\n"
        "from fkeras.engine.migration_hints.dropped import returned\n"
        "atexit.register(lambda: print(returned(3, 'f', 'y = f()')))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert (ran.stdout, ran.stderr) == ("3\n", "")


def test_a_notebook_warns_unless_the_cell_shows_the_value():
    shells = pytest.importorskip("IPython.core.interactiveshell")
    shell = shells.InteractiveShell.instance()
    try:
        shell.user_ns["fk"] = fk
        cell = "layer = fk.layers.Dense(2)\nfk.freeze(layer)\nlayer = layer"
        assert len(messages(lambda: shell.run_cell(cell))) == 1
        assert messages(lambda: shell.run_cell("fk.freeze(layer)")) == []
    finally:
        shells.InteractiveShell.clear_instance()


@pytest.mark.exhaustive
def test_a_normalization_without_statistics():
    x = fk.Input((3,))
    model = fk.Model(x, layers.Dense(1)(layers.Normalization(name="scale")(x)))
    with pytest.warns(UserWarning, match="'scale': this Normalization has no statistics"):
        run = TRAINER.init(model, KEY)
    # statistics from a file are a state; an adapted layer has them as configuration
    TRAINER.init(model, KEY, state=run.state).replace(memory={})
    adapted = layers.Normalization().adapt(X)
    assert TRAINER.init(fk.Model(x, layers.Dense(1)(adapted(x))), KEY).step == 0
