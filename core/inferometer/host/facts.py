"""What is known about a machine. No fact names a person, or the machine itself."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import Factory, field, frozen

from inferometer.fields import Role, about


@frozen(kw_only=True)
class Accelerator:
    """A device that can compute for an engine."""

    name: str = field(metadata=about(Role.ENVIRONMENT, "The device's own name."))
    memory_bytes: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Its memory, where it reports any.")
    )
    driver: str | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Version of its driver.")
    )
    unified_memory: bool | None = field(
        default=None,
        metadata=about(Role.ENVIRONMENT, "Whether that memory is the host's own."),
    )


@frozen(kw_only=True)
class Host:
    """What the machine is. Null means unknown, with a reason."""

    os_name: str = field(metadata=about(Role.ENVIRONMENT, "Operating system."))
    os_version: str | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Its version, as it calls itself.")
    )
    kernel: str = field(metadata=about(Role.ENVIRONMENT, "Release of the kernel."))
    machine: str = field(metadata=about(Role.ENVIRONMENT, "Instruction set: x86_64, arm64 ..."))
    chip: str | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Model name of the processor.")
    )
    physical_cores: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Processor cores.")
    )
    logical_cores: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Hardware threads of all cores.")
    )
    usable_cores: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Hardware threads this process may use.")
    )
    memory_bytes: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Main memory, all of it.")
    )
    swap_total_bytes: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Swap space at this moment, used or not.")
    )
    accelerators: tuple[Accelerator, ...] | None = field(
        default=None,
        metadata=about(Role.ENVIRONMENT, "Accelerators found (NVIDIA, Apple); empty when none."),
    )
    power_source: str | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "What feeds the machine: ac or battery.")
    )
    python_version: str = field(metadata=about(Role.ENVIRONMENT, "Version of this Python."))
    python_implementation: str = field(
        metadata=about(Role.ENVIRONMENT, "Which Python it is: CPython, PyPy ...")
    )
    unavailable: Mapping[str, str] = field(
        default=Factory(dict),
        metadata=about(Role.PROVENANCE, "Why a field above is null, by field name."),
    )


@frozen(kw_only=True)
class HostLoad:
    """How busy the machine is at one moment. Null means unknown, with a reason."""

    load_1m: float | None = field(
        default=None,
        metadata=about(Role.ENVIRONMENT, "Average number of runnable tasks in the last minute."),
    )
    cpu_pressure_avg10_percent: float | None = field(
        default=None,
        metadata=about(Role.ENVIRONMENT, "Share of the last 10 s in which a task had no CPU."),
    )
    memory_available_bytes: int | None = field(
        default=None,
        metadata=about(Role.ENVIRONMENT, "Memory that can be had without swapping."),
    )
    swap_used_bytes: int | None = field(
        default=None, metadata=about(Role.ENVIRONMENT, "Swap space in use.")
    )
    unavailable: Mapping[str, str] = field(
        default=Factory(dict),
        metadata=about(Role.PROVENANCE, "Why a field above is null, by field name."),
    )
