#!/usr/bin/python3
"""Rules of sparse communication beside each other, on a network small enough to try many of them.

A perceptron 784-256-128-10 on Fashion-MNIST, 4 ranks with gradients of their own, 5 epochs of batch 256, rate 0.1 (100
steps up, then a straight line down), momentum 0.9, decay 5e-4, chunks of 512, 100 dense steps, 200 down to the share.
Its gaps between rules are those of the demo's network, at a fiftieth of the time. Prints a line a run; lines that FILE
has are not computed again.

    sparse_rules.py rules|shares FILE [SEED,SEED..]"""
import gzip
import os
import sys

import numpy as np

DATA = "/usr/share/datasets/fashion-mnist/"
DIMS = [784, 256, 128, 10]
SHAPES = [(b, a) for a, b in zip(DIMS, DIMS[1:])]
SIZES = [a * b for a, b in SHAPES]
CHUNK, RANKS, BATCH, EPOCHS = 512, 4, 256, 5
CHUNKS = (sum(SIZES) + CHUNK - 1) // CHUNK
RATE, MOMENTUM, DECAY, WARM, RAMP = 0.1, 0.9, 5e-4, 100, 200

# local: momentum before accumulation. score: of all chunks by "history", "gradient" or "velocity" (a chunk that was
# just sent has no history: own_gradient and own_velocity give it that instead).
RULES = {
    "dense": None,
    "reduced": {},
    "reduced, own gradient for sent chunks": {"score": "own_gradient"},
    "reduced, scored by gradient": {"score": "gradient"},
    "reduced, history decays by the momentum": {"decays": True},
    "local, scored by history": {"local": True},
    "local, own gradient for sent chunks": {"local": True, "score": "own_gradient"},
    "local, own velocity for sent chunks": {"local": True, "score": "own_velocity"},
    "local, scored by gradient": {"local": True, "score": "gradient"},
    "local, scored by velocity": {"local": True, "score": "velocity"},
    "local, clipped": {"local": True, "clip": 1.0},
    "local, scored by gradient, clipped": {"local": True, "score": "gradient", "clip": 1.0},
    "local, 4 epochs of falling share": {"local": True, "slow": True},
    "local, scored by gradient, 4 epochs": {"local": True, "score": "gradient", "slow": True},
    "local, Nesterov": {"local": True, "nesterov": True},
    "local, Nesterov, scored by gradient": {"local": True, "nesterov": True, "score": "gradient"},
    "masked, scored by history": {"local": True, "masked": True},
    "masked, own gradient for sent chunks": {"local": True, "masked": True, "score": "own_gradient"},
    "masked, scored by gradient": {"local": True, "masked": True, "score": "gradient"},
    "masked, clipped": {"local": True, "masked": True, "clip": 1.0},
    "masked, 4 epochs of falling share": {"local": True, "masked": True, "slow": True},
    "masked, scored by gradient, 4 epochs": {"local": True, "masked": True, "score": "gradient", "slow": True},
}
KEPT = ["reduced", "local, Nesterov, scored by gradient"]  # what the library has


def load(name, offset):
    with gzip.open(DATA + name) as file:
        return np.frombuffer(file.read(), np.uint8, offset=offset)


def images(name):
    return (load(name, 16).reshape(-1, 784).astype(np.float32) / 255 - .2860) / .3530


def layers(weights):
    at = np.cumsum([0] + SIZES)
    return [weights[at[i]:at[i + 1]].reshape(SHAPES[i]) for i in range(3)]


def forward(matrices, biases, x):
    acts = [x]
    for i in range(3):
        z = acts[-1] @ matrices[i].T + biases[i]
        acts.append(np.maximum(z, 0) if i < 2 else z)
    return acts


def share_at(step, share, epoch, slow):
    if slow:
        return max(share, share ** (min((step - WARM) / epoch, 3.0) / 3.0))
    return 1 - (1 - share) * min(1, (step - WARM) / RAMP)


def scores(rule, h, u, g, sent):
    """Norms of the chunks over all ranks."""
    norm = lambda v: np.abs(v.reshape(RANKS, CHUNKS, CHUNK)).sum((0, 2))
    kind = rule.get("score", "history")
    if kind in ("gradient", "velocity"):
        return norm(g if kind == "gradient" else u)
    n = norm(h)
    if kind != "history":
        n[sent] = norm(g if kind == "own_gradient" else u)[sent]
    return n


def sparse_step(rule, rate, w, v, h, u, g, sent):
    """One step after the first dense ones: what is sent is applied, the rest waits."""
    g += (DECAY / RANKS) * w
    if "clip" in rule:
        for i in range(RANKS):
            norm, most = np.linalg.norm(g[i]), rule["clip"] / np.sqrt(RANKS)
            if norm > most:
                g[i] *= most / norm
    if rule.get("local"):
        u *= MOMENTUM
        u += g
        h += MOMENTUM * u + g if rule.get("nesterov") else u
    else:
        if rule.get("decays"):
            h *= MOMENTUM
        h += g
    total = h.sum(0).reshape(CHUNKS, CHUNK)[sent]
    w2, v2 = w.reshape(CHUNKS, CHUNK), v.reshape(CHUNKS, CHUNK)
    if not rule.get("local"):
        v2[sent] = MOMENTUM * v2[sent] + total
        total = v2[sent]
    w2[sent] -= rate * total
    h.reshape(RANKS, CHUNKS, CHUNK)[:, sent] = 0
    if rule.get("masked"):
        u.reshape(RANKS, CHUNKS, CHUNK)[:, sent] = 0


def backward(matrices, acts, d, g, ranks):
    """Gradients of the weights, of each rank where ranks is more than 1; those of the biases are returned."""
    biases, each = [None] * 3, BATCH // ranks
    for i in (2, 1, 0):
        biases[i] = d.sum(0)
        at = sum(SIZES[:i])
        for r in range(ranks):
            q = slice(r * each, (r + 1) * each)
            np.matmul(d[q].T, acts[i][q], out=g[r, at:at + SIZES[i]].reshape(SHAPES[i]))
        if i:
            d = (d @ matrices[i]) * (acts[i] > 0)
    return biases


def run(data, rule, seed, share):
    (x, y, xt, yt), random = data, np.random.default_rng(seed)
    padded = CHUNKS * CHUNK
    w, v = np.zeros(padded, np.float32), np.zeros(padded, np.float32)
    for matrix, (b, a) in zip(layers(w), SHAPES):
        matrix[:] = random.standard_normal(a * b).astype(np.float32).reshape(b, a) * np.sqrt(2 / a)
    h, u, g = (np.zeros((RANKS, padded), np.float32) for _ in range(3))
    biases, momenta = ([np.zeros(b, np.float32) for b in DIMS[1:]] for _ in range(2))
    epoch, step, losses, norms = len(x) // BATCH, 0, [], None
    for _ in range(EPOCHS):
        order = random.permutation(len(x))
        for s in range(epoch):
            step += 1
            index = order[s * BATCH:(s + 1) * BATCH]
            sparse, matrices = rule is not None and step > WARM, layers(w)
            acts = forward(matrices, biases, x[index])
            p = np.exp(acts[3] - acts[3].max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            losses.append(-np.log(p[np.arange(BATCH), y[index]] + 1e-9).mean())
            p[np.arange(BATCH), y[index]] -= 1
            gradients = backward(matrices, acts, p / BATCH, g, RANKS if sparse else 1)
            rate = RATE * (step / 100 if step < 100 else 1 - (step - 100) / (EPOCHS * epoch - 100))
            for i in range(3):
                momenta[i] = MOMENTUM * momenta[i] + gradients[i]
                biases[i] -= rate * momenta[i]
            if not sparse:
                v = MOMENTUM * v + g[0] + DECAY * w
                w -= rate * v
                if step == WARM:
                    norms = np.abs(v.reshape(CHUNKS, CHUNK)).sum(1)
                    u[:] = v / RANKS
                continue
            kept = max(1, int(np.ceil(share_at(step, share, epoch, rule.get("slow")) * CHUNKS - 1e-6)))
            sent = np.argpartition(-norms, kept - 1)[:kept]
            sparse_step(rule, rate, w, v, h, u, g, sent)
            norms = scores(rule, h, u, g, sent)
    right = (forward(layers(w), biases, xt)[3].argmax(1) == yt).mean()
    return 100 * right, losses


def main():
    kind, path = sys.argv[1:3]
    seeds = [int(s) for s in sys.argv[3].split(",")] if len(sys.argv) > 3 else [1, 2, 3]
    data = images("train-images-idx3-ubyte.gz"), load("train-labels-idx1-ubyte.gz", 8), \
        images("t10k-images-idx3-ubyte.gz"), load("t10k-labels-idx1-ubyte.gz", 8)
    cases = [(n, 0.15) for n in RULES]
    if kind == "shares":
        cases = [("dense", 0.15)] + [(n, s) for s in (0.15, 0.05, 0.10, 0.01, 0.30, 0.02) for n in KEPT]
    had = open(path).read().splitlines() if os.path.exists(path) else []
    for seed in seeds:
        for name, share in cases:
            key = f"{name};{share};{seed};"
            if any(line.startswith(key) for line in had):
                continue
            accuracy, losses = run(data, RULES[name], seed, share)
            means = [f"{np.mean(losses[i:i + 30]):.4f}" for i in range(0, len(losses), 30)]
            with open(path, "a") as file:
                file.write(f"{key}{accuracy:.2f};{np.mean(losses[-100:]):.4f};{' '.join(means)}\n")
            print(f"{name}, {100 * share:g} %, seed {seed}: {accuracy:.2f} %", flush=True)


main()
