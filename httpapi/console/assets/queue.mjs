// Dead letters, schedules and batches of an endpoint.
import {html, useState, useRef, useSignal, session, useData, Link, id, api, can, has, go, change, patiently, num, count, duration, say} from './lib.mjs'
import {inWords} from './cron.mjs'
import {Status, Ago, Empty, Loaded, Table, Act, Sure, Raw, Dialog, New, Err} from './ui.mjs'

const owned = list => list.map(x => x.item ? {...x.item, owner: x.owner} : x)

export function Dead({endpoint, open}) {
  const s = useSignal(session), e = id(endpoint), of = useData(api(`${e}/dead${s.operator ? '?owner=*' : ''}`), {every: 10000}), run = can(`endpoint:${endpoint}:run`)
  const [chosen, choose] = useState(new Set()), [work, setWork] = useState(null), stop = useRef(false)
  const toggle = k => choose(c => { const n = new Set(c); if (!n.delete(k)) n.add(k); return n })
  const each = async (ids, method, tail, word) => {
    stop.current = false
    let done = 0
    const failed = []
    for (const x of ids) {
      if (stop.current) break
      try { await patiently(() => change(method, api(`${e}/dead/${id(x)}${tail}`))); done++ } catch (err) { failed.push(`${x}: ${err.message}`) }
      setWork({done, of: ids.length})
    }
    setWork(null)
    choose(new Set())
    of.reload()
    say(`${count(done, 'dead letter was', 'dead letters were')} ${word}.${failed.length ? ' ' + failed.slice(0, 3).join(' ') : ''}`, failed.length > 0)
  }
  return html`<section aria-labelledby="dead"><h2 id="dead">Dead letters</h2><p class="muted">Copies of jobs that failed for good. Redrive makes a new job of one.</p><${Loaded} of=${of}>${d => {
    const rows = owned(d.dead), ids = chosen.size ? [...chosen] : rows.map(r => r.job.id), which = chosen.size ? count(chosen.size, 'selected one') : `all ${num(rows.length)}`
    return html`${run && rows.length ? html`<div class="bar bulk" role="group" aria-label="Act on dead letters">${work ? html`<progress max=${work.of} value=${work.done} aria-label="Progress"></progress> ${num(work.done)} of ${num(work.of)} <button type="button" onClick=${() => { stop.current = true }}>Stop</button>` : html`<span>With ${which}:</span><${Sure} kind="" title=${`Redrive ${which}?`} text=${`${count(ids.length, 'new job is', 'new jobs are')} made. The dead letters are deleted.`} yes="Redrive" run=${async () => { each(ids, 'POST', '/redrive', 'redriven') }}>Redrive…<//><${Sure} title=${`Delete ${which}?`} text="They cannot be brought back." yes="Delete" run=${async () => { each(ids, 'DELETE', '', 'deleted') }}>Delete…<//>`}</div>` : null}
    <${Table} tall caption="Dead letters" rows=${rows} rowKey=${r => r.job.id} chosen=${chosen} onChoose=${run ? toggle : undefined} columns=${[
      {title: 'Job', cell: r => html`<${Link} to=${`e/${e}/dead/${id(r.job.id)}`}><code>${r.job.id}</code><//>`}, s.operator ? {title: 'Owner', cell: r => r.owner} : null, {title: 'Status', cell: r => html`<${Status} of=${r.job.status} />`}, {title: 'Error', cell: r => html`<${Err} of=${r.job.error} />`}, {title: 'Ran', num: true, cell: r => duration(r.job.executionTime)}, {title: 'Failed', cell: r => html`<${Ago} at=${r.failedAt} />`}, {title: 'Kept until', cell: r => html`<${Ago} at=${r.expiresAt} />`},
    ].filter(Boolean)} empty=${html`<${Empty} title="There are no dead letters.">The queue keeps them when its settings say for how long.<//>`} />`
  }}<//></section>${open ? html`<section><h3>Dead letter <code>${open}</code></h3><${Raw} title="Dead letter" path=${api(`${e}/dead/${id(open)}`)} /></section>` : null}`
}

// dayAndTime is an instant in the zone of its schedule, as its expression is.
function dayAndTime(at, timeZone) {
  const form = {weekday: 'short', day: 'numeric', month: 'short', year: 'numeric', hour: '2-digit', minute: '2-digit'}
  try { return new Date(at).toLocaleString('en-GB', {...form, timeZone}) } catch { return new Date(at).toLocaleString('en-GB', {...form, timeZoneName: 'short'}) } // the browser does not know the zone
}

const outcomes = {submitted: 'COMPLETED', requested: 'COMPLETED', skipped: 'IN_QUEUE'}
export function Schedules({endpoint, open}) {
  const s = useSignal(session), e = id(endpoint), of = useData(api(`${e}/schedules${s.operator ? '?owner=*' : ''}`), {every: 5000}), run = can(`endpoint:${endpoint}:run`)
  const set = (x, enabled) => async () => { await change('PATCH', api(`${e}/schedules/${id(x.id)}`), {enabled}); of.reload(); return enabled ? 'The schedule goes on.' : 'The schedule is paused.' }
  const now = x => async () => { const r = await change('POST', api(`${e}/schedules/${id(x.id)}/run`)); of.reload(); return `Job ${r.id} was submitted.` }
  const fresh = run && has('createSchedule') ? html`<${New} title="New schedule" operation="createSchedule" path=${api(e + '/schedules')} main=${['cron', 'timeZone', 'run', 'overlap', 'catchUp']} start=${{'run.input': '{}'}} yes="Create the schedule" done=${x => { of.reload(); go(`e/${e}/schedules/${id(x.id)}`) }}>New schedule…<//>` : null
  return html`<section aria-labelledby="schedules"><div class="bar"><h2 id="schedules">Schedules</h2>${fresh}</div><${Loaded} of=${of}>${d => {
    const rows = owned(d.schedules), one = rows.find(x => x.id === open)
    return html`<${Table} caption="Schedules" rows=${rows} rowKey=${x => x.id} columns=${[
      {title: 'Schedule', cell: x => html`<${Link} to=${`e/${e}/schedules/${id(x.id)}`}><code>${x.id}</code><//>`}, s.operator ? {title: 'Owner', cell: x => x.owner} : null, {title: 'When', cell: x => html`${inWords(x.cron) ? html`${inWords(x.cron)} <small class="muted"><code>${x.cron}</code></small>` : html`<code>${x.cron}</code>`} <small class="muted">${x.timeZone}</small>`}, {title: 'Next', cell: x => x.enabled ? html`${x.next ? dayAndTime(x.next, x.timeZone) : ''} <small class="muted"><${Ago} at=${x.next} /></small>` : html`<${Status} of="cordoned" text="paused" />`},
      {title: 'Last', cell: x => x.outcomes.length ? html`<${Status} of=${outcomes[x.outcomes[0].outcome] || x.outcomes[0].outcome} text=${x.outcomes[0].outcome} /> <small class="muted"><${Ago} at=${x.outcomes[0].at} /></small>` : '–'}, {title: 'Overlap', cell: x => x.overlap},
      run ? {title: 'Do', cell: x => html`<span class="acts">${x.enabled ? html`<${Act} run=${set(x, false)} aria-label=${'Pause ' + x.id}>Pause<//>` : html`<${Act} run=${set(x, true)} aria-label=${'Resume ' + x.id}>Resume<//>`}<${Act} run=${now(x)} aria-label=${'Run now: ' + x.id}>Run now<//><${Sure} title="Delete this schedule?" text="Its jobs stay." yes="Delete" run=${async () => { await change('DELETE', api(`${e}/schedules/${id(x.id)}`)); of.reload(); return 'The schedule was deleted.' }}>Delete…<//></span>`} : null,
    ].filter(Boolean)} empty=${html`<${Empty} title="There are no schedules." />`} />
    ${one ? html`<h3>Outcomes of <code>${one.id}</code></h3><${Table} caption="Outcomes" rows=${one.outcomes} rowKey=${o => o.at + o.outcome} columns=${[{title: 'At', cell: o => html`<${Ago} at=${o.at} />`}, {title: 'Outcome', cell: o => html`<${Status} of=${outcomes[o.outcome] || o.outcome} text=${o.outcome} />`}, {title: 'Job', cell: o => o.job ? html`<${Link} to=${`e/${e}/jobs/${id(o.job)}`}><code>${o.job}</code><//>` : '–'}, {title: 'Detail', cell: o => o.detail || ''}]} empty=${html`<${Empty} title="It has not run yet." />`} />${s.hidePayloads ? null : html`<h3>What it submits</h3><${Raw} title="Schedule" path=${api(`${e}/schedules/${id(one.id)}`)} />`}` : open ? html`<${Empty} title="There is no such schedule." />` : null}`
  }}<//></section>`
}

export function Batches({endpoint, open}) {
  const s = useSignal(session), e = id(endpoint), of = useData(api(`${e}/batch${s.operator ? '?owner=*' : ''}`), {every: 5000}), run = can(`endpoint:${endpoint}:run`)
  const act = (b, verb, said) => async () => { await change('POST', api(`${e}/batch/${id(b.id)}/${verb}`)); of.reload(); return said }
  const over = b => b.requestCompleted + b.requestFailed >= b.requestTotal
  return html`<section aria-labelledby="batches"><h2 id="batches">Batches</h2><${Loaded} of=${of}>${d => html`<${Table} caption="Batches" rows=${owned(d.batches)} rowKey=${b => b.id} columns=${[
    {title: 'Batch', cell: b => html`<${Link} to=${`e/${e}/batches/${id(b.id)}`}>${b.name || html`<code>${b.id}</code>`}<//>`}, s.operator ? {title: 'Owner', cell: b => b.owner} : null, {title: 'Status', cell: b => html`<${Status} of=${b.status === 'FINALIZED' && over(b) ? 'COMPLETED' : b.status} text=${b.status === 'FINALIZED' ? over(b) ? 'ended' : 'running' : undefined} />`},
    {title: 'Progress', cell: b => html`<progress max=${Math.max(1, b.requestTotal)} value=${b.requestCompleted + b.requestFailed} aria-label=${'Progress of ' + b.id}></progress> ${num(b.requestCompleted + b.requestFailed)} of ${num(b.requestTotal)}`}, {title: 'Failed', num: true, cell: b => num(b.requestFailed)}, {title: 'Made', cell: b => html`<${Ago} at=${new Date(b.createdAt).toISOString()} />`},
    run ? {title: 'Do', cell: b => html`<span class="acts">${b.status === 'DRAFT' && b.requestTotal ? html`<${Act} run=${act(b, 'finalize', 'The batch was started.')} aria-label=${'Start ' + b.id}>Start<//>` : null}${b.status !== 'CANCELLED' && !(b.status === 'FINALIZED' && over(b)) ? html`<${Sure} title="Cancel this batch?" text="Its requests that have not ended are cancelled." yes="Cancel the batch" run=${act(b, 'cancel', 'The batch was cancelled.')}>Cancel…<//>` : null}</span>`} : null,
  ].filter(Boolean)} empty=${html`<${Empty} title="There are no batches.">Make one with <code>POST /v2/${endpoint}/batch</code>.<//>`} />`}<//></section>${open ? html`<${Requests} e=${e} batch=${open} />` : null}`
}

function Requests({e, batch}) {
  const [offset, set] = useState(0), of = useData(api(`${e}/batch/${id(batch)}/requests?limit=50&offset=${offset}`), {every: 5000})
  return html`<section aria-labelledby="requests"><h3 id="requests">Requests of <code>${batch}</code></h3><${Loaded} of=${of}>${d => html`<${Table} caption="Requests" rows=${d.requests} rowKey=${r => r.id} columns=${[{title: 'Job', cell: r => html`<${Link} to=${`e/${e}/jobs/${id(r.id)}`}><code>${r.id}</code><//>`}, {title: 'Status', cell: r => html`<${Status} of=${r.status} />`}, {title: 'Error', cell: r => html`<${Err} of=${r.error} />`}]} empty=${html`<${Empty} title="The batch has no requests." />`} />
    <div class="bar"><button type="button" disabled=${!offset} onClick=${() => set(Math.max(0, offset - 50))}>Before</button><span class="muted">${num(Math.min(offset + 1, d.total))} to ${num(Math.min(offset + d.requests.length, d.total))} of ${num(d.total)}</span><button type="button" disabled=${!d.hasMore} onClick=${() => set(offset + 50)}>Next</button></div>`}<//></section>`
}
