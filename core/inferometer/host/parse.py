"""Read facts out of what a system prints. Text in, values out; nothing here asks a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping

from inferometer.host.facts import Accelerator

MIB = 2**20

_CHIP_KEYS = ("model name", "Model", "cpu model", "cpu", "Hardware")
"""What kernels call it: x86, ARM boards, MIPS, POWER, older ARM."""
_SOME_AVG10 = re.compile(r"^some avg10=(\d+(?:\.\d+)?) ", re.MULTILINE)
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)(?: MiB)?")


def os_release(text: str) -> Mapping[str, str]:
    """Return the keys of an ``os-release`` file, quotes taken off."""
    lines = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip(): value.strip().strip("\"'") for key, _, value in lines}


def chip_name(cpuinfo: str) -> str | None:
    """Return the processor's model name from ``/proc/cpuinfo``, or None when it has none."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    values = {key.strip(): value.strip() for key, _, value in lines}
    return next((values[key] for key in _CHIP_KEYS if values.get(key)), None)


def cpu_pressure(text: str) -> float | None:
    """Return the percentage of the last 10 s in which some task waited for a CPU."""
    found = _SOME_AVG10.search(text)
    return float(found[1]) if found else None


def nvidia_accelerators(csv: str) -> tuple[Accelerator, ...]:
    """Return the devices in rows of ``name, memory in MiB, driver version``.

    A row without these three columns is a message, not a device.
    """
    rows = (line.rsplit(",", 2) for line in csv.splitlines() if line.count(",") > 1)
    return tuple(
        _nvidia(name.strip(), memory.strip(), driver.strip()) for name, memory, driver in rows
    )


def _nvidia(name: str, memory: str, driver: str) -> Accelerator:
    found = _NUMBER.fullmatch(memory)
    # Devices that share the host's memory answer [N/A], or a zero that was never measured.
    total = round(float(found[1]) * MIB) if found else 0
    return Accelerator(
        name=name,
        memory_bytes=total or None,
        driver=driver if driver[:1].isdigit() else None,
        unified_memory=False if total else None,
    )
