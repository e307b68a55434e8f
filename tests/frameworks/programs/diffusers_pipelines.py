"""diffusers: image pipelines with made-up networks."""

import torch
from diffusers import DDIMPipeline, DDIMScheduler, DDPMPipeline, DDPMScheduler, UNet2DModel


def unet():
    torch.manual_seed(7)
    return UNet2DModel(
        sample_size=8, in_channels=3, out_channels=3, layers_per_block=1,
        block_out_channels=(16, 32), norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def run(device, folder):
    found = {}
    for name, kind, schedule in (
        ("ddpm", DDPMPipeline, DDPMScheduler(num_train_timesteps=100)),
        ("ddim", DDIMPipeline, DDIMScheduler(num_train_timesteps=100)),
    ):
        made = kind(unet(), schedule).to(device)
        made.set_progress_bar_config(disable=True)
        seed = torch.Generator().manual_seed(8)
        out = made(batch_size=1, generator=seed, num_inference_steps=4, output_type="np")
        found[name] = out.images.reshape(-1)[::7].tolist()
        made.save_pretrained(f"{folder}/{name}")
        assert {p.device.type for p in made.unet.parameters()} == {device}
    return found
