"""`TextStream` shows complete characters only, and each once."""

import pytest

from fkeras.utils import TextStream


def decode(ids):
    return bytes(ids).decode(errors="replace")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_pieces_are_the_text(size):
    text = "a né 漢字 👩‍👩‍👧 ende"
    data = text.encode()
    stream, pieces = TextStream(decode), []
    for start in range(0, len(data), size):
        stream, piece = stream.add(data[start : start + size])
        pieces.append(piece)
        assert "�" not in piece
        assert text.startswith("".join(pieces))
        assert len(stream.window) < 12
    assert "".join(pieces) + stream.end() == text


def test_an_incomplete_end_is_shown_at_the_end():
    stream, piece = TextStream(decode).add("aé".encode()[:-1])
    assert (piece, stream.end()) == ("a", "�")
    assert TextStream(decode).end() == ""


def test_a_stream_is_a_value():
    start = TextStream(decode)
    stream, _ = start.add([97])
    assert stream == start.add([97])[0]
    assert start == TextStream(decode)


@pytest.mark.exhaustive
def test_the_space_of_a_first_word_stays():
    # as sentencepiece: the space before the first word of a text is dropped
    def words(ids):
        return " ".join("abc"[i] for i in ids)

    stream, first = TextStream(words).add([0])
    stream, second = stream.add([1])
    assert (first, second) == ("a", " b")
