"""Compiled and captured calls on a device that fails: told with their name, nothing lost."""


def test_a_failed_launch_of_a_compiled_call_leaves_its_arguments(run_fake):
    said = run_fake("""
def work(w, x):
    w.add_(x)
    return w * 2
f = torch.compile(work, backend="openxla")
f(a, b)
torch_pjrt.wait()
script("execute:1=INTERNAL queue is gone")
print("first", attempt(lambda: f(a, b)))
print("states", states(a, b), a.tolist())
print("again", f(a, b).tolist())
""")
    assert "queue is gone" in said
    assert "calling compiled function called at <string>" in said
    assert "states ['device', 'device'] [0.0" in said
    assert "again [0.0" in said


def test_a_compiled_call_that_fails_while_it_runs_names_its_function(run_fake):
    said = run_fake("""
def work(x):
    return x * 2
f = torch.compile(work, backend="openxla")
f(a)
torch_pjrt.wait()
script("event:1=INTERNAL lost a chip")
y = f(a)
print("read", attempt(lambda: y.tolist()))
print("once more", attempt(lambda: y.tolist()))
print("next", f(a).tolist())
""")
    assert "read RuntimeError" in said
    assert "lost a chip" in said
    assert "synced at function called at <string>" in said
    assert "once more RuntimeError" in said
    assert "next [0.0" in said


def test_a_failed_compile_of_a_compiled_function_is_told_and_tried_again(run_fake):
    said = run_fake("""
f = torch.compile(lambda x: x * 3, backend="openxla")
script("compile:1=INTERNAL compiler crashed")
print("first", attempt(lambda: f(a)))
print("again", f(a).tolist())
""")
    assert "compiler crashed" in said
    assert "again [0.0" in said


def test_a_failed_launch_of_a_captured_step_leaves_its_tensors(run_fake):
    said = run_fake("""
step = torch_pjrt.capture(lambda x: a.add_(x).sum())
for _ in range(4):
    step(b)
torch_pjrt.wait()
script("execute:1=INTERNAL queue is gone")
print("first", attempt(lambda: step(b)))
print("states", states(a, b), a.tolist())
print("again", step(b).item())
""")
    assert "queue is gone" in said
    assert "replaying a captured step" in said
    assert "states ['device', 'device'] [0.0" in said
    assert "again 0.0" in said
