"""Colors are distinguishable for color-blind people and in black and white."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from streamops.kernel.palette import CATEGORIES, COLORS, MARKERS, lighten

# Machado, Oliveira and Fernandes (2009), severity 1, applied to linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
MEANINGS = ("on_time", "corrected", "too_late", "retracted")


def linear(color: str) -> np.ndarray:
    rgb = np.array(to_rgb(color))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB under D65, from linear RGB."""
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    scaled = to_xyz @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(scaled > 0.008856, np.cbrt(scaled), 7.787 * scaled + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(first: str, second: str, vision: str) -> float:
    a, b = (lab(VISION[vision] @ linear(color)) for color in (first, second))
    return float(np.linalg.norm(a - b))


def contrast(color: str) -> float:
    """The contrast with white, as WCAG defines it."""
    return 1.05 / (float(np.array([0.2126, 0.7152, 0.0722]) @ linear(color)) + 0.05)


@pytest.mark.parametrize("vision", VISION)
def test_meanings_and_categories_differ_for_everybody(vision: str) -> None:
    meanings = [COLORS[name] for name in MEANINGS]
    assert min(difference(a, b, vision) for a, b in combinations(meanings, 2)) > 25
    assert min(difference(a, b, vision) for a, b in combinations(CATEGORIES, 2)) > 30


def test_meanings_differ_in_lightness() -> None:
    lightness = sorted(lab(linear(COLORS[name]))[0] for name in MEANINGS)
    assert min(np.diff(lightness)) > 7


def test_text_and_bars_contrast_with_the_background() -> None:
    assert contrast(COLORS["text"]) > 7
    assert contrast(COLORS["label"]) > 4.5
    assert min(contrast(COLORS[name]) for name in ("on_time", "corrected")) > 3


def test_categories_differ_in_shape() -> None:
    assert len(set(MARKERS)) == len(set(CATEGORIES)) == 6


def test_text_is_readable_on_the_area_of_a_bar() -> None:
    for name in MEANINGS:
        assert contrast(lighten(COLORS[name])) < 1.7


def test_the_colors_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        COLORS["on_time"] = "#ff0000"  # type: ignore[index]
