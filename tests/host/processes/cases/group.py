"""Cases of `fkeras.host.processes`: functions that processes run together."""

import pathlib
import re
import threading
import time

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fkeras.host.processes.alone import ALONE
from fkeras.host.processes.calls import members_of, together
from fkeras.host.processes.service import ProcessError, Service


def mesh_of(*processes):
    """A mesh of the devices of some processes."""
    devices = [device for device in jax.devices() if device.process_index in processes]
    return Mesh(np.array(devices), ("data",))


def failure_of(function):
    """The text and process of the ProcessError that a function raises, and the seconds until then."""
    start = time.monotonic()
    try:
        function()
    except ProcessError as error:
        return str(error), error.process, time.monotonic() - start
    return None


def joint(mesh, call, function=lambda group: group.agree(jax.process_index())):
    """Makes a call in which a group does something."""
    with together(mesh, call) as group:
        return function(group)


def decisions(rank):
    """Exchanges that succeed, in a group of all processes and in groups of some."""
    results = {}
    everyone = mesh_of(0, 1, 2)
    with together(everyone, "Trainer.fit") as group:
        results["place"] = group.index, group.count, group.leads
        results["agree"] = [
            group.agree({"step": rank, "rows": [number, None]}) for number in range(5)
        ]
        results["equal"] = group.require_equal("arguments", {"epochs": 3, "rate": float("nan")})
        # the thread makes its exchanges before, between and after those of the program
        beside, answers = group.channel("save"), []
        thread = threading.Thread(
            target=lambda: answers.extend(beside.agree(10 * rank + number) for number in range(20))
        )
        thread.start()
        time.sleep(0.05 * rank)
        results["main"] = [group.agree(rank + number) for number in range(20)]
        thread.join()
        results["save"] = answers
        results["same channel"] = group.channel("save") is beside
        group.wait({"array": total(everyone), "host": np.ones(2), "none": None})
        results["nested"] = joint(everyone, "Trainer.evaluate")
    results["some"] = None if rank == 1 else joint(mesh_of(0, 2), "Trainer.fit")
    results["other"] = (
        failure_of(lambda: joint(mesh_of(0, 2), "Trainer.fit")) if rank == 1 else None
    )
    with together(mesh_of(rank), "Trainer.fit") as group:
        results["own mesh"] = group is ALONE
    with together(None, "Trainer.fit") as group:
        results["no mesh"] = group is ALONE
    results["members"] = members_of(everyone), members_of(mesh_of(1)), members_of(None)
    results["again"] = [joint(everyone, "Trainer.predict") for _ in range(4)]
    results["kept calls"] = kept_calls("fkeras/0-1-2")
    return results


def failures(rank):
    """Calls that do not match or that fail; after each, the next call of all processes matches."""
    everyone, results = mesh_of(0, 1, 2), {}

    def attempt(name, function):
        results[name] = failure_of(function)
        results[f"after {name}"] = joint(everyone, "Trainer.fit")

    def facts(group):
        same = {"epochs": 3, "optimizer": {"name": "adam", "rate": 0.1 if rank < 2 else 0.2}}
        group.require_equal("arguments", {**same, "rows": [1, 2]})

    def plain_facts(group):
        group.require_equal("seed", rank // 2)

    def raising(group):
        group.agree("ready")
        if rank == 1:
            raise ValueError("the callback failed")
        group.agree("batch")

    def subjects(group):
        group.agree(rank, "the stop" if rank else "the save")

    def nested(group):
        if rank == 1:
            joint(everyone, "Trainer.evaluate")
        group.agree("batch")

    def shorter(group):
        if rank:
            group.agree("batch")

    def rescue(group):
        try:
            raising(group)
        except (ValueError, ProcessError) as error:
            group.report_failure(error)
            results["rescued"] = group.channel("rescue").agree(rank)
            raise

    def no_rescue(group):
        try:
            raising(group)
        except ProcessError:
            group.channel("rescue").agree(rank)

    def caught(function):
        def call():
            try:
                joint(everyone, "Trainer.fit", function)
            except ValueError:
                results["own"] = True

        return call

    names = ["Trainer.fit", "Trainer.evaluate", "Trainer.fit"]
    attempt("names", lambda: joint(everyone, names[rank]))
    attempt("facts", lambda: joint(everyone, "Trainer.fit", facts))
    attempt("plain facts", lambda: joint(everyone, "Trainer.fit", plain_facts))
    attempt("subjects", lambda: joint(everyone, "Trainer.fit", subjects))
    attempt("exception", caught(raising))
    attempt("rescue", caught(rescue))
    attempt("no rescue", caught(no_rescue))
    attempt("shorter", lambda: joint(everyone, "Trainer.fit", shorter))
    attempt("nested", lambda: joint(everyone, "Trainer.fit", nested))
    # process 1 makes a call with process 0 alone, which waits for all
    attempt("mesh", lambda: joint(mesh_of(0, 1) if rank == 1 else everyone, "Trainer.fit"))
    return results


def ends(rank, folder):
    """Process 2 ends while the others wait: in an exchange, or for a computation."""
    everyone = mesh_of(0, 1, 2)
    # connects the devices
    joint(everyone, "Trainer.fit", lambda group: group.wait(total(everyone)))

    def lose(group):
        pathlib.Path(folder, f"{rank}").touch()
        if rank == 2:
            time.sleep(300)
        if rank == 1:
            group.wait(total(everyone))
        group.agree("batch")

    result = failure_of(lambda: joint(everyone, "Trainer.fit", lose))
    # the exchange of those that are left
    return result, joint(mesh_of(0, 1), "save")


def ends_first(rank, folder):
    """Process 0, which runs the service, ends while process 1 waits."""
    everyone = mesh_of(0, 1)
    with together(everyone, "Trainer.fit") as group:
        pathlib.Path(folder, f"{rank}").touch()
        if rank == 0:
            time.sleep(300)
        return failure_of(lambda: group.agree("batch"))


def returns(rank):
    """Process 1 leaves its program while process 0 waits for a call."""
    everyone = mesh_of(0, 1)
    joint(everyone, "Trainer.fit")
    if rank == 1:
        return None
    return failure_of(lambda: joint(everyone, "Trainer.fit"))


def total(mesh):
    """A computation that all processes of a mesh make together."""
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))
    rows = np.arange(mesh.size, dtype="float32")
    array = jax.make_array_from_callback(rows.shape, split, lambda index: rows[index])
    return jax.jit(lambda values: values.sum(), out_shardings=whole)(array)


def kept_calls(root):
    """The numbers of the calls whose keys the service still has."""
    names = Service().entries(root)
    return sorted({int(name.split("/")[0]) for name in names if re.match(r"\d+/", name)})


def disconnected(rank):
    """A joint call without `jax.distributed.initialize`."""
    return failure_of(Service)
