"""Train the demo's digit model and write its weights and measured accuracy into the package.

    python scripts/train_digits.py           train, measure, write (a few minutes on one core)
    python scripts/train_digits.py --measure measure the stored weights only

Data: the 1,797 digits that scikit-learn carries (UCI "Optical Recognition of Handwritten Digits", test part: 8x8 cells,
each the number of inked pixels, 0 to 16, of a 4x4 block of a 32x32 bitmap). A quarter is held out, stratified and
seeded; nothing is chosen by looking at it, it is measured once, at the end.

Because people draw with a mouse, training images are varied: rotated, slanted, stretched, shifted, thinner and thicker.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from torchgate.demo.digits import INK, WEIGHTS, DigitNet, model

SEED = 7
HELD_OUT = 0.25
EPOCHS = 120
BATCH = 128
PEAK_LR = 4e-3
REPORT = WEIGHTS.with_suffix(".json")


def split() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images and labels, held-out images and labels."""
    data: Any = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32)
    labels = torch.tensor(data.target, dtype=torch.int64)
    train, held = train_test_split(
        range(len(labels)), test_size=HELD_OUT, random_state=SEED, stratify=data.target
    )
    return images[train], labels[train], images[held], labels[held]


def vary(images: Tensor) -> Tensor:
    """Return the images as other hands and pens would have drawn them."""
    rows = len(images)
    angle = torch.empty(rows).uniform_(-0.22, 0.22)
    slant = torch.empty(rows).uniform_(-0.25, 0.25)
    wide = torch.empty(rows).uniform_(0.85, 1.25)
    tall = torch.empty(rows).uniform_(0.95, 1.12)
    cos, sin = torch.cos(angle), torch.sin(angle)
    matrix = torch.stack(
        [
            torch.stack(
                [wide * cos, wide * (slant * cos - sin), torch.empty(rows).uniform_(-0.2, 0.2)], 1
            ),
            torch.stack(
                [tall * sin, tall * (slant * sin + cos), torch.empty(rows).uniform_(-0.1, 0.1)], 1
            ),
        ],
        dim=1,
    )
    # In the middle the image has 32x32 pixels, as the bitmaps had that the cells were counted from.
    fine = F.interpolate(images.unsqueeze(1), size=(32, 32), mode="bicubic", align_corners=False)
    grid = F.affine_grid(matrix, [rows, 1, 32, 32], align_corners=False)
    fine = F.grid_sample(fine, grid, align_corners=False).clamp(0, INK)
    gamma = torch.empty(rows, 1, 1, 1).uniform_(-0.55, 0.55).exp()  # thinner or thicker strokes
    cells = F.avg_pool2d((fine / INK) ** gamma * INK, 4).squeeze(1)
    noise = torch.randn_like(cells) * 0.6 * (cells > 0)
    return (cells + noise).clamp(0, INK)


def train(images: Tensor, labels: Tensor) -> DigitNet:
    """Return a network trained on varied copies of the images."""
    net = DigitNet()
    steps = EPOCHS * -(-len(labels) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_LR, total_steps=steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    for _ in range(EPOCHS):
        for rows in torch.split(torch.randperm(len(labels)), BATCH):
            loss = loss_of(net.logits(vary(images[rows])), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return net.eval()


@torch.inference_mode()
def accuracy(net: DigitNet, images: Tensor, labels: Tensor) -> float:
    """Return the part of the images whose most probable class is their label."""
    return float((net.logits(images).argmax(dim=1) == labels).double().mean())


def main() -> None:
    """Train and write, or only measure."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    train_images, train_labels, held_images, held_labels = split()
    if "--measure" in sys.argv[1:]:
        print(f"held-out accuracy {accuracy(model(), held_images, held_labels):.4f}")
        return
    net = train(train_images, train_labels)
    save_file({name: value.contiguous() for name, value in net.state_dict().items()}, WEIGHTS)
    report = {
        "data": "scikit-learn load_digits (UCI optdigits)",
        "seed": SEED,
        "trained_on": len(train_labels),
        "held_out": len(held_labels),
        "held_out_accuracy": round(accuracy(net, held_images, held_labels), 4),
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "bytes": WEIGHTS.stat().st_size,
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
