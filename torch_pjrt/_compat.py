"""What the package takes of PyTorch's internals: the names that no release promises to keep.

One row a name; none is used that is not here, and each is there in the torch that runs
(tests/python/test_internals.py): with a new release of PyTorch the rows that fail are what has to
be looked at. C++'s half is src/torch/compat.h. Between 2.13.0, 2.14.1 and 2.15.0 no name differs;
one that does becomes a function here, with the releases.
"""

import importlib

__all__ = ["INTERNALS", "missing"]

INTERNALS = (
    # tensors, storages and their dispatch
    "torch.Tensor._make_subclass",
    "torch._C.DispatchKey.Autograd",
    "torch._C.DispatchKey.AutogradXLA",
    "torch._C.DispatchKey.CompositeExplicitAutograd",
    "torch._C.DispatchKey.XLA",
    "torch._C.DisableTorchFunctionSubclass",
    "torch._C.StorageBase",
    "torch._C._disabled_torch_dispatch_impl",
    "torch._C._dispatch_keys",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._is_alias_of",
    "torch.storage._new_dtypes",
    "torch.utils._foreach_utils",
    "torch.utils._python_dispatch._get_current_dispatch_mode",
    "torch.utils._pytree.tree_flatten",
    "torch.utils._pytree.tree_map",
    "torch.utils._pytree.tree_unflatten",
    # a device from outside
    "torch._register_device_module",
    "torch._tensor_str._str",
    "torch.random._seed_custom_device",
    "torch.utils.data._utils.pin_memory",
    # save and load
    "torch._utils._get_restore_location",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_tensor_v3",
    "torch._utils.get_tensor_metadata",
    "torch.serialization._serialization_tls",
    # torch.compile and torch's control flow
    "torch._TorchCompileInductorWrapper",
    "torch._compile._disable_dynamo",
    "torch._dynamo.backends.common.aot_autograd",
    "torch._dynamo.backends.registry",
    "torch._dynamo.backends.torchxla",
    "torch._dynamo.trace_rules",
    "torch._higher_order_ops.cond",
    "torch._higher_order_ops.map",
    "torch._higher_order_ops.scan",
    "torch._higher_order_ops.while_loop",
    "torch._prims.rng_prims",
    "torch._subclasses.fake_tensor",
    # DTensor and FSDP
    "torch.distributed.fsdp._fully_shard._fully_shard",
    "torch.distributed.tensor._api",
    "torch.distributed.tensor._dtensor_spec.DTensorSpec",
    "torch.distributed.tensor._dtensor_spec.TensorMeta",
    "torch.distributed.tensor.placement_types._StridedShard",
)


def _there(name: str) -> bool:
    """Whether a dotted name is, as attributes and modules."""
    first, *rest = name.split(".")
    found: object = importlib.import_module(first)
    for i, part in enumerate(rest, 1):
        if hasattr(found, part):
            found = getattr(found, part)
            continue
        try:
            found = importlib.import_module(".".join([first, *rest[:i]]))
        except ImportError:
            return False
    return True


def missing() -> list[str]:
    """The rows that the torch of this process has not."""
    return [name for name in INTERNALS if not _there(name)]
