"""A small CNN on Fashion-MNIST:  torchrun --nproc_per_node 2 fashion.py [FOLDER]"""
import gzip
import os
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import gradientflow as gf  # PYTHONPATH=$(pkg-config --variable=pythondir gradientflow)

folder = sys.argv[1] if len(sys.argv) > 1 else "/usr/share/datasets/fashion-mnist"
rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def data(part):
    def load(name, offset):
        raw = bytearray(gzip.open(f"{folder}/{part}-{name}-ubyte.gz").read())
        return torch.frombuffer(raw, dtype=torch.uint8, offset=offset)
    images = load("images-idx3", 16).view(-1, 1, 28, 28).float() / 255
    return TensorDataset(images, load("labels-idx1", 8).long())


torch.manual_seed(1)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(1568, 10))
# With DDP: torch.distributed.init_process_group("gloo"); model = nn.parallel.DistributedDataParallel(net)
model = gf.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
train, test = data("train"), data("t10k")
for images, labels in DataLoader(train, 32, sampler=DistributedSampler(train, world, rank)):
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
if rank == 0:
    net.eval()
    with torch.no_grad():
        right = sum(int((net(i).argmax(1) == l).sum()) for i, l in DataLoader(test, 500))
    print(f"{100 * right / len(test):.2f} % of the test images")
    torch.save(net.state_dict(), "fashion.pt")
