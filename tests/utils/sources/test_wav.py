"""WAV files of each sample format, damaged files, and resampling compared with SciPy."""

import struct

import numpy as np
import pytest
from scipy import signal

from fkeras.utils.sources.wav import read_wav, resample


def _wav_bytes(data, code=1, channels=1, rate=8000, bits=16, extra=b"", extensible=False):
    block = channels * bits // 8
    stored_code = 0xFFFE if extensible else code
    format_chunk = struct.pack("<HHIIHH", stored_code, channels, rate, rate * block, block, bits)
    if extensible:
        format_chunk += struct.pack("<HHIH", 22, bits, 0, code) + bytes(14)
    chunks = b"fmt " + struct.pack("<I", len(format_chunk)) + format_chunk + extra
    chunks += b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WAVE" + chunks


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("data", "options"),
    [
        (np.asarray([0, 16384, -32768], "<i2"), {}),
        (np.asarray([0, 2**30, -(2**31)], "<i4"), {"bits": 32}),
        (np.asarray([128, 192, 0], "u1"), {"bits": 8}),
        (np.asarray([0.0, 0.5, -1.0], "<f4"), {"bits": 32, "code": 3}),
        (np.asarray([0.0, 0.5, -1.0], "<f8"), {"bits": 64, "code": 3}),
        (np.frombuffer(bytes([0, 0, 0, 0, 0, 64, 0, 0, 128]), "u1"), {"bits": 24}),
        (np.asarray([0, 16384, -32768], "<i2"), {"extensible": True}),
        (np.asarray([0, 16384, -32768], "<i2"), {"extra": b"LIST\3\0\0\0abc\0"}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_each_sample_format_gives_the_same_samples(tmp_path, data, options):
    path = tmp_path / "a.wav"
    path.write_bytes(_wav_bytes(data.tobytes(), **options))
    samples, rate = read_wav(path)
    assert (samples.dtype, samples.shape, rate) == ("float32", (3, 1), 8000)
    np.testing.assert_array_equal(samples[:, 0], [0.0, 0.5, -1.0])


@pytest.mark.exhaustive
def test_channels_are_columns(tmp_path):
    (tmp_path / "a.wav").write_bytes(_wav_bytes(np.arange(6, dtype="<i2").tobytes(), channels=2))
    samples, _ = read_wav(tmp_path / "a.wav")
    np.testing.assert_array_equal(samples * 32768, [[0, 1], [2, 3], [4, 5]])


VALID_FILE = _wav_bytes(bytes(8))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with b''"),
        (b"OggS" + bytes(40), "begins with b'OggS"),
        (VALID_FILE[:12], "without samples"),
        (VALID_FILE[:30], "truncated"),
        (VALID_FILE[:-3], "5 bytes of samples, although the file declares 8"),
        (VALID_FILE[:12] + VALID_FILE[36:], "samples without a format"),
        (_wav_bytes(bytes(8), code=85), "format code 85"),
        (_wav_bytes(bytes(8), bits=12), "with 12 bits"),
        (_wav_bytes(bytes(8), channels=0), "in 0 channels"),
        (_wav_bytes(bytes(8), rate=0), "at 0 Hz"),
        (VALID_FILE[:16] + struct.pack("<I", 2) + bytes(2), "damaged format chunk"),
    ],
)
def test_damaged_files_are_reported(tmp_path, content, message):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_wav(tmp_path / "a.wav")


def test_random_damage_raises_only_value_errors(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "a.wav"
    for _ in range(200):
        content = bytearray(_wav_bytes(rng.bytes(40), channels=2))
        for position in rng.integers(0, 48, 3):
            content[position] = rng.integers(256)
        path.write_bytes(bytes(content[: rng.integers(20, 90)]))
        try:
            samples, _ = read_wav(path)
            assert samples.nbytes <= 4 * 48
        except ValueError:
            pass


@pytest.mark.exhaustive
@pytest.mark.parametrize(("old", "new"), [(8000, 4000), (8000, 11025), (44100, 16000), (3, 7)])
def test_resampling_equals_scipy(old, new):
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(300, 2)).astype("float32")
    ours = resample(samples, old, new)
    expected = signal.resample_poly(samples.astype("float64"), new, old)
    np.testing.assert_allclose(ours, expected, atol=2e-6)
    assert resample(samples, old, old) is samples
