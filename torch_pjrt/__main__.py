"""`python -m torch_pjrt doctor` and `python -m torch_pjrt flags`."""

import argparse
import sys

from . import doctor, flags

__all__ = ["main"]


def main() -> int:
    """Runs one command; its exit status."""
    ap = argparse.ArgumentParser(prog="python -m torch_pjrt", description=__doc__)
    ap.add_argument("command", choices=("doctor", "flags"))
    command = ap.parse_args().command
    if command == "flags":
        print(flags.text())
        return 0
    return doctor.run()


if __name__ == "__main__":
    sys.exit(main())
