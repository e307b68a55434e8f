"""nn.LSTM, nn.GRU and nn.RNN on device xla: loops of the program, with eager's values."""

import copy
import time

import pytest
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torch_pjrt

D = "xla"
F64 = torch.float64


def run(net, x, device, hx=None, lengths=None, sort=False):
    """Outputs, last states, gradients of input, states and parameters."""
    net = copy.deepcopy(net).to(device)
    x = x.detach().to(device).requires_grad_()
    states = [] if hx is None else [h.detach().to(device).requires_grad_() for h in hx]
    given = x
    if lengths is not None:
        given = pack_padded_sequence(x, lengths, batch_first=net.batch_first, enforce_sorted=sort)
    start = None if not states else states[0] if len(states) == 1 else tuple(states)
    torch.manual_seed(11)
    out, last = net(given, start)
    if lengths is not None:
        out, _ = pad_packed_sequence(out, batch_first=net.batch_first)
    last = list(last) if isinstance(last, tuple) else [last]
    loss = (out * out.sin()).sum() + sum((h * (2 + i)).cos().sum() for i, h in enumerate(last))
    loss.backward()
    leaves = [x, *states, *net.parameters()]
    return [t.detach().cpu() for t in (out, *last, *(t.grad for t in leaves))]


def same(net, x, tolerance=1e-9, **kw):
    for a, b in zip(run(net, x, D, **kw), run(net, x, "cpu", **kw), strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def made(kind, *args, **kw):
    torch.manual_seed(0)
    return kind(*args, **kw).to(F64)


X = torch.linspace(-2, 2, 7 * 3 * 5, dtype=F64).view(7, 3, 5)


@pytest.mark.parametrize(
    "net",
    [
        made(nn.LSTM, 5, 4, 2, bidirectional=True),
        made(nn.LSTM, 5, 4, 2, proj_size=3, batch_first=True, bias=False),
        made(nn.GRU, 5, 4, 2, bidirectional=True, batch_first=True),
        made(nn.GRU, 5, 4, bias=False),
        made(nn.RNN, 5, 4, 2, bidirectional=True),
        made(nn.RNN, 5, 4, nonlinearity="relu"),
    ],
    ids=["lstm-both-ways", "lstm-projected", "gru-both-ways", "gru", "rnn-both-ways", "rnn-relu"],
)
def test_values_and_gradients_are_eagers(net, compiles):
    x = X.transpose(0, 1).contiguous() if net.batch_first else X
    with compiles() as seen:
        got = run(net, x, D)
    assert seen.fallbacks == ()
    for a, b in zip(got, run(net, x, "cpu"), strict=True):
        assert (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride())
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_initial_states_of_the_user_and_their_gradients():
    hx = [torch.linspace(-1, 1, 2 * 3 * n, dtype=F64).view(2, 3, n) for n in (3, 4)]
    same(made(nn.LSTM, 5, 4, 2, proj_size=3), X, hx=hx)


def test_a_sequence_without_a_batch():
    same(made(nn.GRU, 5, 4), X[:, 0])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_packed_sequences(kind):
    same(made(kind, 5, 4, 2, bidirectional=True), X, lengths=[3, 7, 1])


def test_packed_sequences_of_one_shape_are_one_program(compiles):
    net = made(nn.RNN, 5, 4).to(D)
    with compiles() as seen:
        for lengths in ([7, 5, 2], [7, 5, 2], [7, 4, 3]):
            packed = pack_padded_sequence(X, lengths).to(D)
            net(packed)[0].data.sum().backward()
            torch_pjrt.sync()
            net.zero_grad()
    assert seen.count == 1


def test_dropout_between_layers_is_that_of_layers_one_by_one():
    torch.manual_seed(0)
    net = nn.LSTM(5, 8, 2, dropout=0.5).to(D)
    one, two = nn.LSTM(5, 8).to(D), nn.LSTM(8, 8).to(D)
    for layer, single in enumerate((one, two)):
        for name, p in single.named_parameters():
            p.data.copy_(getattr(net, name.replace("_l0", f"_l{layer}")))
    x = X.float().to(D)
    torch.manual_seed(3)
    a = net(x)[0]
    torch.manual_seed(3)
    b = two(torch.dropout(one(x)[0], 0.5, True))[0]
    torch.testing.assert_close(a.detach().cpu(), b.detach().cpu(), rtol=1e-6, atol=1e-7)
    net.eval()
    assert torch.equal(net(x)[0].cpu(), net(x)[0].cpu())


def test_under_autocast():
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        torch.manual_seed(0)
        net = kind(5, 4, 2).to(D)
        x = X.float().to(D)
        with torch.autocast(D, dtype=torch.bfloat16):
            out, _ = net(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            want, _ = copy.deepcopy(net).cpu()(X.float())
        out.float().sum().backward()
        assert all(p.grad.dtype is torch.float32 for p in net.parameters())
        torch.testing.assert_close(out.float().cpu(), want.float(), rtol=5e-2, atol=5e-2)


def test_half_precision():
    net = made(nn.GRU, 5, 4).to(torch.bfloat16)
    same(net, X.to(torch.bfloat16), tolerance=5e-2)


def test_double_backward_where_eager_has_it():
    net = made(nn.LSTM, 5, 4)
    found = []
    for device in ("cpu", D):
        own = copy.deepcopy(net).to(device)
        x = X[:3].detach().to(device).requires_grad_()
        (g,) = torch.autograd.grad(own(x)[0].sin().sum(), x, create_graph=True)
        g.pow(2).sum().backward()
        found.append([t.cpu() for t in (g.detach(), x.grad, own.weight_hh_l0.grad)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-12)


def test_inside_torch_compile():
    torch._dynamo.reset()
    net = made(nn.GRU, 5, 4).to(D)
    f = torch.compile(lambda x: net(x)[0])
    torch.testing.assert_close(f(X.to(D)).detach().cpu(), net(X.to(D))[0].detach().cpu())


def test_compile_time_does_not_grow_with_the_length():
    took = {}
    torch.manual_seed(0)
    net = nn.LSTM(32, 32, 2).to(D)
    for steps in (16, 64, 1000):  # the first starts what starts once
        x = torch.ones(steps, 4, 32, device=D)
        torch_pjrt.sync(wait=True)
        start = time.process_time()
        net(x)[0].sum().backward()
        torch_pjrt.sync()
        took[steps] = time.process_time() - start
    assert took[64] <= 4
    assert took[1000] <= 1.5 * took[64]


@pytest.mark.parametrize(
    "call",
    [
        lambda net, x: net(x[:, :, :3]),
        lambda net, x: net(x, (torch.zeros(1, 9, 4).to(x), torch.zeros(1, 9, 4).to(x))),
        lambda net, x: net(x[:0]),
        lambda net, x: net(x.to(torch.int64)),
        lambda net, x: torch.lstm(
            x,
            (torch.zeros(1, 3, 9).to(x),) * 2,
            net._flat_weights,
            True,
            1,
            0.0,
            True,
            False,
            False,
        ),
    ],
)
def test_wrong_calls_raise_what_eager_raises(call):
    raised = []
    for device in ("cpu", D):
        net = made(nn.LSTM, 5, 4).to(device)
        with pytest.raises(Exception) as e:  # noqa: PT011 - compared below
            call(net, X.to(device))
        raised.append(e.value)
    assert type(raised[0]) is type(raised[1])
    assert str(raised[0]).split(" ")[0] == str(raised[1]).split(" ")[0]
