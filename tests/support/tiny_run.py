"""A real run in a second: the command line, a worker per launch, an engine that computes nothing.

``PYTHONPATH=tests python -m support.tiny_run tests/data`` keeps such a run as files that every later
version has to read. Do it once per version of a format, never again for an old one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support import gguf_bytes
from support.plugin_folder import write_scripted

SUITE = """
schema = "inferometer.suite/1"
name = "tiny"
rounds = 1
[[workloads]]
name = "short"
prompt_tokens = 400
output_tokens = 4
[[workloads]]
name = "given"
prompt = "ids"
ids = [72, 101, 108, 108, 111]
output_tokens = 3
[[workloads]]
name = "too-long"
prompt_tokens = 2048
output_tokens = 1
"""
SUBJECTS = """
schema = "inferometer.subjects/1"
[[subjects]]
name = "good"
engine = "scripted"
model = "tiny.gguf"
[[subjects]]
name = "failing"
engine = "scripted"
model = "tiny.gguf"
options = { fault = "engine_error", after = 3 }
[[subjects]]
name = "dying"
engine = "scripted"
model = "tiny.gguf"
options = { fault = "fatal_error", after = 1 }
"""
"""One that works, one whose requests fail, one that dies: every kind of record is in its journal."""


HOST = {
    "os_name": "Example OS",
    "os_version": "1",
    "kernel": "1.0",
    "machine": "arm64",
    "chip": "Example chip",
    "physical_cores": 8,
    "logical_cores": 8,
    "usable_cores": 8,
    "memory_bytes": 17179869184,
    "swap_total_bytes": 0,
    "accelerators": [],
    "power_source": "ac",
    "unavailable": {},
}
"""What is kept says nothing of the machine that it was made on."""


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a process that sees the scripted plugin as installed."""
    if not folder.exists():
        folder.mkdir(parents=True)
        write_scripted(folder)
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder, with the scripted plugin installed."""
    return subprocess.run(
        [sys.executable, "-m", "inferometer", *arguments],
        cwd=folder,
        env=environment(folder / "installed"),
        capture_output=True,
        text=True,
        check=False,
    )


def tiny_run(folder: Path) -> Path:
    """Make a run and return its folder."""
    (folder / "tiny.gguf").write_bytes(gguf_bytes.gguf())
    (folder / "tiny.toml").write_text(SUITE)
    (folder / "subjects.toml").write_text(SUBJECTS)
    options = ("--subjects", "subjects.toml", "--out", "tiny", "--order-seed", "1")
    done = command(folder, "run", "tiny.toml", *options)
    assert done.returncode == 1, done.stderr  # two of the three subjects fail on purpose
    assert (folder / "tiny" / "results.json").exists(), done.stderr
    return folder / "tiny"


def keep(folder: Path) -> list[Path]:
    """Make a run and keep its journal and results in a folder; return the two files."""
    from inferometer import journal
    from inferometer.codec import to_json
    from inferometer.results import SCHEMA

    kept = [folder / f"journal-v{_version(journal.SCHEMA)}.jsonl"]
    kept.append(folder / f"results-v{_version(SCHEMA)}.json")
    with tempfile.TemporaryDirectory() as scratch:
        lines = (tiny_run(Path(scratch)) / "journal.jsonl").read_text().splitlines()
    kept[0].write_text("".join(f"{json.dumps(_neutral(json.loads(line)))}\n" for line in lines))
    kept[1].write_bytes(to_json(journal.load(kept[0]), pretty=True) + b"\n")
    return kept


def _version(schema: str) -> str:
    return schema.rpartition("/")[2]


def _neutral(record: dict[str, Any]) -> dict[str, Any]:
    if record["kind"] == "Opened":
        record["body"]["host"].update(HOST)
        for planned in record["body"]["subjects"]:
            planned["subject"]["model"] = "/models/tiny.gguf"
    return record


if __name__ == "__main__":
    for path in keep(Path(sys.argv[1])):
        print(path)
