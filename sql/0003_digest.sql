-- Reading: what a new session is told, and whether what is stored is still what was stored.

create function agentmem.failures(host uuid) returns jsonb
language sql stable as $$
    select jsonb_build_object('count', count(*), 'last', (
        select jsonb_build_object('event', l.event, 'code', l.error_code, 'error', l.error, 'at', l.started_at)
        from agentmem.hook_runs l
        where l.id = (array_agg(f.id order by f.started_at desc))[1]))
    from agentmem.hook_runs f
    where f.host_id = host and f.outcome = 'failed' and f.started_at > now() - interval '24 hours'
      and not exists (
          select 1 from agentmem.hook_runs later
          where later.host_id = host and later.event = f.event and later.client = f.client
            and later.outcome = 'ok' and later.started_at > f.started_at)
$$;
comment on function agentmem.failures is 'Hook runs of a machine that failed within a day and were not followed by a good one of the same event.';

create function agentmem.digest(request jsonb) returns jsonb
language plpgsql stable as $$
declare
    project bigint;
    this_session bigint;
    since timestamptz;
    found jsonb;
begin
    perform agentmem.require_schema((request->>'schema')::integer);
    select id into project from agentmem.projects where identity = request->'project'->>'identity';
    select id, last_at into this_session, since from agentmem.sessions
    where client = request->>'client' and key = request->>'session';
    since := case when request->>'source' in ('resume', 'fork')
                  then coalesce((request->>'since')::timestamptz, since) end;
    select coalesce(jsonb_agg(to_jsonb(s) order by s.last_at desc), '[]') into found
    from (
        select extract(epoch from now() - s.last_at)::bigint as age_seconds, s.last_at, s.key, s.client, h.name as host, s.host_id = (request->>'host')::uuid as this_host, s.title,
               s.ended_at, s.end_reason, s.git_branch, s.git_head, s.first_prompt,
               s.last_prompt, coalesce(s.pending_answer, s.last_answer) as last_answer,
               case when s.pending_answer is null then s.last_kind end as last_kind, s.files,
               s.forked_from
        from agentmem.sessions s
        left join agentmem.hosts h on h.id = s.host_id
        where s.project_id = project and s.parent_id is null
          and s.id is distinct from this_session
          and (s.first_prompt is not null or s.pending_answer is not null)
          and (since is null or s.last_at > since)
        order by s.last_at desc
        limit least((request->>'limit')::integer, 50)
    ) as s;
    return jsonb_build_object(
        'sessions', found,
        'known', project is not null,
        'since', since,
        'failures', agentmem.failures((request->>'host')::uuid));
end $$;
comment on function agentmem.digest is 'What a session that starts should know: the last sessions of its project, and unresolved failures. Resume and fork ask only for what is new.';

create function agentmem.verify(only_session bigint default null)
returns table (session_id bigint, session_key text, problem text, detail text, receipt_id bigint)
language plpgsql stable as $$
begin
    return query
    select t.session_id, s.key, 'turn_changed'::text,
           format('turn %s at byte %s is not what was stored', t.uuid, t.position), t.receipt_id
    from agentmem.turns t join agentmem.sessions s on s.id = t.session_id
    where (only_session is null or t.session_id = only_session)
      and t.sha256 <> agentmem.turn_hash(t.kind, t.text, t.tools);

    return query
    select s.id, s.key, 'turns_missing'::text,
           format('bytes %s to %s of %s: %s turns of %s', r.start_offset, r.end_offset, f.path, coalesce(n.turns, 0), r.turns),
           r.id
    from agentmem.receipts r
    join agentmem.transcripts f on f.id = r.transcript_id
    join agentmem.sessions s on s.id = f.session_id
    left join lateral (
        select count(*)::integer as turns, agentmem.seal_hash(string_agg(
            agentmem.seal_line(t.uuid, t.position, t.sha256), E'\n' order by t.position, t.uuid)) as hash
        from agentmem.turns t where t.receipt_id = r.id
    ) as n on true
    where (only_session is null or s.id = only_session)
      and (n.turns <> r.turns or n.hash <> r.turns_sha256);

    return query
    select s.id, s.key, 'receipt_missing'::text,
           format('bytes %s to %s of %s have no receipt', g.from_byte, g.to_byte, f.path), null::bigint
    from agentmem.transcripts f
    join agentmem.sessions s on s.id = f.session_id
    cross join lateral (
        select coalesce(lag(r.end_offset) over (order by r.start_offset), 0) as from_byte, r.start_offset as to_byte
        from agentmem.receipts r where r.transcript_id = f.id and r.generation = f.generation
        union all
        select coalesce(max(r.end_offset), 0), f.committed
        from agentmem.receipts r where r.transcript_id = f.id and r.generation = f.generation
    ) as g
    where (only_session is null or s.id = only_session) and g.from_byte <> g.to_byte;
end $$;
comment on function agentmem.verify is 'Checks what is stored against its receipts: turns changed, turns missing, receipts missing. No row means that all is well.';
