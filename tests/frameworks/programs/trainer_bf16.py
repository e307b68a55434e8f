"""The same in bfloat16 autocast."""

import runpy
from pathlib import Path


def run(device, folder):
    run = runpy.run_path(str(Path(__file__).parent / "trainer.py"))["run"]
    return run(device, folder, bf16=True)
