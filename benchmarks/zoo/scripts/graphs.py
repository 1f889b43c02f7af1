"""Classify small graphs with PyTorch Geometric."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data, Dataset
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool


class Rings(Dataset):
    """Rings with chords; the label says if there are many chords."""

    def len(self):
        return 4000

    def get(self, index):
        generator = torch.Generator().manual_seed(index)
        nodes, label = 24, index % 2
        ring = torch.arange(nodes)
        chords = torch.randint(nodes, (2, 4 + 16 * label), generator=generator)
        edges = torch.cat([torch.stack([ring, (ring + 1) % nodes]), chords], dim=1)
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        degree = torch.bincount(edges[0], minlength=nodes).float().unsqueeze(1)
        return Data(x=degree.expand(-1, 16), edge_index=edges, y=torch.tensor([label]))


class GCN(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(16, width), GCNConv(width, width)
        self.lin = nn.Linear(width, 2)

    def forward(self, x, edge_index, batch):
        x = F.relu(self.conv1(x, edge_index))
        x = F.relu(self.conv2(x, edge_index))
        return self.lin(global_mean_pool(x, batch))


model = GCN()
loader = DataLoader(Rings(), batch_size=32, shuffle=True)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(1, 40):
    model.train()
    for data in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.x, data.edge_index, data.batch), data.y)
        loss.backward()
        optimizer.step()
    print(f"Epoch: {epoch:03d}, loss: {loss.item():.4f}")
