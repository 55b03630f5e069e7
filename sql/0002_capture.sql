-- Writing: what a hook does with one event is one call of agentmem.capture.
--
-- Every hook is a new connection, which plans each statement anew. So the usual way (the session is known, its
-- transcript has grown by some lines) is kept to seven plain statements; what is rare stands in functions of its own.

create function agentmem.needed_schema() returns integer
language sql immutable as $$ select 1 $$;
comment on function agentmem.needed_schema is 'The oldest schema version that a program must know to write here. The migration runner raises it after a breaking migration.';

create function agentmem.require_schema(known integer) returns void
language plpgsql immutable as $$
begin
    if agentmem.needed_schema() > known then
        raise exception 'the schema needs version %, this agentmem knows %', agentmem.needed_schema(), known
            using errcode = 'AM001', hint = 'Upgrade agentmem on this machine.';
    end if;
end $$;
comment on function agentmem.require_schema is 'Refuses (SQLSTATE AM001) a program that is older than the last breaking migration.';

create function agentmem.turn_hash(kind text, body text, tools jsonb) returns bytea
language sql immutable as $$
    select sha256(convert_to(kind || chr(31) || body || chr(31) || coalesce(tools::text, ''), 'UTF8'))
$$;
comment on function agentmem.turn_hash is 'The content hash that stands beside each turn.';

create function agentmem.seal_line(uuid text, place bigint, hash bytea) returns text
language sql immutable as $$ select uuid || ' ' || place || ' ' || encode(hash, 'hex') $$;
comment on function agentmem.seal_line is 'What one turn contributes to the seal of its receipt.';

create function agentmem.seal_hash(lines text) returns text
language sql immutable as $$ select encode(sha256(convert_to(coalesce(lines, ''), 'UTF8')), 'hex') $$;
comment on function agentmem.seal_hash is 'The seal of a receipt: SHA-256 over the lines of its turns, in file order.';

create function agentmem.seal(receipt bigint) returns void
language sql as $$
    update agentmem.receipts r
    set turns = s.turns, turns_sha256 = s.hash
    from (
        select count(*)::integer as turns,
               agentmem.seal_hash(string_agg(agentmem.seal_line(uuid, position, sha256), E'\n' order by position, uuid))
                   as hash
        from agentmem.turns
        where receipt_id = receipt
    ) as s
    where r.id = receipt
$$;
comment on function agentmem.seal is 'Writes into a receipt how many turns it has and the hash over them, as they stand now.';

create function agentmem.ensure_host(host jsonb, program_version text) returns uuid
language sql as $$
    insert into agentmem.hosts (id, name, platform, version)
    values ((host->>'id')::uuid, coalesce(host->>'name', ''), coalesce(host->>'platform', ''), program_version)
    on conflict (id) do update
    set name = excluded.name, platform = excluded.platform, version = excluded.version, last_seen = now()
    returning id
$$;
comment on function agentmem.ensure_host is 'The row of the machine that reports, made or refreshed: at each session start, and whenever it is needed.';

create function agentmem.ensure_project(project jsonb) returns bigint
language plpgsql as $$
declare
    found_id bigint;
begin
    if project->>'identity' is null then
        return null;
    end if;
    select id into found_id from agentmem.projects where identity = project->>'identity';
    if found_id is null then
        insert into agentmem.projects (identity, name, root)
        values (project->>'identity', coalesce(project->>'name', ''), coalesce(project->>'root', ''))
        on conflict (identity) do update set identity = excluded.identity
        returning id into found_id;
    end if;
    return found_id;
end $$;
comment on function agentmem.ensure_project is 'The row of a project, made when it is new.';

create function agentmem.open_session(event jsonb, session_key text, parent bigint) returns bigint
language plpgsql as $$
declare
    found_id bigint;
begin
    select s.id into found_id from agentmem.sessions s
    where s.client = event->>'client' and s.key = session_key for update;
    if found_id is null then
        -- Not refreshed here: that would lock the row, and new sessions would be captured one after the other.
        if not exists (select from agentmem.hosts where id = (event->'host'->>'id')::uuid) then
            perform agentmem.ensure_host(event->'host', event->>'version');
        end if;
        insert into agentmem.sessions as s (client, key, host_id, parent_id, project_id, cwd)
        values (event->>'client', session_key, (event->'host'->>'id')::uuid, parent,
                agentmem.ensure_project(event->'session'->'project'), event->'session'->>'cwd')
        on conflict (client, key) do update set parent_id = coalesce(s.parent_id, excluded.parent_id)
        returning s.id into found_id;
    end if;
    return found_id;
end $$;
comment on function agentmem.open_session is 'The row of a session, made when it is new (its project is fixed then), and locked: captures of one session go one after the other, a parent''s row before its children''s.';

create function agentmem.note(session_id bigint, event jsonb, facts jsonb, turns jsonb) returns void
language sql as $$
    update agentmem.sessions s
    set cwd = case when e.wins then coalesce(event->>'cwd', s.cwd) else coalesce(s.cwd, facts->>'cwd') end,
        project_id = coalesce(s.project_id, agentmem.ensure_project(event->'project')),
        git_head = case when e.wins then coalesce(event->>'git_head', s.git_head) else s.git_head end,
        git_branch = case when facts ? 'branch' then facts->>'branch'
                          when e.wins then coalesce(event->>'git_branch', s.git_branch) else s.git_branch end,
        source = case when e.wins then coalesce(event->>'source', s.source) else s.source end,
        model = coalesce(facts->>'model', case when e.wins then event->>'model' end, s.model),
        title = coalesce(facts->>'title', case when e.wins then event->>'title' end, s.title),
        agent_type = coalesce(s.agent_type, facts->>'agent_type'),
        client_version = coalesce(facts->>'version', s.client_version),
        forked_from = coalesce(s.forked_from, facts->>'forked_from', n.origin),
        started_at = least(s.started_at, e.happened, n.first_at),
        last_at = greatest(s.last_at, e.happened, least(n.last_at, now())),
        -- Any event but an end opens a session again: it was resumed.
        ended_at = case when e.wins then case when event->>'end_reason' is not null then e.happened end
                        else s.ended_at end,
        end_reason = case when e.wins then event->>'end_reason' else s.end_reason end,
        noted_at = case when e.wins then e.happened else s.noted_at end,
        first_prompt = coalesce(s.first_prompt, n.first_prompt),
        last_prompt = coalesce(n.last_prompt, s.last_prompt),
        last_answer = coalesce(n.last_answer, s.last_answer),
        last_kind = coalesce(n.last_kind, s.last_kind),
        pending_answer = case when coalesce(n.last_kind, s.last_kind) in ('answer', 'api_error') then null
                              else coalesce(event->>'last_answer', s.pending_answer) end,
        files = coalesce((
            select array_agg(f.path order by f.place) from (
                select c.path, min(c.place) as place from (
                    select tool->>'target' as path, -line.position as place
                    from jsonb_to_recordset(turns) as line(position bigint, kind text, tools jsonb, origin text),
                         jsonb_array_elements(line.tools) as tool
                    where line.kind = 'tool_call' and line.origin is null
                      and tool->>'name' in ('Write', 'Edit', 'MultiEdit', 'NotebookEdit', 'apply_patch')
                      and tool->>'target' is not null
                    union all
                    select old.path, old.place from unnest(s.files) with ordinality as old(path, place)
                ) as c
                group by c.path order by min(c.place) limit 20
            ) as f), s.files),
        updated_at = now()
    from (
        select min(line.at) as first_at, max(line.at) as last_at, max(line.origin) as origin,
               (array_agg(left(line.text, 2000) order by line.position)
                   filter (where line.kind = 'prompt' and line.origin is null))[1] as first_prompt,
               (array_agg(left(line.text, 2000) order by line.position desc)
                   filter (where line.kind = 'prompt' and line.origin is null))[1] as last_prompt,
               (array_agg(left(line.text, 4000) order by line.position desc)
                   filter (where line.kind = 'answer' and line.origin is null))[1] as last_answer,
               (array_agg(line.kind order by line.position desc) filter (where line.kind in (
                   'prompt', 'command', 'interrupt', 'answer', 'tool_call', 'tool_result', 'api_error')))[1] as last_kind
        from jsonb_to_recordset(turns) as line(position bigint, kind text, at timestamptz, text text, origin text)
    ) as n, lateral (
        select (event->>'at')::timestamptz as happened,
               coalesce((event->>'at')::timestamptz >= coalesce(s2.noted_at, '-infinity'), false) as wins
        from agentmem.sessions s2 where s2.id = session_id
    ) as e
    where s.id = session_id
$$;
comment on function agentmem.note is 'What an event''s payload and new turns say of their session: times (never in the future), folder, files, summary, open end. An older event that arrives later does not win.';

create function agentmem.summarize(session bigint) returns void
language sql as $$
    update agentmem.sessions s
    set first_prompt = (select left(text, 2000) from agentmem.turns
                        where session_id = session and kind = 'prompt' and origin is null order by position limit 1),
        last_prompt = (select left(text, 2000) from agentmem.turns
                       where session_id = session and kind = 'prompt' and origin is null order by position desc limit 1),
        last_answer = (select left(text, 4000) from agentmem.turns
                       where session_id = session and kind = 'answer' and origin is null order by position desc limit 1),
        last_kind = (select kind from agentmem.turns
                     where session_id = session and kind in (
                         'prompt', 'command', 'interrupt', 'answer', 'tool_call', 'tool_result', 'api_error')
                     order by position desc limit 1),
        updated_at = now()
    where s.id = session
$$;
comment on function agentmem.summarize is 'Makes a session''s summary anew from its turns, where agentmem.note can''t go by the new ones alone.';

create function agentmem.find_origins(session bigint, receipt bigint) returns boolean
language plpgsql as $$
begin
    -- A fork: the client gave the copied lines the new session's id and kept their own. Ids that agentmem makes up
    -- (line-...) depend on the content alone and prove nothing.
    update agentmem.turns t
    set origin = o.key
    from (
        -- The first to be stored is the original. `+ 0`: else the planner walks the primary key to find the least.
        select l.id, (select min(c.id + 0) from agentmem.turns c
                      where c.uuid = l.uuid and c.session_id <> session and c.origin is null) as original
        from agentmem.turns l
        where l.receipt_id = receipt and l.session_id = session and l.origin is null and l.uuid not like 'line-%'
        offset 0
    ) as copy
    join agentmem.turns c on c.id = copy.original
    join agentmem.sessions o on o.id = c.session_id
    where t.id = copy.id and o.client = (select client from agentmem.sessions where id = session);
    if not found then
        return false;
    end if;
    update agentmem.sessions
    set forked_from = coalesce(forked_from, (select max(origin) from agentmem.turns where receipt_id = receipt))
    where id = session;
    return true;
end $$;
comment on function agentmem.find_origins is 'Marks lines that were copied from another session; true when there were some.';

create function agentmem.replace_turns(session bigint, receipt bigint, turns jsonb) returns void
language plpgsql as $$
declare
    touched bigint[];
    damaged bigint;
begin
    select array_agg(distinct t.receipt_id) into touched
    from jsonb_array_elements(turns) as line
    join agentmem.turns t on t.session_id = session and t.uuid = line->>'uuid'
    where t.receipt_id <> receipt;
    update agentmem.turns t
    set position = case
            when exists (select 1 from agentmem.receipts o, agentmem.receipts n
                         where o.id = t.receipt_id and n.id = receipt
                           and o.transcript_id = n.transcript_id and o.generation = n.generation)
            then least(t.position, line.position) else line.position end,
        role = line.role, kind = line.kind, at = line.at, parent = line.parent, message = line.message,
        model = line.model, text = line.text, tools = nullif(line.tools, 'null'),
        origin = coalesce(line.origin, t.origin), receipt_id = receipt,
        sha256 = agentmem.turn_hash(line.kind, line.text, nullif(line.tools, 'null'))
    from jsonb_to_recordset(turns) as line(
        uuid text, position bigint, role text, kind text, at timestamptz, parent text, message text, model text,
        text text, tools jsonb, origin text)
    where t.session_id = session and t.uuid = line.uuid and t.receipt_id <> receipt;
    perform agentmem.seal(receipt);
    foreach damaged in array coalesce(touched, '{}') loop
        perform agentmem.seal(damaged);
    end loop;
end $$;
comment on function agentmem.replace_turns is 'For lines that are stored already (written twice, or a file read again): the first place in the file is kept, the last content wins, and the receipts that lose them are sealed anew.';

create function agentmem.store_turns(session bigint, receipt bigint, slice jsonb, turns jsonb, out stored integer, out seal text)
language sql as $$
    with new as (
        insert into agentmem.turns
            (session_id, uuid, position, role, kind, at, parent, message, model, text, tools, origin, receipt_id, sha256)
        select session, line.uuid, line.position, line.role, line.kind, line.at, line.parent, line.message, line.model,
               line.text, nullif(line.tools, 'null'), line.origin, receipt,
               agentmem.turn_hash(line.kind, line.text, nullif(line.tools, 'null'))
        from jsonb_to_recordset(turns) as line(
            uuid text, position bigint, role text, kind text, at timestamptz, parent text, message text, model text,
            text text, tools jsonb, origin text)
        on conflict (session_id, uuid) do nothing
        returning uuid, position, sha256
    )
    select count(*)::integer,
           agentmem.seal_hash(string_agg(agentmem.seal_line(uuid, position, sha256), E'\n' order by position, uuid))
    from new
$$;
comment on function agentmem.store_turns is 'Inserts the turns of one slice that are not there yet; how many, and the seal over them.';

create function agentmem.capture_slice(event jsonb, slice jsonb, owner bigint, noted jsonb) returns jsonb
language plpgsql as $$
declare
    host uuid := (event->'host'->>'id')::uuid;
    starts bigint := (slice->>'start')::bigint;
    ends bigint := (slice->>'end')::bigint;
    file record;
    receipt bigint;
    stored integer;
    sealed text;
    agent record;
    child bigint;
    child_stored integer;
begin
    select id, generation, committed, mark_length, mark_sha256 into file from agentmem.transcripts
    where host_id = host and path = slice->>'path' for update;
    if not found then
        insert into agentmem.transcripts (host_id, path, session_id) values (host, slice->>'path', owner)
        on conflict (host_id, path) do nothing;
        select id, generation, committed, mark_length, mark_sha256 into strict file from agentmem.transcripts
        where host_id = host and path = slice->>'path' for update;
    end if;
    if (slice->>'restart')::boolean and (slice->>'generation')::integer = file.generation then
        file.generation := file.generation + 1;
        file.committed := 0;
    end if;
    if starts <> file.committed or (slice->>'generation')::integer > file.generation then
        return jsonb_build_object('status', 'stale', 'committed', file.committed, 'generation', file.generation,
                                  'mark_length', file.mark_length, 'mark_sha256', file.mark_sha256);
    end if;

    receipt := nextval('agentmem.receipts_id_seq');
    select t.stored, t.seal into stored, sealed from agentmem.store_turns(owner, receipt, slice, slice->'turns') as t;
    insert into agentmem.receipts
        (id, transcript_id, generation, start_offset, end_offset, lines, sha256, kinds, turns, turns_sha256, run_id)
    overriding system value
    values (receipt, file.id, file.generation, starts, ends, (slice->>'lines')::integer, slice->>'sha256',
            slice->'kinds', stored, sealed, (event->'run'->>'id')::uuid);
    update agentmem.transcripts
    set generation = file.generation, committed = ends, session_id = owner, last_read = now(),
        mark_length = (slice->>'mark_length')::integer, mark_sha256 = slice->>'mark_sha256'
    where id = file.id;
    perform agentmem.note(owner, noted, slice->'facts', slice->'turns');

    -- From here on: what is rare.
    if stored < jsonb_array_length(slice->'turns') then
        perform agentmem.replace_turns(owner, receipt, slice->'turns');
        perform agentmem.summarize(owner);
    end if;
    if starts = 0 or slice->'facts' ? 'forked_from' then
        if agentmem.find_origins(owner, receipt) then
            perform agentmem.summarize(owner);
        end if;
    end if;
    -- A subagent that writes into its parent's file gets a session of its own all the same.
    for agent in select key as name, value as turns from jsonb_each(coalesce(slice->'agents', '{}')) loop
        child := agentmem.open_session(event, (slice->>'session') || '/' || agent.name, owner);
        select t.stored into child_stored from agentmem.store_turns(child, receipt, slice, agent.turns) as t;
        if child_stored < jsonb_array_length(agent.turns) then
            perform agentmem.replace_turns(child, receipt, agent.turns);
        end if;
        perform agentmem.note(child, null, slice->'facts', agent.turns);
        perform agentmem.seal(receipt);
    end loop;
    return jsonb_build_object('status', 'committed', 'committed', ends, 'generation', file.generation,
                              'receipt', receipt);
end $$;
comment on function agentmem.capture_slice is 'Stores a stretch of one transcript with its receipt, or answers `stale` with where to go on when it is not the next one.';

create function agentmem.store_run(host uuid, client text, run jsonb, program_version text) returns void
language sql as $$
    insert into agentmem.hook_runs as known
        (id, host_id, client, event, session_key, started_at, duration_ms, outcome, stage, error_code, error, flags,
         bytes_in, bytes_read, turns, output, version)
    values (
        (run->>'id')::uuid, host, client, coalesce(run->>'event', ''), coalesce(run->>'session', ''),
        (run->>'started_at')::timestamptz,
        -- What the program measured, and what the database has taken since.
        (run->>'duration_ms')::double precision
            + case when run->>'outcome' = 'ok' then extract(epoch from clock_timestamp() - now()) * 1000 else 0 end,
        run->>'outcome', run->>'stage', run->>'error_code', run->>'error',
        coalesce(array(select jsonb_array_elements_text(run->'flags')), '{}'),
        coalesce((run->>'bytes_in')::integer, 0), coalesce((run->>'bytes_read')::bigint, 0),
        coalesce((run->>'turns')::integer, 0), run->>'output', program_version)
    on conflict (id) do update
    set outcome = excluded.outcome, stage = excluded.stage, error_code = excluded.error_code, error = excluded.error
    where excluded.outcome = 'failed' and known.outcome <> 'failed'
$$;
comment on function agentmem.store_run is 'The row of one hook run. Storing it again changes nothing, unless it has become known that the run failed after all.';

create function agentmem.capture(event jsonb) returns jsonb
language plpgsql as $$
declare
    owner bigint;
    target bigint;
    slice jsonb;
    answer jsonb;
    answers jsonb := '[]';
    stale boolean := false;
    noted jsonb := event->'session';
begin
    perform agentmem.require_schema((event->>'schema')::integer);
    -- A lock that is held for long must not hold up a turn: the event waits in the spool instead.
    perform set_config('lock_timeout', '2s', true);
    -- Everything here is looked up by an index. Statistics of tables that were empty a moment ago say otherwise, and a
    -- plan made by them would stay for the whole of a backfill.
    perform set_config('enable_seqscan', 'off', true);
    if event->'session'->>'key' is null or event->'run'->>'event' = 'SessionStart' then
        perform agentmem.ensure_host(event->'host', event->>'version');
    end if;
    if event->'session'->>'key' is not null then
        owner := agentmem.open_session(event, event->'session'->>'key', null);
    end if;
    for slice in select * from jsonb_array_elements(event->'slices') loop
        target := owner;
        if slice->>'session' <> event->'session'->>'key' then
            target := agentmem.open_session(event, slice->>'session', owner);
            slice := jsonb_set(slice, '{facts,agent_type}', coalesce(slice->'agent_type', 'null'));
        end if;
        answer := agentmem.capture_slice(event, slice, target, case when target = owner then noted end);
        answers := answers || answer;
        if answer->>'status' = 'stale' then
            stale := true;
        elsif target = owner then
            noted := null;
        end if;
    end loop;
    if owner is not null and noted is not null and noted->>'at' is not null and not stale then
        perform agentmem.note(owner, noted, '{}', '[]');
    end if;
    if event->'run'->>'id' is not null and not stale then
        perform agentmem.store_run((event->'host'->>'id')::uuid, event->>'client', event->'run', event->>'version');
    end if;
    return jsonb_build_object('slices', answers, 'stale', stale);
end $$;
comment on function agentmem.capture is 'Takes one event of a hook: its session, any number of slices of transcripts, and the row of the run, all or nothing. Every part of it can be sent again without harm.';

create function agentmem.reread(host uuid, of_path text) returns void
language plpgsql as $$
declare
    file record;
begin
    update agentmem.transcripts
    set generation = generation + 1, committed = 0, mark_length = 0, mark_sha256 = ''
    where host_id = host and path = of_path
    returning id, session_id into file;
    if not found then
        return;
    end if;
    delete from agentmem.receipts
    where transcript_id = file.id
      and id in (select v.receipt_id from agentmem.verify(file.session_id) v where v.problem = 'turns_missing');
end $$;
comment on function agentmem.reread is 'Has a transcript read again from its start: the way to mend turns or receipts that are not what they were. Turns stay, and are replaced as they are read; receipts stay where they hold, as what proves turns of an earlier version of the file.';

create function agentmem.positions(host uuid, paths jsonb) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(path, jsonb_build_object(
        'committed', committed, 'generation', generation,
        'mark_length', mark_length, 'mark_sha256', mark_sha256)), '{}')
    from agentmem.transcripts
    where host_id = host and path in (select jsonb_array_elements_text(paths))
$$;
comment on function agentmem.positions is 'How far each of these files has been read; files that are not known are left out.';
