"""What Postgres' refusals mean, with our codes, and what of a message must not be shown.

Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""

from __future__ import annotations

from agentmem.errors import DatabaseError


def not_connected(message: str) -> DatabaseError:
    """What a refused connection means; libpq gives no SQLSTATE for it, only the server's words (English or not)."""
    # Without what is quoted: names of users, databases and sockets may be any words.
    lowered = "".join(message.lower().split('"')[::2])
    if "too many clients" in lowered or "connection slots" in lowered or "too many connections" in lowered:
        return error_for("53300", message)
    if "password" in lowered or "authentication" in lowered or "pg_hba" in lowered or "role " in lowered:
        return error_for("28000", message)
    if "database " in lowered and "does not exist" in lowered:
        return error_for("3D000", message)
    return DatabaseError(
        "db_unreachable", f"the database can't be reached: {message}", "Start it, or mend AGENTMEM_DATABASE_URL."
    )


_MOST_SHOWN = 500

_MEANINGS = {
    "28": ("db_auth", "the database refused the log-in", "Mend the user or password in AGENTMEM_DATABASE_URL."),
    "3D": ("db_missing", "the database does not exist", "Create it, or mend AGENTMEM_DATABASE_URL."),
    "3F": ("schema_missing", "the schema agentmem is not there", "Run: agentmem db migrate"),
    "42P01": ("schema_missing", "the schema agentmem is not complete", "Run: agentmem db migrate"),
    "42883": ("schema_missing", "the schema agentmem is not complete", "Run: agentmem db migrate"),
    "42501": ("db_no_right", "the database user lacks a right", "Grant it; see: agentmem doctor"),
    "53300": ("db_too_many", "the database has no free connection", "Raise max_connections, or use a pooler."),
    "25": ("db_read_only", "the database takes no writes", "Is it a standby, or is its disk full?"),
    "53": ("db_full", "the database has no room", "Make room on its disk, or memory."),
    "57": ("db_lost", "the database is being stopped", "It is tried again at the next hook."),
    "57014": ("db_timeout", "the database gave up on a statement", "Raise its statement_timeout for this user."),
    "40": ("db_conflict", "another transaction was in the way", "It is tried again at the next hook."),
    "55": ("db_locked", "a lock in the database was not free in time", "It is tried again at the next hook."),
    "AM": ("schema_newer", "the database's schema is newer than this agentmem", "Upgrade agentmem on this machine."),
}


def error_for(sqlstate: str, message: str) -> DatabaseError:
    """The error that a SQLSTATE stands for, with the server's own message."""
    unknown = ("db_error", "the database refused a statement", "See: agentmem log --failed")
    code, meaning, hint = _MEANINGS.get(sqlstate) or _MEANINGS.get(sqlstate[:2]) or unknown
    return DatabaseError(code, f"{meaning}: {' '.join(message.split())[:_MOST_SHOWN]}", hint, sqlstate)


def secrets_in(params: dict[str, str]) -> list[str]:
    """What must not be shown of these parameters: the password, and every part of a URL that may be one.

    A password with a raw `@`, `/` or `#` makes libpq take a part of it for the host's name and print that.
    """
    found = [params["password"]] if params.get("password") else []
    url = params.get("dbname", "")
    if "://" in url:
        login, at, _ = url.split("://", 1)[1].rpartition("@")
        _, colon, password = login.partition(":")
        if at and colon and password:
            found.append(password)
            # The stretches between two separators of one kind, then those between any two.
            pieces = password
            for separator in "@/#?:":
                found.extend(part for part in password.split(separator) if len(part) > 2)
                pieces = pieces.replace(separator, " ")
            found.extend(part for part in pieces.split() if len(part) > 2)
        found.extend(item.split("&")[0] for item in url.split("password=")[1:])
    elif "password" in url:
        found.append(url)
    return sorted({item for item in found if len(item) > 1}, key=len, reverse=True)


def hide(message: str, secrets: list[str]) -> str:
    """The message in one line with each secret replaced."""
    for secret in secrets:
        message = message.replace(secret, "***")
    return " ".join(message.split())
