"""Features of an image, and labels without training: CLIP compares images with sentences.

`python examples/image_labels.py FOLDER IMAGE` reads a folder such as clip-vit-base-patch32, and an image
by Pillow. Without arguments the program reads a tiny checkpoint with random weights, and draws an image.
"""

import argparse
import pathlib

import jax
import numpy as np

import fkeras as fk

fk.utils.cache_programs()  # the second start compiles nothing
TINY = pathlib.Path(__file__).parents[1] / "tests/pretrained/data/clip"
parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default=TINY)
parser.add_argument("image", nargs="?")
parser.add_argument("--short", action="store_true")
arguments = parser.parse_args()
loaded = fk.pretrained.load(arguments.folder, dtype="float32")
assert loaded.tokenizer, "the folder has no tokenizer.json"

y, x = np.mgrid[:48, :64]
image = np.stack([4 * x, 5 * y, 0 * x + 200], axis=-1).astype("uint8")
if arguments.image:
    image = fk.utils.img_to_array(fk.utils.load_img(arguments.image)).astype("uint8")

labels = ["cat", "dog", "bird", "house", "river"]
# the first end token of a text counts: rows may be filled up with the end token
rows = [loaded.tokenizer.encode(f"a {label}") for label in labels]
length = max(map(len, rows))
ids = np.array([row + row[-1:] * (length - len(row)) for row in rows], "int32")

outputs = loaded.model([loaded.processor(image), ids])
print("features:", outputs["image"].shape[-1], "numbers, for search and as input of a classifier")
for label, share in zip(labels, jax.nn.softmax(outputs["logits"][0]), strict=True):
    print(f"{share:6.1%} a {label}")
