"""Ctrl-C gets Python back from a compile or a wait at once; what was going on goes on."""

import pytest

CODE = """
import signal, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs start without it
def soon(f=lambda: os.kill(os.getpid(), signal.SIGINT), after=0.4):
    threading.Timer(after, f).start()
def stopped(f):
    start = time.perf_counter()
    try:
        f()
        kind = "nothing"
    except BaseException as e:
        kind = type(e).__name__
    took = time.perf_counter() - start
    return f"{kind} {'at once' if took < 5 else f'after {took:.1f} s'}"
"""


@pytest.fixture
def run_stop(run_fake):
    return lambda code, **env: run_fake(CODE + code, **env)


def test_compile_is_left_at_once_and_serves_the_next_sync(run_stop):
    said = run_stop("""
y = a + b
script("PJRT_Client_Compile:1=HANG 60000")
soon()
print(stopped(torch_pjrt.sync), states(y))
count = lambda: plugin.fake_plugin_count(b"compile")
soon(lambda: script(""), 0.2)  # the compile ends
torch_pjrt.sync()
print("then", y.tolist(), "compiles", torch_pjrt.metrics.compiles())
""")
    assert "KeyboardInterrupt at once ['ir']" in said
    assert "then [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] compiles 1" in said


def test_compile_in_a_read_is_left_at_once(run_stop):
    said = run_stop("""
y = a + b
script("PJRT_Client_Compile:1=HANG 60000")
soon()
print(stopped(y.cpu), states(y))
script("")
print("then", y.tolist())
""")
    assert "KeyboardInterrupt at once ['ir']" in said
    assert "then [0.0" in said


@pytest.mark.parametrize("wait", ["y.tolist", "torch_pjrt.wait", "lambda: torch_pjrt.sync(True)"])
def test_wait_for_a_program_is_left_at_once_and_the_program_goes_on(run_stop, wait):
    said = run_stop(f"""
y = a + b
script("slow:1=60000")
torch_pjrt.sync()
soon()
print(stopped({wait}), states(y))
script("")
print("then", y.tolist())
""")
    assert "KeyboardInterrupt at once ['device']" in said
    assert "then [0.0" in said


def test_failure_after_an_interrupted_wait_is_still_recovered(run_stop):
    said = run_stop("""
y = a + b
script("slow:1=60000; event:1=INTERNAL lost a chip")
torch_pjrt.sync()
soon()
print(stopped(torch_pjrt.wait))
script("")
print("read", attempt(y.tolist), states(y))
print("then", y.tolist())
""")
    assert "KeyboardInterrupt at once" in said
    assert "lost a chip" in said
    assert "['ir']" in said
    assert "then [0.0" in said


def test_download_is_left_at_once(run_stop):
    said = run_stop(
        """
y = a + b
torch_pjrt.sync(wait=True)
script("slow_download:1=60000")
soon()
print(stopped(y.cpu), states(y))
script("")
print("then", y.tolist())
""",
        TORCH_PJRT_FAKE_OFF_HOST="1",
    )
    assert "KeyboardInterrupt at once ['device']" in said
    assert "then [0.0" in said


def test_waiting_for_another_threads_sync_is_left_at_once(run_stop):
    said = run_stop("""
y = a + b
script("PJRT_Client_Compile:1=HANG 60000")
t = threading.Thread(target=torch_pjrt.sync, daemon=True) ; t.start()
while not plugin.fake_plugin_count(b"PJRT_Client_Compile"): time.sleep(0.001)
soon()
print(stopped(torch_pjrt.sync))
script("") ; t.join()
print("then", y.tolist(), states(y))
""")
    assert "KeyboardInterrupt at once" in said
    assert "then [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] ['device']" in said


def test_what_the_users_own_handler_raises_comes_out(run_stop):
    said = run_stop("""
class TooLong(Exception): pass
def handler(*_): raise TooLong()
signal.signal(signal.SIGALRM, handler)
y = a + b
script("slow:1=60000")
torch_pjrt.sync()
signal.setitimer(signal.ITIMER_REAL, 0.3)
print(stopped(y.cpu))
signal.signal(signal.SIGALRM, lambda *_: print("handled"))
signal.setitimer(signal.ITIMER_REAL, 0.2)
soon(lambda: script(""), 0.6)
print("then", y.tolist())
""")
    assert "TooLong at once" in said
    assert said.index("handled") < said.index("then [0.0")


def test_threads_that_wait_for_one_failed_program_all_get_its_error(run_stop):
    said = run_stop("""
y = a + b
script("slow:1=60000; event:1=INTERNAL lost a chip")
torch_pjrt.sync()
errors = []
threads = [threading.Thread(target=lambda: errors.append(attempt(y.tolist))) for _ in range(4)]
for t in threads: t.start()
time.sleep(0.5)
script("")
for t in threads: t.join()
print("told", sum("lost a chip" in str(e) for e in errors))
print("then", y.tolist())
""")
    assert "told 4" in said
    assert "then [0.0" in said
