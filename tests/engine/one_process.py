"""The engine without Spark: lanes live in this process, answer in any order, and die wherever chance will have it.

The engine, the checkpoint, the balancer and the lanes' code are the real ones; sockets, tasks and the source are not.
A step that nobody can take any more is a deadlock, and reported as one. A file, a lane or the sink that is reached
while the shell's lock is held is an error, whatever else happens.
"""

from __future__ import annotations

import contextlib
import math
import queue
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa

from evenflow.control import Balancer, BalancerOptions, BalancerState
from evenflow.engine import Engine, Event, Handover
from evenflow.errors import EvenflowError, InputError
from evenflow.lane import LaneConfig, LaneWorker, chained
from evenflow.lane.cut import Portion, read
from evenflow.lane.events import Joined, LaneEvent, Lost, Said
from evenflow.lane.faults import Faults
from evenflow.lane.messages import PROTOCOL, Failed, FromLane, Hello, Stop, ToLane, Work
from evenflow.migration import strategy_named
from evenflow.model import Move, RoutingTable
from evenflow.operators import SLOT, Stage
from evenflow.policies import Policy, policy_named
from evenflow.spark.composition import initial_table
from evenflow.spark.lane_links import LaneLinks
from evenflow.spark.progress import Progress
from evenflow.spark.route import Routed, Router, _segments
from evenflow.spark.shell import Shell
from evenflow.spark.sink import Sink
from evenflow.state import Block, FileRef, Folder, Identity, Segment, StageIdentity, block_name
from tests.engine.calculations import (
    SCHEMA,
    SLOTS,
    Answer,
    Calculation,
    Oracle,
    Totals,
    answers_of,
    by_key,
    slot_of,
)
from tests.engine.ownership import Ownership, Serving, WatchedCheckpoint
from tests.engine.two_stages import SEQUENCES, TOTALS, TwoStageOracle, TwoStages
from tests.state.watched import Watched, never_under

_LONG_S = 0.1  # who waits longer than this for an event needs one to go on


@dataclass
class PlayedClock:
    """A clock that goes on by a millisecond whenever somebody looks: a life does not depend on the machine's speed."""

    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += 1e-3
        return self.now_s


class Killed(BaseException):
    """A process is gone: nothing after it runs."""


@dataclass(frozen=True)
class Chance(Faults):
    """Kills at the points that `strikes` picks."""

    strikes: Callable[[str, int | None, int | None], bool] = lambda _point, _lane, _epoch: False

    def reach(self, point: str, lane: int | None = None, epoch: int | None = None) -> None:
        if self.strikes(point, lane, epoch):
            raise Killed(point)


@dataclass
class _Attempt:
    hello: Hello
    worker: LaneWorker
    inbox: deque[ToLane] = field(default_factory=deque)
    alive: bool = True

    @property
    def name(self) -> str:
        return f"lane {self.hello.lane} ({self.hello.token})"


@dataclass
class _Hang:
    """For so many more steps nothing is heard of a lane; unless it is stopped, it goes on and its answers pile up."""

    steps: int
    is_stopped: bool


@dataclass
class Lanes:
    """Stands for the links. `mischief` is the chance that a lane dies between two steps, `hangs` that it hangs.

    What lanes say is heard in its order, lane by lane; what fenced attempts say comes late and in any order.
    """

    config: LaneConfig
    chance: Chance
    rng: random.Random
    mischief: float = 0.0
    hangs: float = 0.0
    together: float = 0.5  # the chance that one more event is heard with those before
    met: Counter[str] = field(default_factory=Counter)  # how often a lane hung, and a fenced attempt was heard
    clock: PlayedClock = field(default_factory=PlayedClock)
    vanishing: float = 0.0  # of the lanes that die: they do not come back for long; of new lanes: some never come
    waits_until_s: Callable[[], float] = lambda: math.inf  # what the driver waits for besides events
    zombies: float = 0.5  # of the lost attempts: they live on, fenced off, and what they say comes late
    said: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    may_rest: bool = False  # whether nothing to do is no deadlock
    serving: Serving = field(default_factory=Serving)
    run: str = field(init=False)
    _links: dict[int, _Attempt] = field(default_factory=dict)
    _outbox: dict[int, deque[LaneEvent]] = field(default_factory=dict)
    _posted: deque[Event] = field(default_factory=deque)
    _unborn: list[int] = field(default_factory=list)
    _back_s: dict[int, float] = field(default_factory=dict)  # of those that are unborn: not before
    _fenced: list[_Attempt] = field(default_factory=list)
    _late: list[Said] = field(default_factory=list)
    _hung: dict[int, _Hang] = field(default_factory=dict)
    _all_at_once: int | None = None  # a lane that has hung: what it has to say is heard first
    _incarnations: Counter[int] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.run = f"{self.rng.randrange(1 << 30)}"

    # --- what the engine uses ------------------------------------------------------------------------------------

    @property
    def events(self) -> Lanes:
        return self

    def start(self, lane: int) -> None:
        self._outbox[lane] = deque()
        self._unborn.append(lane)
        if self._incarnations and self.rng.random() < self.vanishing:
            self._back_s[lane] = self.clock.now_s + self.rng.choice([1.0, 100.0, math.inf])

    def send(self, lane: int, token: str, message: ToLane) -> bool:
        link = self._links.get(lane)
        if link is None or link.hello.token != token:
            return False
        if not link.alive and self.rng.random() < 0.5:
            return False  # or the first words to a dead process are swallowed
        link.inbox.append(message)
        return True

    def retire(self, lane: int) -> None:
        self._links.pop(lane, None)
        self._outbox.pop(lane, None)
        self._hung.pop(lane, None)
        self._unborn = [other for other in self._unborn if other != lane]
        self._back_s.pop(lane, None)

    def hello_of(self, lane: int) -> Hello | None:
        return self._links[lane].hello if lane in self._links else None

    def has_come(self, lane: int) -> bool:
        return bool(self._incarnations[lane])

    def failures_in_a_row(self, _lane: int) -> int:
        return 0

    def last_failure(self, _lane: int) -> str | None:
        return None

    def missing_module(self, _lane: int) -> str | None:
        return None

    def stop(self) -> None:
        """Leave them: nobody waits for a lane of a dead driver."""

    def put(self, event: Event) -> None:
        self._posted.append(event)

    def get(self, block: bool = True, timeout: float = 0.0) -> Event:  # noqa: FBT002 - as queues have it
        """Let things happen, in any order, until there is something to hear; what the driver itself has done first.

        Whoever would not wait long for more gets more now and then, if there is anything.
        """
        if self._posted:
            return self._posted.popleft()
        more = not block or timeout < _LONG_S
        if more and self.rng.random() >= self.together:
            raise queue.Empty
        while True:
            doable, heard = self._doable(), self._heard()
            if not doable and not heard:
                self._let_time_pass(more=more)
                continue
            self._pass_time()
            if heard and (not doable or self.rng.random() < 0.5):
                event = self.rng.choice(heard)()
                self.said.append(_shown(event))
                return event
            if doable:
                self.rng.choice(doable)()
            if self.rng.random() < self.mischief and self._links:
                self.kill(self.rng.choice(list(self._links)))
            if self.rng.random() < self.hangs and self._links:
                self.hang(self.rng.choice(list(self._links)), self.rng.randint(5, 60))

    def _let_time_pass(self, *, more: bool) -> None:
        """Nothing can happen by itself: wake a lane that hangs, or let the time pass that somebody waits for."""
        if self._hung:
            self._wakes(self.rng.choice(list(self._hung)))
            return
        later_s = min(self.waits_until_s(), *self._back_s.values(), math.inf)
        if later_s < math.inf and not more and (not self.may_rest or self.rng.random() < 0.5):
            self.clock.now_s = max(self.clock.now_s, later_s)
        elif not more and not self.may_rest:
            raise AssertionError(f"deadlock: the engine waits and nothing can happen any more; {self.said[-20:]}")
        raise queue.Empty

    def _heard(self) -> list[Callable[[], LaneEvent]]:
        """Return what can be heard next: the oldest of each lane that does not hang, and any word that comes late."""
        if self._all_at_once is not None and self._outbox.get(self._all_at_once):
            return [self._outbox[self._all_at_once].popleft]
        self._all_at_once = None
        heard: list[Callable[[], LaneEvent]] = [
            events.popleft for lane, events in self._outbox.items() if events and lane not in self._hung
        ]
        # No word of an attempt comes after the end of its connection and is heard before it.
        ends = (event for events in self._outbox.values() for event in events if isinstance(event, Lost))
        ending = {(end.lane, end.token) for end in ends}
        late = (at for at, said in enumerate(self._late) if (said.lane, said.token) not in ending)
        return heard + [partial(self._hear_late, at) for at in late]

    def _hear_late(self, at: int) -> LaneEvent:
        self.met["late words"] += 1
        return self._late.pop(at)

    # --- what happens --------------------------------------------------------------------------------------------

    def hang(self, lane: int, steps: int) -> None:
        """Let nothing be heard of a lane for a while; then all it has to say comes at once."""
        self._hung[lane] = _Hang(steps, self.rng.random() < 0.5)
        self.met["hangs"] += 1

    def _pass_time(self) -> None:
        for lane, hang in list(self._hung.items()):
            hang.steps -= 1
            if hang.steps <= 0:
                self._wakes(lane)

    def _wakes(self, lane: int) -> None:
        del self._hung[lane]
        self._all_at_once = lane

    def kill(self, lane: int) -> None:
        if lane in self._links:
            self._links[lane].alive = False

    def _doable(self) -> list[Callable[[], None]]:
        doable: list[Callable[[], None]] = [
            partial(self._born, lane) for lane in self._unborn if self._back_s.get(lane, 0.0) <= self.clock.now_s
        ]
        for attempt in [*self._links.values(), *self._fenced]:
            hang = self._hung.get(attempt.hello.lane)
            if hang is not None and hang.is_stopped:
                continue
            if attempt.inbox and attempt.alive:
                doable.append(partial(self._process, attempt))
            if attempt.worker.is_moving_state and attempt.alive:
                doable.append(partial(self._step, attempt))
            if not attempt.alive and self._links.get(attempt.hello.lane) is attempt:
                doable.append(partial(self._notice, attempt))
        return doable

    def _born(self, lane: int) -> None:
        self._unborn.remove(lane)
        self._back_s.pop(lane, None)
        hello = Hello(PROTOCOL, lane, self._incarnations[lane], 0, 0, "here", "driver", self.run)
        self._incarnations[lane] += 1
        config = replace(self.config, lane=lane)
        folder = Folder.at(config.location, durable=False)
        self._links[lane] = _Attempt(
            hello, LaneWorker(config, hello.token, folder, self.chance, clock=PlayedClock(), needed=PlayedClock())
        )
        self._outbox[lane].append(Joined(hello))

    def _process(self, attempt: _Attempt) -> None:
        message = attempt.inbox.popleft()
        assert not isinstance(message, Stop)
        self.told.append(f"{attempt.name} told {message}")
        if isinstance(message, Work) and self._links.get(attempt.hello.lane) is attempt:
            alive = {link.name for link in self._links.values() if link.alive}
            self.serving.work(attempt.name, message, alive)
        self._act(attempt, lambda: attempt.worker.handle(message))

    def _step(self, attempt: _Attempt) -> None:
        self._act(attempt, attempt.worker.step)

    def _act(self, attempt: _Attempt, act: Callable[[], list[FromLane]]) -> None:
        hello = attempt.hello
        try:
            answers = act()
        except Killed:
            attempt.alive = False
            return
        except EvenflowError as error:
            answers = [Failed(type(error).__name__, str(error), "")]
        said = [Said(hello.lane, hello.token, answer) for answer in answers]
        if any(attempt is fenced for fenced in self._fenced):
            self._late += said
        elif hello.lane in self._outbox:
            self._outbox[hello.lane].extend(said)

    def _notice(self, attempt: _Attempt) -> None:
        """The connection is closed, or fenced off while the process is still there."""
        lane = attempt.hello.lane
        del self._links[lane]
        self._outbox[lane].append(Lost(lane, attempt.hello.token))
        self._unborn.append(lane)
        if self.rng.random() < self.vanishing:
            self._back_s[lane] = self.clock.now_s + self.rng.choice([1.0, 100.0, 500.0, 5000.0])
        if attempt.inbox and self.rng.random() < self.zombies:
            attempt.alive = True
            self._fenced.append(attempt)


@dataclass
class Source:
    """Stands for the router: rows to blocks, cut into a few tasks at random."""

    location: str
    rng: random.Random

    def route(self, rows: pa.Table, epoch: int, table: RoutingTable) -> Routed:
        parts = self.rng.randint(1, 3)
        cuts = sorted(self.rng.randint(0, rows.num_rows) for _ in range(parts - 1))
        blocks = []
        for task, (low, high) in enumerate(zip([0, *cuts], [*cuts, rows.num_rows], strict=True)):
            if low < high:
                blocks.append(self._block(rows.slice(low, high - low), epoch, table, task))
        return Routed(tuple(blocks), ())

    def _block(self, rows: pa.Table, epoch: int, table: RoutingTable, task: int) -> Block:
        slots = pa.array([slot_of(key) for key in rows["key"].to_pylist()], pa.int16())
        batches, index = _segments(rows.append_column(SLOT, slots), table.owners)
        name = block_name(epoch, f"{self.rng.randrange(1 << 30)}", task)
        file = Folder.at(self.location, durable=False).write_table(name, pa.Table.from_batches(batches))
        return Block(
            file,
            tuple(
                Segment(lane, at, size, tuple(mine.tolist()), tuple(counts.tolist()))
                for at, (lane, size, mine, counts) in enumerate(index)
            ),
        )


def state_of(shell: Shell, number: int = -1) -> tuple[int, pa.Table]:
    """Return an epoch and a stage's state at it, as Spark tasks read it: in portions, each through messages."""
    stage, folder = shell.config.stages[number], Folder.at(shell.config.location)
    with shell.cut(stage.units) as cut:
        portions = [msgspec.msgpack.decode(msgspec.msgpack.encode(each), type=Portion) for each in cut.portions]
        batches = [batch for portion in portions for batch in read(stage, folder, portion)]
    return cut.epoch, pa.Table.from_batches(batches, stage.view_schema)


@dataclass
class Shop:
    """The sink: what was published when. Publishing again must bring the same rows."""

    location: str
    epochs: dict[int, list[Answer]] = field(default_factory=dict)

    def publish(self, epoch: int, files: Sequence[FileRef]) -> None:
        folder = Folder.at(self.location)
        rows = by_key(answer for file in files for answer in answers_of(folder.read_table(file)))
        assert self.epochs.get(epoch, rows) == rows, f"epoch {epoch} was published again, with other rows"
        self.epochs[epoch] = rows


@dataclass
class World:
    """A query, its checkpoint, and everything that can happen to it."""

    place: Path
    rng: random.Random
    mischief: float = 0.0
    hangs: float = 0.0
    together: float = 0.5
    lane_deaths: float = 0.0
    driver_deaths: float = 0.0
    vanishing: float = 0.0  # the chance that a lane stays away for long, or never comes
    elastic: float = 0.0  # the chance that a restart is with another number of lanes
    lanes: int = 3
    max_lag: int = 0
    policy: str | Policy = "static"
    calculation: Calculation = field(default_factory=Totals)
    stages: int = 1  # of two, `calculation` is that of `two_stages`
    schema: pa.Schema = SCHEMA
    clock: Callable[[], float] = field(default_factory=lambda: PlayedClock(1e9))
    strategies: Sequence[str] = ("sudden", "fluid", "batched", "paced")
    handovers: Sequence[Handover] = ("at once", "at the timestamp")
    copy_ahead: Sequence[int | None] = (None, 0)  # bytes from which on a slot is copied ahead
    deaths: Counter[str] = field(default_factory=Counter)
    met: Counter[str] = field(default_factory=Counter)
    ownership: Ownership = field(default_factory=Ownership)
    epoch: int = 0
    oracle: Oracle = field(init=False)
    shop: Shop = field(init=False)
    shell: Shell = field(init=False)

    def __post_init__(self) -> None:
        if self.stages > 1:
            self.calculation = TwoStages()
        self.oracle = Oracle(self.calculation) if self.stages == 1 else TwoStageOracle(self.calculation)
        self.shop = Shop(str(self.place / "evenflow"))
        self.restart()

    @property
    def links(self) -> Lanes:
        return cast("Lanes", self.shell.links)

    def restart(self) -> None:
        """Start the query as a new driver would; if that dies, start again."""
        while True:
            if self.rng.random() < self.elastic:
                self.lanes = self.rng.randint(1, 4)
            self.shell = self._built()
            try:
                self.shell.start()
            except Killed:
                continue
            return

    def run(self, rows: pa.Table) -> None:
        """Have one epoch accepted, however often the driver dies on the way; lanes may lag behind."""
        self.oracle.add(self.epoch, rows)
        while True:
            try:
                self.shell.on_batch(cast("Any", rows), self.epoch)
            except Killed:
                self.restart()  # and Spark replays the batch
                continue
            break
        self.epoch += 1

    def go_on(self, times: int) -> None:
        """Let things happen by themselves."""
        self.links.may_rest = True
        try:
            for _ in range(times):
                self.shell._listen()
            self.shell.publisher.publish_ready()
        except Killed:
            self.restart()
        self.links.may_rest = False

    def finish(self) -> None:
        """Have all epochs finished, however often the driver dies on the way."""
        while True:
            try:
                self.shell.drain()
            except Killed:
                self.restart()
                continue
            return

    def resize(self) -> None:
        """Ask for another number of lanes, unless some are on their way already."""
        with contextlib.suppress(InputError):
            self.lanes = self.rng.randint(1, 4)
            try:
                self.shell.resize(self.lanes)
            except Killed:
                self.restart()

    def ask_for_moves(self) -> None:
        """Ask for some moves by hand."""
        table = self.shell.balancer.table
        slots = self.rng.sample(range(self.units), self.rng.randint(1, self.units))
        moves = [Move(slot, int(table.owners[slot]), self.rng.choice(table.lanes)) for slot in slots]
        with contextlib.suppress(InputError):  # a lane that is being stopped takes no more
            try:
                self.shell.request([move for move in moves if move.source != move.target])
            except Killed:
                self.restart()

    def rows(self, most: int = 20) -> pa.Table:
        """Return random rows; their values tell them apart."""
        size = self.rng.randint(0, most)
        keys = [self.rng.choice([None, *range(3 * SLOTS)]) for _ in range(size)]
        values = [1000 * self.epoch + at for at in range(size)]
        return pa.table([pa.array(keys, pa.int64()), pa.array(values, pa.int64())], schema=SCHEMA)

    @property
    def units(self) -> int:
        """How many units all stages have."""
        return self.stages * SLOTS

    def check(self) -> None:
        """Compare what is held and what was published with the oracle."""
        epoch, state = state_of(self.shell)
        assert by_key(self.calculation.held(state)) == by_key(self.oracle.state.values())
        assert epoch == self.epoch - 1
        assert self.shop.epochs == self.oracle.epochs
        self.ownership.check(self.units, self.epoch)

    def check_cut(self) -> int:
        """Compare what is held at one epoch with the oracle, wherever lanes are; return by how much they differ."""
        versions = self.shell.checkpoint.slot_versions
        epoch, state = state_of(self.shell)
        assert epoch == versions[-SLOTS:].max()
        assert by_key(self.calculation.held(state)) == self.oracle.at(epoch)
        if isinstance(self.oracle, TwoStageOracle):
            further, first = state_of(self.shell, 0)
            assert further == versions.max()
            assert by_key(answers_of(first)) == self.oracle.first_at(further)
        return int(epoch - versions.min())

    def _strikes(self, point: str, _lane: int | None, _epoch: int | None) -> bool:
        strikes = self.rng.random() < (self.driver_deaths if point.startswith("driver") else self.lane_deaths)
        self.deaths[point] += strikes
        return strikes

    def _built(self) -> Shell:
        one = Stage(self.calculation.operator, self.schema, ("key",))
        stages = [one] if self.stages == 1 else [TOTALS, SEQUENCES]
        held = tuple(StageIdentity(stage.keys, stage.key_types, SLOTS, stage.contents) for stage in stages)
        identity = Identity("id", held, "update", 0.0)
        checkpoint = WatchedCheckpoint.open(str(self.place), identity, durable=False)
        assert isinstance(checkpoint, WatchedCheckpoint)
        checkpoint.ownership = self.ownership
        checkpoint.take_over()
        pairs = zip(stages, checkpoint.identity.contents, strict=True)
        config = LaneConfig(
            0, checkpoint.folder.location, chained([stage.resumed(contents) for stage, contents in pairs], SLOTS)
        )
        policy = policy_named(self.policy) if isinstance(self.policy, str) else self.policy
        self.ownership.first_table = initial_table(checkpoint, policy, config.units, self.lanes)
        chance = Chance(strikes=self._strikes)
        balancer = Balancer.restored(
            BalancerState(self.ownership.first_table, epoch=checkpoint.recover().last_accepted),
            policy,
            strategy_named(self.rng.choice(self.strategies)),
            BalancerOptions(
                warm_up_windows=1, copy_ahead_bytes=self.rng.choice(self.copy_ahead), min_lanes=1, max_lanes=4
            ),
        )
        engine = Engine(checkpoint, balancer, self.rng.choice(self.handovers), most_losses=1 << 30, stages=config.units)
        lanes = Lanes(config, chance, self.rng, self.mischief, self.hangs, self.together, self.met)
        lanes.vanishing = self.vanishing
        if isinstance(self.clock, PlayedClock):
            lanes.clock = self.clock
        lanes.waits_until_s = engine.waits_until_s
        self.ownership.served_by = lambda slot: {
            int(balancer.table.owners[slot]),
            *(life.move.source for life in balancer.in_flight if life.move.slot == slot),
        }
        shell = Shell(
            spark=cast("Any", None),
            checkpoint=checkpoint,
            balancer=balancer,
            links=cast("LaneLinks", lanes),
            engine=engine,
            router=cast("Router", Source(config.location, self.rng)),
            sink=self.shop,
            progress=Progress("id", None),
            config=config,
            max_lag=self.max_lag,
            spare_slots=lambda: 4,
            lane_start_s=math.inf,
            clock=self.clock,
            threaded=False,
            faults=chance,
        )
        _watch(shell)
        return shell


def _watch(shell: Shell) -> None:
    """Let whatever may take long fail if it is called while the shell's lock is held."""
    changed, checkpoint = shell._changed, shell.checkpoint
    checkpoint.folder = Folder(Watched(checkpoint.folder.storage, changed))
    publish = never_under(changed, "publish", shell.publisher.sink.publish)
    shell.publisher.sink = cast("Sink", SimpleNamespace(publish=publish))
    for owner, names in (
        (shell.links, ("send", "start", "retire", "stop")),
        (shell.router, ("route",)),
        (shell._acting, ("spare_slots",)),
        (shell, ("spare_slots",)),
    ):
        for name in names:
            setattr(owner, name, never_under(changed, name, getattr(owner, name)))


def _shown(event: LaneEvent) -> str:
    if isinstance(event, Said):
        return f"{event.lane} {event.token}: {type(event.message).__name__}"
    return f"{type(event).__name__} {event.hello.token if isinstance(event, Joined) else event.token}"


def files_below(place: Path) -> dict[str, int]:
    """Return all files and their sizes."""
    return {str(path.relative_to(place)): path.stat().st_size for path in place.rglob("*") if path.is_file()}
