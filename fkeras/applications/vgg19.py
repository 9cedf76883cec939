"""VGG-19, with the preprocessing and the class names of ImageNet models."""

from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_caffe as preprocess_input
from fkeras.applications.building.vgg import vgg

__all__ = ("VGG19", "decode_predictions", "preprocess_input")

VGG19 = vgg(19, (2, 2, 4, 4, 4))
