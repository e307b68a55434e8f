"""torch.optim's fused steps: eager's weights, gradients and state; one node and one program."""

import copy

import pytest
import torch
from torch import optim

import torch_pjrt

OPTIMIZERS = {
    "adam": lambda p, **k: optim.Adam(p, lr=0.05, **k),
    "adam decay": lambda p, **k: optim.Adam(p, lr=0.05, weight_decay=0.1, **k),
    "adam maximize": lambda p, **k: optim.Adam(p, lr=0.05, maximize=True, **k),
    "adam amsgrad": lambda p, **k: optim.Adam(p, lr=0.05, amsgrad=True, betas=(0.5, 0.6), **k),
    "adam tensor lr": lambda p, **k: optim.Adam(p, lr=torch.tensor(0.05), **k),
    "adamw": lambda p, **k: optim.AdamW(p, lr=0.05, eps=1e-3, **k),
    "adamw amsgrad": lambda p, **k: optim.AdamW(p, lr=0.05, amsgrad=True, weight_decay=0.3, **k),
    "adamw tensor lr": lambda p, **k: optim.AdamW(p, lr=torch.tensor(0.05), **k),
    "sgd": lambda p, **k: optim.SGD(p, lr=0.05, **k),
    "sgd decay": lambda p, **k: optim.SGD(p, lr=0.05, weight_decay=0.1, maximize=True, **k),
    "sgd momentum": lambda p, **k: optim.SGD(p, lr=0.05, momentum=0.9, **k),
    "sgd dampening": lambda p, **k: optim.SGD(p, lr=0.05, momentum=0.9, dampening=0.3, **k),
    "sgd nesterov": lambda p, **k: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, **k),
    "sgd tensor lr": lambda p, **k: optim.SGD(p, lr=torch.tensor(0.05), momentum=0.5, **k),
    "adagrad": lambda p, **k: optim.Adagrad(p, lr=0.05, **k),
    "adagrad decay": lambda p, **k: optim.Adagrad(p, lr=0.05, lr_decay=0.2, weight_decay=0.1, **k),
    "adagrad tensor lr": lambda p, **k: optim.Adagrad(p, lr=torch.tensor(0.05), **k),
}  # fmt: skip
NIGHTLY = (torch.float64, torch.float16)
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-12, torch.bfloat16: 8e-3, torch.float16: 1e-3}


def start(where, dtype=torch.float32):
    torch.manual_seed(2)
    shapes = [(3, 5), (7,), (), (2, 1, 4)]
    return [torch.randn(s).to(dtype).to(where).requires_grad_() for s in shapes]


def loss_of(params, k: int) -> torch.Tensor:
    # Hardly curved, so that gradients do not magnify how weights were rounded.
    return sum((p.double() * (0.3 * (k + 1))).sin().sum() for p in params)


def round_to(dtype, tensors) -> None:
    for t in tensors:
        if t.is_floating_point() and t.dtype != dtype:
            t.copy_(t.to(dtype))


def train(where, make, dtype=torch.float32, steps: int = 4, keep=None, **options):
    """`keep`: what weights, gradients and state are rounded to where the step computes in dtype."""
    params = [p.detach().to(dtype).requires_grad_() for p in start(where, keep or dtype)]
    optimizer = make(params, **options)
    for k in range(steps):
        optimizer.zero_grad()
        loss_of(params, k).backward()
        with torch.no_grad():
            round_to(keep or dtype, [p.grad for p in params])
            optimizer.step()
            if keep:
                state = [t for p in params for n, t in optimizer.state[p].items() if n != "step"]
                round_to(keep, [*params, *(t for t in state if t is not None)])
        torch_pjrt.sync()  # a step is a program, which the next one finds again
    return params, optimizer


def tensors_of(params, optimizer):
    state = optimizer.state_dict()["state"]
    kept = [v for i in state for v in state[i].values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu() for t in [*params, *(p.grad for p in params), *kept]]


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=pytest.mark.nightly if d in NIGHTLY else ()) for d in TOLERANCE],
    ids=str,
)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_fused_steps_are_eagers(device, make, dtype):
    ours = tensors_of(*train(device, make, dtype, fused=True))
    # Half floats are held against steps in float32 that are rounded once: eager's CPU rounds amid.
    half = dtype in (torch.bfloat16, torch.float16)
    wide = {"dtype": torch.float32, "keep": dtype} if half else {"dtype": dtype}
    eager = tensors_of(*train("cpu", make, **wide, fused=True))
    tol = TOLERANCE[dtype]
    for a, b in zip(ours, eager, strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b.to(a.dtype), rtol=tol, atol=tol)


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_fused_training_compiles_one_program_a_step(device, make, compiles):
    params = start(device)
    optimizer = make(params, fused=True)
    counts = []
    for k in range(5):
        with compiles() as seen:
            optimizer.zero_grad()
            loss_of(params, k).backward()
            optimizer.step()
            torch_pjrt.sync()
        assert (seen.cuts, seen.fallbacks) == (0, ())
        counts.append(seen.count)
    # SGD with dampening starts its buffer otherwise; a first step without gradients to overwrite.
    assert sum(counts) <= 2
    assert counts[2:] == [0, 0, 0]


def test_learning_rate_schedules_share_the_program(device, compiles):
    params = start(device)
    optimizer = optim.AdamW(params, lr=0.1, fused=True)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with compiles() as seen:
        for _ in range(4):
            optimizer.zero_grad()
            loss_of(params, 0).backward()
            optimizer.step()
            schedule.step()
            torch_pjrt.sync()
    assert seen.count <= 2


@pytest.mark.parametrize("name", ["adamw", "sgd momentum", "adagrad"])
@pytest.mark.parametrize("overflow", [False, True])
def test_grad_scaler_steps_or_skips_on_the_device_without_a_read(device, name, overflow, compiles):
    make = OPTIMIZERS[name]

    def run(where):
        params = start(where)
        optimizer = make(params, fused=True)
        scaler = torch.amp.GradScaler(torch.device(where).type, init_scale=4.0, growth_interval=2)
        for k in range(3):
            optimizer.zero_grad()
            loss = loss_of(params, k)
            if overflow and k == 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return params, optimizer, scaler

    with compiles() as seen:
        params, optimizer, scaler = run(device)
    assert seen.cuts == 0
    want, want_optimizer, want_scaler = run("cpu")
    assert scaler.get_scale() == want_scaler.get_scale()
    for a, b in zip(tensors_of(params, optimizer), tensors_of(want, want_optimizer), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-6, atol=2e-6, equal_nan=True)


def test_state_dict_goes_between_fused_and_plain_and_between_devices(device):
    params, optimizer = train(device, OPTIMIZERS["adamw"], fused=True)
    saved = copy.deepcopy(optimizer.state_dict())
    for where, options in (("cpu", {}), (device, {"fused": True})):
        mine = [p.detach().to(where).requires_grad_() for p in params]
        again = OPTIMIZERS["adamw"](mine, **options)
        again.load_state_dict(saved)
        again.param_groups[0]["fused"] = options.get("fused", None)
        loss_of(mine, 1).backward()
        again.step()
        if where == "cpu":
            want = [p.detach() for p in mine]
    for a, b in zip(mine, want, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b, rtol=2e-6, atol=2e-6)


def test_functional_form_leaves_its_arguments(device):
    p, g, m, v = (torch.full((3,), x, device=device) for x in (1.0, 0.5, 0.0, 0.0))
    step = torch.ones((), device=device)
    new = torch.ops.aten._fused_adam(
        [p], [g], [m], [v], [], [step], lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8,
        amsgrad=False, maximize=False)  # fmt: skip
    torch.testing.assert_close(new[0][0].cpu(), torch.full((3,), 0.9))
    assert (p.tolist(), m.tolist()) == ([1.0] * 3, [0.0] * 3)


def test_lists_of_other_lengths_and_dtypes_are_refused_and_nothing_is_lost(device):
    p, g, m, v = (torch.ones(3, device=device) for _ in range(4))
    common = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    common |= {"amsgrad": False, "maximize": False}
    steps = [torch.ones((), device=device)]
    with pytest.raises(RuntimeError, match="lists of 1 tensors"):
        torch._fused_adam_([p], [g, g], [m], [v], [], steps, **common)
    with pytest.raises(RuntimeError, match="gradient 0 to be"):
        torch._fused_adam_([p], [g.double()], [m], [v], [], steps, **common)
    with pytest.raises(NotImplementedError, match="fused_adam_kernel"):
        torch._fused_adam_([p.long()], [g.long()], [m.long()], [v.long()], [], steps, **common)
    assert p.tolist() == m.tolist() == [1.0] * 3
