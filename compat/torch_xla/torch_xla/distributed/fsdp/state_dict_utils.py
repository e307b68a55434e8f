"""State dicts of several processes as one."""

import glob
from typing import Any

import torch

__all__ = ["consolidate_sharded_model_checkpoints", "consolidate_sharded_state_dicts"]


def consolidate_sharded_state_dicts(
    state_dict_list: list[dict[str, Any]], shard_metadata: Any
) -> dict[str, Any]:
    """Parameters of each process side by side; here each process holds whole ones."""
    if len(state_dict_list) != 1:
        raise ValueError(
            "consolidate_sharded_state_dicts: FSDP of torch_pjrt keeps whole parameters in one "
            f"process, found {len(state_dict_list)} state dicts"
        )
    return dict(state_dict_list[0])


def consolidate_sharded_model_checkpoints(
    ckpt_prefix: str, ckpt_suffix: str = "*.pth", save_path: str = "", save_model: bool = True
) -> tuple[dict[str, Any], str]:
    """Reads PREFIX + SUFFIX, writes the one model to `save_path`."""
    files = sorted(glob.glob(ckpt_prefix + ckpt_suffix))
    found = [torch.load(f, map_location="cpu") for f in files]
    metas = [f.get("shard_metadata") for f in found]
    model = consolidate_sharded_state_dicts([f["model"] for f in found], metas)
    path = save_path or f"{ckpt_prefix}_consolidated.pth"
    if save_model:
        torch.save({"model": model}, path)
    return model, path
