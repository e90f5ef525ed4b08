"""What tests share: the demo model, and plugins that are installed for one test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DEMO_MODEL = ROOT / ".cache" / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def demo_model() -> Path:
    path = Path(os.environ.get("INFEROMETER_DEMO_MODEL") or DEMO_MODEL)
    if not path.exists():
        pytest.skip(f"the demo model is not at {path}: run `make model`")
    return path
