"""Results for a person: what was measured, of whom, and why a cell is empty."""

from __future__ import annotations

from inferometer.report.tables import DEFAULT_METRICS, render
from inferometer.report.text import plain

__all__ = ["DEFAULT_METRICS", "plain", "render"]
