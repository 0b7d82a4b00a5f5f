"""ResNet-50 and MobileNetV2.

No operation is in place: the demo's picture uses torch's backward hooks, which forbid in-place operations.
"""

# mypy: disable-error-code="import-not-found, misc"
from torch import Tensor, nn


class Bottleneck(nn.Module):
    """1x1 convolution to fewer channels, 3x3 convolution, 1x1 convolution to more; plus the input."""

    WIDEN = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        """Args: channels of the input; the output has 4 * width channels."""
        super().__init__()
        out = width * self.WIDEN
        self.body = nn.Sequential(
            *_convolution(channels, width, 1),
            nn.ReLU(),
            *_convolution(width, width, 3, stride),
            nn.ReLU(),
            *_convolution(width, out, 1),
        )
        same = stride == 1 and channels == out
        self.skip = nn.Identity() if same else nn.Sequential(*_convolution(channels, out, 1, stride))
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output, (batch, 4 * width, height / stride, width / stride)."""
        answer: Tensor = self.relu(self.body(images) + self.skip(images))
        return answer


class ResNet50(nn.Module):
    """The network of He et al. (2015), with the stride in the 3x3 convolution."""

    STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
    """ Width, blocks, stride of the first block. """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for width, blocks, stride in self.STAGES:
            for number in range(blocks):
                layers.append(Bottleneck(channels, width, stride if number == 0 else 1))
                channels = width * Bottleneck.WIDEN
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (batch, 3, 224, 224): scores (batch, 1000)."""
        scores: Tensor = self.layers(images)
        return scores


class InvertedResidual(nn.Module):
    """1x1 convolution to more channels, depthwise 3x3, 1x1 to fewer; plus the input if the shapes are equal."""

    def __init__(self, channels: int, out: int, stride: int, widen: int) -> None:
        super().__init__()
        hidden = channels * widen
        wide = [] if widen == 1 else [*_convolution(channels, hidden, 1), nn.ReLU6()]
        self.body = nn.Sequential(
            *wide,
            *_convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            *_convolution(hidden, out, 1),
        )
        self.residual = stride == 1 and channels == out

    def forward(self, images: Tensor) -> Tensor:
        """Return the block's output, (batch, out, height / stride, width / stride)."""
        answer: Tensor = self.body(images)
        return images + answer if self.residual else answer


class MobileNetV2(nn.Module):
    """The network of Sandler et al. (2018), width multiplier 1: many small kernels that do not fill the GPU."""

    STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    """ Widening, channels, blocks, stride of the first block. """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [*_convolution(3, 32, 3, 2), nn.ReLU6()]
        channels = 32
        for widen, out, blocks, stride in self.STAGES:
            for number in range(blocks):
                layers.append(InvertedResidual(channels, out, stride if number == 0 else 1, widen))
                channels = out
        layers += [*_convolution(channels, 1280, 1), nn.ReLU6(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        self.layers = nn.Sequential(*layers, nn.Linear(1280, 1000))

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (batch, 3, 224, 224): scores (batch, 1000)."""
        scores: Tensor = self.layers(images)
        return scores


def _convolution(channels: int, out: int, size: int, stride: int = 1, groups: int = 1) -> tuple[nn.Module, nn.Module]:
    convolution = nn.Conv2d(channels, out, size, stride, size // 2, groups=groups, bias=False)
    return convolution, nn.BatchNorm2d(out)
