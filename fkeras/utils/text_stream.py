"""`TextStream`: the text of growing ids, without incomplete characters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence


@dataclasses.dataclass(frozen=True)
class TextStream:
    """The text of ids that arrive one after the other.

    One character may have several ids. Its text is held back until the character is complete: a shown
    text never changes. The cost of an addition does not grow with the number of earlier ids.

    Args:
        decode: returns the text of a list of ids, such as `tokenizer.decode`.
        window: the ids of the last shown text and of the text that is held back.
        shown: how many ids of the window have been shown.

    Example:
        >>> text = "né".encode()
        >>> stream = TextStream(lambda ids: bytes(ids).decode(errors="replace"))
        >>> pieces = []
        >>> for byte in text:
        ...     stream, piece = stream.add([byte])
        ...     pieces.append(piece)
        >>> pieces
        ['n', '', 'é']
    """

    decode: Callable[[list[int]], str]
    window: tuple[int, ...] = ()
    shown: int = 0

    def add(self, ids: Sequence[int]) -> tuple[TextStream, str]:
        """Returns the stream with further ids, and the new text that is complete.

        Args:
            ids: the next ids, in order.

        Example:
            >>> stream, piece = TextStream(lambda ids: "".join(map(chr, ids))).add([104, 105])
            >>> piece
            'hi'
        """
        stream, pieces = self, []
        for number in ids:
            window = (*stream.window, int(number))
            shown = stream.shown
            piece = stream._piece(window)
            # the replacement character stands for bytes of which the rest is missing
            if piece and not piece.endswith("�"):
                pieces.append(piece)
                # the ids before the next text stay: some decoders treat the first id specially
                window = window[shown:]
                shown = len(window)
            stream = dataclasses.replace(stream, window=window, shown=shown)
        return stream, "".join(pieces)

    def end(self) -> str:
        """Returns the text that is still held back: incomplete characters, as "�".

        Example:
            >>> stream, _ = TextStream(lambda ids: bytes(ids).decode(errors="replace")).add([0xC3])
            >>> stream.end()
            '�'
        """
        return self._piece(self.window)

    def _piece(self, window: Sequence[int]) -> str:
        before = self.decode(list(window[: self.shown])) if self.shown else ""
        return self.decode(list(window))[len(before) :]
