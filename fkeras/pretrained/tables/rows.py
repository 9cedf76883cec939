"""Rows of the tables of names for layers that several families share."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fkeras.pretrained.tables.names import (
    HeadBias,
    Heads,
    HeadsIn,
    Operation,
    Row,
    Same,
    Split,
    Transpose,
)

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")


def dense_rows(
    tensor: str,
    layer: str,
    bias: bool = True,
    kernel: Operation = Transpose(),
    bias_operation: Operation = Same(),
) -> tuple[Row, ...]:
    """Returns the rows of a layer with a kernel, and with a bias where `bias` is set."""
    rows = (Row(f"{tensor}.weight", f"{layer}/kernel", kernel),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/bias", bias_operation)) if bias else rows


def norm_rows(tensor: str, layer: str, bias: bool = True) -> tuple[Row, ...]:
    """Returns the rows of a layer normalization."""
    rows = (Row(f"{tensor}.weight", f"{layer}/gamma"),)
    return (*rows, Row(f"{tensor}.bias", f"{layer}/beta")) if bias else rows


def attention_rows(
    prefix: str,
    layer: str,
    heads: int,
    size: int,
    tensors: Sequence[str] = _PROJECTIONS,
    *,
    key_heads: int | None = None,
    bias: bool = True,
    key_bias: bool | None = None,
    output_bias: bool = True,
) -> tuple[Row, ...]:
    """Returns the rows of the four projections of attention, one tensor each.

    Args:
        prefix: prefix of the tensor names.
        layer: prefix of the weight paths, such as "block_{i}/".
        size: size of a head.
        tensors: tensor names of query, key, value and output, after the prefix.
        key_heads: number of heads of key and value; None for `heads`.
        key_bias: whether the key has a bias; None for `bias`.
    """
    *inner, output = tensors
    counts = (heads, key_heads or heads, key_heads or heads)
    biases = (bias, bias if key_bias is None else key_bias, bias)
    rows = [
        row
        for tensor, part, n, b in zip(inner, ("query", "key", "value"), counts, biases, strict=True)
        for row in dense_rows(
            f"{prefix}{tensor}", layer + part, b, Heads(n, size), HeadBias(n, size)
        )
    ]
    last = dense_rows(f"{prefix}{output}", f"{layer}output", output_bias, HeadsIn(heads, size))
    return (*rows, *last)


def fused_attention_rows(
    tensor: str,
    layer: str,
    heads: int,
    size: int,
    key_heads: int | None = None,
    bias: bool = True,
    groups: int = 1,
) -> tuple[Row, ...]:
    """Returns the rows of query, key and value in one tensor.

    Args:
        tensor: tensor name without "weight" or "bias" at the end.
        layer: prefix of the weight paths.
        groups: number of groups of rows, each with query heads, a key head and a value head.
    """
    counts = (heads, key_heads or heads, key_heads or heads)
    return _fused_rows(
        tensor,
        [f"{layer}{part}" for part in ("query", "key", "value")],
        tuple(n * size for n in counts),
        tuple(Heads(n, size) for n in counts),
        tuple(HeadBias(n, size) for n in counts),
        bias,
        groups,
    )


def fused_mlp_rows(tensor: str, layer: str, width: int, bias: bool = True) -> tuple[Row, ...]:
    """Returns the rows of the projections "gate" and "up" in one tensor."""
    paths = [f"{layer}gate", f"{layer}up"]
    return _fused_rows(tensor, paths, (width,) * 2, (Transpose(),) * 2, (Same(),) * 2, bias)


def _fused_rows(
    tensor: str,
    paths: Sequence[str],
    sizes: tuple[int, ...],
    kernels: tuple[Operation, ...],
    biases: tuple[Operation, ...],
    bias: bool,
    groups: int = 1,
) -> tuple[Row, ...]:
    weights = (("weight", "kernel", kernels), ("bias", "bias", biases))
    return tuple(
        Row(
            f"{tensor}{theirs}",
            tuple(f"{path}/{ours}" for path in paths),
            Split(sizes, then=then, groups=groups),
        )
        for theirs, ours, then in weights[: 1 + bias]
    )


def logit_row(tensor: str, tied: bool, layer: str = "embedding") -> Row:
    """Returns the row of the kernel of the logits, a copy of the embeddings if `tied`."""
    if tied:
        return Row(tensor, f"{layer}/embeddings", copy=True, logits=True)
    return Row(tensor, f"{layer}/reverse_embeddings", Transpose(), logits=True)


def token_head_rows(
    parts: Collection[str], token_classifier: str = "classifier", answers: str = "qa_outputs"
) -> tuple[Row, ...]:
    """Returns the rows of the classifier of tokens and of the answers, for the parts of a configuration.

    Args:
        token_classifier: tensor name of the classifier of tokens.
        answers: tensor name of the logits of the first and the last token of an answer.
    """
    names = {"token_classifier": token_classifier, "answers": answers}
    return tuple(
        row for part, name in names.items() if part in parts for row in dense_rows(name, part)
    )


def pre_norm_rows(
    prefix: str,
    layer: str,
    heads: int,
    size: int,
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2"),
    mlp: str = "mlp.",
    key_bias: bool = True,
) -> tuple[Row, ...]:
    """Returns the rows of a block of CLIP, SigLIP and Whisper.

    Args:
        prefix: prefix of the tensor names.
        layer: prefix of the weight paths.
        size: size of a head.
        norms: tensor names of the normalizations before attention and MLP.
        mlp: prefix of the tensor names of the MLP.
        key_bias: whether the key has a bias.
    """
    return (
        *norm_rows(f"{prefix}{norms[0]}", f"{layer}attention_norm"),
        *attention_rows(f"{prefix}self_attn.", layer, heads, size, key_bias=key_bias),
        *norm_rows(f"{prefix}{norms[1]}", f"{layer}mlp_norm"),
        *dense_rows(f"{prefix}{mlp}fc1", f"{layer}mlp_in"),
        *dense_rows(f"{prefix}{mlp}fc2", f"{layer}mlp_out"),
    )
