"""What a model on disk really is, read off its files; a name is never evidence."""

from __future__ import annotations

from inferometer.artifact.inspect import inspect_model
from inferometer.artifact.model import ModelArtifact, ModelFormat
from inferometer.artifact.residency import resident_ratio

__all__ = ["ModelArtifact", "ModelFormat", "inspect_model", "resident_ratio"]
