"""The form of each `fk.ops` operation in Keras's files, and the lookup by class or operation name.

In Keras's files a call `fk.ops.sum(x, axis=1)` is a layer of class "Sum", whose constructor holds
`axis` and whose call takes `x`. The table has a row for each signature: Keras's module, the
parameters in the order of the function, and the classes. Indented lines continue a row. The marks of a
parameter:

| mark | meaning |
|---|---|
| `axis=` | argument of the constructor; the others are arguments of the call |
| `scale?` | argument of the call, which is null in files where the argument is missing |
| `*operands` | any number of arguments of the call |
| `**` | names that another version of Keras had; ignored |

The operation's name follows the class after a colon, if it differs from the class in snake case.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Iterator, Mapping

from fkeras.engine.values.naming import snake_case


@dataclasses.dataclass(frozen=True)
class OperationForm:
    """The form of an operation's call in Keras's files, with some arguments in a constructor.

    Attributes:
        module: module of Keras's class.
        class_name: name of Keras's class.
        op: name of the operation in `fkeras.ops`.
        parameters: names of the function's parameters, in order.
        fixed: parameters that the constructor takes; the call takes the others.
        variadic: parameter that takes any number of arguments, or None.
        nullable: parameters of the call that are null in files where the argument is missing.
    """

    module: str
    class_name: str
    op: str
    parameters: tuple[str, ...]
    fixed: tuple[str, ...]
    variadic: str | None = None
    nullable: tuple[str, ...] = ()


def operation_form(*, class_name: str | None = None, op: str | None = None) -> OperationForm | None:
    """Returns the form for the name of a Keras class or an operation; None for an unknown name."""
    return _forms_by_op().get(op) if op is not None else forms_by_class().get(str(class_name))


_TABLE = """
core | f elems reverse= axis= | AssociativeScan
core | x dtype= | Cast SaturateCast
core | x dtype= sparse= ragged= | ConvertToTensor
core | lower= upper= body_fun= init_val | ForiLoop
core | f xs | Map
core | f init xs length= reverse= unroll= | Scan
core | indices values shape= | Scatter
core | inputs indices updates reduction= | ScatterUpdate
core | inputs start_indices shape= | Slice
core | inputs start_indices updates | SliceUpdate
core | variable | StopGradient
core | index branches *operands | Switch
core | x num= axis= | Unstack
core | function= elements | VectorizedMap
core | cond= body= loop_vars maximum_iterations= | WhileLoop
einops | tensor pattern ** | Rearrange
image | images transform interpolation= fill_mode= fill_value= data_format= | AffineTransform
image | images top_cropping= left_cropping= bottom_cropping= right_cropping= target_height=
    target_width= data_format= | CropImages
image | images alpha= sigma= interpolation= fill_mode= fill_value= seed= data_format= |
    ElasticTransform
image | images size= strides= dilation_rate= padding= data_format= | ExtractPatches
image | images kernel_size= sigma= data_format= | GaussianBlur
image | images data_format= | HSVToRGB RGBToGrayscale RGBToHSV SobelEdges
image | inputs coordinates order= fill_mode= fill_value= | MapCoordinates
image | images top_padding= left_padding= bottom_padding= right_padding= target_height=
    target_width= data_format= | PadImages
image | images start_points end_points interpolation= fill_value= data_format= |
    PerspectiveTransform
image | images size= interpolation= antialias= crop_to_aspect_ratio= pad_to_aspect_ratio= fill_mode=
    fill_value= data_format= | Resize
image | image1 image2 max_val= filter_size= filter_sigma= k1= k2= data_format= | SSIM
image | images output_shape scale translation spatial_dims= method= antialias= | ScaleAndTranslate
linalg | x upper= | Cholesky CholeskyInverse
linalg | x | Det Eig Eigh Inv LuFactor
linalg | fun primals tangents has_aux= | JVP
linalg | a b rcond= | Lstsq
linalg | x tol= | MatrixRank
linalg | x ord= axis= keepdims= | Norm
linalg | x rcond= | Pinv
linalg | x mode= | Qr
linalg | x full_matrices= compute_uv= | SVD
linalg | a b | Solve
linalg | a b lower= | SolveTriangular
math | x y | CDist:cdist
math | x | Erf Erfc Erfinv FFT FFT2 IFFT2 Logdet Rsqrt ViewAsComplex ViewAsReal
math | x sequence_length= sequence_stride= | ExtractSequences
math | x fft_length= | IRFFT RFFT
math | x sequence_length= sequence_stride= fft_length= length= window= center= | ISTFT
math | targets predictions k= | InTopK
math | x axis= keepdims= | Logsumexp
math | x sequence_length= sequence_stride= fft_length= window= center= | STFT
math | data segment_ids num_segments= sorted= | SegmentMax SegmentMin SegmentProd SegmentSum
math | x k= sorted= | TopK
nn | inputs output_size= data_format= | AdaptiveAveragePool AdaptiveMaxPool
nn | inputs pool_size= strides= padding= data_format= | AveragePool MaxPool
nn | x mean variance axis= offset? scale? epsilon= | BatchNorm:batch_normalization
nn | target output from_logits= | BinaryCrossentropy
nn | inputs sequence_lengths strategy= beam_width= top_paths= merge_repeated= mask_index= |
    CTCDecode
nn | target output target_length output_length mask_index= | CTCLoss
nn | target output from_logits= axis= | CategoricalCrossentropy SparseCategoricalCrossentropy
nn | x alpha= | Celu Elu
nn | inputs kernel strides= padding= data_format= dilation_rate= | Conv DepthwiseConv
nn | inputs kernel strides= padding= output_padding= data_format= dilation_rate= | ConvTranspose
nn | x block_size= data_format= | DepthToSpace SpaceToDepth
nn | query key value bias mask scale is_causal= flash_attention= attn_logits_soft_cap= empty_rows= sinks |
    DotProductAttention
nn | x output_size= kernel_size= dilation= padding= stride= | Fold
nn | x approximate= | Gelu
nn | x axis= | Glu LogSoftmax Softmax Sparsemax
nn | x threshold= | HardShrink SoftShrink
nn | x | HardSigmoid HardSilu HardTanh LogSigmoid Relu Relu6 Selu Sigmoid Silu Softplus Softsign
    SparsePlus SparseSigmoid TanhShrink
nn | x gamma? beta? axis= epsilon= ** | LayerNorm:layer_normalization
nn | x negative_slope= | LeakyRelu
nn | x axes= keepdims= synchronized= | Moments
nn | inputs num_classes= axis= dtype= sparse= ** | MultiHot
nn | x axis= order= epsilon= | Normalize
nn | x num_classes= axis= dtype= sparse= | OneHot
nn | x1 x2 max_val= | PSNR
nn | abs_ angle | Polar
nn | x scale? axis= epsilon= | RMSNorm:rms_normalization
nn | inputs depthwise_kernel pointwise_kernel strides= padding= data_format= dilation_rate= |
    SeparableConv
nn | x b= | Squareplus
nn | x threshold= default_value= | Threshold
nn | x kernel_size= dilation= padding= stride= | Unfold
numpy | x | Abs:absolute Absolute Angle Arccos Arccosh Arcsin Arcsinh Arctan Arctanh BitwiseInvert
    BitwiseNot Cbrt Ceil Conj Conjugate Copy Corrcoef Cos Cosh Deg2rad Exp Exp2 Expm1 Fabs Fliplr
    Flipud Floor I0 Imag Isfinite Isinf Isnan Isneginf Isposinf Isreal Log Log10 Log1p Log2
    LogicalNot Ndim Negative Nonzero Rad2deg Ravel Real Reciprocal Sign Signbit Sin Sinc Sinh Size
    Slogdet Sqrt Square Tan Tanh Trunc
numpy | x1 x2 | Add Arctan2 Divide DivideNoNan Dot Equal FloorDivide Fmax Fmin Fmod Gcd Greater
    GreaterEqual Heaviside Hypot Inner Kron Lcm Ldexp Less LessEqual Logaddexp Logaddexp2 LogicalAnd
    LogicalOr LogicalXor Matmul Maximum Minimum Mod Multiply Nextafter NotEqual Outer Power Subtract
    TrueDivide Vdot
numpy | x axis= keepdims= | All Amax Amin Any Argmax Argmin Mean Median Nanargmax Nanargmin Nanmax
    Nanmean Nanmedian Nanmin Nanprod Nanstd Nansum Nanvar Ptp Std Sum Var
numpy | x1 x2 rtol= atol= equal_nan= | AllClose:allclose
numpy | x1 x2 axis= | Append
numpy | start stop step dtype= | Arange
numpy | x kth= axis= | Argpartition
numpy | x axis= | Argsort CountNonzero ExpandDims Flip Sort Squeeze Stack
numpy | x dtype= | Array EmptyLike OnesLike View ZerosLike
numpy | x indices_or_sections= axis= | ArraySplit Split
numpy | x axis= weights | Average
numpy | x weights= minlength= sparse= | Bincount
numpy | x y | BitwiseAnd BitwiseLeftShift BitwiseOr BitwiseRightShift BitwiseXor LeftShift
    RightShift
numpy | x shape= | BroadcastTo
numpy | x x_min= x_max= | Clip
numpy | xs axis= | Concatenate
numpy | x1 x2 mode= | Correlate
numpy | x1 x2 axisa= axisb= axisc= axis= | Cross
numpy | x axis= dtype= | Cumprod Cumsum Nancumprod Nancumsum
numpy | x k= | Diag Diagflat Tril Triu
numpy | x offset= axis1= axis2= | Diagonal Trace
numpy | a n= axis= | Diff
numpy | x bins | Digitize
numpy | x indices_or_sections= | Dsplit Hsplit Vsplit
numpy | xs | Dstack Hstack Vstack
numpy | subscripts= *operands ** | Einsum
numpy | shape= fill_value dtype= | Full
numpy | x fill_value dtype= | FullLike
numpy | start stop num= endpoint= dtype= axis= | Geomspace
numpy | x bins= range= | Histogram
numpy | x1 x2 assume_unique= invert= | IsIn:isin
numpy | x1 x2 rtol atol equal_nan= | Isclose
numpy | start stop num= endpoint= retstep= dtype= axis= | Linspace
numpy | start stop num= endpoint= base= dtype= axis= | Logspace
numpy | x axis= keepdims= initial= | Max Min
numpy | *x indexing= | Meshgrid
numpy | x source= destination= | Moveaxis
numpy | x nan= posinf= neginf= | NanToNum
numpy | x q axis= method= keepdims= | Nanpercentile Nanquantile Percentile Quantile
numpy | x pad_width= mode= constant_values | Pad
numpy | x axis= keepdims= dtype= | Prod
numpy | x repeats= axis= | Repeat
numpy | x newshape= | Reshape
numpy | x shift= axis= | Roll
numpy | array k= axes= | Rot90
numpy | x decimals= | Round
numpy | sorted_sequence values side= | SearchSorted:searchsorted
numpy | condlist choicelist default | Select
numpy | x axis1= axis2= | Swapaxes
numpy | x indices axis= | Take TakeAlongAxis
numpy | x1 x2 axes= | Tensordot
numpy | x repeats= | Tile
numpy | x axes= | Transpose
numpy | y x= dx= axis= | Trapezoid
numpy | x sorted= return_index= return_inverse= return_counts= axis= size= fill_value= | Unique
numpy | indices shape= | UnravelIndex
numpy | x N= increasing= | Vander
numpy | condition x1? x2? | Where
"""
# operations of `fkeras.ops` that Keras's files hold under the name of another operation
_SYNONYMS = types.MappingProxyType({"swish": "silu", "hard_swish": "hard_silu"})


# built at the first lookup: programs that load no Keras file need no forms
@functools.cache
def forms_by_class() -> Mapping[str, OperationForm]:
    """Returns all forms by the names of Keras's classes."""
    return types.MappingProxyType({form.class_name: form for _, form in _forms()})


@functools.cache
def _forms_by_op() -> Mapping[str, OperationForm]:
    # two classes may map to one operation: saving uses the class with the operation's name, which
    # the sort puts last, where it overwrites the others in the dictionary
    ranked = sorted(_forms(), key=lambda pair: not pair[0])
    forms = {form.op: form for _, form in ranked}
    forms |= {name: forms[synonym] for name, synonym in _SYNONYMS.items()}
    return types.MappingProxyType(forms)


def _forms() -> Iterator[tuple[bool, OperationForm]]:
    """Yields `(whether the operation has another name than the class, form)` for each class."""
    # a row goes on in the indented lines below it
    for row in re.sub(r"\n +", " ", _TABLE.strip()).splitlines():
        module, signature, classes = row.split(" | ")
        parameters = [parameter for parameter in signature.split() if parameter != "**"]
        names = tuple(parameter.strip("*=?") for parameter in parameters)
        nullable = tuple(
            parameter.strip("?") for parameter in parameters if parameter.endswith("?")
        )
        fixed = tuple(parameter.strip("=") for parameter in parameters if parameter.endswith("="))
        variadic = next(
            (parameter[1:] for parameter in parameters if parameter.startswith("*")), None
        )
        for entry in classes.split():
            class_name, _, op = entry.partition(":")
            op_name = op or snake_case(class_name)
            op_name = f"image.{op_name}" if module == "image" else op_name
            module_name = f"keras.src.ops.{module}"
            form = OperationForm(module_name, class_name, op_name, names, fixed, variadic, nullable)
            yield bool(op), form
