"""``lock.py FOLDER``: a requirements file that names each wheel of the folder with its version and hash."""

import hashlib
import sys
from pathlib import Path

for wheel in sorted(Path(sys.argv[1]).glob("*.whl")):
    name, version, *_ = wheel.name.split("-")
    print(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}")
