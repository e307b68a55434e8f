"""nn.LSTM, nn.GRU and nn.RNN on device xla: a loop a layer and direction, whatever the length.

PyTorch makes these of one op a step. Here the projections of the inputs are one product outside of
the loop; the loop carries the state (`_control.scan`). A packed sequence is padded, and a state
stands still where its sequence has ended.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

from ._control import scan

__all__ = ["install"]

Tensor = torch.Tensor
# (projected input, state, weights of the state) -> state; its first element is the output.
Step = Callable[[Tensor, Sequence[Tensor], Sequence[Tensor]], list[Tensor]]
_kept: list[Any] = []  # the registrations, as long as the process


def _linear(x: Tensor, weights: Sequence[Tensor], biases: bool) -> Tensor:
    return F.linear(x, weights[0], weights[1] if biases else None)


def _lstm(biases: bool) -> Step:
    def step(x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        h, c = state
        take, forget, new, give = (_linear(h, weights, biases) + x).chunk(4, -1)
        c = forget.sigmoid() * c + take.sigmoid() * new.tanh()
        h = give.sigmoid() * c.tanh()
        projection = weights[2 if biases else 1 :]
        return [h if not projection else h.matmul(projection[0].t()), c]

    return step


def _gru(biases: bool) -> Step:
    def step(x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
        (h,) = state
        from_x, from_h = x.chunk(3, -1), _linear(h, weights, biases).chunk(3, -1)
        reset = (from_h[0] + from_x[0]).sigmoid()
        take = (from_h[1] + from_x[1]).sigmoid()
        new = (from_x[2] + from_h[2] * reset).tanh()
        return [(h - new) * take + new]

    return step


def _rnn(f: Callable[[Tensor], Tensor]) -> Callable[[bool], Step]:
    def of(biases: bool) -> Step:
        def step(x: Tensor, state: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
            return [f(_linear(state[0], weights, biases) + x)]

        return step

    return of


class _Net:
    """One call: its cell, and what all layers share."""

    on: Tensor | None = None  # [steps, batch, 1]: has the sequence this step?

    def __init__(self, name: str, cell: Callable[[bool], Step], biases: bool) -> None:
        self.name, self.step, self.biases = name, cell(biases), biases

    def direction(
        self, x: Tensor, state: list[Tensor], weights: list[Tensor], back: bool
    ) -> list[Tensor]:
        """The state behind the last step, and the outputs. `x`: [steps, batch, features]."""
        projected = _linear(x, weights[0:1] + weights[2:3], self.biases)
        own = list(weights[1:2] + weights[3:4] if self.biases else weights[1:2])
        own += weights[4:] if self.biases else weights[2:]
        state = self._as_it_goes_on(projected, state, own)
        count = len(state)

        def body(*given: Tensor) -> list[Tensor]:
            before, now = given[:count], given[count]
            after = self.step(now, before, given[len(given) - len(own) :])
            if self.on is not None:
                here = given[count + 1]
                after = [torch.where(here, a, b) for a, b in zip(after, before, strict=True)]
            return [*after, after[0]]

        scanned = [projected] if self.on is None else [projected, self.on]
        return scan(self.name, body, state, scanned, own, length=x.shape[0], reverse=back)

    def _as_it_goes_on(self, x: Tensor, state: list[Tensor], own: Sequence[Tensor]) -> list[Tensor]:
        """The state in the dtypes of the next one: autocast may narrow it."""
        if not torch.is_autocast_enabled("xla"):
            return state
        with torch.no_grad():
            after = self.step(x[0], state, own)
        return [s.to(a.dtype) for s, a in zip(state, after, strict=True)]

    def layers(
        self,
        x: Tensor,
        states: Sequence[Tensor],
        weights: list[Tensor],
        directions: int,
        dropout: Callable[[Tensor], Tensor],
    ) -> tuple[Tensor, list[Tensor]]:
        """Outputs of the last layer, and the last states, [layers * directions, batch, size]."""
        cells = states[0].shape[0]
        each = len(weights) // cells
        last: list[list[Tensor]] = [[] for _ in states]
        for layer in range(cells // directions):
            outs = []
            for d in range(directions):
                at = layer * directions + d
                mine = weights[at * each : (at + 1) * each]
                *state, out = self.direction(x, [s[at] for s in states], mine, d == 1)
                outs.append(out)
                for kept, s in zip(last, state, strict=True):
                    kept.append(s)
            x = outs[0] if directions == 1 else torch.cat(outs, -1)
            if layer + 1 < cells // directions:
                x = dropout(x)
        return x, [torch.stack(s) for s in last]


def _plain(t: Tensor) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type == "xla"


def _fits(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether the loop serves: real tensors of the device, of sizes that eager takes too."""
    if torch.utils._python_dispatch._get_current_dispatch_mode() is not None:
        return False
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return False
    if not all(map(_plain, (x, *states, *weights))) or not x.numel():
        return False
    sizes = all(s.dim() == 3 and s.shape[1] == states[0].shape[1] for s in states)
    dtypes = {t.dtype for t in (x, *states, *weights)}
    return sizes and (len(dtypes) == 1 or torch.is_autocast_enabled("xla"))


class _Options:
    """The arguments behind the weights, as all four nets have them."""

    def __init__(self, biases: bool, layers: int, dropout: float, train: bool, *more: bool) -> None:
        self.biases, self.layers, self.p, self.train = biases, layers, dropout, train
        self.directions = 2 if more[0] else 1
        self.batch_first = more[1:] == (True,)

    def fit(self, states: Sequence[Tensor]) -> bool:
        return all(s.dim() == 3 and s.shape[0] == self.layers * self.directions for s in states)

    def dropout(self, x: Tensor) -> Tensor:
        return torch.dropout(x, self.p, True) if self.train and self.p else x


def _input_kernel(name: str, cell: Callable[[bool], Step], op: Any, pairs: bool) -> Any:
    def kernel(x: Tensor, hx: Any, params: list[Tensor], *options: Any) -> Any:
        states, o = list(hx) if pairs else [hx], _Options(*options)
        if x.dim() == 3 and x.shape[1 if o.batch_first else 0] == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        batch = x.shape[0 if o.batch_first else 1] if x.dim() == 3 else -1
        known = o.fit(states) and batch == states[0].shape[1] and _fits(x, states, params)
        if not known:
            return op.decompose(x, hx, params, *options)
        if o.batch_first:
            x = x.transpose(0, 1)
        net = _Net(name, cell, o.biases)
        out, last = net.layers(x, states, params, o.directions, o.dropout)
        return (out.transpose(0, 1) if o.batch_first else out, *last)

    return kernel


class _Packed:
    """Where the elements of a packed sequence lie in the padded one, [steps, batch]."""

    def __init__(self, sizes: Tensor, device: torch.device) -> None:
        counts = sizes.tolist()
        self.steps, self.batch = len(counts), counts[0]
        on = torch.arange(self.batch) < sizes.unsqueeze(1)
        place = torch.cumsum(on.flatten().long(), 0).sub_(1).clamp_(min=0)
        self.on = on.unsqueeze(-1).to(device)
        self.place = place.to(device)
        self.back = on.flatten().nonzero().flatten().to(device)

    def padded(self, data: Tensor) -> Tensor:
        return data.index_select(0, self.place).view(self.steps, self.batch, *data.shape[1:])

    def packed(self, padded: Tensor) -> Tensor:
        return padded.flatten(0, 1).index_select(0, self.back)


def _data_kernel(name: str, cell: Callable[[bool], Step], op: Any, pairs: bool) -> Any:
    def kernel(
        data: Tensor, batch_sizes: Tensor, hx: Any, params: list[Tensor], *options: Any
    ) -> Any:
        states, o = list(hx) if pairs else [hx], _Options(*options)
        known = batch_sizes.device.type == "cpu" and type(batch_sizes) is torch.Tensor
        if not known or not o.fit(states) or not _fits(data, states, params):
            return op.decompose(data, batch_sizes, hx, params, *options)
        packed, net = _Packed(batch_sizes, data.device), _Net(name, cell, o.biases)
        net.on = packed.on

        def between(x: Tensor) -> Tensor:
            return packed.padded(o.dropout(packed.packed(x)))

        out, last = net.layers(packed.padded(data), states, params, o.directions, between)
        return (packed.packed(out), *last)

    return kernel


def install() -> None:
    """Registers the loops for the keys of device xla, once."""
    if _kept:
        return
    library = torch.library.Library("aten", "IMPL")
    _kept.append(library)
    cells = {
        "lstm": _lstm,
        "gru": _gru,
        "rnn_tanh": _rnn(torch.tanh),
        "rnn_relu": _rnn(torch.relu),
    }
    for name, cell in cells.items():
        packet, shown = getattr(torch.ops.aten, name), f"nn.{name.split('_')[0].upper()}"
        for form, make in (("input", _input_kernel), ("data", _data_kernel)):
            kernel = make(shown, cell, getattr(packet, form), name == "lstm")
            for key in ("XLA", "AutogradXLA"):
                library.impl(f"{name}.{form}", kernel, key)
