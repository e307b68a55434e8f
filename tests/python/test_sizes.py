"""Sizes that no memory has are refused at the call, with eager's exception, and change nothing."""

import pytest
import torch

HUGE, WIDE = 2**62, 2**40


def one(device: str) -> torch.Tensor:
    """An element that can be expanded without memory."""
    return torch.ones(1, device=device)


def eight(device: str) -> torch.Tensor:
    """Eight elements."""
    return torch.ones(8, device=device)


F64, C128 = torch.float64, torch.complex128

# Eager refuses each of them for its sizes alone, before it asks for memory.
CASES = {
    "empty": lambda d: torch.empty(2**61, dtype=F64, device=d),
    "empty of two dims": lambda d: torch.empty(WIDE, WIDE, device=d),
    "empty that ends in 0": lambda d: torch.empty(WIDE, WIDE, 0, device=d),
    "empty that begins with 0": lambda d: torch.empty(0, WIDE, WIDE, device=d),
    "empty of bytes": lambda d: torch.empty(2**60, dtype=C128, device=d),
    "empty channels_last": lambda d: torch.empty(
        (2**20,) * 4, device=d, memory_format=torch.channels_last
    ),
    "empty of a negative size": lambda d: torch.empty(-1, device=d),
    "zeros": lambda d: torch.zeros(2**61, dtype=F64, device=d),
    "ones": lambda d: torch.ones(2**61, dtype=F64, device=d),
    "full": lambda d: torch.full((2**61,), 1.0, dtype=F64, device=d),
    "rand": lambda d: torch.rand(2**61, dtype=F64, device=d),
    "randn": lambda d: torch.randn(WIDE, WIDE, device=d),
    "randint": lambda d: torch.randint(0, 9, (2**61,), device=d),
    "normal": lambda d: torch.normal(0.0, 1.0, (HUGE,), device=d),
    "new_empty": lambda d: eight(d).new_empty((HUGE,)),
    "new_zeros": lambda d: eight(d).new_zeros((HUGE,)),
    "new_full": lambda d: eight(d).new_full((HUGE,), 1),
    "empty_like": lambda d: torch.empty_like(one(d).expand(HUGE)),
    "empty_strided": lambda d: torch.empty_strided((4,), (HUGE,), device=d),
    "empty_strided backwards": lambda d: torch.empty_strided((2,), (-1,), device=d),
    "new_empty_strided": lambda d: eight(d).new_empty_strided((4,), (HUGE,)),
    "empty_permuted": lambda d: torch.empty_permuted((WIDE, WIDE), (1, 0), device=d),
    "resize_": lambda d: eight(d).resize_((HUGE,)),
    "resize_ of two dims": lambda d: eight(d).resize_((WIDE, WIDE)),
    "resize_ of a negative size": lambda d: eight(d).resize_((-1,)),
    "as_strided": lambda d: eight(d).as_strided((4,), (HUGE,)),
    "as_strided of many": lambda d: eight(d).as_strided((HUGE,), (4,)),
    "as_strided of few": lambda d: eight(d).as_strided((3,), (2**61,)),
    "as_strided of two dims": lambda d: eight(d).as_strided((WIDE, WIDE), (1, 1)),
    "as_strided far away": lambda d: eight(d).as_strided((2,), (1,), 2**63 - 1),
    "as_strided of a negative size": lambda d: eight(d).as_strided((-2,), (1,)),
    "as_strided of a negative offset": lambda d: eight(d).as_strided((2,), (1,), -1),
    "as_strided too far": lambda d: eight(d).as_strided((4,), (1,), 5),
    "as_strided_copy": lambda d: torch.as_strided_copy(eight(d), (4,), (HUGE,)),
    "as_strided_scatter": lambda d: torch.as_strided_scatter(eight(d), eight(d)[:4], (4,), (HUGE,)),
    "set_": lambda d: eight(d).set_(eight(d), 0, (4,), (HUGE,)),
    "set_ of many": lambda d: eight(d).set_(eight(d), 0, (HUGE,)),
    "set_ far away": lambda d: eight(d).set_(eight(d), HUGE, (4,), (1,)),
    "set_ of a negative offset": lambda d: eight(d).set_(eight(d), -1, (4,), (1,)),
    "set_ too far": lambda d: eight(d).set_(eight(d), 4, (8,), (1,)),
    "set_ backwards": lambda d: eight(d).set_(eight(d), 0, (2,), (-1,)),
    "expand": lambda d: one(d).expand(WIDE, WIDE),
    "expand and add": lambda d: one(d).expand(HUGE) + 1,
    "clone": lambda d: one(d).expand(HUGE).clone(),
    "to a wider dtype": lambda d: one(d).expand(2**60).to(F64),
    "view": lambda d: torch.ones(0, device=d).view(WIDE, WIDE, 0),
    "view of too many": lambda d: eight(d).view(HUGE, HUGE),
    "reshape": lambda d: eight(d).reshape(HUGE, 4),
    "repeat": lambda d: eight(d).repeat(HUGE),
    "repeat of two dims": lambda d: eight(d).repeat(WIDE, WIDE),
    "tile": lambda d: eight(d).tile(HUGE),
    "cat": lambda d: torch.cat([one(d).expand(2**60)] * 2),
    "pad": lambda d: torch.nn.functional.pad(eight(d), (0, HUGE)),
    "pad on both sides": lambda d: torch.nn.functional.pad(eight(d), (2**63 - 1, 2**63 - 1)),
    "eye": lambda d: torch.eye(2**32, device=d),
    "arange": lambda d: torch.arange(HUGE, device=d),
    "arange of floats": lambda d: torch.arange(0, 1e19, device=d),
    "range": lambda d: torch.range(0, HUGE, device=d),
    "linspace": lambda d: torch.linspace(0, 1, HUGE, device=d),
    "logspace": lambda d: torch.logspace(0, 1, HUGE, device=d),
    "hann_window": lambda d: torch.hann_window(HUGE, device=d),
    "outer": lambda d: torch.outer(one(d).expand(WIDE), one(d).expand(WIDE)),
    "broadcast": lambda d: one(d).expand(WIDE).unsqueeze(1) + one(d).expand(WIDE),
    "one_hot": lambda d: torch.nn.functional.one_hot(eight(d).long(), HUGE),
    "diag_embed": lambda d: torch.diag_embed(one(d).expand(WIDE)),
    "index_select": lambda d: eight(d).index_select(
        0, torch.zeros(1, dtype=torch.int64, device=d).expand(HUGE)
    ),
    "matmul": lambda d: one(d).expand(WIDE, 1) @ one(d).expand(1, WIDE),
    "combinations": lambda d: torch.combinations(one(d).expand(WIDE), 2),
    "multinomial": lambda d: torch.multinomial(eight(d), HUGE, replacement=True),
    "arange(out=)": lambda d: torch.arange(HUGE, out=eight(d)),
    "zeros(out=)": lambda d: torch.zeros(HUGE, out=eight(d)),
    "full(out=)": lambda d: torch.full((HUGE,), 1.0, out=eight(d)),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
def test_overflow_is_eagers_exception_at_the_call(make):
    with pytest.raises(Exception) as eager:  # noqa: PT011 - which, is what is compared
        make("cpu")
    with pytest.raises(Exception) as ours:  # noqa: PT011
        make("xla")
    assert type(ours.value) is type(eager.value), (eager.value, ours.value)


# Sizes that fit a number but no window: nothing is expanded into memory.
VIEWS = {
    "expand": lambda d: one(d).expand(2**61),
    "narrow": lambda d: one(d).expand(2**61).narrow(0, 2**40, 3),
    "as_strided of nothing": lambda d: eight(d).as_strided((0, HUGE), (1, 1)),
    "slice by a large step": lambda d: eight(d)[0 : 8 : 2**63 - 1],
}


@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS.keys())
def test_windows_need_no_memory(make):
    eager, ours = make("cpu"), make("xla")
    assert (ours.shape, ours.stride()) == (eager.shape, eager.stride())


@pytest.mark.parametrize("resize", [(HUGE,), (WIDE, WIDE), (-1,)], ids=str)
def test_refused_resize_changes_nothing(resize):
    x = torch.arange(8.0).to("xla")
    with pytest.raises(RuntimeError):
        x.resize_(resize)
    with pytest.raises(RuntimeError):
        x.as_strided_((4,), (HUGE,))  # eager lets it pass, and reads beyond its memory
    with pytest.raises(RuntimeError):
        x.set_(x, 4, (8,), (1,))
    assert (x.shape, x.storage_offset()) == ((8,), 0)
    assert x.tolist() == list(range(8))


FOREIGN = {
    "empty": lambda: torch.empty(2, dtype=torch.complex32, device="xla"),
    "zeros": lambda: torch.zeros(2, dtype=torch.complex32, device="xla"),
    "empty_strided": lambda: torch.empty_strided((2,), (1,), dtype=torch.complex32, device="xla"),
    "empty_like": lambda: torch.empty_like(torch.ones(2), dtype=torch.complex32, device="xla"),
    "new_empty": lambda: eight("xla").new_empty(2, dtype=torch.complex32),
    "arange": lambda: torch.arange(2, dtype=torch.complex32, device="xla"),
    "to": lambda: eight("xla").to(torch.complex32),
    "to the device": lambda: torch.ones(2, dtype=torch.complex32).to("xla"),
    "view": lambda: eight("xla").view(torch.complex32),
    "view of other sizes": lambda: eight("xla").double().view(torch.complex32),
    "view_as_complex": lambda: torch.view_as_complex(eight("xla").half().view(4, 2)),
    "set_rng_state": lambda: torch.xla.set_rng_state(torch.ones(16)),
    "Generator.set_state": lambda: torch.Generator("xla").set_state(torch.ones(16)),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_the_device_has_no_type_for_is_a_type_error(make):
    with pytest.raises(TypeError):
        make()


def test_random_state_of_another_size_is_refused():
    for state in (torch.ones(8, dtype=torch.uint8), torch.ones(32, dtype=torch.uint8)[::2]):
        with pytest.raises(RuntimeError, match=r"16 elements|contiguous"):
            torch.xla.set_rng_state(state)
