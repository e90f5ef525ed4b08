"""Values to bytes and back: strict for what people write, lenient for what we once wrote.

Types are checked exactly: ``"5"`` is not 5, ``true`` is not 1, and 1.0 is not an integer. Every
mistake is found, each with its path, and not only the first. Strict and lenient differ in one
thing: an unknown key is an error in a suite (a typo) and is skipped in results (a newer minor
version).

What an attrs class may hold: numbers, strings, booleans, null, enums, literals, paths, other
attrs classes, and arrays, tables and unions of these.
"""

from __future__ import annotations

from inferometer.codec.mistakes import StructureError
from inferometer.codec.plain import digest, from_json, to_json
from inferometer.codec.read import structure

__all__ = ["StructureError", "digest", "from_json", "structure", "to_json"]
