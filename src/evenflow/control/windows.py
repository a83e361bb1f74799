"""From load reports to load windows: only complete sets count (AF-M9); late, lost and repeated ones do no harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from evenflow.control.journal import Entry, ReportIgnored, WindowDropped
from evenflow.model import Epoch, LaneId, LoadReport, LoadWindow, RoutingTable, SlotLoads


@dataclass
class ReportCollector:
    """Collects reports epoch by epoch and closes a window when it is complete and long enough.

    An epoch counts once every lane that existed has reported it. An epoch that stays incomplete while one
    more than `patience` epochs newer is complete is given up, and its window with it.
    """

    slots: int
    lanes: tuple[LaneId, ...]
    record: Callable[[Entry], None]
    window_epochs: int = 1
    patience: int = 8
    min_span_s: float = 0.0
    _start: Epoch = 0
    _reports: dict[Epoch, dict[LaneId, LoadReport]] = field(default_factory=dict)

    def add(self, report: LoadReport) -> None:
        """Take in one report; it may complete several windows at once, if the others came before it."""
        why = self._reason_to_ignore(report)
        if why is not None:
            self._ignore(report.lane.lane, report.epoch, why)
            return
        self._reports.setdefault(report.epoch, {})[report.lane.lane] = report
        self._give_up_lost_epochs()

    def add_all(self, load: LoadWindow, table: RoutingTable) -> LoadWindow | None:
        """Take in what all lanes of `table` report for one epoch, in one piece; return it if it is a window by itself.

        It comes to the same as a report of each lane, but that these are made only where they have to wait.
        """
        epoch = load.epochs[1]
        if load.lane_ids == self.lanes and epoch < self._start:
            for lane in self.lanes:
                self._ignore(lane, epoch, self._too_late())
            return None
        if self._is_window(load):
            self._start = epoch + 1
            return load
        for report in _reports_of(load, table):
            self.add(report)
        return None

    def take(self) -> LoadWindow | None:
        """Return the next window, from the start to the first epoch at which it is complete and long enough."""
        span, end = 0.0, self._start
        while self._complete(end):
            span += max(report.lane.window_s for report in self._reports[end].values())
            if end - self._start + 1 >= self.window_epochs and span >= self.min_span_s:
                return self._close(end)
            end += 1
        return None

    def restart(self, lanes: tuple[LaneId, ...], after: Epoch, why: str) -> None:
        """Begin a new window after an epoch, with these lanes; what was collected up to it is dropped."""
        dropped = [epoch for epoch in self._reports if epoch <= after]
        if dropped:
            self.record(WindowDropped(self._newest(), (min(dropped), max(dropped)), why))
        self.lanes = lanes
        self._start = max(self._start, after + 1)
        self._reports = {
            epoch: {lane: report for lane, report in reports.items() if lane in lanes}
            for epoch, reports in self._reports.items()
            if epoch > after
        }

    def _newest(self) -> Epoch:
        return max(self._reports, default=self._start)

    def _reason_to_ignore(self, report: LoadReport) -> str | None:
        lane = report.lane.lane
        if lane not in self.lanes:
            return f"lane {lane} is not one of {list(self.lanes)}"
        if report.slots.size and report.slots.max() >= self.slots:
            return f"slot {report.slots.max()} does not exist, there are {self.slots}"
        if report.epoch < self._start:
            return self._too_late()
        if lane in self._reports.get(report.epoch, {}):
            return "already reported"
        return None

    def _too_late(self) -> str:
        return f"too late: the open window begins at epoch {self._start}"

    def _ignore(self, lane: LaneId, epoch: Epoch, why: str) -> None:
        self.record(ReportIgnored(self._newest(), lane, epoch, why))

    def _is_window(self, load: LoadWindow) -> bool:
        """Whether the load of one epoch is all that the open window waits for."""
        alone = not self._reports and load.epochs == (self._start, self._start) and load.lane_ids == self.lanes
        fits = len(load.slots) == self.slots and self.window_epochs <= 1
        return alone and fits and max(lane.window_s for lane in load.lanes) >= self.min_span_s

    def _complete(self, epoch: Epoch) -> bool:
        return len(self._reports.get(epoch, {})) == len(self.lanes)

    def _give_up_lost_epochs(self) -> None:
        """Drop everything up to the newest epoch that can no longer be expected to become complete."""
        newest = max((epoch for epoch in self._reports if self._complete(epoch)), default=-1)
        lost = [epoch for epoch in range(self._start, newest - self.patience) if not self._complete(epoch)]
        if lost:
            self.restart(self.lanes, lost[-1], f"reports of epoch {lost[-1]} are missing")

    def _close(self, end: Epoch) -> LoadWindow:
        used = range(self._start, end + 1)
        reports = [report for epoch in used for report in self._reports.pop(epoch).values()]
        self._start = end + 1
        return LoadWindow.from_reports(reports, self.slots)


def _reports_of(load: LoadWindow, table: RoutingTable) -> Iterator[LoadReport]:
    """Take the load of one epoch apart: each lane's own, and that of the slots it has in `table`."""
    columns = {part.name: getattr(load.slots, part.name) for part in fields(load.slots)}
    for lane in load.lanes:
        slots = table.slots_of(lane.lane)
        loads = SlotLoads(**{name: column[slots] for name, column in columns.items()})
        yield LoadReport(load.epochs[1], lane, slots, loads, load.all_served)
