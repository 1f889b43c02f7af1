"""Fine-tune a small BERT on made-up sentences with Hugging Face's Trainer."""

from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)


@dataclass
class DataArguments:
    train_samples: int = field(default=4000, metadata={"help": "sentences to make up"})
    max_length: int = field(default=48, metadata={"help": "tokens of a sentence"})


class Sentences(Dataset):
    """Random tokens; the label says which half of the vocabulary prevails."""

    def __init__(self, count, length):
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
    parser = HfArgumentParser((DataArguments, TrainingArguments))
    data_arguments, training_arguments = parser.parse_args_into_dataclasses()
    config = BertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=512,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_arguments,
        train_dataset=Sentences(data_arguments.train_samples, data_arguments.max_length),
        eval_dataset=Sentences(200, data_arguments.max_length),
    )
    trainer.train()
    print(trainer.evaluate())


if __name__ == "__main__":
    main()
