-- The tables of agentmem. `\d+ agentmem.*` explains them; nothing here needs a superuser or an extension.

create table agentmem.hosts (
    id          uuid primary key,
    name        text not null,
    platform    text not null default '',
    version     text not null default '',
    first_seen  timestamptz not null default now(),
    last_seen   timestamptz not null default now()
);
comment on table agentmem.hosts is 'Machines that report here. The id is made once per installation, so two machines with one name stay two.';
comment on column agentmem.hosts.version is 'The agentmem version that reported last.';
comment on column agentmem.hosts.last_seen is 'To the minute: when a hook run of this machine was stored.';

create table agentmem.projects (
    id          bigint generated always as identity primary key,
    identity    text not null unique,
    name        text not null,
    root        text not null default '',
    first_seen  timestamptz not null default now()
);
comment on table agentmem.projects is 'What a session belongs to: one row for all clones, worktrees and folders of a project.';
comment on column agentmem.projects.identity is 'origin:HOST/PATH of the git remote without credentials, or path:FOLDER where there is no remote.';
comment on column agentmem.projects.root is 'The folder in which it was seen first; a label, not a key.';

create table agentmem.sessions (
    id             bigint generated always as identity primary key,
    client         text not null,
    key            text not null,
    parent_id      bigint references agentmem.sessions on delete cascade,
    project_id     bigint references agentmem.projects,
    host_id        uuid references agentmem.hosts,
    forked_from    text,
    agent_type     text,
    title          text,
    cwd            text,
    git_branch     text,
    git_head       text,
    client_version text,
    model          text,
    source         text,
    started_at     timestamptz,
    last_at        timestamptz,
    ended_at       timestamptz,
    end_reason     text,
    first_prompt   text,
    last_prompt    text,
    last_answer    text,
    last_kind      text,
    files          text[] not null default '{}',
    pending_answer text,
    noted_at       timestamptz,
    created_at     timestamptz not null default now(),
    updated_at     timestamptz not null default now(),
    unique (client, key)
);
comment on table agentmem.sessions is 'A session of a client, or a subagent''s part of one (parent_id). The columns from first_prompt on are a summary of its turns, kept by agentmem.summarize.';
comment on column agentmem.sessions.key is 'The client''s own session id; for a subagent SESSION/AGENT.';
comment on column agentmem.sessions.forked_from is 'Key of the session whose history this one was started with.';
comment on column agentmem.sessions.source is 'How it started last: startup, resume, clear, compact or fork.';
comment on column agentmem.sessions.ended_at is 'When the client said that it ended; null while open, and for ever when the client was killed.';
comment on column agentmem.sessions.last_kind is 'Kind of its last turn that matters: tells whether it has an open end.';
comment on column agentmem.sessions.files is 'Files that it wrote or edited, last touched first, at most 20.';
comment on column agentmem.sessions.pending_answer is 'The last answer as the client''s hook told it, until the transcript has it.';
comment on column agentmem.sessions.noted_at is 'Time of the newest event that was noted; an older one that arrives later does not win.';
create index sessions_of_project on agentmem.sessions (project_id, last_at desc) where parent_id is null;
create index sessions_of_parent on agentmem.sessions (parent_id) where parent_id is not null;
create index sessions_by_time on agentmem.sessions (last_at desc);

create table agentmem.transcripts (
    id          bigint generated always as identity primary key,
    host_id     uuid not null references agentmem.hosts,
    path        text not null,
    session_id  bigint not null references agentmem.sessions on delete cascade,
    generation  integer not null default 1,
    committed   bigint not null default 0,
    mark_length integer not null default 0,
    mark_sha256 text not null default '',
    first_seen  timestamptz not null default now(),
    last_read   timestamptz not null default now(),
    accepted_gone_at timestamptz,
    unique (host_id, path)
);
comment on table agentmem.transcripts is 'Files on disk that sessions are read from, and how far each has been read and committed.';
comment on column agentmem.transcripts.generation is 'Goes up by one when the file was found truncated or rewritten and is read again from its start.';
comment on column agentmem.transcripts.committed is 'Byte offset up to which its lines are stored; moves in the same transaction as the rows.';
comment on column agentmem.transcripts.mark_length is 'Length in bytes of the stretch before `committed` whose hash tells an appended file from a rewritten one.';
comment on column agentmem.transcripts.accepted_gone_at is 'When a person accepted that the file is no longer there; what was captured from it stays.';
create index transcripts_of_session on agentmem.transcripts (session_id);

create table agentmem.receipts (
    id            bigint generated always as identity primary key,
    transcript_id bigint not null references agentmem.transcripts on delete cascade,
    generation    integer not null,
    start_offset  bigint not null,
    end_offset    bigint not null,
    lines         integer not null,
    sha256        text not null,
    kinds         jsonb not null,
    turns         integer not null default 0,
    turns_sha256  text not null default '',
    run_id        uuid,
    captured_at   timestamptz not null default now(),
    unique (transcript_id, generation, start_offset),
    check (end_offset > start_offset)
);
comment on table agentmem.receipts is 'Proof of one capture: these bytes of that file, so many lines, with this hash, became these turns. agentmem.verify checks the database against them, `agentmem doctor` the files too.';
comment on column agentmem.receipts.lines is 'Lines in the range that are not blank.';
comment on column agentmem.receipts.sha256 is 'SHA-256 of the bytes from start_offset up to end_offset, hexadecimal.';
comment on column agentmem.receipts.kinds is 'How many lines there were of each type; they add up to `lines`.';
comment on column agentmem.receipts.turns is 'Turns that were stored from this range and not overwritten from a later one.';
comment on column agentmem.receipts.turns_sha256 is 'SHA-256 over their ids, positions and content hashes, in file order: agentmem.seal.';

create table agentmem.turns (
    id          bigint generated always as identity primary key,
    session_id  bigint not null references agentmem.sessions on delete cascade,
    uuid        text not null,
    position    bigint not null,
    role        text not null,
    kind        text not null,
    at          timestamptz,
    parent      text,
    message     text,
    model       text,
    text        text not null,
    tools       jsonb,
    origin      text,
    receipt_id  bigint not null,
    sha256      bytea not null,
    unique (session_id, uuid)
);
comment on table agentmem.turns is 'The conversation, one row for each line of it in the transcript. agentmem.messages merges the lines of one answer.';
comment on column agentmem.turns.uuid is 'The client''s id of the line: storing it again changes nothing.';
comment on column agentmem.turns.position is 'Byte offset of the line in its transcript: the order of the conversation. Times are not.';
comment on column agentmem.turns.kind is 'prompt, command, notification, interrupt, meta, summary, boundary, answer, thinking, tool_call, tool_result, api_error or notice.';
comment on column agentmem.turns.message is 'The id that the lines of one answer share.';
comment on column agentmem.turns.text is 'What was said, with NUL and unpaired surrogates as U+FFFD. Tool output is left out: `tools` has its size and hash.';
comment on column agentmem.turns.tools is 'Tool calls by name and target, or results by size, SHA-256 and error.';
comment on column agentmem.turns.origin is 'Key of the session that this line was copied from, in a fork; null for what the session itself said.';
comment on column agentmem.turns.receipt_id is 'The receipt of the capture that stored it last. No foreign key: a receipt that is lost must not take turns with it, and shows in agentmem.verify.';
comment on column agentmem.turns.sha256 is 'Hash of kind, text and tools as they were stored: agentmem.turn_hash. A row changed afterwards shows.';
create index turns_by_kind on agentmem.turns (session_id, kind, position);
create index turns_by_uuid on agentmem.turns (uuid);
create index turns_of_receipt on agentmem.turns (receipt_id);

create table agentmem.hook_runs (
    id           uuid primary key,
    host_id      uuid not null,
    client       text not null,
    event        text not null,
    session_key  text not null default '',
    started_at   timestamptz not null,
    duration_ms  double precision not null,
    outcome      text not null check (outcome in ('ok', 'deferred', 'failed', 'skipped')),
    stage        text not null,
    error_code   text,
    error        text,
    flags        text[] not null default '{}',
    bytes_in     integer not null default 0,
    bytes_read   bigint not null default 0,
    turns        integer not null default 0,
    output       text,
    version      text not null default '',
    recorded_at  timestamptz not null default now()
);
comment on table agentmem.hook_runs is 'One row for each run of a hook, successful or not; few indexes, since every hook writes here. While the database can''t be reached they wait in the spool.';
comment on column agentmem.hook_runs.outcome is 'ok: done and committed. deferred: kept in the spool and stored later (recorded_at tells when). failed: something is wrong that storing later does not mend. skipped: nothing to do by rule.';
comment on column agentmem.hook_runs.stage is 'Where it was when it ended: read, parse, spool, connect, capture, sweep, digest, print, done.';
comment on column agentmem.hook_runs.flags is 'What was odd about the payload: see agentmem/payload.py.';
comment on column agentmem.hook_runs.bytes_in is 'Size of the payload, bytes.';
comment on column agentmem.hook_runs.output is 'What the hook handed to the client, as it was printed: the digest that a session was given.';
create index hook_runs_by_time on agentmem.hook_runs (started_at desc);
create index hook_runs_not_ok on agentmem.hook_runs (host_id, started_at desc) where outcome in ('deferred', 'failed');

create view agentmem.messages as
select session_id,
       coalesce(message, uuid) as message,
       min(position) as position,
       min(role) as role,
       min(kind) as kind,
       min(at) as at,
       string_agg(text, E'\n' order by position) as text
from (
    select distinct on (session_id, coalesce(message, uuid), kind, text) *
    from agentmem.turns
    where kind in ('prompt', 'command', 'answer') and origin is null
    order by session_id, coalesce(message, uuid), kind, text, position
) as line
group by session_id, coalesce(message, uuid), kind;
comment on view agentmem.messages is 'What was asked and answered: the lines of one answer merged, repeated ones once, copied history left out.';
