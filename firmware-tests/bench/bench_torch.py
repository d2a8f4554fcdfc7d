"""A step of PyTorch over this library beside DistributedDataParallel's over Gloo, in the same
processes, in turns: each round runs STEPS steps of one, then of the other, and the medians of the
rounds' times make one line. bench_torch.sh starts it; options below."""

import argparse
import math
import os
import re
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(TREE, "tools/python"))
import gradientflow as gf  # noqa: E402


class Net(nn.Module):
    """1.1 million parameters for images of 28 x 28."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                  nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                                  nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                                  nn.Linear(1568, 680), nn.ReLU(), nn.Linear(680, 10))

    def forward(self, images):
        return self.body(images)


class Transformer(nn.Module):
    """17 million parameters."""

    def __init__(self, words=4096, width=512, layers=4):
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.body(self.words(tokens))).flatten(0, 1)


class Give(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, param, gradient):
        ctx.gradient = gradient
        return value + 0.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient, ctx.gradient, None


class Set(nn.Module):
    """The tensors of a model file, whose gradients are there without computing."""

    def __init__(self, path):
        super().__init__()
        shapes = re.findall(r"shape = \[([0-9, ]+)\]", open(path).read())
        counts = [math.prod(map(int, shape.split(","))) for shape in shapes]
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(n)) for n in reversed(counts)])
        self.gradients = [torch.full((n,), 1e-6) for n in reversed(counts)]

    def forward(self, value):
        for param, gradient in zip(self.weights, self.gradients):
            value = Give.apply(value, param, gradient)
        return value


def images(batch):
    return torch.randn(batch, 1, 28, 28), torch.randint(0, 10, (batch,))


CASES = {  # model, a batch of inputs and targets, steps of a round
    "mlp": (lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(),
                                  nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)),
            lambda: images(32), 40),
    "cnn": (Net, lambda: images(32), 10),
    "transformer": (Transformer, lambda: (torch.randint(0, 4096, (2, 32)),
                                          torch.randint(0, 4096, (64,))), 2),
    "resnet50": (lambda: Set(os.path.join(TREE, "config/models/resnet50.cfg")),
                 lambda: (torch.zeros(1, requires_grad=True), None), 3),
}


def train(model, optimizer, batch, steps):
    inputs, targets = batch
    begin = time.perf_counter()
    for _ in range(steps):
        output = model(inputs)
        loss = output.sum() if targets is None else nn.functional.cross_entropy(output, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return (time.perf_counter() - begin) / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=CASES, default="cnn")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--store", required=True, help="a file that is not there yet")
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--progress", type=float, default=None)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    rank, world = int(os.environ["GF_RANK"]), int(os.environ["GF_WORLD"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + options.store, rank=rank,
                            world_size=world)
    make, inputs, steps = CASES[options.model]
    torch.manual_seed(1)
    theirs, ours = make(), make()
    ours.load_state_dict(theirs.state_dict())
    torch.manual_seed(2 + rank)
    batch = inputs()
    theirs = nn.parallel.DistributedDataParallel(theirs, gradient_as_bucket_view=True)
    settings = {"link": {"private_memory": True, "driver": "tcp"}} if options.sockets else {}
    for text in options.set:
        key, value = text.split("=")
        settings.setdefault(key.split(".")[0], {})[key.split(".")[1]] = value
    extra = {} if options.progress is None else {"progress": options.progress or False}
    ours = gf.DistributedDataParallel(ours, **extra, **settings)
    models = {"ours": ours, "ddp": theirs}
    optimizers = {name: torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
                  for name, model in models.items()}
    times = {"ours": [], "ddp": []}
    for number in range(options.rounds + 1):
        for name in ("ours", "ddp") if number % 2 else ("ddp", "ours"):
            dist.barrier()
            seconds = train(models[name], optimizers[name], batch, steps)
            if number:
                times[name].append(seconds)
    apart = max(float((a - b).abs().max()) for a, b in zip(ours.parameters(), theirs.parameters()))
    ours.close()
    if rank == 0:
        own, ddp = (statistics.median(times[name]) for name in ("ours", "ddp"))
        link = "sockets" if options.sockets else "memory"
        print(f"{options.model:12} {world} ranks {link:8} ours {1e3 * own:8.2f} ms  DDP "
              f"{1e3 * ddp:8.2f} ms  DDP / ours {ddp / own:5.2f}  apart {apart:.1e}")


main()
