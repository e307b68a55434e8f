"""peft: LoRA on a made-up Llama, trained, saved, loaded, merged."""

import runpy
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model


def llama():
    return runpy.run_path(str(Path(__file__).parent / "pipelines.py"))["llama"]()


def run(device, folder):
    base = llama().to(device)
    torch.manual_seed(6)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0)
    model = get_peft_model(base, config)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    ids = torch.arange(24).reshape(2, 12).to(device) % 61 + 3
    losses = []
    for _ in range(5):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    model.eval()
    model.save_pretrained(f"{folder}/adapter")
    after = model(input_ids=ids).logits[0, -1].detach()
    loaded = PeftModel.from_pretrained(llama().to(device), f"{folder}/adapter")
    again = loaded(input_ids=ids).logits[0, -1].detach()
    merged = loaded.merge_and_unload()(input_ids=ids).logits[0, -1].detach()
    return {
        "losses": torch.stack(losses).tolist(), "after": after.tolist(), "again": again.tolist(),
        "merged": merged.tolist(), "trained": len(trained),
    }  # fmt: skip
