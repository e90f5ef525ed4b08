"""What is known of a machine: read from text, so that any machine can be played back."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
import sys
import types
from collections.abc import Mapping, Sequence

import attrs
import psutil
import pytest

from inferometer.codec import from_json, structure, to_json
from inferometer.fields import Role, about_of
from inferometer.host import Accelerator, Host, HostLoad, read_host, read_load
from inferometer.host import read as read_module
from inferometer.host.parse import chip_name, cpu_pressure, nvidia_accelerators, os_release
from inferometer.host.read import NVIDIA_SMI, System, run_tool

MIB = 2**20

X86 = """\
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 151
model name\t: 12th Gen Intel(R) Core(TM) i7-12700
cpu MHz\t\t: 2100.000

processor\t: 1
model name\t: 12th Gen Intel(R) Core(TM) i7-12700
"""
ARM_SERVER = "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd4f\n"
ARM_BOARD = ARM_SERVER + "\nRevision\t: d04171\nModel\t\t: Raspberry Pi 5 Model B Rev 1.1\n"
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.000000MHz\n"

OS_RELEASE = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\n# a comment\n\nID=ubuntu\n'

PRESSURE = """\
some avg10=12.34 avg60=5.00 avg300=1.00 total=123456
full avg10=99.00 avg60=0.00 avg300=0.00 total=1
"""


def said(text: str, code: int = 0, error: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess((), code, text, error)


def played(
    files: Mapping[str, str] | None = None,
    tools: Mapping[str, subprocess.CompletedProcess[str] | Exception] | None = None,
    **facts: str,
) -> System:
    """A machine that has these files and answers these commands, keyed by their last word."""

    def read(path: str) -> str:
        if path not in (files or {}):
            raise FileNotFoundError(2, "No such file or directory", path)
        return files[path]

    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        name = command[0] if command[0] == "nvidia-smi" else command[-1]
        answer = (tools or {}).get(name, FileNotFoundError(2, "No such file", command[0]))
        if isinstance(answer, Exception):
            raise answer
        return answer

    return System(
        **{"family": "linux", "machine": "x86_64", "kernel": "6.1.0", **facts}, read=read, run=run
    )


LINUX_FILES = {"/proc/cpuinfo": X86, "/etc/os-release": OS_RELEASE, "/proc/pressure/cpu": PRESSURE}
MAC_TOOLS = {
    "machdep.cpu.brand_string": said("Apple M4 Max\n"),
    "kern.osproductversion": said("15.1\n"),
}
MAC = {"family": "darwin", "machine": "arm64", "kernel": "24.1.0"}


# --- text to facts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (X86, "12th Gen Intel(R) Core(TM) i7-12700"),
        (ARM_BOARD, "Raspberry Pi 5 Model B Rev 1.1"),
        (POWER, "POWER9, altivec supported"),
        (ARM_SERVER, None),
        ("model name\t:\n", None),
        ("", None),
    ],
)
def test_the_chip_is_what_the_kernel_calls_it(text, name):
    assert chip_name(text) == name


def test_an_os_release_file_gives_its_keys_without_quotes():
    found = os_release(OS_RELEASE)
    assert (found["NAME"], found["VERSION_ID"], found["ID"]) == ("Ubuntu", "24.04", "ubuntu")


def test_cpu_pressure_is_the_share_of_some_not_of_full():
    assert cpu_pressure(PRESSURE) == 12.34


@pytest.mark.parametrize("text", ["", "full avg10=1.00 avg60=0.00\n", "some avg10=nan \n"])
def test_without_that_line_the_pressure_is_unknown(text):
    assert cpu_pressure(text) is None


def test_a_data_center_card_gives_name_memory_and_driver():
    (found,) = nvidia_accelerators("NVIDIA H200, 143771, 570.86.15\n")
    assert found == Accelerator(
        name="NVIDIA H200", memory_bytes=143_771 * MIB, driver="570.86.15", unified_memory=False
    )


def test_each_row_is_a_device():
    rows = "NVIDIA A100-SXM4-40GB, 40960, 550.1\nTesla P4, 7611, 550.1\n"
    assert [device.name for device in nvidia_accelerators(rows)] == [
        "NVIDIA A100-SXM4-40GB",
        "Tesla P4",
    ]


@pytest.mark.parametrize(
    "memory", ["[N/A]", "[Not Supported]", "N/A", "0", "0 MiB", "[Unknown Error]", "", "-1"]
)
def test_what_is_no_measurement_of_memory_is_none_and_never_zero(memory):
    (found,) = nvidia_accelerators(f"NVIDIA GB10, {memory}, 580.95\n")
    assert found.memory_bytes is None
    assert found.unified_memory is None


def test_a_unit_that_was_not_asked_for_does_not_hurt():
    (found,) = nvidia_accelerators("NVIDIA H200, 143771 MiB, 570.86\n")
    assert found.memory_bytes == 143_771 * MIB


def test_a_comma_in_a_name_stays_in_the_name():
    (found,) = nvidia_accelerators("Card, the big one, 1024, 570.86\n")
    assert found.name == "Card, the big one"


@pytest.mark.parametrize("driver", ["[N/A]", "", "ERR!"])
def test_a_driver_without_a_number_is_unknown(driver):
    (found,) = nvidia_accelerators(f"Orin, 1, {driver}\n")
    assert found.driver is None


@pytest.mark.parametrize("text", ["", "\n\n", "No devices were found\n"])
def test_a_message_is_no_device(text):
    assert nvidia_accelerators(text) == ()


# --- a Linux machine -----------------------------------------------------------------------


def test_a_linux_machine_is_told_from_its_files():
    host = read_host(played(LINUX_FILES))
    assert (host.os_name, host.os_version) == ("Ubuntu", "24.04")
    assert (host.kernel, host.machine) == ("6.1.0", "x86_64")
    assert host.chip == "12th Gen Intel(R) Core(TM) i7-12700"


def test_a_machine_without_nvidia_smi_has_no_accelerator_that_is_known():
    host = read_host(played(LINUX_FILES))
    assert host.accelerators == ()
    assert "accelerators" not in host.unavailable


def test_a_driver_without_devices_has_none():
    tools = {"nvidia-smi": said("No devices were found\n", 6)}
    assert read_host(played(LINUX_FILES, tools)).accelerators == ()


def test_accelerators_come_from_the_driver_s_tool():
    tools = {"nvidia-smi": said("NVIDIA H200, 143771, 570.86\n")}
    host = read_host(played(LINUX_FILES, tools))
    assert [device.name for device in host.accelerators] == ["NVIDIA H200"]
    assert not [key for key in host.unavailable if key.startswith("accelerators")]


def test_a_device_that_names_no_memory_gets_a_reason():
    tools = {"nvidia-smi": said("NVIDIA H200, 143771, 570.86\nNVIDIA GB10, [N/A], [N/A]\n")}
    host = read_host(played(LINUX_FILES, tools))
    assert host.accelerators[1].memory_bytes is None
    assert "no memory of its own" in host.unavailable["accelerators.1.memory_bytes"]
    assert "no driver version" in host.unavailable["accelerators.1.driver"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said("NVIDIA-SMI has failed because it couldn't talk\n", 9), "(9): NVIDIA-SMI has failed"),
        (said("", 12, "driver/library version mismatch\n"), "(12): driver/library version"),
        (said("", 1), "(1): it printed nothing"),
        (subprocess.TimeoutExpired("nvidia-smi", 10.0), "timed out after 10.0 seconds"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_a_tool_that_fails_leaves_the_accelerators_unknown(answer, reason):
    host = read_host(played(LINUX_FILES, {"nvidia-smi": answer}))
    assert host.accelerators is None
    assert reason in host.unavailable["accelerators"]


def test_a_machine_that_tells_nothing_still_gives_a_host():
    host = read_host(played())
    assert host.os_name == "linux"
    assert {"os_version", "chip"} <= set(host.unavailable)
    assert "/proc/cpuinfo" in host.unavailable["chip"]


def test_a_chip_without_a_name_is_unknown_with_a_reason():
    host = read_host(played({**LINUX_FILES, "/proc/cpuinfo": ARM_SERVER}))
    assert host.chip is None
    assert host.unavailable["chip"] == "the system does not say"


def test_a_rolling_release_has_no_version():
    host = read_host(played({"/etc/os-release": 'NAME="Arch Linux"\n'}))
    assert (host.os_name, host.os_version) == ("Arch Linux", None)
    assert "os_version" in host.unavailable


# --- a Mac ---------------------------------------------------------------------------------


def test_a_mac_is_its_own_accelerator_with_the_host_s_memory():
    host = read_host(played(tools=MAC_TOOLS, **MAC))
    assert (host.os_name, host.os_version, host.chip) == ("macOS", "15.1", "Apple M4 Max")
    (device,) = host.accelerators
    assert device.name == "Apple M4 Max"
    assert device.memory_bytes == host.memory_bytes
    assert device.unified_memory is True


def test_an_older_mac_has_no_accelerator_that_is_known():
    host = read_host(played(tools=MAC_TOOLS, **{**MAC, "machine": "x86_64"}))
    assert host.accelerators == ()


def test_a_mac_that_does_not_name_its_chip_still_has_an_accelerator():
    host = read_host(played(tools={"machdep.cpu.brand_string": said("", 1)}, **MAC))
    assert host.chip is None
    assert [device.name for device in host.accelerators] == ["Apple silicon"]


def test_a_mac_reports_no_cpu_pressure():
    load = read_load(played(**MAC))
    assert load.cpu_pressure_avg10_percent is None
    assert load.unavailable["cpu_pressure_avg10_percent"] == "macOS reports no CPU pressure"


# --- cores, memory, power ------------------------------------------------------------------


def test_usable_cores_are_those_this_process_may_run_on(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 2, 5}, raising=False)
    assert read_host(played()).usable_cores == 3


def test_where_no_process_can_be_bound_all_cores_are_usable(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 12)
    assert read_host(played()).usable_cores == 12


def test_cores_are_counted_as_cores_and_as_threads(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else 8)
    host = read_host(played())
    assert (host.physical_cores, host.logical_cores) == (8, 16)


def test_cores_that_are_not_told_are_unknown(monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: 16 if logical else None)
    host = read_host(played())
    assert host.physical_cores is None
    assert host.unavailable["physical_cores"] == "the system does not say"


@pytest.mark.parametrize(("plugged", "source"), [(True, "ac"), (False, "battery")])
def test_a_laptop_tells_what_feeds_it(monkeypatch, plugged, source):
    battery = types.SimpleNamespace(power_plugged=plugged)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    assert read_host(played()).power_source == source


@pytest.mark.parametrize("battery", [None, types.SimpleNamespace(power_plugged=None)])
def test_without_a_battery_nothing_tells_what_feeds_the_machine(monkeypatch, battery):
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)
    host = read_host(played())
    assert host.power_source is None
    assert "no battery" in host.unavailable["power_source"]


def test_a_library_that_fails_leaves_a_reason(monkeypatch):
    def broken():
        raise RuntimeError("unexpected line in /proc/meminfo")

    monkeypatch.setattr(psutil, "virtual_memory", broken)
    monkeypatch.setattr(psutil, "swap_memory", broken)
    host, load = read_host(played()), read_load(played())
    assert (host.memory_bytes, host.swap_total_bytes) == (None, None)
    assert (load.memory_available_bytes, load.swap_used_bytes) == (None, None)
    assert host.unavailable["memory_bytes"] == "unexpected line in /proc/meminfo"


def test_an_error_without_words_is_named_by_its_kind(monkeypatch):
    def broken():
        raise NotImplementedError

    monkeypatch.setattr(psutil, "swap_memory", broken)
    assert read_host(played()).unavailable["swap_total_bytes"] == "NotImplementedError"


# --- how busy it is ------------------------------------------------------------------------


def test_load_is_read_from_the_system(monkeypatch):
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 9.0, 9.0))
    memory = types.SimpleNamespace(available=123, total=456)
    swap = types.SimpleNamespace(used=7, total=8)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    monkeypatch.setattr(psutil, "swap_memory", lambda: swap)
    assert read_load(played(LINUX_FILES)) == HostLoad(
        load_1m=1.5,
        cpu_pressure_avg10_percent=12.34,
        memory_available_bytes=123,
        swap_used_bytes=7,
    )


def test_a_kernel_without_pressure_gives_a_reason():
    load = read_load(played())
    assert load.cpu_pressure_avg10_percent is None
    assert "/proc/pressure/cpu" in load.unavailable["cpu_pressure_avg10_percent"]


def test_a_system_without_a_load_average_gives_a_reason(monkeypatch):
    def none():
        raise OSError("unobtainable")

    monkeypatch.setattr(os, "getloadavg", none)
    load = read_load(played(LINUX_FILES))
    assert load.load_1m is None
    assert load.unavailable["load_1m"] == "unobtainable"


# --- this machine --------------------------------------------------------------------------


def test_this_machine_gives_what_every_machine_has():
    host = read_host()
    assert host.os_name
    assert host.kernel
    assert host.python_version == platform.python_version()
    assert 1 <= host.usable_cores <= host.logical_cores
    assert host.memory_bytes > 2**26


def test_this_machine_s_load_is_within_reason():
    load = read_load()
    assert load.load_1m >= 0
    assert 0 < load.memory_available_bytes <= read_host().memory_bytes


def test_every_null_of_this_machine_has_a_reason_and_no_other_field_has():
    for value in (read_host(), read_load()):
        nulls = {name for name, item in attrs.asdict(value).items() if item is None}
        assert nulls == {key for key in value.unavailable if "." not in key}


@pytest.mark.parametrize("read", [read_host, read_load])
def test_a_host_survives_being_stored(read):
    value = read()
    assert structure(from_json(to_json(value)), type(value)) == value


def test_the_machine_s_own_name_is_not_stored():
    names = {field.name for field in attrs.fields(Host)}
    assert not names & {"hostname", "node", "user"}
    name = socket.gethostname()
    if len(name) > 8:
        assert name not in to_json(read_host()).decode()


@pytest.mark.parametrize("kind", [Host, HostLoad, Accelerator])
def test_every_field_says_what_it_means(kind):
    for attribute in attrs.fields(kind):
        said_about = about_of(attribute)
        assert said_about.doc.endswith("."), attribute.name
        assert said_about.role in (Role.ENVIRONMENT, Role.PROVENANCE)


# --- tools ---------------------------------------------------------------------------------


def test_a_tool_is_run_in_plain_language_with_nothing_to_read():
    script = "import os,sys; print(os.environ['LC_ALL'], len(sys.stdin.read()))"
    assert run_tool((sys.executable, "-c", script)).stdout == "C 0\n"


def test_a_tool_that_is_not_there_is_told_apart():
    with pytest.raises(FileNotFoundError):
        run_tool(("no-such-tool-anywhere",))


def test_a_tool_that_hangs_is_given_up(monkeypatch):
    monkeypatch.setattr(read_module, "TOOL_TIMEOUT_S", 0.05)
    with pytest.raises(subprocess.TimeoutExpired):
        run_tool((sys.executable, "-c", "import time; time.sleep(60)"))


def test_output_that_is_no_text_does_not_hurt():
    script = r"import sys; sys.stdout.buffer.write(b'\xff, 1, 2')"
    assert run_tool((sys.executable, "-c", script)).stdout.endswith(", 1, 2")


def test_the_driver_s_tool_is_asked_for_three_columns():
    assert NVIDIA_SMI[1] == "--query-gpu=name,memory.total,driver_version"
    assert NVIDIA_SMI[2] == "--format=csv,noheader,nounits"
