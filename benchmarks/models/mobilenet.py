"""MobileNetV2 (Sandler et al. 2018, table 2) with weights from seed 0: [rows, 3, 224, 224] to 1000 logits."""

import torch
from torch import Tensor, nn

example_inputs = {"image": torch.linspace(-1, 1, 3 * 224 * 224).reshape(1, 3, 224, 224)}

# Expansion, output channels, repeats, first stride: the seven bottleneck stages of the paper.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def convolution(inputs: int, outputs: int, size: int, stride: int, groups: int) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU6."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU6(inplace=True),
    )


class Bottleneck(nn.Module):
    """Inverted residual: expand, depthwise 3x3, project without activation; added when shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        expand = [convolution(inputs, wide, 1, 1, 1)] if expansion > 1 else []
        self.steps = nn.Sequential(
            *expand,
            convolution(wide, wide, 3, stride, wide),
            nn.Conv2d(wide, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, features: Tensor) -> Tensor:
        return features + self.steps(features) if self.residual else self.steps(features)


class MobileNetV2(nn.Module):
    """Input ``image`` float32 [rows, 3, 224, 224], output ``logits`` float32 [rows, 1000]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[nn.Module] = [convolution(3, 32, 3, 2, 1)]
        channels = 32
        for expansion, outputs, repeats, stride in STAGES:
            for index in range(repeats):
                layers.append(Bottleneck(channels, outputs, stride if index == 0 else 1, expansion))
                channels = outputs
        layers.append(convolution(channels, 1280, 1, 1, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(1280, 1000)

    def forward(self, image: Tensor) -> dict[str, Tensor]:
        return {"logits": self.classifier(self.features(image).mean((2, 3)))}
