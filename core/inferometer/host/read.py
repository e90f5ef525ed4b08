"""Ask this machine. Whatever it does not tell becomes a reason instead of a value."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import psutil
from attrs import field, frozen

from inferometer.host.facts import Accelerator, Host, HostLoad
from inferometer.host.parse import chip_name, cpu_pressure, nvidia_accelerators, os_release

T = TypeVar("T")
Reasons = dict[str, str]

TOOL_TIMEOUT_S = 10.0
NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=name,memory.total,driver_version",
    "--format=csv,noheader,nounits",
)


def read_text(path: str) -> str:
    """Return a small text file. Raises ``OSError``."""
    return Path(path).read_text(encoding="utf-8", errors="replace")


def run_tool(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a system tool that only prints. Raises ``OSError`` or ``subprocess.TimeoutExpired``."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=TOOL_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )


@frozen(kw_only=True)
class System:
    """How the machine is asked; another one can be played back from text."""

    family: str = sys.platform
    machine: str = field(factory=platform.machine)
    kernel: str = field(factory=platform.release)
    read: Callable[[str], str] = read_text
    run: Callable[[Sequence[str]], subprocess.CompletedProcess[str]] = run_tool


def read_host(system: System | None = None) -> Host:
    """Return what this machine is; never raises, and stores no name of it."""
    system = system or System()
    missing: Reasons = {}
    chip = _ask(missing, "chip", lambda: _chip(system))
    memory = _ask(missing, "memory_bytes", lambda: psutil.virtual_memory().total)
    return Host(
        os_name=_ask({}, "os_name", lambda: _os_name(system)) or system.family,
        os_version=_ask(missing, "os_version", lambda: _os_version(system)),
        kernel=system.kernel,
        machine=system.machine,
        chip=chip,
        physical_cores=_ask(missing, "physical_cores", lambda: psutil.cpu_count(logical=False)),
        logical_cores=_ask(missing, "logical_cores", psutil.cpu_count),
        usable_cores=_ask(missing, "usable_cores", _usable_cores),
        memory_bytes=memory,
        swap_total_bytes=_ask(missing, "swap_total_bytes", lambda: psutil.swap_memory().total),
        accelerators=_accelerators(system, chip, memory, missing),
        power_source=_ask(missing, "power_source", _power_source),
        python_version=platform.python_version(),
        python_implementation=platform.python_implementation(),
        unavailable=missing,
    )


def read_load(system: System | None = None) -> HostLoad:
    """Return how busy this machine is now; never raises."""
    system = system or System()
    missing: Reasons = {}
    return HostLoad(
        load_1m=_ask(missing, "load_1m", lambda: os.getloadavg()[0]),
        cpu_pressure_avg10_percent=_ask(
            missing, "cpu_pressure_avg10_percent", lambda: _cpu_pressure(system)
        ),
        memory_available_bytes=_ask(
            missing, "memory_available_bytes", lambda: psutil.virtual_memory().available
        ),
        swap_used_bytes=_ask(missing, "swap_used_bytes", lambda: psutil.swap_memory().used),
        unavailable=missing,
    )


def _ask(missing: Reasons, name: str, question: Callable[[], T | None]) -> T | None:
    """Return an answer, or None with the reason noted under the fact's name."""
    try:
        answer = question()
    except Exception as error:  # noqa: BLE001 - an odd machine must not end a run
        missing[name] = str(error) or type(error).__name__
        return None
    if answer is None:
        missing[name] = "the system does not say"
    return answer


def _is_macos(system: System) -> bool:
    return system.family == "darwin"


def _os_name(system: System) -> str | None:
    return "macOS" if _is_macos(system) else os_release(system.read("/etc/os-release")).get("NAME")


def _os_version(system: System) -> str | None:
    if _is_macos(system):
        return _sysctl(system, "kern.osproductversion")
    return os_release(system.read("/etc/os-release")).get("VERSION_ID")


def _chip(system: System) -> str | None:
    if _is_macos(system):
        return _sysctl(system, "machdep.cpu.brand_string")
    return chip_name(system.read("/proc/cpuinfo"))


def _sysctl(system: System, key: str) -> str | None:
    return system.run(("sysctl", "-n", key)).stdout.strip() or None


def _usable_cores() -> int | None:
    # Where a process cannot be bound to some cores, it may use them all.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


def _power_source() -> str:
    battery = psutil.sensors_battery()
    if battery is None or battery.power_plugged is None:
        raise LookupError("no battery is reported, and nothing else tells")
    return "ac" if battery.power_plugged else "battery"


def _cpu_pressure(system: System) -> float | None:
    if _is_macos(system):
        raise LookupError("macOS reports no CPU pressure")
    return cpu_pressure(system.read("/proc/pressure/cpu"))


def _accelerators(
    system: System, chip: str | None, memory: int | None, missing: Reasons
) -> tuple[Accelerator, ...] | None:
    found = _ask(missing, "accelerators", lambda: _find_accelerators(system, chip, memory))
    for index, device in enumerate(found or ()):
        place = f"accelerators.{index}"
        if device.memory_bytes is None:
            missing[f"{place}.memory_bytes"] = "the device reports no memory of its own"
        if device.driver is None:
            missing[f"{place}.driver"] = "the device reports no driver version"
    return found


def _find_accelerators(
    system: System, chip: str | None, memory: int | None
) -> tuple[Accelerator, ...]:
    if _is_macos(system):
        if system.machine != "arm64":
            return ()
        name = chip or "Apple silicon"
        return (Accelerator(name=name, memory_bytes=memory, unified_memory=True),)
    try:
        answer = system.run(NVIDIA_SMI)
    except FileNotFoundError:
        return ()
    devices = nvidia_accelerators(answer.stdout)
    if not devices and "No devices were found" not in answer.stdout:
        raise LookupError(f"nvidia-smi failed ({answer.returncode}): {_first_line(answer)}")
    return devices


def _first_line(answer: subprocess.CompletedProcess[str]) -> str:
    return next(iter((answer.stdout + answer.stderr).strip().splitlines()), "it printed nothing")
