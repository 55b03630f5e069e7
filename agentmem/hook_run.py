"""One run of a hook: its row to be, its event in the spool, and how the person is told what went wrong.

A client shows what a failed hook wrote to stderr, but for SessionStart: there it shows that in the terminal only,
and takes what stands in JSON on stdout whatever the exit code is. So a SessionStart says everything there.
"""

from __future__ import annotations

import os
import time

from agentmem import jsonio, spool
from agentmem.clock import iso_time
from agentmem.errors import AgentmemError, SpoolError
from agentmem.settings import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentmem.jsonio import Json, Object
    from agentmem.paths import Paths

_MOST_TOLD = 1000


class Run:
    """What is known of a run so far."""

    def __init__(self, kind: str, client: str, event: str, now: float, clock: float) -> None:
        self.kind = kind
        """Which shim was started: capture or session_start."""
        self.client = client
        self.event = event
        self.started = now
        """Seconds since 1970."""
        self.clock = clock
        """The same as a value of time.monotonic()."""
        self.id = new_id(now)
        self.stage = "read"
        self.session = ""
        self.flags: list[str] = []
        self.size = 0
        self.failure: AgentmemError | None = None
        """What is wrong and stays wrong when the event is stored later."""
        self.record: Object = {"id": self.id, "client": client, "event": event, "at": iso_time(now)}
        """The event, as the spool has it."""
        self.is_spooled = False
        self.has_printed = False
        self._failed_at = ""

    def fail(self, error: AgentmemError) -> None:
        """Note the first thing that is wrong for good, and where it was found."""
        if self.failure is None:
            self.failure = error
            self._failed_at = self.stage

    def row(self, outcome: str, error: AgentmemError | None = None, output: str | None = None) -> Object:
        """As agentmem.store_run takes it."""
        flags: list[Json] = [*self.flags]
        return {
            "id": self.id,
            "event": self.event,
            "session": self.session,
            "started_at": iso_time(self.started),
            "duration_ms": round((time.monotonic() - self.clock) * 1000, 2),
            "outcome": outcome,
            "stage": self.stage,
            "error_code": error.code if error else None,
            "error": error.message if error else None,
            "flags": flags,
            "bytes_in": self.size,
            "output": output,
        }

    def last_row(self, output: str | None = None) -> Object:
        """The row of a run that comes to its end now: failed, or all is well."""
        if self.failure is None:
            self.stage = "done"
            return self.row("ok", None, output)
        return {**self.row("failed", self.failure, output), "stage": self._failed_at}

    def put(self, paths: Paths, row: Object) -> None:
        """Write the event into the spool with this row; SpoolError."""
        self.record["run"] = row
        # The descriptor stays open: the record is ours as long as we live.
        spool.put(paths, self.id, self.record)
        self.is_spooled = True

    def defer(self, paths: Paths, error: AgentmemError, output: str | None = None) -> AgentmemError:
        """Leave the event in the spool with the reason; the error as the person is to be told it."""
        row = self.last_row(output) if self.failure else self.row("deferred", error, output)
        try:
            self.put(paths, row)
        except SpoolError as other:
            # Neither takes it: this event is gone, but what it announced is found in the transcript.
            raise SpoolError(other.code, f"{other.message}; and {error.message}", other.hint) from None
        return told_as_waiting(paths, self.failure or error)

    def remove(self, paths: Paths) -> None:
        """Forget the event: it is committed."""
        if self.is_spooled:
            spool.remove(paths, self.id)
            self.is_spooled = False

    def break_down(self, paths: Paths | None, error: AgentmemError) -> AgentmemError:
        """Keep a mistake of our own in the spool; the error as the person is to be told it."""
        self.failure, self._failed_at = error, self.stage
        if paths is None:
            return error
        try:
            self.put(paths, self.last_row())
        except SpoolError as other:
            return AgentmemError(error.code, f"{error.message}; and {other.message}", error.hint)
        return error

    def tell(self, error: AgentmemError) -> None:
        """Say it to the person."""
        text = jsonio.clean_text(f"agentmem: {self.event}: {in_full(error)}")[0]
        if self.kind == "session_start" and not self.has_printed:
            try:
                self.answer(f"AGENTMEM PROBLEM: {text}\nNothing of earlier sessions is loaded.", text[:_MOST_TOLD])
            except OSError:
                # Nobody reads it. What goes to stderr is all that can be said.
                self.has_printed = True
        os.write(2, text.encode("utf-8", "replace") + b"\n")

    def answer(self, context: str, message: str) -> None:
        """Print what SessionStart hands over: the text for the model and, if any, the one for the person."""
        answer: Object = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": context}}
        if message:
            answer["systemMessage"] = message
        self.has_printed = True
        spool.write_all(1, jsonio.dumps_ascii(answer).encode("ascii") + b"\n")


def in_full(error: AgentmemError) -> str:
    """Message, code and hint in one line."""
    return f"{error} - {error.hint}" if error.hint else str(error)


def told_as_waiting(paths: Paths, error: AgentmemError) -> AgentmemError:
    """The error with how many events wait in the spool now."""
    waiting = len(spool.waiting(paths))
    events = "1 event waits" if waiting == 1 else f"{waiting} events wait"
    return AgentmemError(error.code, f"{error.message} ({events} in the spool, nothing is lost)", error.hint)
