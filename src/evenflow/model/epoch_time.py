"""The time of an epoch, which every lane and every replay sees alike, and when something is to happen next."""

from __future__ import annotations

from dataclasses import dataclass

from evenflow.model.slots import Epoch


@dataclass(frozen=True, slots=True)
class EpochTime:
    """What time it is in an epoch, in microseconds since 1970: part of its record, so all who fold it see the same.

    `watermark_us` is the event time up to which the input is complete with this epoch's rows, and `before_us` without
    them. Spark's operators go by `before_us`: what it has reached is closed in this epoch. `late_us` is the `before_us`
    of the epoch before: a row at or before it is late, since what it belongs to was closed by then. None for a stream
    without watermark. `processing_us` is when the epoch was accepted, by the driver's clock.
    """

    epoch: Epoch
    watermark_us: int | None = None
    processing_us: int = 0
    before_us: int | None = None
    late_us: int | None = None


@dataclass(frozen=True, slots=True)
class Due:
    """The earliest watermark and the earliest processing time at which something is to be done; None: at none."""

    watermark_us: int | None = None
    processing_us: int | None = None

    def is_reached(self, time: EpochTime) -> bool:
        """Tell whether something is to be done in an epoch of this time."""
        late = (
            self.watermark_us is not None and time.watermark_us is not None and self.watermark_us <= time.watermark_us
        )
        return late or (self.processing_us is not None and self.processing_us <= time.processing_us)

    def or_earlier(self, other: Due | None) -> Due:
        """Return the earliest of two, by each clock."""
        if other is None:
            return self
        return Due(_earliest(self.watermark_us, other.watermark_us), _earliest(self.processing_us, other.processing_us))


def _earliest(*times: int | None) -> int | None:
    return min((time for time in times if time is not None), default=None)
