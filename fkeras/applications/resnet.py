"""ResNet, with the preprocessing and the class names of ImageNet models."""

from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_caffe as preprocess_input
from fkeras.applications.building.residual import resnet

__all__ = ("ResNet50", "ResNet101", "ResNet152", "decode_predictions", "preprocess_input")

ResNet50 = resnet(50, (3, 4, 6, 3))
ResNet101 = resnet(101, (3, 4, 23, 3))
ResNet152 = resnet(152, (3, 8, 36, 3))
