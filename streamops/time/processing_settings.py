"""What a user says about processing time, validated once, and the expression for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.spark.rowwise import require_names

__all__ = ["ProcessingTimeSettings"]


@dataclass(frozen=True, slots=True)
class ProcessingTimeSettings:
    """Settings of a column of processing times."""

    where: str = field(repr=False)
    into: str

    @staticmethod
    def of(where: str, *, into: str) -> ProcessingTimeSettings:
        """Settings as the user wrote them, or an error."""
        require_names(where, into=into)
        return ProcessingTimeSettings(where, into)

    @property
    def adds(self) -> tuple[str, ...]:
        """The processing time."""
        return (self.into,)

    @property
    def marked(self) -> str:
        """The processing time: what follows reads it."""
        return self.into

    def check(self, frame: DataFrame) -> None:
        """Nothing of the frame is read."""

    def apply(self, frame: DataFrame) -> DataFrame:
        """The frame with the start of its micro-batch, which Spark notes in the checkpoint."""
        return frame.select("*", F.current_timestamp().alias(self.into))

    def counts(self) -> Mapping[str, Column]:
        """Rows."""
        return {"rows": F.count(F.lit(1))}
