"""DPA's coordinator (section 2.3): feeds the mappers and stops the reducers, when nothing can come any more.

A reducer cannot stop on its own, others may still forward to it. The reading DP-A16: stop when the mappers are done
and as many items are processed as were sent. That all queues are empty is not enough: an item in a reducer's hands,
or on its way, is in no queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papers.dpa.protocol.forwarding import DpaRun
from papers.messages.mapper import Source


@dataclass
class Coordinator:
    """Looks every `period` microseconds whether the reducers of a run may stop."""

    run: DpaRun
    sources: Sequence[Source]
    period: int = 50_000
    stopped_at: int = -1

    def start(self) -> None:
        """Begin to look."""
        self.run.world.loop.at(self.period, self._look)

    def _look(self, _: Any, __: Any) -> None:
        loop = self.run.world.loop
        if self.finished():
            self.stopped_at = loop.now
            for reducer in self.run.reducers:
                reducer.stopped = True
        else:
            loop.at(loop.now + self.period, self._look)

    def finished(self) -> bool:
        """Whether all that was sent is processed and nothing more will be sent."""
        sent = sum(source.emitted for source in self.sources)
        processed = sum(reducer.served for reducer in self.run.reducers)
        return all(source.is_done for source in self.sources) and processed == sent
