"""VGG-16, with the preprocessing and the class names of ImageNet models."""

from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_caffe as preprocess_input
from fkeras.applications.building.vgg import vgg

__all__ = ("VGG16", "decode_predictions", "preprocess_input")

VGG16 = vgg(16, (2, 2, 3, 3, 3))
