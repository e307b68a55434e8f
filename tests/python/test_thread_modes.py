"""`with eager_mode():` and `no_cuts()` are the thread's own, and its backward passes follow."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import nn

import torch_pjrt


def elsewhere(work: Callable[[], object]) -> object:
    """What `work` gives in another thread."""
    got: list[object] = []

    def run() -> None:
        try:
            got.append(work())
        except Exception as e:
            got.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    return got[0]


def state_of_a_new_one(device: torch.device) -> str:
    return torch_pjrt.state(torch.ones(3).to(device) + 1)


class Watched(torch.autograd.Function):
    """Tells what the backward pass finds."""

    seen: Callable[[torch.Tensor], None]

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        Watched.seen(grad * 2)
        return grad


# ---- eager mode -----------------------------------------------------------------------------


def test_a_block_of_eager_mode_is_the_threads_own(device):
    with torch_pjrt.eager_mode():
        assert state_of_a_new_one(device) == "device"
        assert elsewhere(lambda: state_of_a_new_one(device)) == "ir"
    assert state_of_a_new_one(device) == "ir"


def test_the_plain_switch_is_for_all_threads(device):
    torch_pjrt.eager_mode(True)
    try:
        assert elsewhere(lambda: state_of_a_new_one(device)) == "device"
        with torch_pjrt.eager_mode(False):
            assert state_of_a_new_one(device) == "ir"
            assert elsewhere(lambda: state_of_a_new_one(device)) == "device"
        assert state_of_a_new_one(device) == "device"
    finally:
        torch_pjrt.eager_mode(False)
    assert elsewhere(lambda: state_of_a_new_one(device)) == "ir"


@pytest.mark.parametrize("here", [True, False])
def test_backward_passes_follow_the_thread_that_called_them(device, here):
    seen: list[str] = []
    Watched.seen = lambda g: seen.append(torch_pjrt.state(g))
    p = nn.Parameter(torch.ones(3).to(device))

    def backward() -> None:
        Watched.apply(p * p).sum().backward()

    def eager_backward() -> None:
        with torch_pjrt.eager_mode():
            backward()

    with torch_pjrt.eager_mode(not here):
        (eager_backward if here else backward)()
        assert elsewhere(backward if here else eager_backward) is None
    assert seen == (["device", "ir"] if here else ["device", "device"])


def test_a_lazy_thread_beside_an_eager_one_has_a_lazy_backward(device):
    seen: list[str] = []
    Watched.seen = lambda g: seen.append(torch_pjrt.state(g))
    p = nn.Parameter(torch.ones(3).to(device))
    with torch_pjrt.eager_mode():
        elsewhere(lambda: Watched.apply(p * p).sum().backward())
    assert seen == ["ir"]


def test_blocks_that_begin_in_two_threads_at_once_leave_nothing_on(device):
    barrier = threading.Barrier(4)

    def work() -> None:
        for _ in range(200):
            barrier.wait(60)
            with torch_pjrt.eager_mode():
                pass

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not torch_pjrt._C.eager_mode_for_all()
    assert not torch_pjrt._C.eager_mode()


def test_a_switch_for_all_made_beside_a_block_stays(device):
    block = torch_pjrt.eager_mode()
    elsewhere(lambda: torch_pjrt.eager_mode(False))
    torch_pjrt.eager_mode(True)
    try:
        with block:
            pass
        assert torch_pjrt._C.eager_mode_for_all()
    finally:
        torch_pjrt.eager_mode(False)


def test_a_block_ends_when_it_raises(device):
    with pytest.raises(KeyError), torch_pjrt.eager_mode():
        raise KeyError
    assert state_of_a_new_one(device) == "ir"


# ---- no cuts --------------------------------------------------------------------------------


def read(device: torch.device) -> float:
    return (torch.ones(3).to(device) + 1).sum().item()


def test_no_cuts_forbids_the_threads_own_reads_alone(device):
    with torch_pjrt.no_cuts():
        assert elsewhere(lambda: read(device)) == 6.0
        with pytest.raises(RuntimeError, match="no_cuts: item"):
            read(device)
    assert read(device) == 6.0


def test_no_cuts_of_another_thread_does_not_forbid_ours(device):
    with_it, done = threading.Event(), threading.Event()

    def hold() -> None:
        with torch_pjrt.no_cuts():
            with_it.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    with_it.wait(60)
    assert read(device) == 6.0
    done.set()
    thread.join()


def test_no_cuts_holds_in_the_backward_pass_too(device):
    p = nn.Parameter(torch.ones(3).to(device))
    Watched.seen = lambda g: g.sum().item()
    loss = Watched.apply(p * p).sum()
    with torch_pjrt.no_cuts(), pytest.raises(RuntimeError, match="no_cuts: item"):
        loss.backward()
    with torch_pjrt.no_cuts():  # not for another thread's backward
        other = Watched.apply(p * p).sum()
        assert elsewhere(other.backward) is None


def test_no_cuts_as_a_decorator_serves_many_threads_and_itself(device):
    @torch_pjrt.no_cuts()
    def step(depth: int) -> object:
        if depth:
            step(depth - 1)
        return torch_pjrt._C.exchange_no_cuts(1)

    assert step(3) == 1
    assert elsewhere(lambda: step(2)) == 1
    assert read(device) == 6.0


def test_no_cuts_nests(device):
    with torch_pjrt.no_cuts():
        with torch_pjrt.no_cuts():
            pass
        with pytest.raises(RuntimeError, match="no_cuts"):
            read(device)
    assert read(device) == 6.0
