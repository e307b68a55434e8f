"""One device of a mesh fails: tensors stay readable, or say that they are lost. On the fake plugin,
whose programs give zeros and know no parts: values are whole on each device."""

MESH = """
from torch_pjrt import spmd
mesh = spmd.Mesh(range(4), (4,), ("d",))
host = torch.arange(6.0)
t = host.to("xla")
"""
ON = "spmd.mark_sharding(t, mesh, (None,)) ; torch_pjrt.sync(wait=True)\n"


def run_on_four(run_fake, code: str) -> str:
    return run_fake(MESH + code, TORCH_PJRT_FAKE_DEVICES="4")


def test_an_upload_to_one_device_that_fails_leaves_the_tensor_on_the_host(run_fake):
    said = run_on_four(run_fake, """
script("upload:3=RESOURCE_EXHAUSTED device 2 is full")
print("mark", attempt(lambda: spmd.mark_sharding(t, mesh, (None,))), states(t))
print("then", t.tolist(), spmd.sharding_of(t))
spmd.mark_sharding(t, mesh, (None,))
print("again", spmd.sharding_of(t).devices, t.tolist())
""")  # fmt: skip
    assert "mark OutOfMemoryError" in said
    assert "device 2 is full" in said
    assert "['host']" in said
    assert "then [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] None" in said
    assert "again (0, 1, 2, 3) [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said


def test_an_execute_that_fails_leaves_pending_values_and_arguments(run_fake):
    said = run_on_four(run_fake, ON + """
y = t + 1
script("execute:1=INTERNAL device 3 does not start")
print("sync", attempt(torch_pjrt.sync), states(t, y))
print("argument", t.tolist())
print("again", attempt(torch_pjrt.sync), states(y), spmd.sharding_of(y).devices)
""")  # fmt: skip
    assert "sync RuntimeError" in said
    assert "device 3 does not start" in said
    assert "['device', 'ir']" in said
    assert "argument [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said
    assert "again None ['device'] (0, 1, 2, 3)" in said


def test_one_device_that_fails_behind_the_launch_is_told_once_and_computed_anew(run_fake):
    said = run_on_four(run_fake, ON + """
y = t + 1
script("event3:1=INTERNAL device 3 broke")
print("sync", attempt(torch_pjrt.sync))
print("read", attempt(lambda: y.tolist()))
print("again", attempt(lambda: y.tolist()), t.tolist())
""")  # fmt: skip
    assert "sync None" in said
    assert "read RuntimeError" in said
    assert "device 3 broke" in said
    assert "again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said


def test_what_a_failed_device_overwrote_is_lost_and_says_so(run_fake):
    said = run_on_four(run_fake, ON + """
for step in range(2):
    t.add_(1)
    torch_pjrt.sync(wait=True)
script("event3:1=INTERNAL device 3 broke")
t.add_(1)
torch_pjrt.sync()
print("read", attempt(lambda: t.tolist()))
print("second", attempt(lambda: t.tolist()))
t.copy_(host)
print("new", attempt(lambda: (t + 0).tolist()) and t.tolist())
""")  # fmt: skip
    assert "device 3 broke" in said
    assert "second RuntimeError" in said
    assert "lost" in said.split("second RuntimeError")[1].split("\nnew")[0]
    assert "new [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said
