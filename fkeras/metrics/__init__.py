"""Metrics: frozen objects with pure functions that aggregate a statistic over batches.

`metric.init()`, `metric.update(state, y_true, y_pred)`, `metric.merge(a, b)`,
`metric.result(state)`.

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
from fkeras.losses.crossentropy import kl_divergence as kl_divergence
from fkeras.losses.crossentropy import poisson as poisson
from fkeras.losses.crossentropy import (
    sparse_categorical_crossentropy as sparse_categorical_crossentropy,
)
from fkeras.losses.margin import categorical_hinge as categorical_hinge
from fkeras.losses.margin import hinge as hinge
from fkeras.losses.margin import squared_hinge as squared_hinge
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
from fkeras.metrics.accuracies import Accuracy as Accuracy
from fkeras.metrics.accuracies import BinaryAccuracy as BinaryAccuracy
from fkeras.metrics.accuracies import CategoricalAccuracy as CategoricalAccuracy
from fkeras.metrics.accuracies import SparseCategoricalAccuracy as SparseCategoricalAccuracy
from fkeras.metrics.accuracies import SparseTopKCategoricalAccuracy as SparseTopKCategoricalAccuracy
from fkeras.metrics.accuracies import TopKCategoricalAccuracy as TopKCategoricalAccuracy
from fkeras.metrics.accuracies import binary_accuracy as binary_accuracy
from fkeras.metrics.accuracies import categorical_accuracy as categorical_accuracy
from fkeras.metrics.accuracies import sparse_categorical_accuracy as sparse_categorical_accuracy
from fkeras.metrics.accuracies import (
    sparse_top_k_categorical_accuracy as sparse_top_k_categorical_accuracy,
)
from fkeras.metrics.accuracies import top_k_categorical_accuracy as top_k_categorical_accuracy
from fkeras.metrics.auc import AUC as AUC
from fkeras.metrics.calibration import CalibrationError as CalibrationError
from fkeras.metrics.confusion import Precision as Precision
from fkeras.metrics.confusion import Recall as Recall
from fkeras.metrics.correlation import ConcordanceCorrelation as ConcordanceCorrelation
from fkeras.metrics.correlation import PearsonCorrelation as PearsonCorrelation
from fkeras.metrics.correlation import R2Score as R2Score
from fkeras.metrics.correlation import concordance_correlation as concordance_correlation
from fkeras.metrics.correlation import pearson_correlation as pearson_correlation
from fkeras.metrics.counts import FalseNegatives as FalseNegatives
from fkeras.metrics.counts import FalsePositives as FalsePositives
from fkeras.metrics.counts import TrueNegatives as TrueNegatives
from fkeras.metrics.counts import TruePositives as TruePositives
from fkeras.metrics.error_rates import TokenErrorRate as TokenErrorRate
from fkeras.metrics.error_rates import character_error_rate as character_error_rate
from fkeras.metrics.error_rates import word_error_rate as word_error_rate
from fkeras.metrics.f_score import F1Score as F1Score
from fkeras.metrics.f_score import FBetaScore as FBetaScore
from fkeras.metrics.mean_losses import BinaryCrossentropy as BinaryCrossentropy
from fkeras.metrics.mean_losses import CategoricalCrossentropy as CategoricalCrossentropy
from fkeras.metrics.mean_losses import CategoricalHinge as CategoricalHinge
from fkeras.metrics.mean_losses import CosineSimilarity as CosineSimilarity
from fkeras.metrics.mean_losses import Hinge as Hinge
from fkeras.metrics.mean_losses import KLDivergence as KLDivergence
from fkeras.metrics.mean_losses import LogCoshError as LogCoshError
from fkeras.metrics.mean_losses import MeanAbsoluteError as MeanAbsoluteError
from fkeras.metrics.mean_losses import MeanAbsolutePercentageError as MeanAbsolutePercentageError
from fkeras.metrics.mean_losses import MeanSquaredError as MeanSquaredError
from fkeras.metrics.mean_losses import MeanSquaredLogarithmicError as MeanSquaredLogarithmicError
from fkeras.metrics.mean_losses import Poisson as Poisson
from fkeras.metrics.mean_losses import RootMeanSquaredError as RootMeanSquaredError
from fkeras.metrics.mean_losses import (
    SparseCategoricalCrossentropy as SparseCategoricalCrossentropy,
)
from fkeras.metrics.mean_losses import SquaredHinge as SquaredHinge
from fkeras.metrics.metric import Mean as Mean
from fkeras.metrics.metric import MeanMetric as MeanMetric
from fkeras.metrics.metric import MeanMetricWrapper as MeanMetricWrapper
from fkeras.metrics.metric import Metric as Metric
from fkeras.metrics.metric import Sum as Sum
from fkeras.metrics.naming import deserialize as deserialize
from fkeras.metrics.naming import get as get
from fkeras.metrics.naming import resolve as resolve
from fkeras.metrics.operating_points import PrecisionAtRecall as PrecisionAtRecall
from fkeras.metrics.operating_points import RecallAtPrecision as RecallAtPrecision
from fkeras.metrics.operating_points import SensitivityAtSpecificity as SensitivityAtSpecificity
from fkeras.metrics.operating_points import SpecificityAtSensitivity as SpecificityAtSensitivity
from fkeras.metrics.overlap import BinaryIoU as BinaryIoU
from fkeras.metrics.overlap import IoU as IoU
from fkeras.metrics.overlap import MeanIoU as MeanIoU
from fkeras.metrics.overlap import OneHotIoU as OneHotIoU
from fkeras.metrics.overlap import OneHotMeanIoU as OneHotMeanIoU
from fkeras.metrics.retrieval import NDCG as NDCG
from fkeras.metrics.retrieval import RecallAtK as RecallAtK
from fkeras.metrics.retrieval import ndcg as ndcg
from fkeras.metrics.retrieval import recall_at_k as recall_at_k

_publish(__name__)
