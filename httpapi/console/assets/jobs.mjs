// The list of jobs of an endpoint, and what can be done to many of them.
import {html, useState, useEffect, useRef, useMemo, useSignal, useData, session, live, place, go, keep, tick, get, change, patiently, Link, id, api, can, has, num, count, duration, say} from './lib.mjs'
import {Grid, Table, Tile, Loaded, Status, Ago, Empty, Failure, Loading, Dialog, New, Err} from './ui.mjs'
import {tries} from './job.mjs'

export const statuses = ['IN_QUEUE', 'IN_PROGRESS', 'COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT']
const size = 100

// useJobs reads the pages of the list that are in sight.
function useJobs(endpoint, wanted, all, prefix) {
  const [state, set] = useState({total: null, pages: new Map(), error: null})
  const sight = useRef([0, 50]), busy = useRef(false), again = useRef(null), last = useRef(0), newest = useRef(null)
  const n = useSignal(tick), key = [endpoint, wanted, all, prefix].join(), now = useRef(key)
  now.current = key
  const read = async fresh => {
    if (busy.current) { again.current = again.current || fresh; return } // what is in sight may have changed
    busy.current = true
    try {
      const [from, to] = sight.current.map(i => Math.floor(i / size)), got = new Map()
      let total = null
      for (let p = from; p <= to; p++) {
        if (!fresh && state.pages.has(p)) continue
        const q = new URLSearchParams({offset: p * size, limit: size})
        if (wanted.length) q.set('status', wanted.join())
        if (all) q.set('owner', '*')
        if (prefix) q.set('idPrefix', prefix)
        const page = await patiently(() => get(session.value?.details ? `data/jobs/${id(endpoint)}?${q}` : api(`${id(endpoint)}/requests?${q}`)))
        total = page.total
        got.set(p, page.requests.map(j => { const x = j.item || j; return {...x, owner: j.owner, more: page.more?.[x.id]} }))
      }
      if (now.current === key && total !== null) set(s => ({total, error: null, pages: fresh ? got : new Map([...s.pages, ...got].slice(-20))}))
    } catch (error) { if (now.current === key) set(s => ({...s, total: s.total ?? 0, error})) }
    busy.current = false
    const next = again.current
    again.current = null
    if (next !== null) newest.current(next) // as the list is asked for now
  }
  newest.current = read
  useEffect(() => { set({total: null, pages: new Map(), error: null}); read(true) }, [key])
  useEffect(() => {
    const t = setTimeout(() => { last.current = Date.now(); read(true) }, Math.max(200, last.current + 2500 - Date.now()))
    return () => clearTimeout(t)
  }, [n])
  return {
    ...state, reload: () => read(true),
    row: i => state.pages.get(Math.floor(i / size))?.[i % size],
    onRange: (first, end) => { sight.current = [first, Math.max(first, end - 1)]; if (!state.pages.has(Math.floor(first / size)) || !state.pages.has(Math.floor(Math.max(first, end - 1) / size))) read(false) },
  }
}

export function Jobs({endpoint}) {
  const {query} = useSignal(place), s = useSignal(session)
  const wanted = (query.get('status') || '').split(',').filter(x => statuses.includes(x)), all = query.get('owner') === '*' && s.operator, prefix = query.get('id') || ''
  const list = useJobs(endpoint, wanted, all, prefix), [chosen, choose] = useState(() => new Set(history.state?.chosen))
  const here = `e/${id(endpoint)}/jobs`
  const filter = (w, a, p = prefix) => { const q = new URLSearchParams(); if (w.length) q.set('status', w.join()); if (a) q.set('owner', '*'); if (p) q.set('id', p); choose(new Set()); go(here + (q.size ? '?' + q : '')) }
  const toggle = k => choose(c => { const n = new Set(c); if (!n.delete(k)) n.add(k); return n })
  useEffect(() => keep({chosen: [...chosen].slice(0, 1000)}), [chosen]) // for who comes back
  const columns = [
    {title: 'Job', cell: j => html`<${Link} to=${`${here}/${id(j.id)}`}><code>${j.id}</code><//>`},
    {title: 'Status', cell: j => html`<${Status} of=${j.status} />`},
    all ? {title: 'Owner', cell: j => j.owner} : null,
    s.details ? {title: 'Age', cell: j => html`<${Ago} at=${j.more?.submitted} />`} : null,
    {title: 'Waited', num: true, cell: j => duration(j.delayTime)},
    {title: 'Ran', num: true, cell: j => duration(j.executionTime)},
    s.details ? {title: 'Deliveries', cell: j => j.more ? ((t => html`${num(j.more.deliveries)}${t ? html`, ${t}` : null}`)(tries({...j.more, status: j.status}))) : '–'} : null,
    {title: 'Worker', cell: j => j.workerId ? html`<code>${j.workerId}</code>` : html`<span class="muted">–</span>`},
    {title: 'Error', cell: j => html`<${Err} of=${j.error} />`},
  ].filter(Boolean)
  return html`<section aria-labelledby="jobs-title"><div class="bar"><h2 id="jobs-title">Jobs ${list.total === null ? '' : html`<small class="muted">${num(list.total)}</small>`}</h2>
    ${can(`endpoint:${endpoint}:run`) && has('run') ? html`<${New} title="Submit a job" operation="run" path=${api(id(endpoint) + '/run')} main=${['input', 'webhook']} start=${{input: '{}'}} yes="Submit the job" done=${j => go(`${here}/${id(j.id)}`)}>Submit a job…<//>` : null}</div>
    <div class="bar filters"><fieldset><legend class="vh">Status</legend>${statuses.map(x => html`<label class="inline"><input type="checkbox" checked=${wanted.includes(x)} onChange=${e => filter(e.target.checked ? [...wanted, x] : wanted.filter(y => y !== x), all)} /> <${Status} of=${x} /></label>`)}</fieldset>
    <form onSubmit=${e => { e.preventDefault(); filter(wanted, all, e.target.elements.prefix.value.trim()) }}><label class="inline">Id begins with <input type="search" name="prefix" key=${prefix} defaultValue=${prefix} autocomplete="off" spellcheck=${false} onChange=${e => e.target.form.requestSubmit()} /></label></form>
    ${s.operator ? html`<label class="inline"><input type="checkbox" checked=${all} onChange=${() => filter(wanted, !all)} /> Of all users</label>` : null}</div>
    ${can(`endpoint:${endpoint}:run`) ? html`<${Bulk} endpoint=${endpoint} wanted=${wanted} prefix=${prefix} all=${all} chosen=${chosen} total=${list.total} onDone=${() => { choose(new Set()); list.reload() }} />` : null}
    <${Failure} error=${list.error} retry=${list.reload} />
    ${list.total === null ? html`<${Loading} />` : html`<${Grid} tall caption="Jobs" columns=${columns} total=${list.total} row=${list.row} rowKey=${j => j.id} onRange=${list.onRange} chosen=${chosen} onChoose=${toggle}
      empty=${list.error ? null : prefix ? html`<${Empty} title=${`No job has an id that begins with ${prefix}${wanted.length ? ', and this status' : ''}.`}>Jobs are kept for 30 minutes after their end.<//>` : wanted.length ? html`<${Empty} title="No job has this status.">Jobs are kept for 30 minutes after their end.<//>` : html`<${Empty} title="There are no jobs.">Jobs that ended are kept for 30 minutes (of <code>runsync</code>: 1 to 5 minutes).<//>`} />`}</section>`
}

const actions = {
  cancel: {name: 'Cancel', doing: 'cancelled', of: ['IN_QUEUE', 'IN_PROGRESS'], word: 'that have not ended'},
  retry: {name: 'Retry', doing: 'queued again', of: ['FAILED', 'TIMED_OUT'], word: 'that failed or timed out'},
  start: {name: 'Start now', doing: 'made ready', of: ['IN_QUEUE'], word: 'that are delayed'},
  delete: {name: 'Delete', doing: 'deleted', of: ['COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT'], word: 'that have ended, with their results'},
}

function Bulk({endpoint, wanted, prefix, all, chosen, total, onDone}) {
  const [open, set] = useState(null)
  const which = chosen.size ? `${count(chosen.size, 'selected job')}` : wanted.length || prefix ? 'all that match' : 'all jobs'
  const fits = a => chosen.size || !wanted.length || actions[a].of.some(x => wanted.includes(x))
  return html`<div class="bar bulk" role="group" aria-label="Act on jobs"><span>With ${which}:</span>${Object.entries(actions).map(([a, x]) => html`<button type="button" disabled=${!total || !fits(a)} onClick=${() => set(a)}>${x.name}…</button>`)}
    ${open ? html`<${Many} endpoint=${endpoint} action=${open} all=${all} which=${which} selector=${chosen.size ? {filter: {ids: [...chosen].slice(0, 1000)}} : wanted.length || prefix ? {filter: {...wanted.length ? {status: wanted} : {}, ...prefix ? {idPrefix: prefix} : {}}} : {all: true}} onClose=${changed => { set(null); if (changed) onDone() }} />` : null}</div>`
}

// Many counts the jobs of an action, asks, and then acts on them part by part.
function Many({endpoint, action, selector, which, all, onClose}) {
  const a = actions[action], path = api(`${id(endpoint)}/actions${all ? '?owner=*' : ''}`)
  const [s, set] = useState({step: 'count', matched: 0, done: 0, failed: [], error: null}), stop = useRef(false)
  const walk = async (step, preview) => {
    stop.current = false
    let cursor = null, matched = 0, done = 0, failed = []
    set(x => ({...x, step, done: 0, error: null}))
    try {
      do {
        const body = {action, ...selector, limit: 1000}
        if (preview) body.preview = true
        if (cursor) body.cursor = cursor
        const r = await patiently(() => change('POST', path, body))
        matched += r.matched
        done += r.done
        if (failed.length < 100) failed = failed.concat(r.failed || [])
        cursor = r.cursor
        set(x => ({...x, ...(preview ? {matched} : {done, failed})}))
      } while (cursor && !stop.current)
      set(x => ({...x, step: preview ? 'ask' : 'end', stopped: stop.current && !!cursor}))
    } catch (error) { set(x => ({...x, step: 'end', error})) }
  }
  useEffect(() => { walk('count', true); return () => { stop.current = true } }, [])
  const changed = s.step === 'end' || s.step === 'act'
  const close = () => { stop.current = true; onClose(changed) }
  const title = `${a.name}: ${which}`
  return html`<${Dialog} title=${title} onClose=${close}><div aria-live="polite">
    ${s.step === 'count' ? html`<p>Counting… ${num(s.matched)} so far.</p>` : null}
    ${s.step === 'ask' ? s.matched ? html`<p><strong class="preview">${count(s.matched, 'job')}</strong> ${a.word}${s.stopped ? ' (counted so far)' : ''} will be ${a.doing}.</p>` : html`<p>Nothing to do: there are no jobs ${a.word} among them.</p>` : null}
    ${s.step === 'act' ? html`<p><progress max=${Math.max(s.matched, 1)} value=${s.done} aria-label="Progress"></progress> ${num(s.done)} of ${num(s.matched)}</p>` : null}
    ${s.step === 'end' ? html`<p class="result">${count(s.done, 'job was', 'jobs were')} ${a.doing}.${s.stopped ? ' Stopped before the end.' : ''}</p>${s.failed.length ? html`<p>${count(s.failed.length, 'job')} could not be:</p><ul class="short">${s.failed.slice(0, 20).map(f => html`<li><code>${f.id}</code>: ${f.error}</li>`)}</ul>` : null}` : null}</div>
    <${Failure} error=${s.error} />
    <div class="bar end">${s.step === 'ask' && s.matched ? html`<button type="button" onClick=${close}>Keep</button><button type="button" class="danger" onClick=${() => walk('act', false)}>${a.name} ${count(s.matched, 'job')}</button>` : s.step === 'act' || s.step === 'count' ? html`<button type="button" onClick=${() => { stop.current = true }}>Stop</button>` : html`<button type="button" onClick=${close}>Close</button>`}</div><//>`
}

// AllJobs is the page of the newest jobs of all endpoints. It reads one page of each, so it reads seldom.
export function AllJobs() {
  const {query} = useSignal(place), s = useSignal(session), status = query.get('status') || '', of = useData('data/jobs' + (status ? '?status=' + id(status) : ''), {steady: true})
  useEffect(() => { document.title = 'Jobs · podyard' }, [])
  useEffect(() => {
    const t = setInterval(() => { if (!document.hidden && live.value !== 'paused') of.reload() }, 10000)
    return () => clearInterval(t)
  }, [of.reload])
  const at = list => 'jobs?status=' + list
  return html`<h1>Jobs</h1><${Loaded} of=${of}>${d => html`
    <dl class="tiles"><${Tile} name="Waiting" value=${num(d.counts.inQueue)} to=${at('IN_QUEUE')} /><${Tile} name="Running" value=${num(d.counts.inProgress)} to=${at('IN_PROGRESS')} /><${Tile} name="Completed" value=${num(d.counts.completed)} to=${at('COMPLETED')} /><${Tile} name="Failed" value=${num(d.counts.failed)} bad=${d.counts.failed > 0} to=${at('FAILED,TIMED_OUT')} /></dl>
    <p class="muted">${`The counts are those of ${count(d.endpoints, 'endpoint')}, of all their users. ${s.operator ? 'The list has the jobs of all users.' : 'The list has your own jobs.'}`}</p>
    <div class="bar"><label class="inline">Status <select value=${status} onChange=${e => go(e.target.value ? at(e.target.value) : 'jobs')}><option value="">all</option>${[...statuses, 'FAILED,TIMED_OUT'].map(x => html`<option value=${x}>${x.toLowerCase().replaceAll('_', ' ').replace(',', ' or ')}</option>`)}</select></label><button type="button" onClick=${of.reload}>Read again</button></div>
    <${Table} tall caption="Jobs" rows=${d.jobs} rowKey=${j => j.endpoint + '/' + j.id} columns=${[
      {title: 'Job', sort: j => j.id, cell: j => html`<${Link} to=${`e/${id(j.endpoint)}/jobs/${id(j.id)}`}><code>${j.id}</code><//>`}, {title: 'Status', sort: j => j.status, cell: j => html`<${Status} of=${j.status} />`}, {title: 'Endpoint', sort: j => j.name, cell: j => html`<span class="name" title=${j.name}><${Link} to=${`e/${id(j.endpoint)}/jobs`}>${j.name}<//></span>`}, s.operator ? {title: 'Owner', sort: j => j.owner, cell: j => j.owner} : null, {title: 'Age', sort: j => j.submitted, cell: j => html`<${Ago} at=${j.submitted} />`}, {title: 'Waited', num: true, sort: j => j.delayTime, cell: j => duration(j.delayTime)}, {title: 'Ran', num: true, sort: j => j.executionTime, cell: j => duration(j.executionTime)},
    ].filter(Boolean)} empty=${html`<${Empty} title=${status ? 'No job has this status.' : 'There are no jobs.'} />`} />
    ${d.more ? html`<p class="muted">These are the newest. The page of an endpoint has all of its jobs.</p>` : null}`}<//>`
}
