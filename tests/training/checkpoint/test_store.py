"""Checkpoints on disk: bit-identical, atomic, skipped if damaged, one writer at a time."""

import collections
import doctest
import errno
import importlib
import json
import os
import pathlib
import pkgutil
import subprocess
import sys
import textwrap
import threading
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest

import fkeras as fk
import fkeras.training.checkpoint as package
from fkeras.training.checkpoint import (
    Checkpoint,
    CheckpointError,
    compare,
    data_fingerprint,
    model_fingerprint,
    open_store,
    optimizer_fingerprint,
    restore,
)
from fkeras.training.checkpoint.storage import disk, lock, orbax_files, writing
from tests.support.paths import ROOT

Point = collections.namedtuple("Point", ["x", "y"])


def everything():
    """A leaf of each kind that a training has."""
    return {
        "float32": jnp.asarray([1.5, -0.0, np.nan, np.inf], "float32"),
        "bfloat16": jnp.arange(6, dtype="bfloat16").reshape(2, 3),
        "float16": jnp.asarray([6e-8, 65504.0], "float16"),
        "int32": jnp.int32(7),
        "uint32": jnp.asarray([2**32 - 1], "uint32"),
        "bool": jnp.asarray([True, False]),
        "empty": jnp.zeros((0, 3), "bfloat16"),
        "nested": Point([np.arange(3), None], (np.float64(0.1),)),
        "key": jax.random.split(jax.random.key(3, impl="rbg"), 2),
        "numpy": {
            "int64": np.array(2**40),
            "float8": np.array([1.5, -2], ml_dtypes.float8_e4m3fn),
            "int4": np.array([-3, 2], ml_dtypes.int4),
            "complex": np.array([1 + 2j], "complex64"),
            "order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            "bytes": np.arange(3, dtype=">i4"),
            "empty": np.zeros((2, 0), "int16"),
        },
        "odd / name": {"": np.int8(1), "é.0": np.int8(2), "0": {0: np.int8(3)}},
        "python": (3, 0.1, True, 1j),
    }


def small(step=1):
    return {"w": np.arange(100, dtype="float32") + step, "n": {"step": np.array(step)}}


def same_leaf(a, b):
    assert type(a) is type(b)
    if isinstance(a, jax.Array) and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
        assert jax.random.key_impl(a) == jax.random.key_impl(b)
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    if hasattr(a, "dtype"):
        assert a.dtype == b.dtype and a.shape == b.shape
    assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def same(tree, other):
    assert jax.tree.structure(tree) == jax.tree.structure(other)
    jax.tree.map(same_leaf, tree, other)


def write(folder, *steps, **options):
    with open_store(Checkpoint(folder, **options)) as store:
        for step in steps:
            store.save(step, small(step), {"epoch": step})


def steps_in(folder, kind="latest"):
    return [os.path.basename(save.path) for save in disk.saves(os.path.join(folder, kind))]


# values


def test_every_kind_of_leaf_comes_back_bit_identical(tmp_path):
    tree = everything()
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(3, tree, {"epoch": 1, "history": {"loss": [0.5, float("nan")]}})
        restored = store.restore(jax.tree.map(lambda leaf: leaf, tree))
    same(tree, restored.tree)
    assert restored.step == 3 and restored.messages == () and restored.info["epoch"] == 1
    assert restored.info["history"]["loss"][0] == 0.5 and np.isnan(
        restored.info["history"]["loss"][1]
    )
    assert steps_in(tmp_path) == ["3"] and os.listdir(tmp_path / "partial") == []


def test_restores_into_shapes_and_into_shardings(tmp_path):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("d",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
    tree = {
        "rows": jax.device_put(np.arange(8, dtype="float32"), rows),
        "key": jax.random.key(1),
        "wide": np.arange(2.0),
    }
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(0, tree, {})
    spec = {
        "rows": jax.ShapeDtypeStruct((8,), "float32", sharding=rows),
        "key": jax.ShapeDtypeStruct((), tree["key"].dtype),
        "wide": jax.ShapeDtypeStruct((2,), "float64"),
    }
    restored = restore(tmp_path, spec).tree
    same(tree, restored)
    assert restored["rows"].sharding == rows and isinstance(restored["wide"], np.ndarray)
    assert restore(tmp_path, tree).tree["rows"].sharding == rows
    assert not restore(tmp_path, {**tree, "rows": jnp.zeros(8)}).tree["rows"].committed


def test_a_single_array_and_an_empty_tree(tmp_path):
    for name, tree in (("bare", np.arange(3)), ("none", {}), ("empty", np.zeros((0,)))):
        with open_store(Checkpoint(tmp_path / name)) as store:
            store.save(0, tree, {})
            same(tree, store.restore(tree).tree)


def test_equal_paths_get_unique_names(tmp_path):
    tree = {"a/b": np.int8(1), "a": {"b": np.int8(2)}, "w": np.int8(3), "w/0": np.int8(4)}
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(0, tree, {})
        same(tree, store.restore(tree).tree)


@pytest.mark.exhaustive
def test_a_run_of_a_trainer_comes_back_and_trains_on(tmp_path, key):
    layers = [fk.Input((3,)), fk.layers.Dense(4), fk.layers.BatchNormalization()]
    trainer = fk.Trainer("adam", "mse")
    run = trainer.init(fk.Sequential([*layers, fk.layers.Dense(1)]), key)
    x, y = np.ones((8, 3), "float32"), np.ones((8, 1), "float32")
    step = jax.jit(trainer.step)
    after, _ = step(run, (x, y))
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, after, {})
        back = store.restore(run).tree
    assert back.impl == after.impl
    jax.tree.map(same_leaf, jax.tree.map(np.asarray, after), jax.tree.map(np.asarray, back))
    compiled = step._cache_size()
    twice, again = step(after, (x, y))[0], step(back, (x, y))[0]
    jax.tree.map(same_leaf, jax.tree.map(np.asarray, twice), jax.tree.map(np.asarray, again))
    assert step._cache_size() == compiled + 1  # its own results are committed to no other program


def test_the_buffers_may_be_donated_as_soon_as_save_returns(tmp_path, monkeypatch):
    go = threading.Event()
    real = writing.write_arrays
    monkeypatch.setattr(writing, "write_arrays", lambda *a: (go.wait(20), real(*a)))
    array, host = jnp.arange(1000.0), np.arange(1000.0)
    info = {"history": [1]}
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, {"a": array, "h": host}, info)
        assert steps_in(tmp_path) == []  # still under way
        jax.jit(lambda a: a * 0, donate_argnums=0)(array).block_until_ready()
        host[:] = 0
        info["history"].append(2)
        go.set()
        store.wait()
        restored = store.restore({"a": jnp.zeros(1000), "h": host})
    assert float(restored.tree["a"][7]) == 7 and restored.tree["h"][7] == 7
    assert restored.info == {"history": [1]}


def test_orbax_alone_reads_the_arrays(tmp_path):
    import orbax.checkpoint as orbax

    write(tmp_path, 4)
    restored = orbax.PyTreeCheckpointer().restore(tmp_path / "latest" / "4" / "arrays")
    np.testing.assert_array_equal(restored["w"], small(4)["w"])
    assert set(restored) == {"w", "n/step"}


def test_the_manifest_lists_the_arrays(tmp_path):
    write(tmp_path, 4)
    body = json.loads((tmp_path / "latest/4/manifest.json").read_text())
    assert body["step"] == 4 and body["info"] == {"epoch": 4}
    assert body["versions"]["fkeras"] == fk.__version__
    assert body["versions"]["jax"] == jax.__version__ and "orbax-checkpoint" in body["versions"]
    assert body["arrays"]["w"]["shape"] == [100] and body["arrays"]["w"]["dtype"] == "float32"
    assert "arrays/manifest.ocdbt" in body["files"]


def test_inside_an_event_loop(tmp_path):
    import asyncio

    async def main():
        with open_store(Checkpoint(tmp_path, asynchronous=False)) as store:
            store.save(1, small(), {})
            return store.restore(small())

    same(small(), asyncio.run(main()).tree)


# which saves there are


def test_the_latest_are_kept_and_the_best_apart(tmp_path):
    with open_store(Checkpoint(tmp_path, keep=3)) as store:
        for step in range(1, 7):
            store.save(step, small(step), {}, best=step in (2, 4))
        assert store.restore(small()).step == 6
        assert store.best(small()).step == 4
        same(small(4), store.best(small()).tree)
    assert steps_in(tmp_path) == ["6", "5", "4"] and steps_in(tmp_path, "best") == ["4"]


def test_a_step_that_is_saved_again_is_the_newer_one(tmp_path):
    with open_store(Checkpoint(tmp_path)) as store:
        for epoch in range(4):
            store.save(5, small(5 + epoch), {"epoch": epoch}, best=True)
        restored = store.restore(small())
        assert restored.info == {"epoch": 3} and restored.step == 5
        same(small(8), store.best(small()).tree)
    assert steps_in(tmp_path) == ["5.3", "5.2"] and steps_in(tmp_path, "best") == ["5.3"]


def test_an_empty_folder_has_no_save(tmp_path):
    assert restore(tmp_path / "nowhere", small()) is None
    with open_store(Checkpoint(tmp_path / "new" / "folder")) as store:
        assert store.restore(small()) is None and store.best(small()) is None
    with pytest.raises(ValueError, match="'latest' or 'best' as kind, received 'bets'. Did you"):
        restore(tmp_path, small(), kind="bets")
    assert restore(Checkpoint(tmp_path), small(), kind="best") is None


@pytest.mark.exhaustive
def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "latest").mkdir()
    (tmp_path / "latest" / "notes").write_text("mine")
    write(tmp_path, 1, 2, 3, 4)
    assert (tmp_path / "latest" / "notes").read_text() == "mine" and len(steps_in(tmp_path)) == 2


def test_files_of_a_killed_save_are_removed(tmp_path):
    (tmp_path / "partial" / "7-x" / "save").mkdir(parents=True)
    (tmp_path / "partial" / "file").write_text("half")
    write(tmp_path, 1)
    assert os.listdir(tmp_path / "partial") == []


def test_a_folder_without_links_gets_copies(tmp_path, monkeypatch):
    def link(*_):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, small(), {}, best=True)
        same(small(), store.best(small()).tree)


# damage


def _files(folder):
    return sorted(p for p in pathlib.Path(folder).rglob("*") if p.is_file())


DAMAGES = {
    "truncated": lambda p: os.truncate(p, p.stat().st_size // 2),
    "flipped": lambda p: p.write_bytes(_flip(p.read_bytes())),
    "emptied": lambda p: p.write_bytes(b""),
    "missing": lambda p: p.unlink(),
}


def _flip(data):
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damaged_file_is_named_and_the_save_before_is_used(tmp_path, damage):
    write(tmp_path, 1, 2)
    newest = tmp_path / "latest" / "2"
    names = [p.relative_to(newest) for p in _files(newest)]
    assert len(names) >= 5
    for name in names:
        path = newest / name
        contents = path.read_bytes()
        DAMAGES[damage](path)
        restored = restore(tmp_path, small())
        assert restored.step == 1 and restored.info == {"epoch": 1}
        same(small(1), restored.tree)
        [message] = restored.messages
        assert name.as_posix() in message and str(newest) in message and "step 1" in message
        path.write_bytes(contents)
    assert restore(tmp_path, small()).step == 2


def test_arrays_that_orbax_reads_differently_are_detected(tmp_path, monkeypatch):
    write(tmp_path, 1, 2)
    real = orbax_files.read_arrays
    calls = []

    def read(folder, names):
        restored = real(folder, names)
        calls.append(folder)
        return {**restored, "w": restored["w"] * 2} if len(calls) == 1 else restored

    monkeypatch.setattr("fkeras.training.checkpoint.storage.shards.read_arrays", read)
    restored = restore(tmp_path, small())
    assert restored.step == 1 and "array w" in restored.messages[0]

    def fail(folder, names):
        raise KeyError("inside orbax")

    monkeypatch.setattr("fkeras.training.checkpoint.storage.shards.read_arrays", fail)
    with pytest.raises(CheckpointError, match="cannot be read by orbax .KeyError: 'inside orbax'"):
        restore(tmp_path, small())


def test_if_all_saves_are_damaged_each_is_listed(tmp_path):
    write(tmp_path, 1, 2)
    (tmp_path / "latest/1/manifest.json").write_text('{"crc32": "0"}')
    (tmp_path / "latest/2/arrays/_METADATA").unlink()
    with pytest.raises(CheckpointError, match="all 2 saves are damaged") as caught:
        restore(tmp_path, small())
    assert "latest/1: manifest.json has the checksum" in str(caught.value)
    assert "latest/2: arrays/_METADATA cannot be read (No such file" in str(caught.value)
    for text in ("[]", "{}", "null", '"', ""):
        (tmp_path / "latest/1/manifest.json").write_text(text)
        with pytest.raises(CheckpointError, match="manifest.json is not a manifest"):
            restore(tmp_path, small())


def test_a_damaged_save_does_not_count_and_is_removed_later(tmp_path):
    write(tmp_path, 10, 20)
    (tmp_path / "latest/20/manifest.json").unlink()
    with open_store(Checkpoint(tmp_path)) as store:
        assert store.restore(small()).step == 10
        store.save(15, small(15), {})
        assert store.restore(small()).step == 15
        assert steps_in(tmp_path) == ["20", "15", "10"]
        store.save(20, small(20), {})
        assert store.restore(small()).step == 20
        assert steps_in(tmp_path) == ["20.1", "15"]


def test_a_save_removed_during_reading_is_not_damaged(tmp_path, monkeypatch):
    write(tmp_path, 1, 2)
    real = orbax_files.read_arrays

    def read(folder, names):
        if os.path.dirname(folder).endswith("2") and os.path.exists(folder):
            (tmp_path / "latest/2").rename(tmp_path / "partial/2")
            raise FileNotFoundError(folder)
        return real(folder, names)

    monkeypatch.setattr("fkeras.training.checkpoint.storage.shards.read_arrays", read)
    restored = restore(tmp_path, small())
    assert restored.step == 1 and restored.messages == ()


def test_a_manifest_of_a_later_format(tmp_path, monkeypatch):
    monkeypatch.setattr("fkeras.training.checkpoint.storage.writing.WHOLE", 3)
    write(tmp_path, 1)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="of format 1 or 2, received format 3"):
        restore(tmp_path, small())


# structure and fingerprint


def test_another_structure_is_listed_by_path(tmp_path):
    write(tmp_path, 1)
    like = {"w": np.zeros(3, "float32"), "n": {"step": np.zeros((), "int32"), "more": np.zeros(1)}}
    like["n"].pop("step")
    with pytest.raises(CheckpointError) as caught:
        restore(tmp_path, like)
    text = str(caught.value)
    assert "missing in the save (1): n/more\n" in text
    assert "unexpected in the save (1): n/step\n" in text
    assert "other shape or dtype (1): w is float32[100], expected float32[3]\n" in text
    with pytest.raises(CheckpointError, match=r"n/step is int64\[\], expected int32\[\]"):
        restore(tmp_path, {**small(), "n": {"step": np.int32(0)}})
    many = {str(i): np.zeros(1) for i in range(30)}
    with pytest.raises(CheckpointError, match=r"missing in the save \(30\): 0, 1, .*, and 20 more"):
        restore(tmp_path, many)


def test_a_different_fingerprint_is_reported_before_the_structure(tmp_path):
    facts = {"optimizer": optimizer_fingerprint(fk.optimizers.SGD(0.001))}
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, small(), {"fingerprint": facts})
        assert store.restore(small(), facts).step == 1
        now = {"optimizer": optimizer_fingerprint(fk.optimizers.SGD(0.01))}
        with pytest.raises(CheckpointError, match="optimizer: learning_rate was 0.001, is 0.01"):
            store.restore({}, now)


# errors

PLACES = ("write_arrays", "write_manifest", "disk.flush_all", "disk.twin", "disk.publish")
PLACES += ("os.mkdir", "tempfile.mkdtemp", "manifest.json")


@pytest.mark.one_in(6)
@pytest.mark.parametrize(
    ("place", "error"),
    [
        *((place, (errno.ENOSPC, "warn")) for place in PLACES),
        *((place, (errno.ENOSPC, "stop")) for place in PLACES[:2]),
        *((place, (errno.EIO, "warn")) for place in PLACES[-2:]),
    ],
)
def test_an_error_at_any_point_leaves_the_save_before(tmp_path, monkeypatch, place, error):
    number, wish = error
    fault = OSError(number, os.strerror(number))

    def fail(*_, **__):
        raise fault

    with open_store(Checkpoint(tmp_path, on_disk_full=wish)) as store:
        store.save(1, small(1), {})
        store.wait()
        with monkeypatch.context() as patch:
            if place == "manifest.json":
                patch.setattr(json, "dump", fail)
            else:
                patch.setattr(f"fkeras.training.checkpoint.storage.writing.{place}", fail)
            store.save(2, small(2), {}, best=True)
            if number == errno.EIO:
                with pytest.raises(
                    CheckpointError, match="could not be written, the save of step 1"
                ):
                    store.wait()
            elif wish == "stop":
                with pytest.raises(CheckpointError, match="the disk is full.*of step 1 remains"):
                    store.wait()
            else:
                with pytest.warns(UserWarning, match="step 1 remains.*The training continues"):
                    store.wait()
            store.wait()  # told once
        assert os.listdir(tmp_path / "partial") == [] and steps_in(tmp_path) == ["1"]
        assert store.restore(small()).step == 1
        store.save(3, small(3), {}, best=True)
        assert store.restore(small()).step == 3 and store.best(small()).step == 3


@pytest.mark.one_in(2)
@pytest.mark.parametrize("call", ["save", "close", "restore", "exit", "raise"])
def test_a_background_error_is_raised_by_the_next_call(tmp_path, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.EIO, "broken disk")

    store = open_store(Checkpoint(tmp_path))
    monkeypatch.setattr(writing, "write_manifest", fail)
    store.save(1, small(), {})
    match = "could not be written, no earlier save exists: OSError: .*broken disk"
    if call == "raise":  # the program's own error is the one that it ends with
        with pytest.warns(UserWarning, match=match), pytest.raises(KeyError):
            with store:
                raise KeyError
    else:
        with pytest.raises(CheckpointError, match=match):
            if call == "exit":
                with store:
                    pass
            else:
                {
                    "save": lambda: store.save(2, small(), {}),
                    "close": store.close,
                    "restore": lambda: store.restore(small()),
                }[call]()
    store.close()
    open_store(Checkpoint(tmp_path)).close()  # the lock is free


def test_a_synchronous_save_raises_its_error(tmp_path, monkeypatch):
    with open_store(Checkpoint(tmp_path, asynchronous=False)) as store:
        store.save(1, small(), {})
        assert steps_in(tmp_path) == ["1"]
        monkeypatch.setattr(writing, "write_arrays", lambda *_: 1 / 0)
        with pytest.raises(CheckpointError, match="ZeroDivisionError"):
            store.save(2, small(), {})


def test_values_that_cannot_be_saved_are_named(tmp_path):
    gone = jnp.ones(3)
    gone.delete()
    with open_store(Checkpoint(tmp_path)) as store:
        for tree in ({"a": ["text"]}, {"a": [np.array(["x"])]}, {"a": [object()]}):
            with pytest.raises(TypeError, match="arrays and numbers in the tree.*at 'a/0'"):
                store.save(1, tree, {})
        with pytest.raises(CheckpointError, match="'w' was donated"):
            store.save(1, {"w": gone}, {})
        with pytest.raises(CheckpointError, match="'w' is being traced"):
            jax.eval_shape(lambda w: store.save(1, {"w": w}, {}), gone)
        with pytest.raises(TypeError, match="info as JSON data.*ndarray"):
            store.save(1, {}, {"x": np.ones(2)})
        with pytest.raises(TypeError, match="a dictionary as info, received list"):
            store.save(1, {}, [])
        for step in (-1, 1.5, "1", True, None):
            with pytest.raises(TypeError, match="integer of at least 0 as step"):
                store.save(step, {}, {})
        store.save(np.int32(1), {}, {"x": np.float32(0.5), "y": (1, 2)})
        assert store.restore({}).info == {"x": 0.5, "y": [1, 2]}
    with pytest.raises(CheckpointError, match=r"Store.save: the store of .* is closed"):
        store.save(1, {}, {})
    with pytest.raises(CheckpointError, match=r"Store.restore: the store of .* is closed"):
        store.restore({})


def test_unusable_checkpoint_folders_are_errors(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"expected a writable folder.*Choose another"):
        open_store(Checkpoint(tmp_path / "file"))
    with pytest.raises(CheckpointError, match=r"expected a writable folder.*Choose another"):
        open_store(Checkpoint(tmp_path / "file" / "below"))


def test_orbax_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    for call in (lambda: open_store(Checkpoint(tmp_path)), lambda: restore(tmp_path, {})):
        with pytest.raises(ImportError, match="pip install orbax-checkpoint`"):
            call()


# one run at a time


def test_a_second_run_is_rejected_with_pid_and_host(tmp_path):
    with open_store(Checkpoint(tmp_path)):
        with pytest.raises(CheckpointError, match=rf"process {os.getpid()} on \S+ since") as caught:
            open_store(Checkpoint(tmp_path))
        assert str(tmp_path) in str(caught.value)
    open_store(str(tmp_path)).close()


def test_without_kernel_locks_a_file_is_the_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "fcntl", None)
    with open_store(Checkpoint(tmp_path)):
        with pytest.raises(CheckpointError, match=rf"process {os.getpid()} .*remove .*lock.alone"):
            open_store(Checkpoint(tmp_path))
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, small(), {})
    (tmp_path / "lock.alone").write_text("")
    with pytest.raises(CheckpointError, match="another process writes there"):
        open_store(Checkpoint(tmp_path))


def test_a_file_system_that_has_no_locks(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "none")

    monkeypatch.setattr(lock.fcntl, "flock", flock)
    with open_store(Checkpoint(tmp_path)):
        assert (tmp_path / "lock.alone").exists()
    assert not (tmp_path / "lock.alone").exists()


def test_two_threads_share_a_store(tmp_path):
    with open_store(Checkpoint(tmp_path, keep=9)) as store:

        def work(first):
            for step in range(first, 6, 2):
                store.save(step, small(step), {})

        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        restored = store.restore(small())
    same(small(restored.step), restored.tree)
    # a step that comes late may be removed as older than those that are kept, not half written
    assert os.listdir(tmp_path / "partial") == [] and len(steps_in(tmp_path)) == 6


# killed, for real

HARNESS = """
    import os, random, resource, signal, sys, time, traceback, warnings
    import numpy as np
    from fkeras.training.checkpoint import Checkpoint, CheckpointError, open_store, restore
    import orbax.checkpoint

    warnings.simplefilter("error")
    warnings.simplefilter("ignore", DeprecationWarning)  # of os.fork beside NumPy's threads

    def tree(step):
        return {"w": np.full((64, 256), step, "float32"), "b": [np.full(7, step), np.array(step)]}

    def check(found, least):
        assert found.step >= least, (found.step, least)
        assert found.info == {"step": found.step, "history": [found.step] * 50}
        for name in ("w", "b"):
            for one, other in zip(tree(found.step)[name], found.tree[name]):
                assert np.array_equal(one, other)

    def forked(work):
        child = os.fork()
        if not child:
            try:
                work()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        return child

    def fine(work):
        assert os.waitpid(forked(work), 0)[1] == 0

    def child_of(pipe, least):
        def work():
            with open_store(Checkpoint(folder)) as store:
                found = store.restore(tree(0))
                step = 0
                if found is not None:
                    check(found, least)
                    step = found.step
                os.write(pipe, b"ready\\n")
                while True:
                    step += 1
                    store.save(step, tree(step), {"step": step, "history": [step] * 50}, step % 3 == 0)
                    if step % 2:
                        store.wait()
                        os.write(pipe, b"%d\\n" % step)
        return work
"""

KILLS = """
    delays, least, killed_inside = random.Random(3), 0, 0
    # how long a save takes here and now: the machine may be busy
    read, write = os.pipe()
    child = forked(child_of(write, least))
    os.close(write)
    with os.fdopen(read) as lines:
        assert lines.readline() == "ready\\n"
        began = time.monotonic()
        least = [int(lines.readline()) for _ in range(4)][-1]
        each = (time.monotonic() - began) / 4
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        least = max([least, *map(int, lines)])
    for trial in range(KILLS):
        read, write = os.pipe()
        child = forked(child_of(write, least))
        os.close(write)
        with os.fdopen(read) as lines:
            assert lines.readline() == "ready\\n"
            time.sleep(delays.uniform(0.0, 4 * each))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            least = max([least, *map(int, lines)])
        killed_inside += bool(os.listdir(os.path.join(folder, "partial")))

        def look():
            found = restore(folder, tree(0))
            if least:
                assert found.messages == (), found.messages
                check(found, least)
            if least > 3:
                best = restore(folder, tree(0), kind="best")
                check(best, least // 3 * 3)
        fine(look)
    print(least, killed_inside)
"""

ORPHAN = """
    read, write = os.pipe()
    def parent():
        store = open_store(Checkpoint(folder))
        pid = os.fork()
        if not pid:
            try:
                store.save(1, tree(1), {})
            except CheckpointError as error:
                store.close()
                os.write(write, b"%d %s\\n" % (os.getpid(), str(error).encode()))
            time.sleep(60)
        time.sleep(60)
    first = forked(parent)
    with os.fdopen(read) as lines:
        orphan, _, message = lines.readline().partition(" ")
    assert "belongs to another process" in message, message
    orphan = int(orphan)
    def refused():
        try:
            open_store(Checkpoint(folder))
        except CheckpointError as error:
            assert f"process {first} on" in str(error), error
        else:
            raise AssertionError
    def taken():
        open_store(Checkpoint(folder)).close()
    try:
        fine(refused)
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        fine(taken)
    finally:
        os.kill(orphan, signal.SIGKILL)
    print("free")
"""

FULL = """
    def limited():
        with open_store(Checkpoint(folder)) as store:
            store.save(1, tree(1), {"step": 1, "history": [1] * 50})
            store.wait()
            resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))
            store.save(2, tree(2), {})
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                store.wait()
            assert "the disk is full, the save of step 1 remains" in str(told[0].message)
            check(store.restore(tree(0)), 1)
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
            store.save(3, tree(3), {"step": 3, "history": [3] * 50})
            check(store.restore(tree(0)), 3)
            assert os.listdir(os.path.join(folder, "partial")) == []
    fine(limited)
    print("went on")
"""


EACH = """
    def run(program):
        for number, name in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(folder + name, os.O_CREAT | os.O_WRONLY, 0o600), number)
        exec(program, globals())
        sys.stdout.flush()

    for name, program in programs.items():
        folder = os.path.join(sys.argv[1], name)
        os.mkdir(folder)
        status = os.waitpid(forked(lambda: run(program)), 0)[1]
        with open(folder + ".code", "w") as file:
            file.write(str(os.waitstatus_to_exitcode(status)))
"""


def run_each(home, **programs):
    """What a program printed: each is a child of one process, which has imported all."""
    if not hasattr(os, "fork"):
        pytest.skip("each program is a fork")
    programs = {name: textwrap.dedent(program) for name, program in programs.items()}
    code = f"{textwrap.dedent(HARNESS)}\nprograms = {programs!r}\n{textwrap.dedent(EACH)}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(home)],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]

    def of(name):
        stderr = done.stderr + (home / f"{name}.err").read_text()
        assert (home / f"{name}.code").read_text() == "0", stderr[-4000:]
        # libraries log nothing on the screen, and their threads print no errors
        assert "absl" not in stderr and "Traceback" not in stderr, stderr[-4000:]
        return (home / f"{name}.out").read_text().split()

    return of


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return run_each(
        tmp_path_factory.mktemp("programs"),
        kills=KILLS.replace("KILLS", "10"),
        orphan=ORPHAN,
        full=FULL,
    )


@pytest.mark.exhaustive
def test_killed_in_the_middle_of_saves(printed):
    least, inside = map(int, printed("kills"))
    assert least > 3
    assert inside > 3


@pytest.mark.exhaustive  # half a second a kill, to start the process that is killed
def test_killed_30_times_in_the_middle_of_saves(tmp_path):
    least, inside = map(int, run_each(tmp_path, kills=KILLS.replace("KILLS", "30"))("kills"))
    assert least > 10
    assert inside > 10


@pytest.mark.exhaustive
def test_the_lock_of_a_killed_run_is_free_though_its_children_live(printed):
    assert printed("orphan") == ["free"]


@pytest.mark.exhaustive  # the programs of `printed` take seconds
def test_a_limit_of_the_system_is_reported_as_no_space(printed):
    assert printed("full") == ["went", "on"]


# the plan


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"directory": 3}, "folder's name as directory, received 3"),
        ({"directory": " "}, "folder's name as directory, received ' '"),
        ({"directory": b"x"}, "folder's name as directory"),
        ({"directory": "a\0b"}, "received 'a\\x00b' with a null byte"),
        ({"directory": "gs://bucket/x"}, "local folder as directory, received 'gs://bucket/x'"),
        ({"every": 0}, "every: expected a positive integer or None, received 0"),
        ({"every": 1.5}, "every: expected a positive integer or None, received 1.5"),
        ({"every": True}, "every: expected a positive integer"),
        ({"seconds": 0}, "seconds: expected a number above 0 or None, received 0"),
        ({"seconds": "1"}, "seconds: expected a number above 0"),
        ({"keep": 1}, "keep: expected an integer of 2 or more, received 1"),
        ({"keep": None}, "keep: expected an integer of 2 or more, received None"),
        ({"monitor": 3}, "monitor: expected a non-empty string or None, received 3"),
        ({"monitor": ""}, "monitor: expected a non-empty string"),
        ({"monitor": "speed"}, "the name 'speed' does not show whether"),
        (
            {"mode": "mni"},
            "mode: expected 'auto', 'min' or 'max', received 'mni' (str). Did you mean 'min'",
        ),
        ({"mode": 3}, "mode: expected 'auto', 'min' or 'max', received 3"),
        ({"asynchronous": 1}, "asynchronous: expected True or False, received 1"),
        ({"on_disk_full": "ignore"}, "on_disk_full: expected 'warn' or 'stop', received 'ignore'"),
        ({"evry": 3}, "evry"),
    ],
)
def test_bad_plans(arguments, text):
    with pytest.raises((TypeError, ValueError), match=".") as caught:
        Checkpoint(**{"directory": "x", **arguments})
    assert text in str(caught.value)


def test_a_plan_is_a_value_that_goes_to_json_and_back(tmp_path):
    plan = Checkpoint(tmp_path, every=5, seconds=2.5, keep=3, monitor="loss", on_disk_full="stop")
    assert plan == Checkpoint.from_config(json.loads(json.dumps(plan.get_config())))
    assert hash(plan) == hash(Checkpoint(str(tmp_path), 5, 2.5, 3, "loss", on_disk_full="stop"))
    assert Checkpoint("~/x").directory == os.path.expanduser("~/x")


def test_which_value_is_better():
    for name in ("val_accuracy", "auc", "f1_score", "mean_io_u", "top_k_categorical_accuracy"):
        assert Checkpoint("x", monitor=name).better(2.0, 1.0), name
    for name in ("loss", "val_loss", "dense_loss", "mean_squared_error", "kl_divergence"):
        assert Checkpoint("x", monitor=name).better(1.0, 2.0), name
    plan = Checkpoint("x", monitor="speed", mode="max")
    assert plan.better(2.0, 1.0) and not plan.better(1.0, 1.0)
    assert plan.better(1.0, None) and plan.better(1.0, float("nan"))
    assert not plan.better(float("nan"), None) and not plan.better(float("nan"), 1.0)


def test_monitored_logs():
    plan = Checkpoint("x", monitor="val_loss")
    assert (
        plan.watched({"loss": 1.0, "val_loss": 0.5}) == 0.5 and plan.watched({"loss": 1.0}) is None
    )
    assert Checkpoint("x").watched({"loss": 1.0}) is None
    with pytest.raises(ValueError, match="unknown log 'los'. Did you mean 'loss'"):
        Checkpoint("x", monitor="los", mode="min").watched({"loss": 1.0})
    with pytest.raises(ValueError, match="unknown log 'val_loss'"):
        plan.watched({"val_accuracy": 1.0})


# fingerprints


def net(units=4, activation=None, **dense):
    layers = [fk.Input((3,)), fk.layers.Dense(units, activation=activation, name="body", **dense)]
    return fk.Sequential([*layers, fk.layers.Dense(1, name="head")]).build(jax.random.key(0))


def differences(make, old, new):
    first, second = ({"it": json.loads(json.dumps(make(value)))} for value in (old, new))
    assert compare(first, {"it": make(old)}) == [] and compare(second, {"it": make(new)}) == []
    return compare(first, {"it": make(new)})


def test_model_fingerprints():
    facts = model_fingerprint(net())
    assert facts["number_of_layers"] == 3 and facts["weights"]["body/kernel"] == "float32[3, 4]"
    assert len(facts["digest"]) == 16
    other = net().set_weights([w + 1 for w in net().get_weights()])
    assert model_fingerprint(other[0] if isinstance(other, tuple) else other) == facts
    assert differences(model_fingerprint, net(), net(activation="tanh")) == [
        "it: layers.body.activation was 'linear', is 'tanh'"
    ]
    lines = differences(model_fingerprint, net(), net(5))
    assert "it: weights.body/kernel was 'float32[3, 4]', is 'float32[3, 5]'" in lines
    assert "it: layers.body.units was 4, is 5" in lines
    lines = differences(model_fingerprint, net(), net(use_bias=False))
    assert "it: weights.body/bias was 'float32[4]', is missing" in lines
    lines = differences(model_fingerprint, net(use_bias=False), net())
    assert "it: weights.body/bias is 'float32[4]', was missing" in lines


def test_a_model_with_a_matrix_or_a_lambda_in_its_configuration():
    matrix = np.zeros((30, 4), "float32")

    def embedding(table):
        start = fk.initializers.Constant(table)
        layers = [fk.Input((3,), dtype="int32"), fk.layers.Embedding(30, 4, start)]
        return fk.Sequential(layers).build(jax.random.key(0))

    assert len(json.dumps(model_fingerprint(embedding(matrix)))) < 1500
    [line] = differences(model_fingerprint, embedding(matrix), embedding(matrix + 1))
    assert "120 values of digest" in line
    model = net(activation=lambda x: x)
    facts = model_fingerprint(model)
    assert facts["weights"] and facts == model_fingerprint(net(activation=lambda x: x))


def test_optimizer_fingerprints():
    optimizers = fk.optimizers
    assert differences(optimizer_fingerprint, optimizers.Adam(1e-3), optimizers.Adam(1e-2)) == [
        "it: learning_rate was 0.001, is 0.01"
    ]
    lines = differences(optimizer_fingerprint, optimizers.Adam(), optimizers.SGD(momentum=0.9))
    assert "it: class was 'Adam', is 'SGD'" in lines and len(lines) > 2
    decay = [optimizers.Adam(optimizers.schedules.CosineDecay(0.1, n)) for n in (10, 20)]
    assert differences(optimizer_fingerprint, *decay) == [
        "it: learning_rate.decay_steps was 10, is 20"
    ]
    [line] = differences(optimizer_fingerprint, optimizers.SGD(lambda s: 0.1), optimizers.SGD(0.1))
    assert line.startswith("it: learning_rate was 'tests.") and line.endswith("..., is 0.1")
    assert optimizer_fingerprint(optax.adam(1e-3)) == optimizer_fingerprint(optax.adam(1e-3))
    [line] = differences(optimizer_fingerprint, optax.adam(1e-3), optax.sgd(0.1))
    assert "ScaleByAdamState" in line
    transformation = optax.masked(optax.sgd(0.1), {"other": True})
    assert "weights of its own" in optimizer_fingerprint(transformation)["state"]


def test_data_fingerprints(tmp_path):
    x, y = np.arange(6000.0).reshape(2000, 3), np.zeros(2000, "int32")

    def of(source):
        return data_fingerprint(*source)

    assert differences(of, (x, y), (x, y[:5])) == ["it: y.array was 'int32[2000]', is 'int32[5]'"]
    changed = x.copy()
    changed[-1, -1] = 0  # first and last are always looked at
    [line] = differences(of, (x, y), (changed, y))
    assert "it: x has other contents (digest" in line
    nested = ({"a": x, "b": {"c": y}}, None, np.ones(2000, "float32"))
    assert set(data_fingerprint(*nested)) == {"x", "sample_weight"}
    assert data_fingerprint(jnp.asarray(y), batch_size=3)["x"] == data_fingerprint(y)["x"]
    assert data_fingerprint(x, batch_size=3)["batch_size"] == 3
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert data_fingerprint(mapped) == data_fingerprint(x)
    for odd in (np.zeros((0, 3)), np.float32(3), jax.random.key(0), np.asfortranarray(x)):
        assert data_fingerprint(odd) == data_fingerprint(odd)
    assert data_fingerprint(np.asfortranarray(x)) == data_fingerprint(x)


def test_sources_declare_their_abilities():
    class Loader:
        def __init__(self, seed):
            self.seed = seed

        def __len__(self):
            return 9

        def fingerprint(self):
            return {"seed": self.seed}

    assert differences(data_fingerprint, Loader(1), Loader(2)) == ["it: x.own.seed was 1, is 2"]
    assert data_fingerprint(Loader(1))["x"]["length"] == 9
    batches = [(np.ones((4, 2)), np.ones(4))] * 3
    assert data_fingerprint(iter(batches))["x"] == {"class": "builtins.list_iterator"}
    lists = [["a", "b"], ["a"]]
    assert differences(data_fingerprint, *lists) == ["it: x.length was 2, is 1"]
    from fkeras.training.data.array_feed import feed_of
    from fkeras.training.data.stream_feed import Batches

    source = Batches(batches, 3, "fit", lambda batch: None)
    assert data_fingerprint(source)["source"]["length"] == 3
    assert data_fingerprint(source)["source"]["first"]["0"]["array"] == "float64[4, 2]"
    feed = feed_of((np.ones((9, 2)), np.ones(9), None), 4)
    facts = data_fingerprint(feed)
    assert facts["batch_size"] == 4 and facts["steps"] == 3 and set(facts) >= {"x", "y"}


def test_comparing():
    assert compare(None, {"a": 1}) == [] and compare({}, {}) == []
    assert compare({"a": 1}, {"a": 2}) == ["a was 1, is 2"]
    assert compare({"a": {"x": [1, 2]}}, {"a": {"x": (1, 2)}}) == []
    assert compare({"a": {"x": float("nan")}}, {"a": {"x": float("nan")}}) == []
    assert compare({"a": {"x": 1}}, {"a": {"y": {"z": 2}}}) == [
        "a: x was 1, is missing",
        'a: y is {"z": 2}, was missing',
    ]
    assert compare({"a": {"digest": "1"}}, {"a": {"digest": "2"}}) == [
        "a has other contents (digest 1, now 2)"
    ]
    assert compare({"a": {"digest": "1", "x": 1}}, {"a": {"digest": "2", "x": 2}}) == [
        "a: x was 1, is 2"
    ]
    many = compare({str(i): 0 for i in range(30)}, {str(i): 1 for i in range(30)})
    assert len(many) == 11 and many[-1] == "and 20 more"
    [line] = compare({"a": "x" * 300}, {"a": "y"})
    assert len(line) < 120


# the house


@pytest.mark.exhaustive
def test_examples():
    for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        results = doctest.testmod(importlib.import_module(info.name), optionflags=doctest.ELLIPSIS)
        assert results.failed == 0, info.name


@pytest.mark.exhaustive
def test_importing_the_package_does_not_import_orbax():
    code = "import sys, fkeras.training.checkpoint; print('orbax' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False", done.stderr


def test_no_thread_or_process_remains(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write(tmp_path, 1, 2, 3)
    assert not [t for t in threading.enumerate() if t.name == "fkeras-checkpoint"]
