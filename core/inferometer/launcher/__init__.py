"""Start a worker in any interpreter, listen to it, and end everything it started."""

from __future__ import annotations

from inferometer.launcher.process import QUIET_ENVIRONMENT, Limits, Worker, WorkerEnded

__all__ = ["QUIET_ENVIRONMENT", "Limits", "Worker", "WorkerEnded"]
