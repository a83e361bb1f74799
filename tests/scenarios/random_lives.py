"""Random lives of a query: at least 100 steps of anything that can happen, replayable by their seed.

    python -m tests.scenarios.random_lives                         a new seed, which is printed
    python -m tests.scenarios.random_lives --seed 123              the same life again
    python -m tests.scenarios.random_lives --seed 123 --steps 40   its first 40 steps
    python -m tests.scenarios.random_lives --lives 50              50 lives, from a new seed on
    python -m tests.scenarios.random_lives --lives 50 --stages 2   of queries of which one stage feeds another

A step is a batch, a move by hand, a plan for a future epoch, a resize, a restart, the death of a lane, another policy,
or a while in which lanes go on by themselves. On top of that lanes and driver die at random, lanes hang and then answer
all at once, stay away for longer than they are waited for or never come, attempts that are fenced off speak late and in
any order, and calls to the storage fail with errors that
pass, before or after they were carried out. After all of it, and now and then on the way, what is held and published is
compared with an oracle; that a slot has one owner at every epoch is checked all the time. It runs the real engine, its
shell, checkpoint, balancer and lanes in one process.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evenflow.errors import InputError
from evenflow.model import Move
from evenflow.policies import Policy, policy_named
from tests.engine.calculations import CALCULATIONS
from tests.engine.one_process import Killed, World
from tests.state.flaky import flaky_storage

STEPS = 100
_POLICIES: tuple[Callable[[], Policy], ...] = (
    lambda: policy_named("static"),
    lambda: policy_named("even"),
    lambda: policy_named("autoflow"),
    lambda: policy_named("elb", lower=2.0, upper=6.0, max_lanes=4),  # wants more lanes, or fewer
)


@dataclass
class Life:
    """One query and what happens to it, all drawn from one seed."""

    place: Path
    seed: int
    stages: int = 1
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        rng = self.rng = random.Random(self.seed)
        self.storage = random.Random(f"the storage of {self.seed}")
        self.storage_errors = self.storage.choice([0.0, 0.01, 0.05])
        with self._flaky():
            self.world = World(
                self.place,
                rng,
                mischief=rng.choice([0.0, 0.01, 0.05]),
                hangs=rng.choice([0.0, 0.01, 0.05]),
                lane_deaths=rng.choice([0.0, 0.01, 0.03]),
                driver_deaths=rng.choice([0.0, 0.01, 0.03]),
                vanishing=rng.choice([0.0, 0.2, 0.6]),
                elastic=rng.choice([0.0, 0.5]),
                lanes=rng.randint(1, 4),
                max_lag=rng.choice([0, 1, 4, 8]),
                calculation=rng.choice(list(CALCULATIONS.values()))(),
                stages=self.stages,
            )

    def _flaky(self) -> contextlib.AbstractContextManager[None]:
        return flaky_storage(self.storage, self.storage_errors)

    def go(self, steps: int) -> Counter[str]:
        """Take so many steps and compare; return how often each kind was taken."""
        kinds: dict[Callable[[], None], int] = {
            self.batch: 40,
            self.go_on: 10,
            self.moves: 12,
            self.plan_ahead: 8,
            self.resize: 8,
            self.kill: 8,
            self.compare: 6,
            self.look: 6,
            self.change_policy: 4,
            self.restart: 4,
        }
        try:
            with self._flaky():
                for step in self.rng.choices(list(kinds), list(kinds.values()), k=steps):
                    self.story.append(step.__name__)
                    step()
                self.compare()
        except BaseException as error:
            taken = len(self.story)
            error.add_note(
                "replay: python -m tests.scenarios.random_lives "
                f"--seed {self.seed} --steps {steps} --stages {self.stages}"
            )
            error.add_note(f"it was at step {taken} of {steps}: {' '.join(self.story[-10:])}")
            raise
        return Counter(self.story)

    # --- steps ---------------------------------------------------------------------------------------------------

    def batch(self) -> None:
        """Have the next batch accepted; that may take until lanes are less far behind."""
        self.world.run(self.world.rows())

    def go_on(self) -> None:
        """Let lanes go on for a while, without a batch."""
        self.world.go_on(self.rng.randint(1, 20))

    def moves(self) -> None:
        self._ask(0)

    def plan_ahead(self) -> None:
        """Plan moves for an epoch to come."""
        self._ask(self.world.epoch + self.rng.randint(1, 6))

    def resize(self) -> None:
        """Ask for another number of lanes; while one resize is under way the next is refused."""
        with self._restart_if_killed():
            self.world.resize()

    def kill(self) -> None:
        self.world.links.kill(self.rng.choice(self.world.shell.balancer.table.lanes))

    def change_policy(self) -> None:
        self.world.policy = self.rng.choice(_POLICIES)()
        self.world.shell.set_policy(self.world.policy)

    def restart(self) -> None:
        """Kill the driver, wherever it is, and start it again."""
        self.world.restart()

    def compare(self) -> None:
        self.world.finish()
        self.world.check()

    def look(self) -> None:
        """Read the state of one epoch while lanes are at different ones."""
        self.world.check_cut()

    def _ask(self, not_before: int) -> None:
        table = self.world.shell.balancer.table
        units = self.world.units
        slots = self.rng.sample(range(units), self.rng.randint(1, units))
        moves = [Move(slot, int(table.owners[slot]), self.rng.choice(table.lanes)) for slot in slots]
        with self._restart_if_killed(), contextlib.suppress(InputError):  # a lane that is to go takes no more
            self.world.shell.request([move for move in moves if move.source != move.target], not_before)

    @contextlib.contextmanager
    def _restart_if_killed(self) -> Iterator[None]:
        try:
            yield
        except Killed:
            self.world.restart()


def main() -> None:
    parser = argparse.ArgumentParser(description="random lives of a query")
    parser.add_argument("--seed", type=int, help="replay this one")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--lives", type=int, default=1, help="so many, with the seeds that follow")
    parser.add_argument("--stages", type=int, default=1, choices=(1, 2), help="of the query")
    options = parser.parse_args()
    first = random.randrange(1 << 32) if options.seed is None else options.seed
    for seed in range(first, first + options.lives):
        with tempfile.TemporaryDirectory() as place:
            life = Life(Path(place), seed, options.stages)
            taken = life.go(options.steps)
            met = life.world.met + Counter({"deaths at scripted points": life.world.deaths.total()})
            told = "; ".join(
                ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) for counts in (taken, met)
            )
            sys.stdout.write(f"seed {seed}: {told}; {life.storage_errors:.0%} of the storage's calls fail\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
