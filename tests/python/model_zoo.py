"""Twelve small models of well known families: how to make one, what it eats, what its loss is.

Configurations only: nothing is downloaded. Dropout is off, so that CPU and device draw nothing and
must agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import transformers as tf
from torch import nn
from torch.nn import functional as F

Batch = dict[str, torch.Tensor]
VOCABULARY, HIDDEN, LAYERS, HEADS = 96, 32, 2, 4
ENDLESS = {"eos_token_id": None, "pad_token_id": 0, "bos_token_id": 1}  # generation never stops


@dataclass
class Model:
    """A family: `make` on the CPU, a `batch` whose forward gives a loss, how to generate."""

    make: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    loss: Callable[[nn.Module, Batch], torch.Tensor] = lambda model, batch: model(**batch).loss
    prompt: Callable[[], Batch] | None = None  # decoders: what to generate from
    generate: dict[str, Any] = field(default_factory=dict)


def tokens(*shape: int) -> torch.Tensor:
    """Tokens that are neither padding nor beginnings."""
    return torch.randint(3, VOCABULARY, shape)


def text_batch() -> Batch:
    """Two sentences and themselves as labels, some of which do not count."""
    ids = tokens(2, 12)
    labels = ids.clone()
    labels[1, :3] = -100
    return {"input_ids": ids, "labels": labels}


def padded(batch: Batch) -> Batch:
    """The same with its second sentence padded on the left."""
    mask = torch.ones_like(batch["input_ids"])
    mask[1, :3] = 0
    return {**batch, "attention_mask": mask}


def masked_batch() -> Batch:
    """A padding mask in its final form: one of two dims is read, to see whether it masks at all."""
    batch = padded(text_batch())
    mask = batch["attention_mask"].bool()
    return {**batch, "attention_mask": mask[:, None, None, :].expand(2, 1, 12, 12).clone()}


def text_prompt() -> Batch:
    """The beginnings of two sentences, one of them shorter."""
    return padded({"input_ids": tokens(2, 6)})


# ---- text ---------------------------------------------------------------------------------------


def llama() -> nn.Module:
    return tf.LlamaForCausalLM(
        tf.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64,
            num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=2, **ENDLESS,
        )
    )  # fmt: skip


def gpt2() -> nn.Module:
    return tf.GPT2LMHeadModel(
        tf.GPT2Config(
            vocab_size=VOCABULARY, n_positions=64, n_embd=HIDDEN, n_layer=LAYERS, n_head=HEADS,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, eos_token_id=None, bos_token_id=1,
        )
    )  # fmt: skip


def bert() -> nn.Module:
    return tf.BertForMaskedLM(
        tf.BertConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, intermediate_size=64, max_position_embeddings=32,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def t5() -> nn.Module:
    return tf.T5ForConditionalGeneration(
        tf.T5Config(
            vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=64, num_layers=LAYERS,
            num_heads=HEADS, dropout_rate=0.0, decoder_start_token_id=0,
            eos_token_id=None, pad_token_id=0,
        )
    )  # fmt: skip


def t5_batch() -> Batch:
    return {**text_batch(), "labels": tokens(2, 7)}


def mixtral() -> nn.Module:
    return tf.MixtralForCausalLM(
        tf.MixtralConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=48,
            num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=2,
            num_local_experts=4, num_experts_per_tok=2, **ENDLESS,
        )
    )  # fmt: skip


def mamba() -> nn.Module:
    return tf.MambaForCausalLM(
        tf.MambaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, state_size=8, num_hidden_layers=LAYERS,
            **ENDLESS,
        )
    )  # fmt: skip


# ---- images and sound ---------------------------------------------------------------------------


def image_batch() -> Batch:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(5, (2,))}


def vit() -> nn.Module:
    return tf.ViTForImageClassification(
        tf.ViTConfig(
            image_size=32, patch_size=8, hidden_size=HIDDEN, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, intermediate_size=64, num_labels=5,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )
    )  # fmt: skip


def resnet() -> nn.Module:
    return tf.ResNetForImageClassification(
        tf.ResNetConfig(
            embedding_size=8, hidden_sizes=[16, 32], depths=[1, 2], layer_type="bottleneck",
            num_labels=5,
        )
    )  # fmt: skip


def clip() -> nn.Module:
    layers = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": HIDDEN}
    text = {"vocab_size": VOCABULARY, "intermediate_size": 64, "max_position_embeddings": 16}
    vision = {"image_size": 32, "patch_size": 8, "intermediate_size": 64}
    return tf.CLIPModel(
        tf.CLIPConfig(
            text_config={**layers, **text, "eos_token_id": 2, "bos_token_id": 1},
            vision_config={**layers, **vision},
            projection_dim=16,
        )
    )


def clip_batch() -> Batch:
    ids = tokens(2, 9)
    ids[:, -1] = 2  # the end, where CLIP reads the sentence's meaning
    return {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}


def clip_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    return model(**batch, return_loss=True).loss


def whisper() -> nn.Module:
    return tf.WhisperForConditionalGeneration(
        tf.WhisperConfig(
            vocab_size=VOCABULARY, num_mel_bins=16, d_model=HIDDEN, encoder_layers=LAYERS,
            decoder_layers=LAYERS, encoder_attention_heads=HEADS, decoder_attention_heads=HEADS,
            encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=20,
            max_target_positions=48, dropout=0.0, decoder_start_token_id=1,
            suppress_tokens=None, begin_suppress_tokens=None, **ENDLESS,
        )
    )  # fmt: skip


def whisper_batch() -> Batch:
    return {"input_features": torch.randn(2, 16, 40), "labels": tokens(2, 7)}


# ---- written by hand ----------------------------------------------------------------------------


class Residual(nn.Module):
    """A UNet's block: two convolutions around the time, and a shortcut."""

    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, inner), nn.Conv2d(inner, outer, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, outer), nn.Conv2d(outer, outer, 3, padding=1)
        self.time = nn.Linear(32, outer)
        self.short = nn.Conv2d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.short(x) + self.conv2(F.silu(self.norm2(h)))


class Attention2d(nn.Module):
    """Pixels attend to each other."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(4, channels), nn.Conv2d(channels, 3 * channels, 1)
        self.out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(n, 3, 2, c // 2, h * w).mT.unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).mT.reshape(n, c, h, w))


class UNet(nn.Module):
    """Says which noise was added at a time: down, middle with attention, up with skips."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
        self.first, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 3, 3, padding=1)
        self.down = nn.ModuleList([Residual(16, 16), Residual(16, 32)])
        self.shrink = nn.ModuleList([nn.Conv2d(c, c, 3, stride=2, padding=1) for c in (16, 32)])
        self.middle = nn.ModuleList([Residual(32, 32), Attention2d(32), Residual(32, 32)])
        self.up = nn.ModuleList([Residual(64, 16), Residual(32, 16)])

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        angles = t[:, None] * torch.exp(-torch.arange(8, device=x.device) * 0.9)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        h, skips = self.first(x), []
        for block, shrink in zip(self.down, self.shrink, strict=True):
            skips.append(block(h, time))
            h = shrink(skips[-1])
        h = self.middle[2](self.middle[1](self.middle[0](h, time)), time)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2.0, mode="nearest")
            h = block(torch.cat([h, skips.pop()], 1), time)
        return self.last(F.silu(h))


def unet_batch() -> Batch:
    return {"x": torch.randn(2, 3, 8, 8), "noise": torch.randn(2, 3, 8, 8), "t": torch.rand(2)}


def unet_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    share = torch.cos(batch["t"] * torch.pi / 2)[:, None, None, None]
    noisy = share * batch["x"] + torch.sqrt(1 - share**2) * batch["noise"]
    return F.mse_loss(model(noisy, batch["t"] * 100), batch["noise"])


class LSTM(nn.Module):
    """A language model of two LSTM layers, both ways of reading its state."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, HIDDEN, padding_idx=0)
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, LAYERS, batch_first=True)
        self.out = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, ids: torch.Tensor, state: Any = None) -> tuple[torch.Tensor, Any]:
        h, state = self.lstm(self.embed(ids), state)
        return self.out(h), state

    @torch.no_grad()
    def generate(self, input_ids: torch.Tensor, max_new_tokens: int, **_: Any) -> torch.Tensor:
        """Greedy; the state is the cache."""
        ids, step, state = [input_ids], input_ids, None
        for _ in range(max_new_tokens):
            logits, state = self(step, state)
            ids.append(step := logits[:, -1:].argmax(-1))
        return torch.cat(ids, 1)


def lstm_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    logits = model(batch["input_ids"][:, :-1])[0]
    return F.cross_entropy(logits.flatten(0, 1), batch["input_ids"][:, 1:].flatten())


def lstm_prompt() -> Batch:
    return {"input_ids": tokens(2, 6)}


def mixtral_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """With the loss that spreads tokens over experts; it wants every token's router."""
    return model(**batch, output_router_logits=True).loss


# A cache of fixed size. GPT-2 grows its cache, Mamba has none.
STATIC = {"cache_implementation": "static"}

MODELS = {
    "llama": Model(llama, text_batch, prompt=text_prompt, generate=STATIC),
    "gpt2": Model(gpt2, text_batch, prompt=text_prompt),
    "bert": Model(bert, masked_batch),
    "t5": Model(t5, t5_batch, prompt=text_prompt, generate=STATIC),
    "vit": Model(vit, image_batch),
    "resnet": Model(resnet, image_batch),
    "whisper": Model(
        whisper,
        whisper_batch,
        generate=STATIC,
        prompt=lambda: {"input_features": torch.randn(2, 16, 40)},
    ),
    "clip": Model(clip, clip_batch, clip_loss),
    "mixtral": Model(mixtral, text_batch, mixtral_loss, text_prompt, STATIC),
    "mamba": Model(mamba, text_batch, prompt=text_prompt),
    "unet": Model(UNet, unet_batch, unet_loss),
    "lstm": Model(LSTM, lambda: {"input_ids": tokens(2, 12)}, lstm_loss, prompt=lstm_prompt),
}
