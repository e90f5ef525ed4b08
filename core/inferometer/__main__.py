"""``python -m inferometer``."""

from __future__ import annotations

from inferometer.cli import main

main()
