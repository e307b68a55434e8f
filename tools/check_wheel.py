"""Fails where the newest wheel of a folder is not what it has to be.

usage: check_wheel.py FOLDER TORCH...

One extension for each torch and nothing else that is compiled; the tag of a Linux that
auditwheel found it to run on; requirements that admit these releases of torch.
"""

import argparse
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
TAG = re.compile(r"-cp3\d+-cp3\d+-manylinux_2_(\d+)_x86_64\.whl$")
NEWEST_GLIBC = 36  # of Debian 12, where wheels are made
LIMIT_MB = 40


def complaints(wheel: Path, torches: list[str]) -> list[str]:
    """What is wrong with it."""
    found = []
    tag = TAG.search(wheel.name)
    if not tag or int(tag[1]) > NEWEST_GLIBC:
        found.append(f"its tag is not manylinux_2_{NEWEST_GLIBC} or an older one's")
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        metadata = z.read(next(n for n in names if n.endswith(".dist-info/METADATA"))).decode()
    stems = [f"_C_{t.replace('.', '_')}" for t in torches] if len(torches) > 1 else ["_C"]
    compiled = {n for n in names if ".so" in Path(n).name}
    wanted = {f"torch_pjrt/{stem}{SUFFIX}" for stem in stems}
    if compiled != wanted:
        found.append(f"its libraries are {sorted(compiled)}, not {sorted(wanted)}")
    for name in ("torch_pjrt/_build_info.py", "torch_pjrt/py.typed", "torch_pjrt/report.html"):
        if name not in names:
            found.append(f"it lacks {name}")
    if not re.search(rf"^Requires-Dist: torch.*{re.escape(max(torches))}", metadata, re.M):
        found.append("its metadata does not ask for torch")
    if wheel.stat().st_size > LIMIT_MB << 20:
        found.append(f"it has {wheel.stat().st_size >> 20} MB, over {LIMIT_MB}")
    return found


def main() -> int:
    """Command line: see the top."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("torch", nargs="+")
    a = parser.parse_args()
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    wheels = sorted(a.folder.glob(f"*-{tag}-*.whl"), key=lambda p: p.stat().st_mtime)
    if not wheels:
        print(f"{a.folder} has no wheel for {tag}", file=sys.stderr)
        return 1
    found = complaints(wheels[-1], a.torch)
    size = wheels[-1].stat().st_size / (1 << 20)
    print("\n".join([f"{wheels[-1].name}: {size:.1f} MB", *(f"error: {line}" for line in found)]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
