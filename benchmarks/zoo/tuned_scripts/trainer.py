"""Fine-tune a small BERT with the Trainer of transformers, in bfloat16 and compiled.

With `--mistake` its loader begins eight workers anew for each short epoch.
"""

import argparse

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(Dataset):
    """Random tokens; the label says which half of the vocabulary prevails."""

    def __init__(self, count, length=48):
        generator = torch.Generator().manual_seed(0)
        self.labels = torch.randint(2, (count,), generator=generator)
        draws = torch.randint(500, (count, length), generator=generator)
        shift = (torch.rand(count, length, generator=generator) < 0.7) ^ (self.labels[:, None] == 0)
        self.tokens = draws + 500 * shift

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        tokens = self.tokens[index]
        return {
            "input_ids": tokens,
            "attention_mask": torch.ones_like(tokens),
            "labels": self.labels[index],
        }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--mistake", action="store_true")
    args = parser.parse_args()
    config = BertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
    )
    training = TrainingArguments(
        output_dir="out",
        report_to="none",
        save_strategy="no",
        num_train_epochs=args.epochs,
        per_device_train_batch_size=16,
        learning_rate=3e-4,
        use_cpu=not torch.cuda.is_available(),
        bf16=True,
        torch_compile=True,
        optim="adamw_torch_fused",
        dataloader_num_workers=8 if args.mistake else 0,
    )
    model = BertForSequenceClassification(config)
    Trainer(model=model, args=training, train_dataset=Sentences(800)).train()


if __name__ == "__main__":
    main()
