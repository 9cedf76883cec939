"""Layers that mix images or choose among operations: Keras's numbers, draws, labels.

AugMix and RandAugment draw eagerly from distributions that take long to compile, so that all tests share
the programs.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers
from tests.support.image_draws import (
    SHAPE,
    UNIT,
    by_keras,
    compiled,
    fresh_draw,
    oracle,
    pictures,
    trained,
)
from tests.support.keras_oracle import keras


@pytest.mark.exhaustive
def test_rand_augment_applies_its_operations_in_order_to_images_masks_and_boxes():
    layer = layers.RandAugment(UNIT, 2, bounding_box_format="xyxy", interpolation="nearest")
    drawn = fresh_draw(layer)
    indices = np.array([[2, 6, 9], [0, 10, 7]], "int32")
    drawn["layer_idxes"] = indices
    boxes = {
        "boxes": np.array([[[1.0, 1.0, 3.0, 4.0]]] * 3, "float32"),
        "labels": np.array([[7]] * 3, "int32"),
    }
    masks = np.arange(60, dtype="int32").reshape(3, 4, 5, 1)
    operations = layer.operations()
    assert [name for name, _ in operations] == keras.layers.RandAugment._AUGMENT_LAYERS

    def transformed(layer, values, drawn):
        images, masks, boxes = values
        return (
            layer.transform_images(images, drawn),
            layer.transform_segmentation_masks(masks, drawn),
            layer.transform_bounding_boxes(boxes, drawn, SHAPE),
        )

    def compute(arrays, drawn):
        expected = [arrays] * 3
        for image in range(3):
            for index in indices[:, image]:
                name, operation = operations[index]
                draws = drawn["transforms"][name]
                expected[image] = transformed(operation, expected[image], draws)
        return transformed(layer, arrays, drawn), expected

    ours, expected = compiled(compute, (pictures(), masks, boxes), drawn)
    assert ours[1].dtype == masks.dtype
    for image in range(3):
        for actual, expected_array in zip(
            jax.tree.leaves(ours), jax.tree.leaves(expected[image]), strict=True
        ):
            np.testing.assert_allclose(actual[image], expected_array[image], rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_aug_mix_mixes_the_chains_of_keras():
    layer = layers.AugMix(UNIT, num_chains=2, chain_depth=2, all_ops=False)
    reference, images = oracle(layer), pictures()
    drawn = fresh_draw(layer)
    drawn["chain_operations"] = np.array([[3, 7], [5, 4]], "int32")  # 7 means no operation
    names = [name for name, _ in layer.operations()]

    def compute(images, drawn):
        def operation(name, *position):
            transformation = jax.tree.map(lambda v: v[position], drawn["chain_transforms"][name])
            return {"layer_name": name, "transformation": transformation}

        chains = [
            [operation(names[3], 0, 0)],
            [operation(names[5], 1, 0), operation(names[4], 1, 1)],
        ]
        theirs = by_keras(reference, images, {**drawn, "chain_transforms": chains})
        return layer.transform_images(images, drawn), theirs

    ours, theirs = compiled(compute, images, drawn)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert float(drawn["chain_mixing_weights"].sum()) == pytest.approx(1, abs=1e-5)
    with pytest.raises(ValueError, match="one-hot"):
        layer.transform_segmentation_masks(jnp.ones((3, 4, 5, 1), "int32"), drawn)


@pytest.mark.exhaustive
def test_mixing_draws_permutations_and_weights():
    weights = fresh_draw(layers.MixUp(0.2), (2000, 2, 2, 3))
    assert sorted(weights["permutation_order"]) == list(range(2000))
    assert abs(float(weights["mix_weight"].mean()) - 0.5) < 0.05
    assert float(weights["mix_weight"].var()) == pytest.approx(0.25 / 1.4, abs=0.02)
    np.testing.assert_array_equal(fresh_draw(layers.MixUp(0.0))["mix_weight"], 1)
    cut = fresh_draw(layers.CutMix((1.0, 1.0)), (2000, 8, 8, 3))
    np.testing.assert_allclose(
        cut["mix_weight"], 1 - cut["batch_masks"].mean(axis=(1, 2, 3)), rtol=1e-5
    )
    assert abs(float(cut["mix_weight"].mean()) - 0.5) < 0.05
    uncut = fresh_draw(layers.CutMix(0.0))  # the weights are 0 or 1, and not NaN
    assert set(np.unique(uncut["mix_weight"])) <= {0.0, 1.0}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layer", [layers.MixUp(1.0), layers.CutMix()], ids=repr)
def test_labels_are_mixed_with_their_images(layer, monkeypatch):
    drawn = fresh_draw(layer)
    monkeypatch.setattr(type(layer), "draw", lambda self, key, shape: drawn)
    hot = np.eye(3, dtype="float32")
    images = np.broadcast_to(hot[:, None, None, :], SHAPE)
    data = {"images": images, "segmentation_masks": images, "id": hot}
    labels_by_name = {
        "hot": hot,
        "ints": hot.astype("int32"),
        "amounts": np.arange(3, dtype="float32"),
    }

    def train(data, labels_by_name):
        return {name: trained(layer, {**data, "labels": v}) for name, v in labels_by_name.items()}

    results = compiled(train, data, labels_by_name)
    out = results["hot"]
    np.testing.assert_allclose(out["images"].mean(axis=(1, 2)), out["labels"], atol=1e-6)
    np.testing.assert_allclose(out["segmentation_masks"], out["images"], atol=1e-6)
    np.testing.assert_array_equal(out["id"], hot)
    np.testing.assert_allclose(results["ints"]["labels"], out["labels"], atol=1e-6)
    amounts = results["amounts"]["labels"]
    np.testing.assert_allclose(amounts, out["labels"] @ labels_by_name["amounts"], atol=1e-6)
    for ids in (jnp.arange(3), jnp.arange(3)[:, None]):
        with pytest.raises(ValueError, match="one-hot"):
            trained(layer, {"images": images, "labels": ids})


@pytest.mark.exhaustive
def test_mix_up_keeps_boxes_of_both_images_and_cut_mix_rejects_boxes():
    boxes = {
        "boxes": np.arange(24, dtype="float32").reshape(3, 2, 4),
        "labels": np.arange(6, dtype="int32").reshape(3, 2),
    }
    data = {"images": pictures(), "bounding_boxes": boxes}
    out = jax.device_get(trained(layers.MixUp(), data)["bounding_boxes"])
    assert out["boxes"].shape == (3, 4, 4)
    # Keras concatenates labels along the batch, so that labels no longer match the boxes
    np.testing.assert_array_equal(out["labels"] * 4, out["boxes"][..., 0] // 1)
    with pytest.raises(ValueError, match="CutMix: expected only images and labels"):
        trained(layers.CutMix(), data)
