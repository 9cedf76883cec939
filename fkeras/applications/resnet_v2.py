"""ResNet V2, with the preprocessing and the class names of ImageNet models."""

from fkeras.applications.building.imagenet import decode_predictions
from fkeras.applications.building.imagenet import preprocess_tf as preprocess_input
from fkeras.applications.building.residual import resnet_v2

__all__ = ("ResNet50V2", "ResNet101V2", "ResNet152V2", "decode_predictions", "preprocess_input")

ResNet50V2 = resnet_v2(50, (3, 4, 6, 3))
ResNet101V2 = resnet_v2(101, (3, 4, 23, 3))
ResNet152V2 = resnet_v2(152, (3, 8, 36, 3))
