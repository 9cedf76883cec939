"""Losses: functions and configurable objects that compare predictions with targets.

Each loss has two forms: a plain function of two arrays, which returns one loss per sample, and a
class with a reduction, `loss(y_true, y_pred, sample_weight=None, mask=None)`.

Arguments that all functions share, documented here only:
    y_true: targets of shape (b, ..., d); one-hot targets of shape (b, ..., classes).
    y_pred: predictions of the same shape: values, probabilities or scores.
    axis: the axis of the classes.
"""

from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.public_names import publish as _publish
from fkeras.losses.crossentropy import binary_crossentropy as binary_crossentropy
from fkeras.losses.crossentropy import binary_focal_crossentropy as binary_focal_crossentropy
from fkeras.losses.crossentropy import categorical_crossentropy as categorical_crossentropy
from fkeras.losses.crossentropy import (
    categorical_focal_crossentropy as categorical_focal_crossentropy,
)
from fkeras.losses.crossentropy import (
    categorical_generalized_cross_entropy as categorical_generalized_cross_entropy,
)
from fkeras.losses.crossentropy import kl_divergence as kl_divergence
from fkeras.losses.crossentropy import poisson as poisson
from fkeras.losses.crossentropy import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from fkeras.losses.forecasts import CRPS as CRPS
from fkeras.losses.forecasts import GaussianNLL as GaussianNLL
from fkeras.losses.forecasts import Quantile as Quantile
from fkeras.losses.forecasts import StudentTNLL as StudentTNLL
from fkeras.losses.forecasts import crps as crps
from fkeras.losses.forecasts import gaussian_nll as gaussian_nll
from fkeras.losses.forecasts import quantile as quantile
from fkeras.losses.forecasts import student_t_nll as student_t_nll
from fkeras.losses.loss import Loss as Loss
from fkeras.losses.loss import LossFunctionWrapper as LossFunctionWrapper
from fkeras.losses.margin import CategoricalHinge as CategoricalHinge
from fkeras.losses.margin import Hinge as Hinge
from fkeras.losses.margin import SquaredHinge as SquaredHinge
from fkeras.losses.margin import categorical_hinge as categorical_hinge
from fkeras.losses.margin import hinge as hinge
from fkeras.losses.margin import squared_hinge as squared_hinge
from fkeras.losses.missing import IgnoreMissing as IgnoreMissing
from fkeras.losses.naming import deserialize as deserialize
from fkeras.losses.naming import get as get
from fkeras.losses.naming import resolve as resolve
from fkeras.losses.probabilistic import BinaryCrossentropy as BinaryCrossentropy
from fkeras.losses.probabilistic import BinaryFocalCrossentropy as BinaryFocalCrossentropy
from fkeras.losses.probabilistic import CategoricalCrossentropy as CategoricalCrossentropy
from fkeras.losses.probabilistic import CategoricalFocalCrossentropy as CategoricalFocalCrossentropy
from fkeras.losses.probabilistic import (
    CategoricalGeneralizedCrossEntropy as CategoricalGeneralizedCrossEntropy,
)
from fkeras.losses.probabilistic import KLDivergence as KLDivergence
from fkeras.losses.probabilistic import Poisson as Poisson
from fkeras.losses.probabilistic import (
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
)
from fkeras.losses.regression import CosineSimilarity as CosineSimilarity
from fkeras.losses.regression import Huber as Huber
from fkeras.losses.regression import LogCosh as LogCosh
from fkeras.losses.regression import MeanAbsoluteError as MeanAbsoluteError
from fkeras.losses.regression import MeanAbsolutePercentageError as MeanAbsolutePercentageError
from fkeras.losses.regression import MeanSquaredError as MeanSquaredError
from fkeras.losses.regression import MeanSquaredLogarithmicError as MeanSquaredLogarithmicError
from fkeras.losses.regression import cosine_similarity as cosine_similarity
from fkeras.losses.regression import huber as huber
from fkeras.losses.regression import log_cosh as log_cosh
from fkeras.losses.regression import mean_absolute_error as mean_absolute_error
from fkeras.losses.regression import (
    mean_absolute_percentage_error as mean_absolute_percentage_error,
)
from fkeras.losses.regression import mean_squared_error as mean_squared_error
from fkeras.losses.regression import (
    mean_squared_logarithmic_error as mean_squared_logarithmic_error,
)
from fkeras.losses.segmentation import Dice as Dice
from fkeras.losses.segmentation import DiceCrossentropy as DiceCrossentropy
from fkeras.losses.segmentation import Tversky as Tversky
from fkeras.losses.segmentation import dice as dice
from fkeras.losses.segmentation import dice_crossentropy as dice_crossentropy
from fkeras.losses.segmentation import tversky as tversky
from fkeras.losses.sequence import CTC as CTC
from fkeras.losses.sequence import ctc as ctc
from fkeras.losses.similarity import Circle as Circle
from fkeras.losses.similarity import InfoNCE as InfoNCE
from fkeras.losses.similarity import circle as circle
from fkeras.losses.similarity import info_nce as info_nce

_publish(__name__)
