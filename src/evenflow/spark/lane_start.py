"""When it is of no use to wait for lanes any longer: what they fail of at their start, told in the user's words."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from evenflow.engine import Engine
from evenflow.errors import EvenflowError
from evenflow.spark.lane_links import LaneLinks

_HOPELESS = 3  # a lane whose job fails this often before it says hello will not come up


@dataclass(frozen=True)
class LaneStart:
    """Looks at the lanes that are missing."""

    engine: Engine
    links: LaneLinks
    lane_start_s: float

    def refuse_to_wait(self, deadline: float) -> None:
        """Raise if a lane will not come: its job fails time and again, or takes too long. One that loads state may.

        Once the query runs, others adopt the slots of a lane that does not come, as long as there are others.
        """
        missing = self.engine.missing()
        module = next(filter(None, map(self.links.missing_module, missing)), None)
        if module is not None:
            raise EvenflowError(
                f"the Python of Spark's executors has no module {module!r}: install it there (pip install in their "
                f"image, or an environment sent along with spark.archives), or send it with --py-files {module}.zip "
                f"if what it needs itself is there. See docs/deploy.md"
            )
        needs_all = deadline < math.inf or len(missing) == len(self.engine.balancer.table.lanes)
        hopeless = [lane for lane in missing if needs_all and self.links.failures_in_a_row(lane) >= _HOPELESS]
        late = [lane for lane in missing if not self.links.has_come(lane) and time.monotonic() > deadline]
        if hopeless or late:
            said = self.links.last_failure((hopeless or late)[0])
            raise EvenflowError(
                f"lanes {hopeless or late} do not start (waited up to {self.lane_start_s:g} s). Spark says: "
                f"{said or 'nothing; are all task slots taken by other jobs?'}"
            )
