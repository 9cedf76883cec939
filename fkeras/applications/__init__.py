"""Keras's image classifiers: 40 architectures, their preprocessing and their class names.

An architecture is a function with Keras's arguments. With `weights=None` the function returns a model
without weights, which `model.build(key)` or `Trainer.init` initializes; with a file from Keras or fkeras
the function returns `(model, state)`, as `fk.load_weights` does. Layers have the names that a new Keras
session gives, so Keras's files for the same architecture fit.

    model = fk.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    model, state = fk.applications.ResNet50(weights="resnet50.weights.h5")

fkeras downloads nothing: `weights="imagenet"`, Keras's default, is an error that gives the URL of
Keras's file. The modules have Keras's names: `fk.applications.resnet50.preprocess_input` prepares
images for `fk.applications.resnet50.ResNet50`, and `decode_predictions` names the predicted classes.

Differences from Keras:

- `decode_predictions` reads class names from a file, `class_index=`, for any number of classes.
- `preprocess_input` leaves its argument unchanged.
- `name` does not change the preprocessing; Keras's EfficientNet V2 selects the preprocessing by the
  name of the model.
- NASNet needs a fixed height and width, since the padding of its cells depends on them. Without
  `input_shape`, `NASNetLarge(include_top=False)` expects images of 331 x 331.
- Keras's EfficientNet (B0 to B7) has an additional rescaling layer for `weights="imagenet"`, but not
  for the path of the same file. fkeras recognizes Keras's ImageNet file by its checksum and adds the
  layer.
"""

from fkeras.applications import (
    convnext,
    densenet,
    efficientnet,
    efficientnet_v2,
    imagenet_utils,
    inception_resnet_v2,
    inception_v3,
    mobilenet,
    mobilenet_v2,
    mobilenet_v3,
    nasnet,
    resnet,
    resnet50,
    resnet_v2,
    vgg16,
    vgg19,
    xception,
)
from fkeras.applications.convnext import (
    ConvNeXtBase,
    ConvNeXtLarge,
    ConvNeXtSmall,
    ConvNeXtTiny,
    ConvNeXtXLarge,
)
from fkeras.applications.densenet import DenseNet121, DenseNet169, DenseNet201
from fkeras.applications.efficientnet import (
    EfficientNetB0,
    EfficientNetB1,
    EfficientNetB2,
    EfficientNetB3,
    EfficientNetB4,
    EfficientNetB5,
    EfficientNetB6,
    EfficientNetB7,
)
from fkeras.applications.efficientnet_v2 import (
    EfficientNetV2B0,
    EfficientNetV2B1,
    EfficientNetV2B2,
    EfficientNetV2B3,
    EfficientNetV2L,
    EfficientNetV2M,
    EfficientNetV2S,
)
from fkeras.applications.inception_resnet_v2 import InceptionResNetV2
from fkeras.applications.inception_v3 import InceptionV3
from fkeras.applications.mobilenet import MobileNet
from fkeras.applications.mobilenet_v2 import MobileNetV2
from fkeras.applications.mobilenet_v3 import MobileNetV3Large, MobileNetV3Small
from fkeras.applications.nasnet import NASNetLarge, NASNetMobile
from fkeras.applications.resnet import ResNet50, ResNet101, ResNet152
from fkeras.applications.resnet_v2 import ResNet50V2, ResNet101V2, ResNet152V2
from fkeras.applications.vgg16 import VGG16
from fkeras.applications.vgg19 import VGG19
from fkeras.applications.xception import Xception
from fkeras.engine.migration_hints.names import explain_unknown_names

__all__ = (
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtSmall",
    "ConvNeXtTiny",
    "ConvNeXtXLarge",
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
    "EfficientNetB0",
    "EfficientNetB1",
    "EfficientNetB2",
    "EfficientNetB3",
    "EfficientNetB4",
    "EfficientNetB5",
    "EfficientNetB6",
    "EfficientNetB7",
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2L",
    "EfficientNetV2M",
    "EfficientNetV2S",
    "InceptionResNetV2",
    "InceptionV3",
    "MobileNet",
    "MobileNetV2",
    "MobileNetV3Large",
    "MobileNetV3Small",
    "NASNetLarge",
    "NASNetMobile",
    "ResNet101",
    "ResNet101V2",
    "ResNet152",
    "ResNet152V2",
    "ResNet50",
    "ResNet50V2",
    "VGG16",
    "VGG19",
    "Xception",
    "convnext",
    "densenet",
    "efficientnet",
    "efficientnet_v2",
    "imagenet_utils",
    "inception_resnet_v2",
    "inception_v3",
    "mobilenet",
    "mobilenet_v2",
    "mobilenet_v3",
    "nasnet",
    "resnet",
    "resnet50",
    "resnet_v2",
    "vgg16",
    "vgg19",
    "xception",
)

explain_unknown_names(__name__)
