"""What tests share: the demo model, and plugins that are installed for one test."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEMO_MODEL = ROOT / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure() -> None:
    # A shell starts its background jobs with interrupts ignored, and every process below would
    # inherit that: what these tests interrupt could then not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    path = Path(os.environ.get("INFEROMETER_DEMO_MODEL") or DEMO_MODEL)
    if not path.exists():
        # Where the Makefile made it ready, a missing model is a mistake and no reason to skip.
        say = pytest.fail if "INFEROMETER_DEMO_MODEL" in os.environ else pytest.skip
        say(f"the demo model is not at {path}: run `make model`")
    return path
