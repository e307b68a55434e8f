"""A listener to our messages may do what it likes: read a pending tensor, sync, log."""

import pytest

# `handler` is what the listener does; each program ends within seconds or not at all.
PROGRAM = """
import logging, sys, threading
import torch, torch_pjrt

x = torch.ones(4).to("xla")
told = []
class Handler(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())
        loss = x * len(told)
        {handler}

logger = logging.getLogger("torch_pjrt")
logger.addHandler(Handler())
for n in (2, 3, 4):
    y = (torch.ones(n).to("xla") * 2).sum()
    {step}
torch_pjrt.sync(wait=True)
print("told", len(told), "last", float(y))
"""
HANDLERS = {
    "reads": "float(loss.sum())",
    "prints": "str(loss)",
    "syncs": "torch_pjrt.sync(wait=True)",
    "reads what the program waits for": "float(y) if 'y' in globals() else None",
    # Not a thread that the handler waits for: what that says waits for Python's own lock of the
    # handler, whoever says it.
    "logs itself": "logger.warning('mine') if len(told) < 5 else None",
    "waits for the device": "torch_pjrt.wait()",
    "raises": "raise KeyError('mine')",
}
STEPS = {
    "sync": "torch_pjrt.sync()",
    "read": "float(y)",
    "eager": "torch_pjrt.eager_mode(True); float(y)",
    "thread": "t = threading.Thread(target=lambda: float(y)); t.start(); t.join(20)",
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("handler", HANDLERS)
def test_a_listener_that_uses_the_device_does_not_hang(run_python, handler, step):
    code = PROGRAM.format(handler=HANDLERS[handler], step=STEPS[step])
    done = run_python(code=code, TORCH_PJRT_DEBUG="2")
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith("last 8.0\n"), done.stdout
    assert int(done.stdout.split()[1]) >= 3, done.stdout


def test_a_tensor_that_is_formatted_inside_a_handler_may_compile(run_python):
    """The handler's lock is held while the message is made; the recompile is told all the same."""
    code = """
import logging, torch, torch_pjrt
logging.basicConfig(format="LOG %(name)s %(message)s")
for n in (2, 3):
    logging.warning("loss %s", torch.ones(n).to("xla") * 2)
"""
    done = run_python(code=code, TORCH_PJRT_DEBUG="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("LOG root loss tensor(") == 2
    assert "LOG torch_pjrt recompiled at" in done.stderr
    assert "called from <string>:5" in done.stderr, done.stderr


def test_a_slow_compile_is_told_while_it_lasts_whoever_listens(run_fake):
    said = run_fake(
        """
import logging, time
when = []
class Handler(logging.Handler):
    def emit(self, record):
        if "compiling for more than" in record.getMessage():
            when.append(time.monotonic())
            script("")  # the compile ends; a read waits for it
            float((a * 2).sum())
logging.getLogger("torch_pjrt").addHandler(Handler())
y = a + b
script("PJRT_Client_Compile:1=HANG 60000")
start = time.monotonic()
torch_pjrt.sync(wait=True)
print(len(when), time.monotonic() - start < 30)
""",
        TORCH_PJRT_SLOW_COMPILE_MS="20",
    )
    assert said == "1 True\n", said


def test_messages_of_what_a_listener_does_go_to_stderr(run_python):
    code = """
import logging, torch, torch_pjrt
x = torch.ones(3).to("xla")
n = 0
class Handler(logging.Handler):
    def emit(self, record):
        global n
        n += 1
        float((x * n).sum())  # cuts the graph at each message: told to itself it would never end
logging.getLogger("torch_pjrt").addHandler(Handler())
float((x + 1).sum())
print(n < 20)
"""
    done = run_python(code=code, TORCH_PJRT_DEBUG="2")
    assert done.stdout == "True\n", done.stdout + done.stderr
    assert "torch_pjrt: graph cut: item at <string>:9 in emit" in done.stderr, done.stderr
