"""Decoding of label sequences from the scores of a CTC model: greedy and beam search."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.nn.numerics.array_types import Numbers

_NONE = -1  # pads label sequences


def ctc_decode(
    inputs: Numbers,
    sequence_lengths: Numbers,
    strategy: str = "greedy",
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = True,
    mask_index: int | None = 0,
) -> tuple[jax.Array, jax.Array]:
    """Returns the most likely label sequences, and their scores.

    Args:
        inputs: class scores, (b, t, classes); log-probabilities for the greedy strategy, any
            scores for beam search, which normalizes them.
        sequence_lengths: number of valid steps of each sample, (b,).
        strategy: "greedy" takes the best class of each step; "beam_search" sums the
            probabilities of all alignments of a label sequence, over the `beam_width` best
            prefixes.
        beam_width: number of prefixes that beam search keeps.
        top_paths: number of sequences that beam search returns.
        merge_repeated: whether greedy decoding merges equal adjacent classes into one label.
        mask_index: class of the blank; None for the last class.

    Returns:
        Labels (paths, b, t), padded with -1, and scores (b, paths): the negative sum of the best
        scores for the greedy strategy, the log-probability for beam search.

    Raises:
        ValueError: if the strategy is unknown.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> scores = jnp.log(jax.nn.one_hot(jnp.array([[1, 1, 0, 2]]), 3) + 1e-6)
        >>> labels, _ = ctc_decode(scores, jnp.array([4]))
        >>> labels.tolist()
        [[[1, 2, -1, -1]]]

    References:
        Graves et al., Connectionist temporal classification (2006); Hannun et al., First-pass
        large vocabulary continuous speech recognition (2014), arxiv.org/abs/1408.2873.
    """
    inputs = jnp.asarray(inputs)
    inputs = inputs if inputs.dtype == jnp.float64 else inputs.astype("float32")
    lengths = jnp.asarray(sequence_lengths).astype("int32")
    blank = inputs.shape[-1] - 1 if mask_index is None else mask_index
    if strategy == "greedy":
        return greedy_decode(inputs, lengths, merge_repeated, blank)
    if strategy == "beam_search":
        return beam_search_decode(inputs, lengths, beam_width, top_paths, blank)
    raise ValueError(
        f"ctc_decode: strategy: expected 'greedy' or 'beam_search', received {strategy!r}. The "
        "first is fast, the second is better where classes are uncertain."
    )


def greedy_decode(
    inputs: jax.Array, lengths: jax.Array, merge_repeated: bool = True, blank: int = 0
) -> tuple[jax.Array, jax.Array]:
    """Returns the best class of each step without blanks; see `ctc_decode`."""
    steps = inputs.shape[1]
    ended = jnp.arange(steps, dtype="int32")[None, :] >= lengths[:, None]
    classes = jnp.where(ended, blank, jnp.argmax(inputs, axis=-1).astype("int32"))
    scores = jnp.where(ended, 0, jnp.max(inputs, axis=-1))
    is_label = classes != blank
    if merge_repeated:
        is_repeated = classes[:, 1:] == classes[:, :-1]
        is_label &= ~jnp.pad(is_repeated, ((0, 0), (1, 0)))
    # a stable sort moves the labels that are not blanks to the front and keeps their order
    order = jnp.argsort(~is_label, axis=-1, stable=True)
    labels = jnp.take_along_axis(jnp.where(is_label, classes, _NONE), order, axis=-1)
    return labels[None], -jnp.sum(scores, axis=1, keepdims=True)


def beam_search_decode(
    inputs: jax.Array,
    lengths: jax.Array,
    beam_width: int = 100,
    top_paths: int = 1,
    blank: int = 0,
) -> tuple[jax.Array, jax.Array]:
    """Returns the most probable sequences by prefix beam search; see `ctc_decode`."""
    if top_paths > beam_width:
        raise ValueError(
            f"ctc_decode: expected top_paths of {beam_width} or less, the beam_width, received "
            f"{top_paths}. Search with a wider beam."
        )
    logs = jax.nn.log_softmax(inputs, axis=-1)
    in_sample = jnp.arange(inputs.shape[1], dtype="int32")[None, :] < lengths[:, None]

    def decode(logs: jax.Array, in_sample: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(beam: tuple, inputs_t: tuple) -> tuple[tuple, None]:
            scores, valid = inputs_t
            advanced = _advance(beam, scores, blank)
            # steps after the end of a sample leave its beam unchanged: scan has a static length
            return jax.tree.map(lambda a, b: jnp.where(valid, a, b), advanced, beam), None

        (paths, _, blank_ends, label_ends), _ = jax.lax.scan(
            step, _start(logs, beam_width), (logs, in_sample)
        )
        scores, best = jax.lax.top_k(jnp.logaddexp(blank_ends, label_ends), top_paths)
        return paths[best], scores

    paths, scores = jax.vmap(decode)(logs, in_sample)
    return jnp.swapaxes(paths, 0, 1), scores


def _start(logs: jax.Array, width: int) -> tuple:
    """Returns a beam with only the empty sequence: paths, lengths, log-probabilities.

    The two log-probabilities are those of alignments that end in a blank, and of the others.
    """
    steps = logs.shape[0]
    # -inf marks unused slots: the shapes of a scan's carry cannot grow with the beam
    log_zeros = jnp.full((width,), -jnp.inf, logs.dtype)
    paths = jnp.full((width, steps), _NONE, "int32")
    return paths, jnp.zeros((width,), "int32"), log_zeros.at[0].set(0), log_zeros


def _advance(beam: tuple, scores: jax.Array, blank: int) -> tuple:
    """Advances the beam by one step.

    A blank, or a repetition of the last label, leaves a sequence unchanged. Any other label
    extends the sequence; the last label extends it only after a blank. The sequences of a beam
    are distinct, but an extended sequence may equal another sequence of the beam that remains
    unchanged: `parent` finds these pairs, and their probabilities are added.
    """
    paths, sizes, blank_ends, label_ends = beam  # blank_ends: the last step was a blank
    width, steps = paths.shape
    classes = scores.shape[0]
    total = jnp.logaddexp(blank_ends, label_ends)
    last = jnp.take_along_axis(paths, jnp.maximum(sizes - 1, 0)[:, None], axis=1)[:, 0]
    last = jnp.where(sizes > 0, last, _NONE)
    stay_blank = total + scores[blank]
    stay_label = jnp.where(sizes > 0, label_ends + scores[jnp.maximum(last, 0)], -jnp.inf)

    labels = jnp.arange(classes, dtype="int32")
    repeats = labels[None, :] == last[:, None]
    grow = jnp.where(repeats, blank_ends[:, None], total[:, None]) + scores[None, :]
    grow = jnp.where((labels == blank)[None, :], -jnp.inf, grow)

    # parent[i, j]: sequence j is sequence i plus one label
    positions = jnp.arange(steps, dtype="int32")
    prefixes = jnp.where(positions[None, :] < (sizes - 1)[:, None], paths, _NONE)
    parent = jnp.all(paths[:, None, :] == prefixes[None, :, :], axis=-1)
    is_used = total > -jnp.inf
    parent &= (sizes[None, :] == sizes[:, None] + 1) & is_used[:, None] & is_used[None, :]
    merged_scores = jnp.where(parent, grow[:, jnp.maximum(last, 0)], -jnp.inf)
    stay_label = jnp.logaddexp(stay_label, jnp.max(merged_scores, axis=0))
    # extensions that were merged above must not compete as separate candidates
    is_merged = parent[:, :, None] & (last[None, :, None] == labels[None, None, :])
    grow = jnp.where(jnp.any(is_merged, axis=1), -jnp.inf, grow)

    # index < width: an unchanged sequence; otherwise width + source * classes + label
    candidates = jnp.concatenate([jnp.logaddexp(stay_blank, stay_label), jnp.ravel(grow)])
    _, best = jax.lax.top_k(candidates, width)
    is_extended = best >= width
    source = jnp.where(is_extended, (best - width) // classes, best)
    label = ((best - width) % classes).astype("int32")
    is_appended = is_extended[:, None] & (positions[None, :] == sizes[source][:, None])
    new_paths = jnp.where(is_appended, label[:, None], paths[source])
    new_sizes = sizes[source] + is_extended.astype("int32")
    new_blank_ends = jnp.where(is_extended, -jnp.inf, stay_blank[source])
    new_label_ends = jnp.where(is_extended, candidates[best], stay_label[source])
    return new_paths, new_sizes, new_blank_ends, new_label_ends
