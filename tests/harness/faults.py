"""Disks that fail when a test says so: `faults.c`, preloaded into a server."""

import mmap
import pathlib
import shutil
import struct
import subprocess
import sys

SOURCE = pathlib.Path(__file__).with_suffix(".c")


def library(folder):
    """Builds what is preloaded, into a folder; `None` where that cannot be."""
    if not sys.platform.startswith("linux") or not shutil.which("cc"):
        return None
    built = folder / "faults.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", built, SOURCE, "-ldl"], check=True)
    return built


class Disk:
    """What fails in the servers that are started with this environment."""

    def __init__(self, path):
        self.path = path
        path.write_bytes(bytes(4096))
        with open(path, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), 4096)

    def environment(self, library):
        return {"SNUG_FAULTS": str(self.path), "LD_PRELOAD": str(library)}

    def set(self, write=0, sync=0, name=0, hang=0, slow=0, place=0):
        """Errors of what fails, and how slow it is to read files without a name, in
        milliseconds a call."""
        self.control[:24] = struct.pack("6i", write, sync, name, hang, slow, place)

    def heal(self):
        self.set()
