"""Two devices in one process: tensors stay where they were made; programs run there."""

import pytest

CASES = {
    "factories make tensors where they are asked to": """
for d in ("xla:0", "xla:1"):
    for t in (torch.arange(3, device=d), torch.ones(3, device=d), torch.linspace(0, 1, 3, device=d),
              torch.rand(3, device=d), torch.eye(3, device=d), torch.tensor([1, 2], device=d),
              torch.randint(0, 9, (3,), device=d), torch.full((2,), 7, device=d)):
        assert t.device == torch.device(d), t.device
        assert (t + t).device == torch.device(d)
        (t + t).cpu()
""",
    "equal graphs on two devices are two programs with equal results": """
def f(d):
    x = torch.arange(6.0, device=d)
    y = (x * 2 + 1).sin()
    torch_pjrt.sync()
    return y.cpu()
first = f("xla:0")
assert torch.equal(first, f("xla:1"))
compiled = torch_pjrt.metrics.compiles()
assert torch.equal(first, f("xla:0")) and torch.equal(first, f("xla:1"))
assert torch_pjrt.metrics.compiles() == compiled == 2
""",
    "copies between devices carry the value": """
a = torch.arange(4.0, device="xla:0") * 3
b = a.to("xla:1")
assert b.device == torch.device("xla:1") and b.tolist() == [0, 3, 6, 9]
c = torch.zeros(4, device="xla:0")
c.copy_(b + 1)
assert c.tolist() == [1, 4, 7, 10]
assert (b + 1).device == torch.device("xla:1")
c[1:].copy_(b[:3])
assert c.tolist() == [1, 0, 3, 6]
""",
    "an op on tensors of two devices is refused": """
a, b = torch.ones(2, device="xla:0"), torch.ones(2, device="xla:1")
for f in (lambda: a + b, lambda: torch.cat([a, b]), lambda: a.add_(b), lambda: b @ a):
    try:
        f()
    except RuntimeError as e:
        assert "same device" in str(e) and "xla:1" in str(e), e
    else:
        raise AssertionError("computed")
assert a.tolist() == b.tolist() == [1, 1]
""",
    "training on the second device": """
torch.manual_seed(0)
model = torch.nn.Linear(3, 2)
x, other = torch.ones(4, 3), torch.nn.Linear(3, 2)
other.load_state_dict(model.state_dict())
other.to("xla:1")
for m, x in ((model, x), (other, x.to("xla:1"))):
    o = torch.optim.AdamW(m.parameters(), lr=0.1)
    for _ in range(3):
        o.zero_grad()
        m(x).square().mean().backward()
        o.step()
        torch_pjrt.sync()
for p, q in zip(model.parameters(), other.parameters()):
    assert q.device == torch.device("xla:1") and q.grad.device == q.device
    torch.testing.assert_close(q.detach().cpu(), p.detach())
""",
    "eager mode on the second device": """
with torch_pjrt.eager_mode():
    y = torch.ones(3, device="xla:1") * 3
assert y.device == torch.device("xla:1") and y.tolist() == [3, 3, 3]
""",
    "the graph of tensors is that of their device": """
y = (torch.arange(6.0).to("xla:1") * 2).cos()
asked = torch_pjrt.graph.of(y)
y.tolist()
assert torch_pjrt.graph.last().key == asked.key
try:
    torch_pjrt.graph.of([y + 1, torch.ones(2, device="xla:0") + 1])
except ValueError as e:
    assert "found tensors of xla:1 and xla:0" in str(e), e
else:
    raise AssertionError("described")
""",
}  # fmt: skip


@pytest.mark.parametrize("code", CASES.values(), ids=CASES.keys())
def test_two_devices(code, run_python):
    done = run_python(code=f"import torch, torch_pjrt\n{code}", TORCH_PJRT_CPU_DEVICES="2")
    assert done.returncode == 0, done.stderr


def test_device_that_does_not_exist_is_told_and_does_not_hang(run_python):
    """Not where a tensor of it is read, nor where it is made."""
    code = """
import torch, torch_pjrt
for f in (lambda: torch.ones(2, device="xla:7").cpu(), lambda: print(torch.ones(2).to("xla:7")),
          lambda: (torch.ones(2).to("xla:7") + 1).tolist(),
          lambda: torch.arange(3, device="xla:7").sum().item()):
    try:
        print(f())
    except Exception as e:
        print(type(e).__name__, "xla:7" in str(e) or "out of range" in str(e))
print((torch.ones(2, device="xla") + 1).tolist())
"""
    done = run_python(code=code)
    *said, last = done.stdout.splitlines()
    assert len(said) == 4, done.stdout + done.stderr
    assert all(s.endswith("Error True") for s in said), done.stdout + done.stderr
    assert last == "[2.0, 2.0]"
