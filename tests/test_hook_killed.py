"""kill -9 of hooks at random instants of their life: one more hook, and everything is there, once."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from typing import TYPE_CHECKING

import hook_kit
import pytest
from hook_kit import assert_stored

if TYPE_CHECKING:
    from pathlib import Path

    from hook_kit import Database, Machine, Session

KILLS = 100
"""For each of two tests."""
SEED = int(os.environ.get("AGENTMEM_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


def life_of(machine: Machine, session: Session, event: str) -> float:
    """How long such a hook takes here and now, in seconds."""
    lives: list[float] = []
    for number in range(8):
        session.turn(-number)
        begun = time.monotonic()
        assert machine.hook(event, session).code == 0
        lives.append(time.monotonic() - begun)
    return sorted(lives)[4]


def kill_after(machine: Machine, session: Session, event: str, seconds: float) -> str:
    """Start a hook and kill it; what it had done by then: nothing, spooled or ended."""
    raw = json.dumps(machine.payload(event, session)).encode()
    before = len(machine.spooled())
    with machine.start(event) as process:
        assert process.stdin
        # It may be dead before it has read.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(raw)
            process.stdin.close()
        time.sleep(seconds)
        ended = process.poll()
        process.kill()
    if ended is not None:
        assert ended == 0
        return "ended"
    return "spooled" if len(machine.spooled()) > before else "nothing"


@pytest.mark.parametrize("event", ["Stop", "SessionStart"])
def test_killed_at_any_instant(tmp_path: Path, event: str) -> None:
    print(f"AGENTMEM_TEST_SEED={SEED}")
    with hook_kit.embedded_machine(tmp_path) as (machine, database):
        kill_often(database, machine, event)


def kill_often(database: Database, machine: Machine, event: str) -> None:
    chance = random.Random(SEED)  # noqa: S311 - it chooses moments
    session = machine.session()
    life = life_of(machine, session, event) * 1.3
    found = {"nothing": 0, "spooled": 0, "ended": 0}
    ended = started = len(database.runs())
    for number in range(KILLS):
        session.turn(number)
        outcome = kill_after(machine, session, event, chance.uniform(0, life))
        found[outcome] += 1
        started += 1
        ended += outcome != "nothing"
        if chance.random() < 0.5 and number < KILLS - 1:
            # Killed again, before anything could be mended.
            continue
        assert machine.hook("Stop", session) == (0, "", ""), number
        started += 1
        ended += 1
        assert machine.spooled() == [], number
        assert database.one("select count(*) from agentmem.turns") == len(session.turns), number
    print(found)
    # The kills were spread over all of its life, and every run that came as far as the spool has its row.
    assert min(found.values()) > 0, found
    runs = database.runs()
    assert ended <= len(runs) <= started
    assert len({run["id"] for run in runs}) == len(runs)
    assert {run["outcome"] for run in runs} <= {"ok", "deferred"}
    assert {run["error_code"] for run in runs} <= {None, "hook_ended"}
    assert_stored(database, session)

    remove_drafts(machine, session)


def remove_drafts(machine: Machine, session: Session) -> None:
    """What killed hooks left half written is removed once nobody can be writing it any more."""
    for draft in machine.drafts():
        os.utime(draft, (time.time() - 4000, time.time() - 4000))
    young = machine.agentmem / "state" / "spool" / ".young.1"
    young.touch()
    assert machine.hook("SessionStart", session).code == 0
    assert machine.drafts() == [young]
