"""What an adapter hands over, and whether it can be recorded.

An adapter is foreign code: a version that is not text, or a figure that JSON does not know, is
found here and told as the adapter's mistake, before it can spoil a message or the journal.
"""

from __future__ import annotations

from typing import Any, TypeVar

from inferometer.codec import from_json, structure, to_json
from inferometer.engine import Engine
from inferometer.errors import (
    ContractViolation,
    EngineError,
    EngineFault,
    ModelError,
    Refused,
    Unsupported,
)
from inferometer.failures import Failure

T = TypeVar("T")

_KINDS: tuple[tuple[type[EngineFault], str], ...] = (
    (ContractViolation, "contract_violation"),
    (Refused, "refused"),
    (Unsupported, "unsupported"),
    (EngineFault, "engine_error"),
)


def failure_of(fault: EngineFault, stage: str) -> Failure:
    """Return a fault as it is recorded."""
    detail = _plain(fault.detail) if isinstance(fault, EngineError) else {}
    return Failure(kind=_kind(fault), message=_text(fault), stage=stage, detail=detail)


def crash(error: Exception, stage: str) -> Failure:
    """Return what an exception is recorded as that no engine fault is."""
    kind = "adapter_crashed"
    if isinstance(error, ModelError):
        kind = "model_error"
    elif isinstance(error, ImportError | OSError) and stage == "import":
        kind = "engine_unusable"
    return Failure(
        kind=kind,
        message=f"{type(error).__name__} during {stage}: {_text(error)}",
        stage=stage,
    )


def recordable(value: Any, kind: type[T], what: str) -> T:
    """Return a value that an adapter made, once every field is known to have its type."""
    if not isinstance(value, kind):
        raise ContractViolation(f"{what} is {type(value).__name__}, not {kind.__name__}")
    try:
        structure(from_json(to_json(value)), kind)
    except (TypeError, ValueError, RecursionError) as error:
        raise ContractViolation(f"{what} cannot be recorded: {error}") from None
    return value


def _kind(fault: EngineFault) -> str:
    if isinstance(fault, EngineError):
        return str(fault.kind)
    return next(kind for fault_type, kind in _KINDS if isinstance(fault, fault_type))


def _plain(detail: Any) -> dict[str, Any]:
    """Return an engine's figures as JSON can hold them: what it cannot becomes text."""
    try:
        return dict(from_json(to_json(dict(detail))))
    except (TypeError, ValueError, RecursionError):
        return {_text(key): _text(repr(value)) for key, value in dict(detail).items()}


def _text(value: object) -> str:
    # A file name that is not UTF-8 would make the whole message one that cannot be sent.
    return str(value).encode("utf-8", "replace").decode()


def missing_methods(engine: object) -> list[str]:
    """Return the methods of the contract that an object lacks."""
    names = (name for name in vars(Engine) if not name.startswith("_"))
    return [name for name in names if not callable(getattr(engine, name, None))]
