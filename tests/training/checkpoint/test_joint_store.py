"""Saves of several processes: each writes its parts; any layout, or one process, restores them.

Threads stand for the processes: each saves only the shards of its own devices.
"""

import errno
import json
import math
import os
import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.service import ProcessError
from fkeras.training.checkpoint import Checkpoint, CheckpointError, open_store, opening, restore
from fkeras.training.checkpoint.storage import disk, joint_writing, part_files, shards
from tests.support.quick_cases import quick_cases
from tests.training.checkpoint.test_store import DAMAGES, everything, same, steps_in


class Threads(Alone):
    """Threads that exchange values through a dictionary."""

    def __init__(self, index, count, shared, channel="main"):
        self.index, self.count, self.shared, self.name = index, count, shared, channel
        self.number = 0

    def agree(self, value, what=""):
        self.number += 1
        entries, changed = self.shared
        with changed:
            entry = entries.setdefault((self.name, self.number), {})
            entry[self.index] = json.dumps([what, value])
            changed.notify_all()
            assert changed.wait_for(lambda: len(entry) == self.count, 20), (self.index, what)
        values = [json.loads(entry[index]) for index in range(self.count)]
        assert {subject for subject, _ in values} == {what}
        return [value for _, value in values]

    def channel(self, name):
        return Threads(self.index, self.count, self.shared, name)


def together(call, count=2):
    """Results of a call in all threads, or their exceptions."""
    shared, results = ({}, threading.Condition()), [None] * count

    def work(index):
        try:
            results[index] = call(Threads(index, count, shared))
        except Exception as error:
            results[index] = error

    threads = [threading.Thread(target=work, args=(i,), name=f"p{i}") for i in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return results


def checked(results):
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


@pytest.fixture(autouse=True)
def own_devices(monkeypatch):
    """Gives each thread the devices of a process: an equal share of the eight."""
    real = shards.own_shards

    def own_shards(array, group):
        if group.count == 1 or len(array.sharding.device_set) < 8:
            return real(array, group)
        owned = [s for s in array.addressable_shards if s.replica_id == 0]
        return [s for s in owned if s.device.id * group.count // 8 == group.index]

    monkeypatch.setattr(shards, "own_shards", own_shards)


LAYOUTS = ((2, 4), (1, 8), (8, 1), (4, 2))


def mesh_of(rows, columns):
    return Mesh(np.array(jax.devices()).reshape(rows, columns), ("a", "b"))


def on(mesh, *axes):
    return NamedSharding(mesh, PartitionSpec(*axes))


def tree_of(step=1, mesh=None):
    """Arrays in all kinds of shards, and local ones."""
    mesh = mesh or mesh_of(2, 4)
    grid = np.arange(256, dtype="float32").reshape(16, 16) + step
    return {
        "grid": jax.device_put(grid, on(mesh, "a", "b")),
        "rows": jax.device_put(grid.astype(jnp.bfloat16), on(mesh, ("a", "b"))),
        "columns": jax.device_put(grid.astype("int32"), on(mesh, None, "b")),
        "copies": jax.device_put(jnp.arange(3) + step, on(mesh)),
        "keys": jax.device_put(jax.random.split(jax.random.key(step), 8), on(mesh, "a")),
        "none": jax.device_put(np.zeros((0, 8), "float32"), on(mesh, None, "b")),
        "local": jnp.arange(4.0) * step,
        "n": {"step": np.array(step), "wide": np.int64(2**40), "plain": step},
    }


def save(folder, *steps, count=2, tree=tree_of, **options):
    def call(group):
        with open_store(Checkpoint(folder, **options), group) as store:
            for step in steps:
                store.save(step, tree(step), {"step": step, "process": group.index}, step == 2)

    checked(together(call, count))


# values


@pytest.mark.exhaustive
@pytest.mark.parametrize("count", [2, 4])
def test_any_layout_and_one_process_restore_the_parts(tmp_path, count):
    save(tmp_path, 1, 2, 3, count=count)
    assert sorted(os.listdir(tmp_path / "latest/3")) == [
        "arrays",
        *(f"arrays-{index}" for index in range(1, count)),
        "manifest.json",
    ]
    for layout in LAYOUTS:
        wanted = tree_of(3, mesh_of(*layout))

        def read(group, like=wanted):
            with open_store(Checkpoint(tmp_path), group) as store:
                assert store.best(like).step == 2
                return store.restore(like)

        for restored in (*checked(together(read)), restore(tmp_path, wanted)):
            same(wanted, restored.tree)
            for name in ("grid", "rows", "columns", "copies", "keys", "none"):
                assert restored.tree[name].sharding == wanted[name].sharding, name
            assert not restored.tree["local"].committed
            assert restored.info == {"step": 3, "process": 0} and restored.messages == ()


@pytest.mark.exhaustive
def test_parts_restore_into_specs_and_onto_one_device(tmp_path):
    save(tmp_path, 3)
    tree = tree_of(3)
    specs = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype), tree["n"]["step"]
    )
    like = {
        name: jax.ShapeDtypeStruct(tree[name].shape, tree[name].dtype, sharding=tree[name].sharding)
        for name in ("grid", "rows", "columns", "copies", "keys", "none")
    }
    like |= {"local": np.zeros(4, "float32"), "n": {**tree["n"], "step": specs}}
    restored = restore(tmp_path, like).tree
    same(
        {name: tree[name] for name in ("grid", "keys")}, {n: restored[n] for n in ("grid", "keys")}
    )
    assert isinstance(restored["local"], np.ndarray) and restored["n"]["step"] == 3
    device = jax.sharding.SingleDeviceSharding(jax.devices()[5])
    like = {
        **tree,
        "grid": jax.device_put(tree["grid"], device),
        "rows": np.zeros((16, 16), "bfloat16"),
    }
    restored = restore(tmp_path, lambda info, arrays: like).tree
    assert restored["grid"].sharding == device and restored["grid"].committed
    np.testing.assert_array_equal(restored["grid"], tree["grid"])
    np.testing.assert_array_equal(restored["rows"], np.asarray(tree["rows"]))


@pytest.mark.exhaustive
def test_every_kind_of_leaf_comes_back_bit_identical(tmp_path):
    save(tmp_path, 3, tree=lambda step: everything())
    same(everything(), restore(tmp_path, everything()).tree)
    # local: process 0 saves for all
    assert sorted(os.listdir(tmp_path / "latest/3")) == ["arrays", "manifest.json"]


def test_every_element_is_saved_once_and_by_its_owner(tmp_path):
    save(tmp_path, 1)
    body = json.loads((tmp_path / "latest/1/manifest.json").read_text())
    assert body["format"] == 2 and list(body["arrays"]) == sorted(body["arrays"])
    for name, facts in body["arrays"].items():
        seen = np.zeros(facts["shape"], int)
        for part in facts["parts"]:
            ranges = zip(part["start"], part["shape"], strict=True)
            seen[tuple(slice(start, start + size) for start, size in ranges)] += 1
        assert (seen == 1).all(), name
    folders = {name: {p["folder"] for p in f["parts"]} for name, f in body["arrays"].items()}
    assert folders["grid"] == folders["rows"] == {"arrays", "arrays-1"}
    assert folders["copies"] == folders["local"] == folders["n/step"] == {"arrays"}
    assert body["arrays"]["grid"]["parts"][0]["shape"] == [8, 4]
    files = {name for name, _ in disk.files_of(tmp_path / "latest/1")}
    assert files == {*body["files"], "manifest.json"}


def test_orbax_alone_reads_the_folder_of_each_process(tmp_path):
    save(tmp_path, 1)
    save_path = tmp_path / "latest/1"
    body = json.loads((save_path / "manifest.json").read_text())
    tree = tree_of(1)
    folders = {"arrays": {}, "arrays-1": {}}
    for name, facts in body["arrays"].items():
        for part in facts["parts"]:
            folders[part["folder"]][part["name"]] = name, part
    assert {"copies", "local", "n/step", "grid[0:8,4:8]"} <= folders["arrays"].keys()
    assert "grid[8:16,4:8]" in folders["arrays-1"]
    for folder, parts in folders.items():
        arrays = orbax.checkpoint.PyTreeCheckpointer().restore(save_path / folder)
        assert arrays.keys() == parts.keys()
        for key, (name, part) in parts.items():
            if name in ("grid", "rows", "columns", "local"):
                ranges = zip(part["start"], part["shape"], strict=True)
                index = tuple(slice(start, start + size) for start, size in ranges)
                np.testing.assert_array_equal(arrays[key], np.asarray(tree[name])[index])


def test_parts_and_arrays_of_the_same_name(tmp_path):
    def names(step):
        grid = tree_of(step)["grid"]
        return {"grid": grid, "grid[0:8,0:4]": np.arange(3), "grid[0:8,0:4]'": np.arange(4)}

    save(tmp_path, 1, tree=names)
    same(names(1), restore(tmp_path, names(2)).tree)


def test_a_process_reads_only_parts_of_its_own_devices(monkeypatch):
    def first_half(sharding, shape):
        return {d: b for d, b in real(sharding, shape).items() if d.id < 4}

    real = shards.own_slices
    monkeypatch.setattr(shards, "own_slices", first_half)
    facts = {"shape": [16, 16], "dtype": "float32"}
    parts = [{"start": [row, 0], "shape": [4, 16]} for row in (0, 4, 8, 12)]

    def needed(*axes):
        target = shards.Target(
            jax.device_put(np.zeros((16, 16), "float32"), on(mesh_of(2, 4), *axes)), facts
        )
        return [part["start"][0] for part in parts if target.overlaps(part)]

    assert needed("a") == [0, 4] and needed("a", "b") == [0, 4]
    assert needed(None, "a") == needed() == [0, 4, 8, 12]


@pytest.mark.exhaustive
def test_one_process_and_several_continue_each_others_folders(tmp_path):
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, tree_of(1), {})
    like = tree_of(0, mesh_of(4, 2))

    def go_on(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            first = store.restore(like)
            store.save(2, first.tree, {})
            return first

    for restored in checked(together(go_on)):
        same(tree_of(1, mesh_of(4, 2)), restored.tree)
        assert restored.tree["grid"].sharding == like["grid"].sharding and restored.step == 1
    with open_store(Checkpoint(tmp_path)) as store:
        restored = store.restore(like)
        assert restored.step == 2
        same(tree_of(1, mesh_of(4, 2)), restored.tree)
        store.save(3, restored.tree, {})
    same(restored.tree, restore(tmp_path, like).tree)
    assert steps_in(tmp_path) == ["3", "2"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("several", [False, True])
def test_small_batches_of_arrays(tmp_path, monkeypatch, several):
    monkeypatch.setattr(shards, "_BATCH", 100)
    if several:
        save(tmp_path, 1)
        for layout in LAYOUTS[:2]:
            like = tree_of(0, mesh_of(*layout))
            same(tree_of(1, mesh_of(*layout)), restore(tmp_path, like).tree)
        return
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, everything(), {})

    def read(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            return store.restore(everything())

    for restored in checked(together(read)):
        same(everything(), restored.tree)


def test_the_buffers_may_be_donated_as_soon_as_save_returns(tmp_path, monkeypatch):
    go, real = threading.Event(), part_files.write_parts
    monkeypatch.setattr(part_files, "write_parts", lambda *a: (go.wait(20), real(*a))[1])

    def call(group):
        array = tree_of(1)["grid"]
        with open_store(Checkpoint(tmp_path), group) as store:
            store.save(1, {"grid": array}, {})
            array.delete()
            go.set()

    checked(together(call))
    same({"grid": tree_of(1)["grid"]}, restore(tmp_path, {"grid": tree_of(1)["grid"]}).tree)


# damage


@pytest.mark.exhaustive
@pytest.mark.parametrize("damage", quick_cases(DAMAGES, "truncated", "flipped"))
def test_any_damaged_file_is_named_and_the_save_before_is_used(tmp_path, damage):
    save(tmp_path, 1, 2)
    newest = tmp_path / "latest/2"
    names = [name for name, _ in disk.files_of(newest)]
    assert {name.split("/")[0] for name in names} == {"arrays", "arrays-1", "manifest.json"}
    for name in names:
        contents = (newest / name).read_bytes()
        DAMAGES[damage](newest / name)

        def read(group):
            with open_store(Checkpoint(tmp_path), group) as store:
                return store.restore(tree_of())

        results = [*checked(together(read)), restore(tmp_path, tree_of())]
        for restored in results:
            assert restored.step == 1 and restored.messages == results[0].messages
            same(tree_of(1), restored.tree)
        [message] = results[0].messages
        assert name in message and str(newest) in message and "Using step 1" in message
        (newest / name).write_bytes(contents)
    assert restore(tmp_path, tree_of()).step == 2


@pytest.mark.exhaustive
def test_damage_that_one_process_sees_counts_for_all(tmp_path, monkeypatch):
    save(tmp_path, 1, 2)
    real = shards.read_arrays

    def read_arrays(folder, names):
        if threading.current_thread().name == "p1" and folder.endswith("2/arrays-1"):
            raise OSError("bad sector")
        return real(folder, names)

    monkeypatch.setattr(shards, "read_arrays", read_arrays)

    def read(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            restored = store.restore(tree_of())
            store.save(2, restored.tree, {})
            return restored

    first, second = checked(together(read))
    assert first.step == second.step == 1 and first.messages == second.messages
    assert "bad sector" in first.messages[0] and first.broken == (str(tmp_path / "latest/2"),)
    assert steps_in(tmp_path) == ["2.1", "1"]

    def fail(*_):
        raise KeyError("gone")

    monkeypatch.setattr(shards, "read_arrays", fail)
    errors = together(read)
    assert all("all 2 saves are damaged" in str(error) for error in errors)
    assert all("arrays cannot be read by orbax (KeyError" in str(error) for error in errors)


def test_parts_that_orbax_reads_differently_are_detected(tmp_path, monkeypatch):
    save(tmp_path, 1)
    real = shards.read_arrays

    def change(folder, names):
        return {name: np.flip(array) for name, array in real(folder, names).items()}

    monkeypatch.setattr(shards, "read_arrays", change)
    with pytest.raises(CheckpointError, match=r"the array columns.* in arrays differs"):
        restore(tmp_path, tree_of())


def test_a_save_that_fits_one_process_only_is_an_error_in_all(tmp_path):
    with open_store(Checkpoint(tmp_path)) as store:
        store.save(1, tree_of(), {"fingerprint": {"rows": 0}})

    def read(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            return store.restore(tree_of(), {"rows": group.index})

    first, second = map(str, together(read))
    assert first == second and "expected a save of this training" in first

    def read_trees(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            return store.restore({**tree_of(), "more": 1} if group.index else tree_of())

    first, second = together(read_trees)
    assert isinstance(first, CheckpointError) and str(first) == str(second)
    assert "missing in the save (1): more" in str(first)

    def read_with_fault(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            return store.restore(lambda info, arrays: tree_of() if group.leads else 1 / 0)

    first, second = together(read_with_fault)
    assert isinstance(first, CheckpointError) and "ZeroDivisionError" in str(first)
    assert isinstance(second, ZeroDivisionError)


@pytest.mark.exhaustive
def test_a_missing_record_is_told_in_all_processes(tmp_path):
    save(tmp_path, 1, 2)
    (tmp_path / "latest/2").rename(tmp_path / "moved")

    def read(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            return store.restore(tree_of())

    first, second = checked(together(read))
    assert first.messages == second.messages and "step 2, is missing" in first.messages[0]


# errors

PLACES = {
    "start_save": 0,
    "write_manifest": 0,
    "finish_save": 0,
    "part_files.write_parts": 1,
    "part_files.write_facts": 1,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_failure_of_one_process_is_the_failure_of_all(tmp_path, monkeypatch, place, number):
    inner = joint_writing if "." not in place else part_files
    real, faults = getattr(inner, place.rpartition(".")[2]), []

    def fail(*arguments):
        path = str(arguments[0])
        if faults and ("arrays-" not in path or f"arrays-{PLACES[place]}" in path):
            faults.pop()
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(inner, place.rpartition(".")[2], fail)
    barrier = threading.Barrier(2)

    def call(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            store.save(1, tree_of(1), {})
            assert store.wait()
            if group.leads:
                faults.append(1)
            barrier.wait(20)
            store.save(2, tree_of(2), {}, best=True)
            try:
                store.wait()
                text = None
            except (CheckpointError, UserWarning) as error:
                text = f"{type(error).__name__} {error}"
            assert store.wait()  # told once
            barrier.wait(20)
            left = os.listdir(tmp_path / "partial")
            assert store.restore(tree_of()).step == 1
            store.save(3, tree_of(3), {})
            assert store.restore(tree_of()).step == 3
            return text, left

    first, second = checked(together(call))
    assert first == second and first[1] == []
    if number == errno.ENOSPC:
        assert first[0].startswith("UserWarning") and "the disk is full" in first[0]
    else:
        assert first[0].startswith("CheckpointError") and "could not be written" in first[0]
    assert "the save of step 1 remains" in first[0]


def test_processes_that_save_different_trees(tmp_path):
    def call(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            store.save(1, {"w": np.zeros(2 + group.index)}, {})

    first, second = map(str, together(call))
    assert first == second and "process 1 of the group has other arrays" in first


def test_an_array_that_no_process_has(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "own_shards", lambda array, group: [])

    def call(group):
        with open_store(Checkpoint(tmp_path), group) as store:
            store.save(1, {"grid": tree_of()["grid"]}, {})

    first, second = map(str, together(call))
    assert first == second and "no process has all parts of grid" in first
    assert steps_in(tmp_path) == []


def test_a_process_that_has_ended_is_named_by_its_own_error(tmp_path, monkeypatch):
    def lost(*_):
        raise ProcessError("process 1 has ended", 1)

    def call(group):
        store = open_store(Checkpoint(tmp_path), group)
        monkeypatch.setattr(Threads, "agree", lost)
        store.save(1, tree_of(), {})
        store.close()

    results = together(call)
    assert [type(error) for error in results] == [ProcessError] * 2
    monkeypatch.undo()
    open_store(Checkpoint(tmp_path)).close()  # the lock is free


# opening


def test_a_folder_that_process_0_cannot_open_is_an_error_in_all(tmp_path):
    (tmp_path / "file").write_text("")
    with open_store(Checkpoint(tmp_path / "other")):
        for name, text in (
            ("other", "without another run"),
            ("file", "expected a writable folder"),
        ):
            first, second = together(lambda g, n=name: open_store(Checkpoint(tmp_path / n), g))
            assert type(first) is type(second) is CheckpointError
            assert text in str(first) and str(first) == str(second)


def test_a_folder_that_is_not_shared_is_an_error_in_all(tmp_path, monkeypatch):
    def open_elsewhere(path, mode="r", **options):
        if threading.current_thread().name == "p1":
            raise FileNotFoundError(errno.ENOENT, "No such file")
        return open(path, mode, **options)

    monkeypatch.setattr(opening, "open", open_elsewhere, raising=False)
    first, second = together(lambda group: open_store(Checkpoint(tmp_path), group))
    assert type(first) is type(second) is CheckpointError and str(first) == str(second)
    assert "file system that all processes share" in str(first)
    open_store(Checkpoint(tmp_path)).close()  # the lock is free


def test_files_of_a_killed_save_are_removed(tmp_path):
    (tmp_path / "partial/7-x/save").mkdir(parents=True)
    (tmp_path / "partial/7-x/save/arrays-1").write_text("half")
    save(tmp_path, 1)
    assert os.listdir(tmp_path / "partial") == [] and steps_in(tmp_path) == ["1"]


def test_a_closed_store_rejects_calls(tmp_path):
    def call(group):
        store = open_store(Checkpoint(tmp_path), group)
        store.close()
        store.save(1, {}, {})

    for error in together(call):
        assert "Store.save: the store of" in str(error) and "is closed" in str(error)


@pytest.mark.exhaustive
def test_separate_trainings_of_several_processes_save_in_parts(tmp_path, monkeypatch):
    # orbax's own handler would write nothing in process 1. orbax chooses how its parts signal each
    # other in its first save, and would look for the service that connects real processes.
    with open_store(Checkpoint(tmp_path / "alone"), ALONE) as store:
        store.save(1, tree_of(), {})
    tmp_path = tmp_path / "several"
    with monkeypatch.context() as patch, open_store(Checkpoint(tmp_path)) as store:
        patch.setattr(jax, "process_count", lambda: 2)
        store.save(1, tree_of(), {})
        same(tree_of(), store.restore(tree_of()).tree)
    assert sorted(os.listdir(tmp_path / "latest/1")) == ["arrays", "manifest.json"]
    same(tree_of(), restore(tmp_path, tree_of()).tree)


def test_alone_the_format_of_one_process_stays(tmp_path):
    with open_store(Checkpoint(tmp_path), ALONE) as store:
        store.save(1, tree_of(), {})
    body = json.loads((tmp_path / "latest/1/manifest.json").read_text())
    assert body["format"] == 1 and "arrays/manifest.ocdbt" in body["files"]
    assert math.prod(body["arrays"]["grid"]["shape"]) == 256
