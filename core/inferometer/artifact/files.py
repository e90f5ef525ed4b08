"""Which files make up a model, and the first questions asked of any of them."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from inferometer.errors import ModelError

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<total>\d{5})\.gguf", re.DOTALL)


def is_folder(path: Path) -> bool:
    """Return whether a model's path is a folder; it is a readable file otherwise.

    Raises:
        ModelError: nothing is there, or it is neither a file nor a folder.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError(f"{path}: no such file or folder; check the model's path") from None
    except ValueError as error:
        raise ModelError(f"{str(path)!r}: cannot be a path: {error}") from None
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise ModelError(f"{path}: neither a file nor a folder; give a model file")
    return stat.S_ISDIR(mode)


def model_files(path: Path) -> tuple[Path, ...]:
    """Return the files of a model: every shard of a split one, or what a folder holds.

    Raises:
        ModelError: nothing is there, or a shard is missing.
    """
    return folder_files(path) if is_folder(path) else shard_paths(path)


def folder_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of a folder that are not hidden, by name; subfolders are left out.

    A downloaded model often keeps a second copy of its weights, in another format, one folder
    down; nothing loads both.
    """
    entries = sorted(folder.iterdir())
    return tuple(path for path in entries if not path.name.startswith(".") and path.is_file())


def shard_paths(path: Path) -> tuple[Path, ...]:
    """Return all shards of the split model a file belongs to, in order, or the file alone.

    Shards are found the way engines find them: by name, ``NAME-00001-of-00003.gguf``.

    Raises:
        ModelError: a shard is missing; the message names the first one.
    """
    found = _SHARD.fullmatch(path.name)
    if found is None:
        return (path,)
    total, number = int(found["total"]), int(found["number"])
    if not 1 <= number <= total:
        raise ModelError(f"{path}: is named shard {number} of {total}, which cannot be")
    return tuple(_shard(path, found["stem"], index, total) for index in range(1, total + 1))


def _shard(beside: Path, stem: str, number: int, total: int) -> Path:
    shard = beside.with_name(f"{stem}-{number:05}-of-{total:05}.gguf")
    if not shard.is_file():
        raise ModelError(
            f"{beside}: shard {number} of {total} is missing: {shard.name} is not beside it; "
            "a split model needs all its shards in one folder"
        )
    return shard


def printable(name: str) -> str:
    """Return a file's name as text that can be stored; names are bytes, not always text."""
    return name.encode("utf-8", "backslashreplace").decode()
