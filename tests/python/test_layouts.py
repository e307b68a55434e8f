"""Layouts that the device has not end in one error that says what to use instead."""

import pytest
import torch
from torch.nn import functional as F

import torch_pjrt

DENSE = torch.eye(4)


def embedding(sparse_module) -> None:
    module = sparse_module(5, 3, sparse=True).to("xla")
    offsets = () if isinstance(module, torch.nn.Embedding) else (torch.tensor([0]).to("xla"),)
    module(torch.tensor([1, 2]).to("xla"), *offsets).sum().backward()


SPARSE = {
    "Embedding(sparse=True)": lambda: embedding(torch.nn.Embedding),
    "to('xla') of a sparse tensor": lambda: DENSE.to_sparse().to("xla"),
    "to_sparse": lambda: DENSE.to("xla").to_sparse(),
    "to_sparse(1)": lambda: DENSE.to("xla").to_sparse(1),
    "to_sparse_csr": lambda: DENSE.to("xla").to_sparse_csr(),
    "to_sparse_csc": lambda: DENSE.to("xla").to_sparse_csc(),
    "to_sparse_bsr": lambda: DENSE.to("xla").to_sparse_bsr(2),
    "sparse_coo_tensor": lambda: torch.sparse_coo_tensor([[0], [1]], [1.0], device="xla"),
    "zeros of a layout": lambda: torch.zeros(2, 2, layout=torch.sparse_coo, device="xla"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SPARSE)
def test_sparse_tensors_are_refused(name, compiles):
    with (
        compiles() as seen,
        pytest.raises(NotImplementedError, match="no sparse tensors") as e,
    ):
        SPARSE[name]()
    assert "sparse=False" in str(e.value) and ".to_dense()" in str(e.value)
    assert "SparseXLA" not in str(e.value) and "Facebook" not in str(e.value)
    assert seen.fallbacks == ()


@pytest.mark.filterwarnings("ignore")
def test_csr_tensors_are_refused_by_pytorch_itself():
    """PyTorch makes them in C++ without asking a kernel that could say more."""
    with pytest.raises(NotImplementedError, match="'xla:0' device"):
        DENSE.to_sparse_csr().to("xla")
    with pytest.raises(NotImplementedError, match="'xla:0' device"):
        torch.sparse_csr_tensor([0, 1], [0], [1.0], device="xla")


def test_a_sparse_embedding_bag_is_refused():
    with pytest.raises(NotImplementedError, match="sparse gradients are not supported") as e:
        embedding(torch.nn.EmbeddingBag)
    assert "sparse=False" in str(e.value)


ROWS = [torch.ones(2), torch.ones(3)]
NESTED = {
    "nested_tensor": lambda: torch.nested.nested_tensor(ROWS, device="xla"),
    "as_nested_tensor": lambda: torch.nested.as_nested_tensor([r.to("xla") for r in ROWS]),
    "to('xla')": lambda: torch.nested.nested_tensor(ROWS).to("xla"),
    "mask": lambda: torch._nested_tensor_from_mask(
        torch.ones(2, 3, 4, device="xla"), torch.ones(2, 3, dtype=torch.bool, device="xla")
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NESTED)
def test_strided_nested_tensors_are_refused(name):
    with pytest.raises(NotImplementedError, match="no nested tensors") as e:
        NESTED[name]()
    assert "layout=torch.jagged" in str(e.value)
    assert "INTERNAL ASSERT" not in str(e.value)


def test_jagged_nested_tensors_work():
    rows = torch.nested.nested_tensor(ROWS, layout=torch.jagged, device="xla")
    assert (rows * 2).values().tolist() == [2.0] * 5


@pytest.mark.filterwarnings("ignore")
def test_quantised_and_mkldnn_tensors_are_refused():
    with pytest.raises(NotImplementedError, match="no quantised tensors"):
        torch.quantize_per_tensor(DENSE.to("xla"), 0.1, 0, torch.qint8)
    with pytest.raises(NotImplementedError, match="layout mkldnn"):
        DENSE.to("xla").to_mkldnn()


QUANTISED = {
    "per tensor": lambda: torch.quantize_per_tensor(DENSE, 0.1, 0, torch.qint8),
    "per channel": lambda: torch.quantize_per_channel(
        DENSE, torch.ones(4), torch.zeros(4, dtype=torch.long), 0, torch.quint8
    ),
    "qint32": lambda: torch.quantize_per_tensor(DENSE, 0.1, 0, torch.qint32),
}
MOVED = {
    "to": lambda q: q.to("xla"),
    "to with a dtype": lambda q: q.to("xla", torch.float32),
    "to of another": lambda q: q.to(DENSE.to("xla")),
    "copy_": lambda q: torch.zeros(4, 4, device="xla").copy_(q),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", MOVED)
@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_tensors_of_the_cpu_do_not_stay_there_without_a_word(name, how):
    with pytest.raises(NotImplementedError, match="no quantised tensors") as e:
        MOVED[how](QUANTISED[name]())
    assert ".dequantize()" in str(e.value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_tensors_go_on_on_the_cpu(name):
    q = QUANTISED[name]()
    assert torch.equal(q.to("cpu", copy=True).dequantize(), q.dequantize())
    assert torch.equal(q.dequantize().to("xla").cpu(), q.dequantize())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "pin", [torch.Tensor.pin_memory, lambda x: x.untyped_storage().pin_memory()]
)
def test_bare_pin_memory_keeps_pytorchs_words_and_says_what_to_do(pin):
    with pytest.raises(RuntimeError, match=r"^Cannot access accelerator device") as e:
        pin(DENSE)
    assert "try: leave pin_memory() out" in str(e.value)
    assert not DENSE.is_pinned()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_that_is_to_pin_says_so_and_loads(workers):
    data = torch.utils.data.TensorDataset(torch.arange(4.0))
    loader = torch.utils.data.DataLoader(data, 2, pin_memory=True, num_workers=workers)
    with pytest.warns(UserWarning, match="no accelerator is found"):
        got = [(x.to("xla") * 2).tolist() for (x,) in loader]
    assert got == [[0, 2], [4, 6]]


@pytest.mark.filterwarnings("ignore")
def test_pinned_memory_says_that_none_is_needed():
    with pytest.raises(RuntimeError, match="no pinned host memory") as e:
        DENSE.pin_memory("xla")
    assert "pin_memory=False" in str(e.value) and "torch_xla" not in str(e.value)
    assert not DENSE.is_pinned("xla")


def test_a_sparse_embedding_that_is_not_trained_works():
    weight = torch.randn(5, 3)
    places = torch.tensor([1, 2])
    ours = F.embedding(places.to("xla"), weight.to("xla"), sparse=True)
    assert torch.equal(ours.cpu(), F.embedding(places, weight))
    torch_pjrt.sync()
