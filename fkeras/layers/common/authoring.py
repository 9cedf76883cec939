"""The names from which a layer file is written, as a user's layer is written with `import fkeras as fk`.

A layer file imports this module under the name `fk`: `class Dense(fk.Layer)`, `units: fk.Integer =
fk.option(convert=fk.integer(minimum=1))`. Capital names are types of fields and classes of the
engine, other names are converters and functions: `fk.initializer` converts the argument of a field,
and `fk.initializers` has all initializers. The functions of arrays that a layer computes are
imported from `fkeras.nn` by name, beside this module.
"""

from fkeras import activations as activations
from fkeras import constraints as constraints
from fkeras import initializers as initializers
from fkeras import regularizers as regularizers
from fkeras.engine import ArrayConstant as ArrayConstant
from fkeras.engine import Context as Context
from fkeras.engine import FKerasError as FKerasError
from fkeras.engine import Input as Input
from fkeras.engine import InputSpec as InputSpec
from fkeras.engine import Layer as Layer
from fkeras.engine import Output as Output
from fkeras.engine import Spec as Spec
from fkeras.engine import align as align
from fkeras.engine import as_specs as as_specs
from fkeras.engine import is_symbolic as is_symbolic
from fkeras.engine import option as option
from fkeras.engine import serialize as serialize
from fkeras.engine import subkey as subkey
from fkeras.engine import suggest as suggest
from fkeras.engine import weight as weight
from fkeras.engine.call.caches import KeepsTokens as KeepsTokens
from fkeras.engine.call.caches import state_with_cache as state_with_cache
from fkeras.engine.call.caches import tokens_of as tokens_of
from fkeras.engine.call.strings import HandlesStrings as HandlesStrings
from fkeras.engine.config.configurable import decode as decode
from fkeras.engine.config.configurable import encode as encode
from fkeras.engine.config.converters import axes as axes
from fkeras.engine.config.converters import axis_or_axes as axis_or_axes
from fkeras.engine.config.converters import boolean as boolean
from fkeras.engine.config.converters import choice as choice
from fkeras.engine.config.converters import data_format_name as data_format_name
from fkeras.engine.config.converters import dtype_name as dtype_name
from fkeras.engine.config.converters import either as either
from fkeras.engine.config.converters import function as function
from fkeras.engine.config.converters import integer as integer
from fkeras.engine.config.converters import numeric as numeric
from fkeras.engine.config.converters import probability as probability
from fkeras.engine.config.converters import real as real
from fkeras.engine.config.converters import several as several
from fkeras.engine.config.converters import sizes as sizes
from fkeras.engine.config.converters import text as text
from fkeras.engine.config.field_types import Activation as Activation
from fkeras.engine.config.field_types import AnyInteger as AnyInteger
from fkeras.engine.config.field_types import AnyReal as AnyReal
from fkeras.engine.config.field_types import Axes as Axes
from fkeras.engine.config.field_types import Borders as Borders
from fkeras.engine.config.field_types import Constraint as Constraint
from fkeras.engine.config.field_types import Converted as Converted
from fkeras.engine.config.field_types import DataFormat as DataFormat
from fkeras.engine.config.field_types import Initializer as Initializer
from fkeras.engine.config.field_types import Integer as Integer
from fkeras.engine.config.field_types import IntegerVocabulary as IntegerVocabulary
from fkeras.engine.config.field_types import Numbers as Numbers
from fkeras.engine.config.field_types import OptionalAxes as OptionalAxes
from fkeras.engine.config.field_types import OptionalDTypeName as OptionalDTypeName
from fkeras.engine.config.field_types import OptionalInteger as OptionalInteger
from fkeras.engine.config.field_types import OptionalNumbers as OptionalNumbers
from fkeras.engine.config.field_types import OptionalPair as OptionalPair
from fkeras.engine.config.field_types import OptionalRange as OptionalRange
from fkeras.engine.config.field_types import OptionalReal as OptionalReal
from fkeras.engine.config.field_types import OptionalReals as OptionalReals
from fkeras.engine.config.field_types import OptionalShape as OptionalShape
from fkeras.engine.config.field_types import OptionalSizes as OptionalSizes
from fkeras.engine.config.field_types import Pair as Pair
from fkeras.engine.config.field_types import Range as Range
from fkeras.engine.config.field_types import Real as Real
from fkeras.engine.config.field_types import Regularizer as Regularizer
from fkeras.engine.config.field_types import Shape as Shape
from fkeras.engine.config.field_types import Sizes as Sizes
from fkeras.engine.config.field_types import Vocabulary as Vocabulary
from fkeras.engine.config.field_types import Window as Window
from fkeras.engine.config.field_types import Words as Words
from fkeras.engine.config.keras_form import KerasForm as KerasForm
from fkeras.engine.config.keras_form import keras_form as keras_form
from fkeras.engine.config.keras_form import loses_masks as loses_masks
from fkeras.engine.config.policy import DTypePolicy as DTypePolicy
from fkeras.engine.config.policy import cast_floats as cast_floats
from fkeras.engine.config.policy import get_policy as get_policy
from fkeras.engine.config.rules import REJECTED as REJECTED
from fkeras.engine.config.rules import Rule as Rule
from fkeras.engine.config.rules import scalar as scalar
from fkeras.engine.layer.layer import Tensor as Tensor
from fkeras.engine.messages.errors import describe_value as describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames as hides_internal_frames
from fkeras.engine.tree.axes import WHOLE as WHOLE
from fkeras.engine.tree.axes import AxisNames as AxisNames
from fkeras.engine.tree.axes import unnamed as unnamed
from fkeras.engine.tree.axes import weight_letters as weight_letters
from fkeras.engine.values.annotations import Array as Array
from fkeras.engine.values.annotations import Field as Field
from fkeras.engine.values.annotations import Json as Json
from fkeras.engine.values.annotations import Leaf as Leaf
from fkeras.engine.values.annotations import Mask as Mask
from fkeras.engine.values.annotations import Option as Option
from fkeras.engine.values.annotations import Tree as Tree
from fkeras.engine.values.arrays import is_array_like as is_array_like
from fkeras.engine.values.arrays import plain as plain
from fkeras.engine.values.arrays import read_array as read_array
from fkeras.engine.values.cache_size import CacheSize as CacheSize
from fkeras.engine.values.cache_size import check_room as check_room
from fkeras.engine.values.frozen import FrozenDict as FrozenDict
from fkeras.engine.values.frozen import is_array as is_array
from fkeras.engine.values.naming import snake_case as snake_case
from fkeras.engine.values.random import ShapeKey as ShapeKey
from fkeras.engine.values.random import shape_zeros as shape_zeros
from fkeras.engine.values.spec import SpecLike as SpecLike
from fkeras.engine.values.spec import as_spec as as_spec
from fkeras.engine.values.spec import canonical_dtype as canonical_dtype
from fkeras.engine.values.texts import check_texts as check_texts
from fkeras.engine.values.texts import listed_texts as listed_texts

# converters of fields, from a name, a configuration or a function
activation = activations.get
constraint = constraints.get
initializer = initializers.get
regularizer = regularizers.get
