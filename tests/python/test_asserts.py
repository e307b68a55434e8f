"""torch._assert_async: a check that reads nothing. It raises where the program syncs, reads or
waits, in the CPU's words and with the line that recorded it, as far as CUDA can.
"""

import threading

import pytest
import torch
from eager import check_error

import torch_pjrt


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    torch_pjrt.sync(wait=True)


def functional(ok: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten._functional_assert_async.msg(ok, "not so", torch.ones(2, device="xla"))


FORMS = {
    "plain": (torch._assert_async, "Expected Tensor with single nonzero value, but got zero"),
    "message": (lambda ok: torch._assert_async(ok, "not so"), "not so"),
    "empty message": (lambda ok: torch._assert_async(ok, ""), "Assertion is failed"),
    "functional": (functional, "not so"),
}
# How the failure comes to the user.
WAYS = {
    "read": lambda x: x.tolist(),
    "item": lambda x: x.sum().item(),
    "wait": lambda x: torch_pjrt.sync(wait=True),
    "synchronize": lambda x: torch.xla.synchronize(),
    "second sync": lambda x: (torch_pjrt.sync(), torch.xla.synchronize(), torch_pjrt.sync()),
}


def positive(x: torch.Tensor) -> torch.Tensor:
    return (x > 0).all()


@pytest.mark.parametrize("form", FORMS)
def test_what_holds_cuts_nothing_and_costs_no_program(form, device, compiles):
    call, _ = FORMS[form]

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch_pjrt.no_cuts():
            call(positive(x))
            y = x * 2
            torch_pjrt.sync()
        return y

    for _ in range(2):
        step(torch.ones(3).to(device))
    with compiles() as seen:
        results = [step(torch.full((3,), float(i)).to(device)) for i in (1, 2, 3)]
    assert (seen.count, seen.cuts, seen.fallbacks) == (0, 0, ())
    assert [r.tolist() for r in results] == [[2.0] * 3, [4.0] * 3, [6.0] * 3]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", FORMS)
def test_what_fails_is_raised_with_its_words_and_its_line(form, way, device):
    call, words = FORMS[form]
    x = torch.zeros(3).to(device) - 1
    call(positive(x))
    with pytest.raises(RuntimeError) as e:
        WAYS[way](x)
    first, *rest = str(e.value).splitlines()
    assert first == words
    assert any("traced at test_asserts.py:" in line for line in rest), rest


def test_it_is_raised_once_and_nothing_is_lost(device):
    x = torch.zeros(3).to(device) - 1
    torch._assert_async(positive(x))
    y = x * 2
    with pytest.raises(RuntimeError, match="nonzero"):
        y.tolist()
    assert y.tolist() == [-2.0] * 3
    torch._assert_async(positive(x + 2))
    assert (x + 2).tolist() == [1.0] * 3
    torch_pjrt.sync(wait=True)


def test_the_first_that_failed_is_told(device):
    x = torch.zeros(3).to(device) - 1
    torch._assert_async(positive(x + 2), "holds")
    torch._assert_async(positive(x), "first")
    torch._assert_async(positive(x - 1), "second")
    with pytest.raises(RuntimeError, match="first"):
        x.tolist()


def test_a_failure_outlives_steps_that_hold(device):
    def run() -> None:
        for i in range(4):
            torch._assert_async(positive(torch.full((3,), float(i)).to(device)), f"step {i}")
            torch_pjrt.sync()
        torch_pjrt.sync(wait=True)

    with pytest.raises(RuntimeError, match="step 0"):
        run()


VALUES = {
    "True": torch.tensor(True),
    "int": torch.tensor(3),
    "negative": torch.tensor([-1]),
    "float": torch.tensor([[0.5]]),
    "nan": torch.tensor(float("nan")),
    "complex": torch.tensor(1j),
    "half": torch.tensor(0.5, dtype=torch.float16),
    "False": torch.tensor(False),
    "zero": torch.tensor([0]),
    "minus zero": torch.tensor([[-0.0]]),
    "complex zero": torch.tensor(0j),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_counts_as_true_is_what_eager_says(name, device):
    def fails(ok: torch.Tensor) -> bool:
        try:
            torch._assert_async(ok)
            torch_pjrt.sync(wait=True)
        except RuntimeError:
            return True
        return False

    value = VALUES[name]
    assert fails(value.to(device).clone()) == fails(value)


@pytest.mark.parametrize("shape", [(0,), (2,), (1, 3), (2, 0)], ids=str)
def test_a_tensor_of_another_size_is_refused_at_its_line(shape):
    e = check_error(lambda x: torch._assert_async(x + 1), torch.ones(shape))
    assert "ambiguous" in str(e)


def test_values_that_the_host_has_are_checked_at_their_line(device):
    ok = torch.tensor([0]).to(device)
    assert torch_pjrt.state(ok) == "host"
    with pytest.raises(RuntimeError, match="nonzero"):
        torch._assert_async(ok)
    torch._assert_async(torch.tensor([1]).to(device))


def test_eager_mode_raises_at_the_line(device):
    with torch_pjrt.eager_mode():
        x = torch.zeros(3).to(device) - 1
        with pytest.raises(RuntimeError, match="not so"):
            torch._assert_async(positive(x), "not so")
        torch._assert_async(positive(x + 2), "not so")


def test_a_captured_step_checks_at_each_replay(device):
    @torch_pjrt.capture
    def step(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(positive(x), "not so")
        return x * 2

    def run(v: float) -> list[float]:
        result = step(torch.full((3,), v).to(device)).tolist()
        torch.xla.synchronize()
        return result

    for i in range(1, 6):
        assert run(i) == [2.0 * i] * 3
    with pytest.raises(RuntimeError, match="not so"):
        run(-1)
    assert run(4) == [8.0] * 3


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_modes_that_change_between_calls(mode, device):
    x = torch.zeros(3, requires_grad=True).to(device) - 1
    with mode():
        torch._assert_async(positive(x), "not so")
        with pytest.raises(RuntimeError, match="not so"):
            x.tolist()
    torch._assert_async(positive(x + 2), "holds")
    torch_pjrt.sync(wait=True)


def test_threads_that_record_at_once(device):
    def work(k: int) -> None:
        x = torch.full((3,), float(k)).to(device)
        for i in range(20):
            torch._assert_async(positive(x + i), f"thread {k}")

    threads = [threading.Thread(target=work, args=(k,)) for k in (1, 2, -1, 3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    with pytest.raises(RuntimeError, match="thread -1"):
        torch_pjrt.sync(wait=True)


def test_checks_of_numbers_and_of_metadata_are_eagers(device, compiles):
    with compiles() as seen:
        x = torch.ones(2, 3).to(device) + 1
        torch.ops.aten._assert_scalar(True, "number")
        torch.ops.aten._assert_tensor_metadata(x, [2, 3], [3, 1], torch.float32)
        token = torch.ops.aten._functional_assert_scalar(True, "number", torch.ones(1).to(device))
        assert token.device.type == "xla"
    assert seen.cuts == 0
    check_error(lambda x: torch.ops.aten._assert_tensor_metadata(x, [3, 3]), torch.ones(2, 3))
    check_error(lambda x: torch.ops.aten._assert_scalar(False, "number"), torch.ones(2))
