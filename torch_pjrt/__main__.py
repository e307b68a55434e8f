"""`python -m torch_pjrt {doctor,flags,cache,fit,conform}`."""

import argparse
import sys

from . import _cache_command, _conform, _fit, doctor, flags

__all__ = ["main"]


def main() -> int:
    """Runs one command; its exit status."""
    ap = argparse.ArgumentParser(prog="python -m torch_pjrt", description=__doc__)
    commands = ap.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="versions, plugins, devices, and what is missing")
    commands.add_parser("flags", help="the environment variables that are read, with their values")
    _cache_command.add_arguments(commands.add_parser("cache", help="programs kept on disk"))
    _fit.add_arguments(commands.add_parser("fit", help="does a training script fit there?"))
    _conform.add_arguments(commands.add_parser("conform", help="what does a plugin do right?"))
    arguments = ap.parse_args()
    if arguments.command == "conform":
        return _conform.run(arguments)
    if arguments.command == "fit":
        return _fit.run(arguments)
    if arguments.command == "cache":
        return _cache_command.run(arguments)
    if arguments.command == "flags":
        print(flags.text())
        return 0
    return doctor.run()


if __name__ == "__main__":
    sys.exit(main())
