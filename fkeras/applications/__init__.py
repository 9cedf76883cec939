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

from fkeras.applications import convnext as convnext
from fkeras.applications import densenet as densenet
from fkeras.applications import efficientnet as efficientnet
from fkeras.applications import efficientnet_v2 as efficientnet_v2
from fkeras.applications import imagenet_utils as imagenet_utils
from fkeras.applications import inception_resnet_v2 as inception_resnet_v2
from fkeras.applications import inception_v3 as inception_v3
from fkeras.applications import mobilenet as mobilenet
from fkeras.applications import mobilenet_v2 as mobilenet_v2
from fkeras.applications import mobilenet_v3 as mobilenet_v3
from fkeras.applications import nasnet as nasnet
from fkeras.applications import resnet as resnet
from fkeras.applications import resnet50 as resnet50
from fkeras.applications import resnet_v2 as resnet_v2
from fkeras.applications import vgg16 as vgg16
from fkeras.applications import vgg19 as vgg19
from fkeras.applications import xception as xception
from fkeras.applications.convnext import ConvNeXtBase as ConvNeXtBase
from fkeras.applications.convnext import ConvNeXtLarge as ConvNeXtLarge
from fkeras.applications.convnext import ConvNeXtSmall as ConvNeXtSmall
from fkeras.applications.convnext import ConvNeXtTiny as ConvNeXtTiny
from fkeras.applications.convnext import ConvNeXtXLarge as ConvNeXtXLarge
from fkeras.applications.densenet import DenseNet121 as DenseNet121
from fkeras.applications.densenet import DenseNet169 as DenseNet169
from fkeras.applications.densenet import DenseNet201 as DenseNet201
from fkeras.applications.efficientnet import EfficientNetB0 as EfficientNetB0
from fkeras.applications.efficientnet import EfficientNetB1 as EfficientNetB1
from fkeras.applications.efficientnet import EfficientNetB2 as EfficientNetB2
from fkeras.applications.efficientnet import EfficientNetB3 as EfficientNetB3
from fkeras.applications.efficientnet import EfficientNetB4 as EfficientNetB4
from fkeras.applications.efficientnet import EfficientNetB5 as EfficientNetB5
from fkeras.applications.efficientnet import EfficientNetB6 as EfficientNetB6
from fkeras.applications.efficientnet import EfficientNetB7 as EfficientNetB7
from fkeras.applications.efficientnet_v2 import EfficientNetV2B0 as EfficientNetV2B0
from fkeras.applications.efficientnet_v2 import EfficientNetV2B1 as EfficientNetV2B1
from fkeras.applications.efficientnet_v2 import EfficientNetV2B2 as EfficientNetV2B2
from fkeras.applications.efficientnet_v2 import EfficientNetV2B3 as EfficientNetV2B3
from fkeras.applications.efficientnet_v2 import EfficientNetV2L as EfficientNetV2L
from fkeras.applications.efficientnet_v2 import EfficientNetV2M as EfficientNetV2M
from fkeras.applications.efficientnet_v2 import EfficientNetV2S as EfficientNetV2S
from fkeras.applications.inception_resnet_v2 import InceptionResNetV2 as InceptionResNetV2
from fkeras.applications.inception_v3 import InceptionV3 as InceptionV3
from fkeras.applications.mobilenet import MobileNet as MobileNet
from fkeras.applications.mobilenet_v2 import MobileNetV2 as MobileNetV2
from fkeras.applications.mobilenet_v3 import MobileNetV3Large as MobileNetV3Large
from fkeras.applications.mobilenet_v3 import MobileNetV3Small as MobileNetV3Small
from fkeras.applications.nasnet import NASNetLarge as NASNetLarge
from fkeras.applications.nasnet import NASNetMobile as NASNetMobile
from fkeras.applications.resnet import ResNet50 as ResNet50
from fkeras.applications.resnet import ResNet101 as ResNet101
from fkeras.applications.resnet import ResNet152 as ResNet152
from fkeras.applications.resnet_v2 import ResNet50V2 as ResNet50V2
from fkeras.applications.resnet_v2 import ResNet101V2 as ResNet101V2
from fkeras.applications.resnet_v2 import ResNet152V2 as ResNet152V2
from fkeras.applications.vgg16 import VGG16 as VGG16
from fkeras.applications.vgg19 import VGG19 as VGG19
from fkeras.applications.xception import Xception as Xception
from fkeras.engine.config.public_names import publish as _publish

_publish(__name__)
