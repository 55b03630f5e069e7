"""Every error that agentmem raises: one tree, plain values, a stable code and a hint.

A code never changes once it is released: it stands in `hook_runs.error_code`, in messages and in scripts.
The message says what failed and with what; the hint says what to do about it.
"""

from __future__ import annotations

import os


class AgentmemError(Exception):
    """Base of the tree. `code` is stable, `hint` is one sentence (it may be empty)."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"


class PayloadError(AgentmemError):
    """What the client wrote to the hook's stdin can't be used: stdin_empty, stdin_malformed, ..."""


class SpoolError(AgentmemError):
    """The spool can't take or give a record: spool_unwritable, spool_damaged."""


class TranscriptError(AgentmemError):
    """A transcript can't be read: transcript_missing, transcript_unreadable."""


class SettingsError(AgentmemError):
    """Our own settings or a client's settings file can't be used as they are."""


class DatabaseError(AgentmemError):
    """Anything on the way to the database or in it; `sqlstate` is Postgres' five characters, or empty."""

    def __init__(self, code: str, message: str, hint: str = "", sqlstate: str = "") -> None:
        super().__init__(code, message, hint)
        self.sqlstate = sqlstate


class ClusterError(DatabaseError):
    """The embedded server can't be created, started or stopped: cluster_..."""


def cache_unwritable(path: str, error: OSError) -> AgentmemError:
    """Something that is kept for later can't be: what was to be done now is done all the same."""
    return AgentmemError(
        "cache_unwritable",
        f"{path} can't be written: {error.strerror}",
        "Make room, or mend the folder's owner and mode.",
    )


def internal_error(error: BaseException) -> AgentmemError:
    """A mistake of our own as an error with a code: where it happened, without any content."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "?"
    return AgentmemError(
        "internal_error", f"{type(error).__name__} at {where}", "Please report it, with the output of: agentmem log"
    )


LOST = ("db_lost", "db_unreachable", "db_timeout", "capture_unfinished")
"""Codes after which there is no sense in trying another statement on the same connection."""
