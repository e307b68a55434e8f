"""Images of bytes are resized in eager's whole numbers: every level is the same."""

import pytest
import torch
from eager import check
from torch.nn import functional as F

SIZES = [(7, 9), (3, 4), (24, 7), (10, 31), (20, 18), (1, 5), (10, 9)]


def image(*shape: int) -> torch.Tensor:
    torch.manual_seed(3)
    return torch.randint(0, 256, shape, dtype=torch.uint8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("channels", [1, 3, 5])
def test_bytes_are_eagers(mode, antialias, size, channels):
    x = image(2, channels, 10, 18)
    check(lambda x: F.interpolate(x, size=size, mode=mode, antialias=antialias), x, exact=True)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_aligned_corners(mode):
    for size in SIZES:
        check(
            lambda x, size=size: F.interpolate(x, size=size, mode=mode, align_corners=True),
            image(1, 3, 10, 18),
            exact=True,
        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("antialias", [True, False])
def test_a_scale_that_does_not_lead_to_the_size(mode, antialias):
    for scale in (0.3, 0.77, 1.9, (0.45, 3.3)):
        check(
            lambda x, scale=scale: F.interpolate(
                x, scale_factor=scale, mode=mode, antialias=antialias
            ),
            image(1, 3, 13, 17),
            exact=True,
        )


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_a_real_picture_shrinks_to_eagers_bytes(mode):
    x = image(1, 3, 97, 131)
    check(lambda x: F.interpolate(x, size=(32, 32), mode=mode, antialias=True), x, exact=True)
    check(lambda x: F.interpolate(x, size=(224, 224), mode=mode, antialias=True), x, exact=True)


def test_lanczos():
    for size in SIZES:
        check(
            lambda x, size=size: F.interpolate(x, size=size, mode="lanczos", antialias=True),
            image(1, 3, 10, 18),
            exact=True,
        )


def test_channels_last():
    x = image(2, 3, 10, 18).contiguous(memory_format=torch.channels_last)
    check(lambda x: F.interpolate(x, size=(4, 5), mode="bilinear", antialias=True), x, exact=True)
