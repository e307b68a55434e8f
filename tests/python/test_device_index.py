"""A device that is not there is refused where it is named; the current one is what `xla` means."""

import pytest

# What is asked of a device: each must refuse xla:7 at the call.
PRELUDE = """
import io, torch, torch_pjrt
from torch.nn import functional as F
cpu, here = torch.ones(2), torch.ones(2, device="xla")
def loaded(device):
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    file.seek(0)
    return torch.load(file, map_location=device)
def inside(device, make):
    with torch.device(device):
        return make()
factories = {
    "empty": lambda d: torch.empty(2, device=d),
    "zeros": lambda d: torch.zeros(2, device=d),
    "ones": lambda d: torch.ones(2, device=d),
    "full": lambda d: torch.full((2,), 3, device=d),
    "rand": lambda d: torch.rand(2, device=d),
    "randn": lambda d: torch.randn(2, device=d),
    "randint": lambda d: torch.randint(0, 9, (2,), device=d),
    "randperm": lambda d: torch.randperm(3, device=d),
    "normal": lambda d: torch.normal(0.0, 1.0, (2,), device=d),
    "arange": lambda d: torch.arange(3, device=d),
    "range": lambda d: torch.range(0, 3, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 3, device=d),
    "logspace": lambda d: torch.logspace(0, 1, 3, device=d),
    "eye": lambda d: torch.eye(2, device=d),
    "tril_indices": lambda d: torch.tril_indices(2, 2, device=d),
    "triu_indices": lambda d: torch.triu_indices(2, 2, device=d),
    "hann_window": lambda d: torch.hann_window(3, device=d),
    "kaiser_window": lambda d: torch.kaiser_window(3, device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(2, device=d),
    "tensor": lambda d: torch.tensor([1], device=d),
    "as_tensor": lambda d: torch.as_tensor([1], device=d),
    "empty_strided": lambda d: torch.empty_strided((2,), (1,), device=d),
    "empty_permuted": lambda d: torch.empty_permuted((2, 3), (1, 0), device=d),
    "empty channels_last": lambda d: torch.empty(
        (1, 2, 3, 3), device=d, memory_format=torch.channels_last),
    "empty with holes": lambda d: torch.empty_strided((2,), (3,), device=d),
    "_efficientzerotensor": lambda d: torch._efficientzerotensor((2,), device=d),
    "fftfreq": lambda d: torch.fft.fftfreq(4, device=d),
    "zeros_like": lambda d: torch.zeros_like(cpu, device=d),
    "empty_like": lambda d: torch.empty_like(cpu, device=d),
    "rand_like": lambda d: torch.rand_like(cpu, device=d),
    "full_like": lambda d: torch.full_like(cpu, 2, device=d),
    "new_empty": lambda d: here.new_empty(2, device=d),
    "new_zeros": lambda d: here.new_zeros(2, device=d),
    "new_full": lambda d: here.new_full((2,), 2, device=d),
    "new_tensor": lambda d: here.new_tensor([1], device=d),
    "new_empty_strided": lambda d: here.new_empty_strided((2,), (1,), device=d),
    "to of the CPU": lambda d: cpu.to(d),
    "to of the device": lambda d: here.to(d),
    "to with a dtype": lambda d: here.to(d, torch.float64),
    "torch.device as a context": lambda d: inside(d, lambda: torch.ones(2)),
    "tensor inside a context": lambda d: inside(d, lambda: torch.tensor([1.0])),
    "Linear": lambda d: torch.nn.Linear(2, 2, device=d).weight,
    "module.to": lambda d: torch.nn.Linear(2, 2).to(d).weight,
    "to_empty": lambda d: torch.nn.Linear(2, 2, device="meta").to_empty(device=d).weight,
    "load": lambda d: loaded(d),
}
"""

REFUSED = (
    PRELUDE
    + """
asked = factories | {
    "Generator": lambda d: torch.Generator(d),
    "set_device": lambda d: torch.xla.set_device(d),
    "set_device(7)": lambda d: torch.xla.set_device(torch.device(d).index),
    "device": lambda d: torch.xla.device(d).__enter__(),
    "get_device_name": lambda d: torch.xla.get_device_name(d),
    "synchronize": lambda d: torch.xla.synchronize(d),
    "memory_stats": lambda d: torch.xla.memory_stats(d),
    "memory_allocated": lambda d: torch.xla.memory_allocated(d),
    "reset_peak_memory_stats": lambda d: torch.xla.reset_peak_memory_stats(d),
    "get_rng_state": lambda d: torch.xla.get_rng_state(d),
    "memory": lambda d: torch_pjrt.memory(torch.device(d).index),
}
for name, make in asked.items():
    try:
        made = make("xla:7")
    except RuntimeError as e:
        first = str(e).splitlines()[0]
        assert "device xla:7 does not exist: the cpu client has COUNT" in first, (name, first)
        assert "TORCH_PJRT_CPU_DEVICES=8" in str(e), (name, str(e))
    else:
        raise AssertionError(f"{name} gave {made}")
assert torch.xla.current_device() == 0
assert (here + 1).tolist() == [2, 2]
"""
)

OBEYED = (
    PRELUDE
    + """
torch.xla.set_device(1)
del factories["new_tensor"]  # PyTorch asks it on the device of its tensor
for name, make in factories.items():
    for asked, index in (("xla", 1), ("xla:0", 0), ("xla:1", 1)):
        made = make(asked)
        assert made.device == torch.device("xla", index), (name, asked, made.device)
        (made + made).cpu()
assert here.new_ones(2).device.index == 0, "like the tensor that makes it"
for asked, index in (("xla", 1), ("xla:0", 0), ("xla:1", 1)):
    assert torch.Generator(asked).device == torch.device("xla", index)
g = torch.Generator("xla").manual_seed(3)
assert torch.rand(2, generator=g, device="xla").device.index == 1
assert torch.xla.memory_stats() == torch.xla.memory_stats(1)
with torch.xla.device(0):
    assert torch.ones(2, device="xla").device.index == 0
assert torch.ones(2, device="xla").device.index == 1
"""
)

# Autograd asks how many devices there are before there is a client.
THREADS = """
import torch, torch_pjrt
x = torch.ones(2, device="xla", requires_grad=True)
(x * 2).sum().backward()
assert x.grad.tolist() == [2, 2]
"""


def test_device_that_is_not_there_is_refused_at_the_call(run_python):
    done = run_python(code=REFUSED.replace("COUNT", "1 device, xla:0"))
    assert done.returncode == 0, done.stderr


def test_refusal_names_how_many_there_are(run_python):
    code = REFUSED.replace("COUNT", "2 devices, xla:0 to xla:1")
    done = run_python(code=code, TORCH_PJRT_CPU_DEVICES="2")
    assert done.returncode == 0, done.stderr


def test_every_factory_obeys_the_current_device(run_python):
    done = run_python(code=OBEYED, TORCH_PJRT_CPU_DEVICES="2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("devices", ["1", "3"])
def test_backward_before_the_client_asks_for_no_device_that_is_not_there(devices, run_python):
    done = run_python(code=THREADS, TORCH_PJRT_CPU_DEVICES=devices)
    assert done.returncode == 0, done.stderr
