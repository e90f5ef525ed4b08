"""The JSON Schemas of Inferometer's file formats, as data."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def names() -> list[str]:
    """Return the file names of the schemas, for example ``suite.v1.schema.json``."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    return sorted(name for name in files if name.endswith(".schema.json"))


def read(name: str) -> dict[str, Any]:
    """Return a schema by file name."""
    schema: dict[str, Any] = json.loads((resources.files(__name__) / name).read_text("utf-8"))
    return schema
