"""Train a language model whose weights are updated by hand, on a tensor of batches."""

import torch
from torch import nn

torch.manual_seed(1111)
letters = b"it was the best of times, it was the worst of times, it was the age of wisdom. "
corpus = torch.tensor(list(letters * 400))
batch_size, bptt, lr = 20, 35, 0.5
columns = corpus[: len(corpus) // batch_size * batch_size].view(batch_size, -1).t().contiguous()


class Letters(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.embedding = nn.Embedding(128, width)
        self.lstm = nn.LSTM(width, width, 2)
        self.head = nn.Linear(width, 128)

    def forward(self, x, hidden):
        out, hidden = self.lstm(self.embedding(x), hidden)
        return self.head(out).view(-1, 128), hidden


model, criterion = Letters(), nn.CrossEntropyLoss()
for epoch in range(40):
    model.train()
    hidden, total = None, 0.0
    for start in range(0, columns.size(0) - 1, bptt):
        length = min(bptt, len(columns) - 1 - start)
        data, targets = columns[start : start + length], columns[start + 1 : start + 1 + length]
        model.zero_grad()
        if hidden is not None:
            hidden = tuple(state.detach() for state in hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets.reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
    print(f"epoch {epoch} loss {total / (len(columns) / bptt):.3f}")
