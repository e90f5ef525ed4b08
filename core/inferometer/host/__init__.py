"""The machine a measurement ran on: facts, and a reason for each fact that is missing."""

from __future__ import annotations

from inferometer.host.facts import Accelerator, Host, HostLoad
from inferometer.host.read import read_host, read_load

__all__ = ["Accelerator", "Host", "HostLoad", "read_host", "read_load"]
