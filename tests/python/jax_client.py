"""JAX's own compiler and client, to run what torch_pjrt exports."""

import functools
from typing import Any

import torch
from jaxlib import _jax, xla_client
from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import stablehlo


@functools.cache
def client() -> Any:
    """One CPU client for the process."""
    return xla_client.make_cpu_client()


def run(program: "str | bytes", arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a module, given as text or as a portable artifact."""
    device = client().local_devices()[0]
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    with ir.Context() as context:
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        stablehlo.register_dialect(context)
        if isinstance(program, bytes):
            module = stablehlo.deserialize_portable_artifact(context, program)
        else:
            module = ir.Module.parse(program)
        executable = client().compile_and_load(module, xla_client.DeviceList((device,)))
    return [_tensor(r) for r in executable.execute([_buffer(t, device) for t in arguments])]


def _buffer(t: torch.Tensor, device: Any) -> Any:
    dense = t.detach().cpu().contiguous().clone()
    return _jax.dlpack_managed_tensor_to_buffer(torch.utils.dlpack.to_dlpack(dense), device, None)


def _tensor(result: Any) -> torch.Tensor:
    result.block_until_ready()
    return torch.from_dlpack(_jax.buffer_to_dlpack_managed_tensor(result)).clone()
