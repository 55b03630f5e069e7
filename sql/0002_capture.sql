-- Writing: what a hook does with one event is one call of agentmem.capture.

create function agentmem.require_schema(known integer) returns void
language plpgsql stable as $$
declare
    needed integer;
begin
    select max(version) into needed from agentmem.migrations where breaking;
    if needed > known then
        raise exception 'the schema is at version %, this agentmem knows %', needed, known
            using errcode = 'AM001', hint = 'Upgrade agentmem on this machine.';
    end if;
end $$;
comment on function agentmem.require_schema is 'Refuses (SQLSTATE AM001) a program that is older than the last breaking migration.';

create function agentmem.turn_hash(kind text, body text, tools jsonb) returns bytea
language sql immutable as $$
    select sha256(convert_to(kind || chr(31) || body || chr(31) || coalesce(tools::text, ''), 'UTF8'))
$$;
comment on function agentmem.turn_hash is 'The content hash that stands beside each turn.';

create function agentmem.seal(receipt bigint) returns void
language sql as $$
    update agentmem.receipts r
    set turns = s.turns, turns_sha256 = s.hash
    from (
        select count(*)::integer as turns,
               encode(sha256(convert_to(coalesce(string_agg(
                   uuid || ' ' || position || ' ' || encode(sha256, 'hex'), E'\n' order by position, uuid), ''), 'UTF8')),
                   'hex') as hash
        from agentmem.turns
        where receipt_id = receipt
    ) as s
    where r.id = receipt
$$;
comment on function agentmem.seal is 'Writes into a receipt how many turns it has and the hash over them, as they stand now.';

create function agentmem.ensure_host(host jsonb, program_version text) returns uuid
language plpgsql as $$
declare
    wanted uuid := (host->>'id')::uuid;
begin
    -- Only once a minute: otherwise every hook of a machine would wait for the same row.
    perform 1 from agentmem.hosts
    where id = wanted and name = host->>'name' and version = program_version
      and last_seen > now() - interval '1 minute';
    if not found then
        insert into agentmem.hosts (id, name, platform, version)
        values (wanted, coalesce(host->>'name', ''), coalesce(host->>'platform', ''), program_version)
        on conflict (id) do update
        set name = excluded.name, platform = excluded.platform, version = excluded.version, last_seen = now();
    end if;
    return wanted;
end $$;
comment on function agentmem.ensure_host is 'The row of the machine that reports, made or refreshed.';

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

create function agentmem.ensure_session(client text, key text, host uuid, session jsonb) returns bigint
language plpgsql as $$
declare
    found_id bigint;
    project bigint;
begin
    select s.id into found_id from agentmem.sessions s
    where s.client = ensure_session.client and s.key = ensure_session.key;
    if found_id is null then
        project := agentmem.ensure_project(session->'project');
        insert into agentmem.sessions as s (client, key, host_id, project_id, cwd)
        values (client, key, host, project, session->>'cwd')
        on conflict on constraint sessions_client_key_key do update set key = excluded.key
        returning s.id into found_id;
    end if;
    return found_id;
end $$;
comment on function agentmem.ensure_session is 'The row of a session, made when it is new. The project is fixed by the first event.';

create function agentmem.note_session(session_id bigint, session jsonb) returns void
language plpgsql as $$
declare
    happened timestamptz := (session->>'at')::timestamptz;
begin
    update agentmem.sessions s
    set cwd = coalesce(session->>'cwd', s.cwd),
        project_id = coalesce(s.project_id, agentmem.ensure_project(session->'project')),
        git_head = coalesce(session->>'git_head', s.git_head),
        git_branch = coalesce(session->>'git_branch', s.git_branch),
        source = coalesce(session->>'source', s.source),
        model = coalesce(session->>'model', s.model),
        title = coalesce(session->>'title', s.title),
        -- Any event but an end opens a session again: it was resumed.
        ended_at = case when session->>'end_reason' is not null then happened end,
        end_reason = session->>'end_reason',
        pending_answer = coalesce(session->>'last_answer', s.pending_answer),
        noted_at = happened,
        updated_at = now()
    where s.id = session_id and (s.noted_at is null or s.noted_at <= happened);
    update agentmem.sessions s
    set started_at = least(s.started_at, happened), last_at = greatest(s.last_at, happened)
    where s.id = session_id and (s.started_at is null or s.started_at > happened or s.last_at < happened);
end $$;
comment on function agentmem.note_session is 'What an event''s payload itself says of its session, whether or not a transcript can be read. An older event that arrives later loses.';

create function agentmem.summarize(session bigint) returns void
language plpgsql as $$
declare
    last_turn record;
begin
    select t.kind, t.at into last_turn from agentmem.turns t
    where t.session_id = session
      and t.kind in ('prompt', 'command', 'interrupt', 'answer', 'tool_call', 'tool_result', 'api_error')
    order by t.position desc limit 1;
    update agentmem.sessions s
    set first_prompt = (select left(text, 2000) from agentmem.turns
                        where session_id = session and kind = 'prompt' and origin is null order by position limit 1),
        last_prompt = (select left(text, 2000) from agentmem.turns
                       where session_id = session and kind = 'prompt' and origin is null order by position desc limit 1),
        last_answer = (select left(text, 4000) from agentmem.turns
                       where session_id = session and kind = 'answer' and origin is null order by position desc limit 1),
        last_kind = last_turn.kind,
        pending_answer = case
            when last_turn.kind in ('answer', 'api_error') then null
            else s.pending_answer end,
        updated_at = now()
    where s.id = session;
end $$;
comment on function agentmem.summarize is 'Brings a session''s summary up to its turns, by index look-ups only: its cost does not grow with the session.';

create function agentmem.store_turns(session bigint, receipt bigint, same_file boolean, turns jsonb) returns void
language plpgsql as $$
declare
    touched bigint[];
    damaged bigint;
begin
    -- Receipts that lose a turn to this one (a line written twice, a file read again) are sealed anew below.
    select array_agg(distinct t.receipt_id) into touched
    from jsonb_array_elements(turns) as line
    join agentmem.turns t on t.session_id = session and t.uuid = line->>'uuid';

    insert into agentmem.turns as t
        (session_id, uuid, position, role, kind, at, parent, message, model, text, tools, origin, receipt_id, sha256)
    select distinct on (line.uuid)
        session, line.uuid, first_value(line.position) over same_line, line.role, line.kind, line.at, line.parent,
        line.message, line.model, line.text, nullif(line.tools, 'null'),
        coalesce(line.origin, (
            -- A fork without marks: the client gave the line its own session id, but kept its uuid.
            select o.key from agentmem.turns c join agentmem.sessions o on o.id = c.session_id
            where c.uuid = line.uuid and c.session_id <> session and c.origin is null and c.uuid not like 'line-%'
              and o.client = (select client from agentmem.sessions where id = session)
            order by c.id limit 1)),
        receipt, agentmem.turn_hash(line.kind, line.text, nullif(line.tools, 'null'))
    from jsonb_to_recordset(turns) as line(
        uuid text, position bigint, role text, kind text, at timestamptz, parent text, message text, model text,
        text text, tools jsonb, origin text)
    window same_line as (partition by line.uuid order by line.position)
    order by line.uuid, line.position desc
    on conflict (session_id, uuid) do update
    set position = case when same_file then least(t.position, excluded.position) else excluded.position end,
        role = excluded.role, kind = excluded.kind, at = excluded.at, parent = excluded.parent,
        message = excluded.message, model = excluded.model, text = excluded.text, tools = excluded.tools,
        origin = coalesce(t.origin, excluded.origin), receipt_id = excluded.receipt_id, sha256 = excluded.sha256;

    foreach damaged in array coalesce(touched, '{}') loop
        if damaged <> receipt then
            perform agentmem.seal(damaged);
        end if;
    end loop;
end $$;
comment on function agentmem.store_turns is 'Upserts the turns of one slice: a line''s first place in the file is kept, its last content wins.';

create function agentmem.note_turns(session bigint, facts jsonb, turns jsonb) returns void
language plpgsql as $$
begin
    update agentmem.sessions s
    set started_at = least(s.started_at, n.first_at),
        last_at = greatest(s.last_at, least(n.last_at, now())),
        cwd = coalesce(s.cwd, facts->>'cwd'),
        git_branch = case when facts ? 'branch' then facts->>'branch' else s.git_branch end,
        client_version = coalesce(facts->>'version', s.client_version),
        model = coalesce(facts->>'model', s.model),
        title = coalesce(facts->>'title', s.title),
        forked_from = coalesce(s.forked_from, facts->>'forked_from', n.origin),
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
            ) as f), s.files)
    from (
        select min(line.at) as first_at, max(line.at) as last_at,
               max(line.origin) filter (where line.origin is not null) as origin
        from jsonb_to_recordset(turns) as line(at timestamptz, origin text)
    ) as n
    where s.id = session;
end $$;
comment on function agentmem.note_turns is 'What new turns say of their session: times (never in the future), files, place, version.';

create function agentmem.capture_slice(from_client text, host uuid, run uuid, session jsonb, slice jsonb) returns jsonb
language plpgsql as $$
declare
    owner bigint;
    child bigint;
    file agentmem.transcripts;
    receipt bigint;
    agent record;
begin
    owner := agentmem.ensure_session(from_client, slice->>'session', host, session);
    if slice->>'parent' is not null then
        update agentmem.sessions s
        set parent_id = agentmem.ensure_session(from_client, slice->>'parent', host, session),
            agent_type = coalesce(slice->>'agent_type', s.agent_type)
        where s.id = owner and s.parent_id is null;
    end if;
    insert into agentmem.transcripts (host_id, path, session_id)
    values (host, slice->>'path', owner)
    on conflict (host_id, path) do nothing;
    select * into strict file from agentmem.transcripts
    where host_id = host and path = slice->>'path' for update;

    if (slice->>'restart')::boolean and (slice->>'generation')::integer = file.generation then
        file.generation := file.generation + 1;
        file.committed := 0;
    end if;
    if (slice->>'start')::bigint <> file.committed or (slice->>'generation')::integer > file.generation then
        return jsonb_build_object('status', 'stale', 'committed', file.committed, 'generation', file.generation,
                                  'mark_length', file.mark_length, 'mark_sha256', file.mark_sha256);
    end if;

    insert into agentmem.receipts (transcript_id, generation, start_offset, end_offset, lines, sha256, kinds, run_id)
    values (file.id, file.generation, (slice->>'start')::bigint, (slice->>'end')::bigint,
            (slice->>'lines')::integer, slice->>'sha256', slice->'kinds', run)
    returning id into receipt;
    update agentmem.transcripts
    set generation = file.generation, committed = (slice->>'end')::bigint, session_id = owner,
        mark_length = (slice->>'mark_length')::integer, mark_sha256 = slice->>'mark_sha256', last_read = now()
    where id = file.id;

    -- A subagent that writes into its parent's file gets a session of its own all the same.
    for agent in
        select line->>'agent' as name, jsonb_agg(line order by (line->>'position')::bigint) as turns
        from jsonb_array_elements(slice->'turns') as line
        group by line->>'agent'
    loop
        child := owner;
        if agent.name is not null then
            child := agentmem.ensure_session(from_client, (slice->>'session') || '/' || agent.name, host, session);
            update agentmem.sessions set parent_id = owner where id = child and parent_id is null;
        end if;
        perform agentmem.store_turns(child, receipt, (slice->>'start')::bigint > 0, agent.turns);
        perform agentmem.note_turns(child, slice->'facts', agent.turns);
        perform agentmem.summarize(child);
    end loop;
    if jsonb_array_length(slice->'turns') = 0 then
        perform agentmem.note_turns(owner, slice->'facts', '[]');
    end if;
    perform agentmem.seal(receipt);
    return jsonb_build_object('status', 'committed', 'committed', (slice->>'end')::bigint,
                              'generation', file.generation, 'receipt', receipt);
end $$;
comment on function agentmem.capture_slice is 'Stores a stretch of one transcript with its receipt, or answers `stale` with where to go on when it is not the next one.';

create function agentmem.store_run(host uuid, client text, run jsonb, program_version text) returns void
language sql as $$
    insert into agentmem.hook_runs as r
        (id, host_id, client, event, session_key, started_at, duration_ms, outcome, stage, error_code, error, flags,
         bytes_in, bytes_read, turns, output, version)
    values (
        (run->>'id')::uuid, host, client, coalesce(run->>'event', ''), coalesce(run->>'session', ''),
        (run->>'started_at')::timestamptz,
        -- What the program measured, and what the database has taken since.
        (run->>'duration_ms')::double precision
            + case when run->>'outcome' = 'ok' then extract(epoch from clock_timestamp() - now()) * 1000 else 0 end,
        run->>'outcome', run->>'stage',
        run->>'error_code', run->>'error',
        coalesce(array(select jsonb_array_elements_text(run->'flags')), '{}'),
        coalesce((run->>'bytes_in')::integer, 0), coalesce((run->>'bytes_read')::bigint, 0),
        coalesce((run->>'turns')::integer, 0), run->>'output', program_version)
    on conflict (id) do nothing
$$;
comment on function agentmem.store_run is 'The row of one hook run; storing it again changes nothing.';

create function agentmem.capture(event jsonb) returns jsonb
language plpgsql as $$
declare
    host uuid;
    owner bigint;
    slice jsonb;
    run jsonb;
    answer jsonb;
    answers jsonb := '[]';
    stale boolean := false;
begin
    perform agentmem.require_schema((event->>'schema')::integer);
    -- A lock that is held for long must not hold up a turn: the event waits in the spool instead.
    perform set_config('lock_timeout', '2s', true);
    host := agentmem.ensure_host(event->'host', event->>'version');
    if event->'session'->>'key' is not null then
        owner := agentmem.ensure_session(event->>'client', event->'session'->>'key', host, event->'session');
        -- Captures of one session go one after the other: its row is always locked first.
        perform 1 from agentmem.sessions where id = owner for update;
        if event->'session'->>'at' is not null then
            perform agentmem.note_session(owner, event->'session');
        end if;
    end if;
    for slice in select * from jsonb_array_elements(event->'slices') loop
        answer := agentmem.capture_slice(event->>'client', host, (event->'run'->>'id')::uuid, event->'session', slice);
        answers := answers || answer;
        stale := stale or answer->>'status' = 'stale';
    end loop;
    run := event->'run';
    if run->>'id' is not null and not stale then
        perform agentmem.store_run(host, event->>'client', run, event->>'version');
    end if;
    return jsonb_build_object('slices', answers, 'stale', stale);
end $$;
comment on function agentmem.capture is 'Takes one event of a hook: its session, any number of slices of transcripts, and the row of the run, all or nothing. Every part of it can be sent again without harm.';

create function agentmem.positions(host uuid, paths jsonb) returns jsonb
language sql stable as $$
    select coalesce(jsonb_object_agg(path, jsonb_build_object(
        'committed', committed, 'generation', generation,
        'mark_length', mark_length, 'mark_sha256', mark_sha256)), '{}')
    from agentmem.transcripts
    where host_id = host and path in (select jsonb_array_elements_text(paths))
$$;
comment on function agentmem.positions is 'How far each of these files has been read; files that are not known are left out.';
