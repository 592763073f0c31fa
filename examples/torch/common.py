"""What the examples share: digits, a progress bar, a plot."""
import gzip
import os
import pathlib
import struct
import sys
import time

import torch
import torch.distributed as dist

DIGITS = pathlib.Path(__file__).resolve().parents[2] / "data" / "mnist-10k"


def _read_idx(path):
    with gzip.open(path, "rb") as file:
        (magic,) = struct.unpack(">I", file.read(4))
        if magic >> 8 != 8:
            raise ValueError(f"{path} is no IDX file of bytes: it begins with {magic:#x}")
        shape = struct.unpack(f">{magic & 255}I", file.read(4 * (magic & 255)))
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).reshape(shape)


def digits(folder=DIGITS, part="train"):
    """Images as rows of 784 numbers around 0, and their labels. part: "train" or "t10k"."""
    folder = pathlib.Path(folder)
    images = _read_idx(folder / f"{part}-images-idx3-ubyte.gz")
    labels = _read_idx(folder / f"{part}-labels-idx1-ubyte.gz").long()
    return torch.utils.data.TensorDataset(images.reshape(len(labels), -1).float() / 255 - 0.5, labels)


def network():
    return torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))


def say(*words):
    """Prints on rank 0 alone."""
    if dist.get_rank() == 0:
        print(*words, flush=True)


def accuracy(model, dataset):
    """Over all ranks: each looks at its share, and what they counted is summed up."""
    rank, size = dist.get_rank(), dist.get_world_size()
    images, labels = (t[rank::size] for t in dataset.tensors)
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).sum()
    model.train()
    counted = torch.tensor([float(right), float(len(labels))])
    dist.all_reduce(counted)
    return (counted[0] / counted[1]).item()


class Progress:
    """A bar on rank 0: on a terminal it moves, elsewhere each epoch leaves a line."""

    def __init__(self, what, steps):
        self.what, self.steps, self.began = what, steps, time.monotonic()
        self.moves = sys.stderr.isatty() and dist.get_rank() == 0

    def step(self, done, loss):
        if self.moves and (done == self.steps or done % max(1, self.steps // 50) == 0):
            filled = 30 * done // self.steps
            print(f"\r{self.what} [{'#' * filled}{'.' * (30 - filled)}] loss {loss:.4f}", end="", file=sys.stderr, flush=True)

    def end(self, samples, **figures):
        seconds = time.monotonic() - self.began
        if self.moves:
            print(file=sys.stderr)
        more = ", ".join(f"{name} {value:.4f}" for name, value in figures.items())
        say(f"{self.what}: {more}, {samples / seconds:.0f} samples/s")
        return samples / seconds


def plot(path, title, series):
    """Lines as an SVG: series is {name: numbers}. Each line has its own scale, whose ends stand beside its name."""
    if dist.get_rank() != 0:
        return
    lines = []
    for k, (name, numbers) in enumerate(series.items()):
        low, high = min(numbers), max(numbers)
        color = ("#1f77b4", "#d62728", "#2ca02c")[k % 3]
        points = " ".join(f"{40 + 560 * i / max(1, len(numbers) - 1):.1f},{340 - 280 * (v - low) / ((high - low) or 1):.1f}"
                          for i, v in enumerate(numbers))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
                     f'<text x="{40 + 280 * k}" y="375" fill="{color}">{name}: {low:.4g} to {high:.4g}</text>')
    pathlib.Path(path).write_text('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 400" font-family="sans-serif" '
                                  f'font-size="14"><text x="40" y="30">{title}</text>{"".join(lines)}</svg>\n')
    say(f"plot: {os.path.abspath(path)}")
