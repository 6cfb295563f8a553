"""What a join says about its inputs."""

from __future__ import annotations

from streamops.kernel.operator import Spec


def delays(spec: Spec) -> tuple[int | None, ...]:
    """The delay of the watermark that the operator defines on each input."""
    return tuple(of.delay for of in spec.inputs)
