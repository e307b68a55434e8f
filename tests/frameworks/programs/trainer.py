"""transformers.Trainer: accumulation, evaluation, save, resume."""

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)


def model():
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=32, num_labels=2, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def data():
    torch.manual_seed(3)
    ids = torch.randint(0, 64, (32, 12))
    return [
        {"input_ids": i, "attention_mask": torch.ones_like(i), "labels": (i[0] > 32).long()}
        for i in ids
    ]


def trainer(device, folder, bf16):
    args = TrainingArguments(
        folder, max_steps=8, per_device_train_batch_size=4, gradient_accumulation_steps=2,
        learning_rate=1e-3, logging_steps=1, save_steps=4, eval_strategy="steps", eval_steps=4,
        report_to=[], use_cpu=device == "cpu", bf16=bf16, seed=5, dataloader_num_workers=0,
        disable_tqdm=True,
    )  # fmt: skip
    made = Trainer(model(), args, train_dataset=data(), eval_dataset=data()[:8])
    assert made.args.device.type == device
    return made


def losses(made):
    return [h["loss"] for h in made.state.log_history if "loss" in h]


def run(device, folder, bf16=False):
    whole = trainer(device, f"{folder}/run", bf16)
    whole.train()
    rest = trainer(device, f"{folder}/run", bf16)
    rest.train(resume_from_checkpoint=f"{folder}/run/checkpoint-4")
    assert losses(rest) == losses(whole), (losses(rest), losses(whole))
    assert {p.device.type for p in whole.model.parameters()} == {device}
    whole.save_model(f"{folder}/model")
    loaded = BertForSequenceClassification.from_pretrained(f"{folder}/model")
    evaluated = whole.evaluate()["eval_loss"]
    predicted = whole.predict(data()[:4]).predictions
    bias = loaded.classifier.bias.tolist()
    return {"losses": losses(whole), "eval": evaluated, "logits": predicted.tolist(), "bias": bias}
