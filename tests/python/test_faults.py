"""The device fails: tensors stay readable, errors have the plugin's words, the next step works.

The fake plugin computes zeros and fails where its script says so (tests/fakeplugin/script.h).
"""

import pytest
from fake_plugin import fake_env


def test_compile_failure_leaves_every_tensor_as_it_was(run_fake):
    said = run_fake("""
y = a + b ; z = y * 2 ; v = y[1:3] ; zeros = torch.zeros(2, device="xla")
words = "RESOURCE_EXHAUSTED no memory for this program"
script(f"compile:1={words}; compile:2={words}")  # of all that is pending, then of z alone
print("first", attempt(lambda: z.cpu()))
print("states", states(a, b, y, z, v, zeros))
print("inputs", a.tolist(), b.tolist())
print("then", z.tolist(), y.tolist(), v.tolist(), zeros.tolist(), states(y, z))
""")
    assert "no memory for this program" in said
    assert "RESOURCE_EXHAUSTED" in said
    assert "first OutOfMemoryError" in said
    assert "states ['device', 'device', 'ir', 'ir', 'view', 'ir']" in said
    assert "inputs [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]" in said
    assert "then [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]" in said
    assert said.rstrip().endswith("['device', 'device']")


def test_compile_failure_in_a_sync_is_raised_there(run_fake):
    said = run_fake("""
y = a + b
script("compile:1=INTERNAL compiler crashed")
print("sync", attempt(torch_pjrt.sync), states(y))
print("again", attempt(torch_pjrt.sync), states(y))
""")
    assert "sync RuntimeError: PJRT_Client_Compile failed with INTERNAL" in said
    assert "compiler crashed" in said
    assert "['ir']" in said
    assert "again None ['device']" in said


def test_read_computes_its_tensor_alone_where_all_together_fail(run_fake):
    said = run_fake("""
y = a + b ; z = a * b
script("compile:1=RESOURCE_EXHAUSTED too much at once")
print(attempt(lambda: z.tolist()), states(y, z), y.tolist())
""")
    assert "[0.0, 0.0, 0.0, 0.0, 0.0, 0.0] ['ir', 'device'] [0.0" in said


def test_launch_failure_leaves_every_tensor_as_it_was(run_fake):
    said = run_fake("""
y = a + b ; a2 = a.clone() ; a2.add_(1)
script("execute:1=INTERNAL queue is gone; execute:2=INTERNAL queue is gone")
print("first", attempt(lambda: y.cpu()), states(a, y, a2))
print("inputs", a.tolist())
print("again", y.tolist(), states(a, y, a2))
""")
    assert "queue is gone" in said
    assert "['device', 'ir', 'ir']" in said
    assert "inputs [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said
    assert "again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] ['device', 'device', 'device']" in said


def test_failure_while_running_is_told_at_the_read_and_the_value_is_computed_anew(run_fake):
    said = run_fake("""
y = a + b
script("event:1=INTERNAL lost a chip")
torch_pjrt.sync()
print("launched", states(y))
print("read", attempt(lambda: y.cpu()), states(y))
print("inputs", a.tolist())
print("again", y.tolist(), states(y))
""")
    assert "launched ['device']" in said
    assert "lost a chip" in said
    assert said.count("['ir']") == 1
    assert "inputs [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said
    assert "again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] ['device']" in said


def test_every_output_of_a_failed_program_is_recovered(run_fake):
    said = run_fake("""
y = a + b ; z = a * b
script("event:1=INTERNAL lost a chip")
torch_pjrt.sync()
print("y", attempt(lambda: y.cpu()))
print("z", attempt(lambda: z.cpu()))
print("later", y.tolist(), z.tolist())
""")
    assert said.count("lost a chip") >= 1
    assert "later [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]" in said


def test_step_built_on_a_failed_value_is_recovered_too(run_fake):
    said = run_fake("""
y = a + b
script("event:1=INTERNAL lost a chip")
torch_pjrt.sync()
z = y * 2
torch_pjrt.sync()
print("z", attempt(lambda: z.cpu()))
for _ in range(3):
    last = attempt(lambda: z.tolist())
print("later", last)
print("y", attempt(lambda: y.tolist()))
print("y again", attempt(lambda: y.tolist()))
""")
    assert "lost a chip" in said
    assert "later [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]" in said
    assert "y again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]" in said


def test_in_place_on_a_failed_program_keeps_the_old_value_reachable(run_fake):
    said = run_fake("""
old = a.clone() ; torch_pjrt.sync(wait=True)
script("execute:1=INTERNAL queue is gone")
a.add_(1)
print(attempt(torch_pjrt.sync), states(a))
print("b", b.tolist())
print("a", a.tolist())
""")
    assert "queue is gone" in said
    assert "b [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]" in said
    assert "a [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]" in said


STEP = """
m = torch.nn.Linear(3, 2).to("xla")
o = torch.optim.Adam(m.parameters())
x = torch.ones(4, 3).to("xla")
def step():
    o.zero_grad()
    loss = m(x).square().sum()
    loss.backward()
    o.step()
    torch_pjrt.sync(wait=True)
    return loss.item()
"""
STEPS = """
print("first", attempt(step))
print("second", attempt(step))
print("third", attempt(step))
print("weights", [attempt(lambda p=p: tuple(p.tolist() and p.shape)) for p in m.parameters()])
"""


@pytest.mark.parametrize("fault", ["compile:1", "execute:1", "event:1"])
def test_training_goes_on_after_a_failed_step(run_fake, fault):
    # A program that fails while it runs has consumed what it updates in place: see below.
    donation = "0" if fault == "event:1" else "1"
    said = run_fake(
        f'{STEP}\nscript("{fault}=INTERNAL broken")\n{STEPS}', TORCH_PJRT_DONATION=donation
    )
    assert "broken" in said.split("second")[0]
    assert "third 0.0" in said
    assert "weights [(2, 3), (2,)]" in said


def test_failure_during_an_update_in_place_says_what_is_lost_and_a_checkpoint_mends_it(run_fake):
    said = run_fake(f"""{STEP}
saved = {{k: v.cpu() for k, v in m.state_dict().items()}}
script("event:1=INTERNAL broken")
print("first", attempt(step))
print("weight", attempt(lambda: m.weight.cpu()))
print("again", attempt(lambda: m.weight.cpu()))
print("untouched", x.sum().item(), a.tolist())
m.load_state_dict(saved) ; o = torch.optim.Adam(m.parameters())
print("mended", attempt(step), attempt(step), m.weight.shape)
""")
    first, rest = said.split("\nweight ")
    weight, again = rest.split("\nagain ")
    for told in (weight, again.split("\nuntouched")[0]):
        assert "broken" in told
        assert "this value is lost: it needs what the failed program was updating in place" in told
        assert "f32[2,3]" in told
        assert "TORCH_PJRT_DONATION=0" in told
    assert "broken" in first
    assert "untouched 0.0 [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said
    assert "mended 0.0 0.0 torch.Size([2, 3])" in said


def test_upload_failure_is_told_and_the_next_upload_works(run_fake):
    said = run_fake("""
c = torch.full((6,), 3.0).to("xla")
c_host = torch.arange(6.0).to("xla")
script("upload:1=RESOURCE_EXHAUSTED device is full")
print("first", attempt(lambda: c_host + b), states(c_host))
print("again", attempt(lambda: (c_host + b).tolist()), c_host.tolist())
""")
    assert "device is full" in said
    assert "again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said


def test_download_failure_is_told_and_the_next_read_works(run_fake):
    said = run_fake(
        """
script("download:1=UNAVAILABLE cable")
y = a + b
print("first", attempt(lambda: y.cpu()))
print("again", y.tolist(), a.tolist())
""",
        TORCH_PJRT_FAKE_OFF_HOST="1",
    )
    assert "cable" in said
    assert "again [0.0, 0.0, 0.0, 0.0, 0.0, 0.0] [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]" in said


def test_client_that_cannot_start_is_tried_again(run_python, fake):
    code = """
import ctypes, os, torch, torch_pjrt
def attempt(f):
    try:
        return f()
    except Exception as e:
        return f"{type(e).__name__}: {e}"
x = torch.ones(2, device="xla")
print("first", attempt(lambda: (x + 1).tolist()))
os.environ["TORCH_PJRT_FAKE_SCRIPT"] = ""
ctypes.CDLL(None).setenv(b"TORCH_PJRT_FAKE_SCRIPT", b"", 1)
ctypes.CDLL(os.environ["FAKE"]).fake_plugin_script(b"")
print("again", attempt(lambda: (x + 1).tolist()))
"""
    env = fake_env(fake)
    done = run_python(code=code, TORCH_PJRT_FAKE_SCRIPT="client:1=UNAVAILABLE no such chip", **env)
    assert "no such chip" in done.stdout
    assert "again [0.0, 0.0]" in done.stdout, done.stdout + done.stderr


# ---- a step with donors ------------------------------------------------------------------------

DONOR = """
w = torch.full((6,), 3.0).to("xla") ; other = torch.full((6,), 5.0).to("xla")
torch_pjrt.sync(wait=True)
lost = lambda t: isinstance(attempt(t.tolist), str)
"""


@pytest.mark.parametrize("upload", [1, 2])  # the number 2, then the fill
def test_upload_that_fails_costs_no_tensor_that_is_updated_in_place(run_fake, upload):
    said = run_fake(f"""{DONOR}
w.mul_(2) ; z = torch.full((7,), 4.0, device="xla")
script("upload:{upload}=RESOURCE_EXHAUSTED no memory")
print("sync", attempt(torch_pjrt.sync), states(w, z))
print("donated", torch_pjrt.memory()["donated_bytes"])
print("after", lost(w), lost(other), z.tolist(), states(w))
print("next", attempt(torch_pjrt.sync))
""")
    assert "sync OutOfMemoryError" in said
    assert "no memory" in said
    assert "['ir', 'ir']" in said
    assert "donated 0" in said
    assert f"after False False {[4.0] * 7} ['device']" in said
    assert "next None" in said


def test_donor_that_the_plugin_does_not_tell_of_costs_no_output(run_fake):
    said = run_fake(f"""{DONOR}
w.mul_(2)
script("PJRT_Buffer_IsDeleted:1=INTERNAL cannot say")
print("sync", attempt(torch_pjrt.sync), states(w))
print("asked", plugin.fake_plugin_count(b"PJRT_Buffer_IsDeleted"))
script("")
print("after", lost(w), lost(other))
w.add_(1)
print("next", attempt(torch_pjrt.sync), w.tolist())
""")
    assert "sync None ['device']" in said
    assert "asked 1" in said
    assert "after False False" in said
    assert f"next None {[0.0] * 6}" in said


def test_launch_that_fails_behind_taking_its_donors_says_what_is_lost(run_fake):
    said = run_fake(f"""{DONOR}
w.mul_(2) ; y = other + 1
script("late:1=INTERNAL queue is gone")
print("sync", attempt(torch_pjrt.sync), states(w, y))
for _ in range(2):
    print("read", attempt(w.tolist))
print("others", y.tolist(), other.tolist())
w.copy_(other) ; w.add_(1)
print("next", attempt(torch_pjrt.sync), w.tolist())
""")
    sync, *reads = said.split("\nread ")
    for told in (sync, *reads):
        assert "this value is lost: it needs what the failed program was updating in place" in told
        assert "(1 buffer: f32[6])" in told
        assert "TORCH_PJRT_DONATION=0" in told
    assert "queue is gone" in sync
    assert f"others {[0.0] * 6} {[5.0] * 6}" in said
    assert f"next None {[0.0] * 6}" in said
