"""Step through the bytes of a GGUF header that nobody has vouched for.

Every length and count is held against the bytes that are left before anything is read or made,
and nothing is walked that those bytes cannot hold. The limits are far above any real model.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from inferometer.errors import ModelError

MAX_HEADER_BYTES = 256 * 2**20
MAX_NAME_BYTES = 65_535
MAX_TEXT_BYTES = 2**20
"""Texts above this are stepped over: some files carry a whole tokenizer as one string."""
MAX_NESTING = 4
MAX_WALKED_ITEMS = 2**22
"""Strings and nested arrays stepped over one by one; a large vocabulary has about 2**20."""

Value = str | int | float | bool

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
_SHORTEST_ARRAY = _U32.size + _U64.size
_STRING = 8
_ARRAY = 9
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: _U32,
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: _U64,
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}


class Cursor:
    """A place in a header. Whoever moves it asks first whether the bytes are there."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._walked = 0
        self.size = len(data)
        self.at = 0

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self._data, self.skip(_U32.size, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self._data, self.skip(_U64.size, what))[0])

    def count(self, what: str, limit: int, shortest: int) -> int:
        """Return a count of things that take at least ``shortest`` bytes each."""
        count = self.u64(f"the number of {what}")
        room = min(limit, (self.size - self.at) // shortest)
        if count > room:
            raise self.damaged(f"{count} {what} are announced, but at most {room} can follow")
        return count

    def name(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        if length > MAX_NAME_BYTES:
            raise self.damaged(f"{what} is {length} bytes long")
        return self._text(length, what)

    def value(self, key: str) -> Value | None:
        """Return a scalar or a text; step over anything large and return None."""
        kind = self.u32(f"the type of {key!r}")
        scalar = _SCALARS.get(kind)
        if scalar:
            found: Value = scalar.unpack_from(self._data, self.skip(scalar.size, key))[0]
            return found
        if kind == _STRING:
            return self._short_text(key)
        if kind == _ARRAY:
            self._skip_array(key, depth=1)
            return None
        raise self.damaged(f"{key!r} has a value of type {kind}, which does not exist")

    def skip(self, size: int, what: str) -> int:
        """Step over bytes that must be there; return where they start."""
        start = self.at
        if size > self.size - start:
            raise self.damaged(f"{what} takes {size} bytes, but {self.size - start} are left")
        if start + size > MAX_HEADER_BYTES:
            raise self.damaged(f"the header goes on past {MAX_HEADER_BYTES} bytes")
        self.at = start + size
        return start

    def damaged(self, what: str) -> ModelError:
        return self.error(
            f"is damaged or cut short: at byte {self.at}, {what}. "
            f"The file has {self.size} bytes; download the model again"
        )

    def error(self, what: str) -> ModelError:
        return ModelError(f"{self._path}: {what}")

    def _short_text(self, key: str) -> str | None:
        length = self.u64(f"the length of {key!r}")
        if length <= MAX_TEXT_BYTES:
            return self._text(length, key)
        self.skip(length, key)
        return None

    def _text(self, length: int, what: str) -> str:
        start = self.skip(length, what)
        # Bytes that are no text stay visible, and the result is always valid Unicode.
        return self._data[start : start + length].decode("utf-8", "backslashreplace")

    def _skip_array(self, key: str, depth: int) -> None:
        if depth > MAX_NESTING:
            raise self.damaged(f"{key!r} nests arrays more than {MAX_NESTING} deep")
        kind, count = self.u32(f"the type in {key!r}"), self.u64(f"the length of {key!r}")
        scalar = _SCALARS.get(kind)
        if scalar:
            self.skip(count * scalar.size, key)
        elif kind == _STRING:
            self._skip_strings(key, count)
        elif kind == _ARRAY:
            self._may_walk(key, count, _SHORTEST_ARRAY)
            for _ in range(count):
                self._skip_array(key, depth + 1)
        else:
            raise self.damaged(f"{key!r} holds values of type {kind}, which does not exist")

    def _skip_strings(self, key: str, count: int) -> None:
        # The one hot loop: a vocabulary and its merges are a million strings.
        self._may_walk(key, count, _U64.size)
        data, unpack, last, at = self._data, _U64.unpack_from, self.size - _U64.size, self.at
        for _ in range(count):
            if at > last:
                break
            at += _U64.size + unpack(data, at)[0]
        else:
            self.skip(at - self.at, key)
            return
        raise self.damaged(f"the texts of {key!r} go on past the end")

    def _may_walk(self, key: str, count: int, shortest: int) -> None:
        self._walked += count
        room = min((self.size - self.at) // shortest, MAX_WALKED_ITEMS)
        if count > room or self._walked > MAX_WALKED_ITEMS:
            raise self.damaged(f"{key!r} announces {count} items, but at most {room} can follow")
