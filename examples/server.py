"""A web server that answers single rows in batches of one compiled program, and 503 under overload."""

import argparse
import asyncio
import contextlib
import json
import pathlib
import tempfile
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.export
import numpy as np
import uvicorn
from digits_data import load_digits
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

import fkeras as fk
from fkeras import layers

fk.utils.cache_programs()  # the second start compiles nothing

SIZES = (1, 8, 32)  # a batch is filled up to one of these numbers of rows, each compiled once
WAIT = 0.004  # seconds that the first row of a batch waits for others
QUEUE = 64  # rows that may wait; more are answered with 503
MOST = 1 << 20  # bytes of a request; larger requests are answered with 413 and not kept in memory


class Batcher:
    """Collects rows of concurrent requests and computes them in one call.

    Args:
        program: `(rows) -> rows`, called in a thread of its own, one call at a time.
        shape: the shape of a row.
    """

    def __init__(self, program, shape):
        self.program, self.shape = program, shape
        self.queue: asyncio.Queue = asyncio.Queue(QUEUE)
        self.thread = ThreadPoolExecutor(1)
        self.batches = 0

    async def answer(self, row):
        """Returns the result of one row; raises `asyncio.QueueFull` under overload."""
        future = asyncio.get_running_loop().create_future()
        self.queue.put_nowait((row, future))
        return await future

    async def run(self):
        """Computes batches until the task is cancelled."""
        while True:
            batch = [await self.queue.get()]
            deadline = time.monotonic() + WAIT
            while len(batch) < SIZES[-1]:
                try:
                    rest = deadline - time.monotonic()
                    batch.append(await asyncio.wait_for(self.queue.get(), max(rest, 0)))
                except TimeoutError:
                    break
            rows = np.stack([row for row, _ in batch])
            try:
                results = await asyncio.get_running_loop().run_in_executor(
                    self.thread, self.compute, rows
                )
            except Exception as error:  # the server goes on, and every client hears of the error
                for _, future in batch:
                    future.done() or future.set_exception(error)
                continue
            for (_, future), result in zip(batch, results, strict=True):
                future.done() or future.set_result(result)  # a client may have left

    def compute(self, rows):
        size = next(size for size in SIZES if size >= len(rows))
        filled = np.zeros((size, *self.shape), "float32")
        filled[: len(rows)] = rows
        self.batches += 1
        return np.asarray(self.program(filled))[: len(rows)]


def make_app(program, shape):
    """Returns the web application: POST /predict with {"row": [...]}, and GET /health."""
    batcher = Batcher(program, shape)
    for size in SIZES:  # compiled before the first request
        batcher.compute(np.zeros((size, *shape), "float32"))

    async def predict(request):
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MOST:
                return JSONResponse({"error": f"expected at most {MOST} bytes"}, 413)
        try:
            with np.errstate(over="ignore"):  # numbers beyond float32 become infinite
                row = np.asarray(json.loads(body)["row"], "float32")
        # deep nesting is a RecursionError, an integer beyond float64 an OverflowError
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
            return JSONResponse({"error": 'expected JSON such as {"row": [...]}'}, 400)
        if row.shape != shape or not np.isfinite(row).all():
            text = f"expected finite numbers of the shape {shape}, received the shape {row.shape}"
            return JSONResponse({"error": text}, 400)
        try:
            return JSONResponse({"scores": (await batcher.answer(row)).tolist()})
        except asyncio.QueueFull:
            return JSONResponse({"error": "overload, try again"}, 503, {"Retry-After": "1"})

    async def health(request):
        return JSONResponse({"batches": batcher.batches, "waiting": batcher.queue.qsize()})

    @contextlib.asynccontextmanager
    async def lifespan(app):
        task = asyncio.create_task(batcher.run())
        yield
        task.cancel()

    routes = [Route("/predict", predict, methods=["POST"]), Route("/health", health)]
    return Starlette(routes=routes, lifespan=lifespan)


def ask(url, row):
    """Returns the status and the answer of one request."""
    request = urllib.request.Request(f"{url}/predict", json.dumps({"row": row}).encode())
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        return error.code, json.loads(text) if text.startswith("{") else {"error": text}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="a short training, requests, the end")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()

    x = fk.Input((28, 28, 1))
    h = layers.Dense(32, activation="relu")(layers.Flatten()(x))
    model = fk.Model(x, layers.Dense(10, activation="softmax")(h))
    (x_train, y_train), (x_test, y_test) = load_digits()
    trainer = fk.Trainer(optimizer="adam", loss="sparse_categorical_crossentropy")
    run = trainer.init(model, jax.random.key(0))
    run, _ = trainer.fit(run, x_train, y_train, epochs=1 if options.short else 5)
    # the server needs only JAX and this file
    file = pathlib.Path(tempfile.mkdtemp(), "digits.jax")
    fk.export(run.model, run.state, file)
    program = jax.jit(jax.export.deserialize(bytearray(file.read_bytes())).call)

    app = make_app(program, (28, 28, 1))
    if not options.short:
        uvicorn.run(app, port=options.port)
        return
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda row: ask(url, row), x_test[:64].tolist()))
    assert all(status == 200 for status, _ in answers)
    scores = np.array([answer["scores"] for _, answer in answers])
    np.testing.assert_allclose(scores, run.model(x_test[:64], state=run.state), atol=1e-5)
    with urllib.request.urlopen(f"{url}/health") as answer:
        batches = json.loads(answer.read())["batches"] - len(SIZES)
    server.should_exit = True
    print(f"64 requests of 16 clients in {batches} batches", end=", ")
    print(f"accuracy {np.mean(scores.argmax(-1) == y_test[:64]):.2%}")


if __name__ == "__main__":
    main()
