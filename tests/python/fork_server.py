"""Runs scripts as `python -c` does, in forked children of one process that imported torch once.

A child is a process of its own: its environment, standard streams, working directory, threads and
end are its own, and Python ends it as it ends any script. torch_pjrt is imported in the child, so
that it reads the child's environment; no frame of the server is below the script's.
What Python or torch read at their own start is the same for all children: see `read_at_start`.
"""

import gc
import importlib._bootstrap_external as bootstrap
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import CodeType

HERE = Path(__file__).resolve().parent
# A file name that torch_pjrt takes for Python's own, so that no line of it is the user's.
START = """
import sys; sys.path[0] = {path!r}
exec(__import__("fork_server").next_script({imports!r}))
"""
START_NAME = "<frozen fork_server>"
READ_AT_START = ("PYTHON", "LD_", "OMP_", "MKL_", "OPENBLAS_", "TORCH")
READ_LATER = ("TORCH_PJRT_", "PYTHONPATH")


def read_at_start(variables: Iterable[str]) -> bool:
    """Whether Python or torch read one of these at their start, too early for a forked child."""
    return any(v.startswith(READ_AT_START) and not v.startswith(READ_LATER) for v in variables)


# ---- the server's process ---------------------------------------------------------------------


def next_script(imports: str) -> CodeType:
    """Forks a child for each request; in a child gives the script that it has to run."""
    exec(imports, {"__name__": "imports"})  # what children need not import
    gc.freeze()  # a child's collections leave the shared pages alone
    asked = socket.socket(fileno=int(sys.argv[1]))
    while True:
        data, files, _, _ = socket.recv_fds(asked, 1, 3)
        if not data:
            os._exit(0)  # the tests are over
        if (pid := os.fork()) == 0:
            asked.close()
            return become(*files)
        for f in files:
            os.close(f)
        asked.send(b"%d\n" % pid)
        _, status, used = os.wait4(pid, 0)
        asked.send(b"%d %f\n" % (status, used.ru_utime + used.ru_stime))


def become(request: int, out: int, err: int) -> CodeType:
    """Makes a forked child what `python -c` starts with."""
    with open(request) as f:
        wanted = json.load(f)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for stream, file in enumerate((nothing, out, err)):
        os.dup2(file, stream)
        os.close(file)
    os.environ.clear()
    os.environ.update(wanted["env"])
    os.chdir(wanted["cwd"])
    sys.argv[:] = ["-c"]
    sys.path[:1] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    del sys.modules["fork_server"], sys.modules["__main__"].__file__
    return compile(wanted["code"], "<string>", "exec")


# ---- the tests' side ----------------------------------------------------------------------------


class ForkServer:
    """One server and what it ran. One script at a time: for the thread that made it.

    `imports`: the statement that the server runs once for all scripts.
    """

    def __init__(self, imports: str = "import torch") -> None:
        env = dict(os.environ)
        env.pop("PYTHONPATH", None)  # the children's own
        self.cpu_seconds = 0.0  # of the children
        self.asks, answers = socket.socketpair()
        with tempfile.TemporaryDirectory() as folder:
            start = Path(folder, "start.pyc")
            text = START.format(path=str(HERE), imports=imports)
            code = compile(text, START_NAME, "exec")
            start.write_bytes(bootstrap._code_to_timestamp_pyc(code))
            self.process = subprocess.Popen(
                [sys.executable, str(start), str(answers.fileno())],
                pass_fds=[answers.fileno()],
                env=env | {"OPENBLAS_NUM_THREADS": "1"},  # a process that forks has one thread
            )
            answers.close()
            self.run("pass", env, HERE, 120)  # until it has read its start

    def run(
        self, code: str, env: dict[str, str], cwd: Path, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        """What subprocess.run gives for `python -c code`, with its output as text."""
        with tempfile.TemporaryFile("w+") as request, tempfile.TemporaryFile("w+") as out, \
                tempfile.TemporaryFile("w+") as err:  # fmt: skip
            json.dump({"code": code, "env": env, "cwd": str(cwd)}, request)
            request.flush()
            request.seek(0)
            socket.send_fds(self.asks, [b"x"], [f.fileno() for f in (request, out, err)])
            status, late = self.wait(seconds)
            said = []
            for f in (out, err):
                f.seek(0)
                said.append(f.read())
        command = [sys.executable, "-c", code]
        if late:
            raise subprocess.TimeoutExpired(command, seconds, *said)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(status), *said)

    def wait(self, seconds: float) -> tuple[int, bool]:
        """A child's wait status, and whether it was killed because it took longer."""
        pid, late = int(self.answer()), False
        self.asks.settimeout(seconds)
        try:
            text = self.answer()
        except TimeoutError:
            late = True
            os.kill(pid, signal.SIGKILL)
            self.asks.settimeout(None)
            text = self.answer()
        self.asks.settimeout(None)
        status, used = text.split()
        self.cpu_seconds += float(used)
        return int(status), late

    def answer(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            got = self.asks.recv(1)
            if not got:
                raise RuntimeError("the fork server died")
            line += got
        return line.decode()

    def close(self) -> None:
        self.asks.close()
        self.process.wait()
