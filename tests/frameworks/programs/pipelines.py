"""transformers pipelines and generate(), with made-up models and words."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    pipeline,
)

WORDS = ["[PAD]", "[UNK]", "[EOS]", *(f"w{i}" for i in range(61))]


def tokenizer():
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", eos_token="[EOS]",
        model_input_names=["input_ids", "attention_mask"], padding_side="left",
    )  # fmt: skip


def llama():
    torch.manual_seed(4)
    config = LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
        eos_token_id=2, bos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def classifier():
    torch.manual_seed(5)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=32,
    )  # fmt: skip
    return BertForSequenceClassification(config).eval()


def run(device, folder):
    words = tokenizer()
    classify = pipeline("text-classification", classifier(), tokenizer=words, device=device)
    assert classify.device.type == device
    scores = [d["score"] for d in classify(["w1 w2 w3", "w4 w5"], top_k=None)[0]]
    writer = pipeline("text-generation", llama(), tokenizer=words, device=device)
    greedy = writer("w1 w2 w3", max_new_tokens=8, do_sample=False)[0]["generated_text"]
    both = writer(["w7 w8", "w9 w10 w11"], max_new_tokens=6, do_sample=False, batch_size=2)
    model, ids = writer.model, torch.tensor([[5, 6, 7]], device=writer.device)
    more = {
        "beams": model.generate(ids, max_new_tokens=6, num_beams=3, do_sample=False).tolist(),
        "static": model.generate(
            ids, max_new_tokens=6, do_sample=False, cache_implementation="static"
        ).tolist(),
    }
    return {
        "scores": scores,
        "greedy": greedy,
        "both": [b[0]["generated_text"] for b in both],
    } | more
