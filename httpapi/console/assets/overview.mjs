// The first page: what needs attention, and all endpoints.
import {html, useEffect, useState, useSignal, session, useData, Link, id, num, count, duration} from './lib.mjs'
import {Table, Status, Spark, Empty, Loaded, Id} from './ui.mjs'

// concerns are sentences about what is wrong, the worst first.
function concerns(d) {
  const list = []
  const add = (kind, text, to, link) => list.push({kind, text, to, link})
  const server = d.state?.server
  if (server && !server.ready) add('ERROR', `The server takes no new work: ${server.reason}.`, 'hosts', 'Hosts')
  if (d.outbox?.oldest && Date.now() - Date.parse(d.outbox.oldest) >= 60000) add('THROTTLED', `${count(d.outbox.pending, 'webhook waits', 'webhooks wait')}, the oldest for ${duration(Date.now() - Date.parse(d.outbox.oldest))}.`, 'webhooks?state=pending', 'Webhooks')
  for (const e of d.endpoints) {
    const h = e.health, at = 'e/' + id(e.id), name = e.name || e.id
    if (!h) continue
    const {jobs: j, workers: w} = h, present = w.running + w.idle + w.initializing
    if (j.inQueue && !present) add('ERROR', `${name}: ${count(j.inQueue, 'job waits', 'jobs wait')} and there is no worker.`, at + '/why', 'Why')
    else if (e.oldest >= 60) add('THROTTLED', `${name}: the oldest of ${count(j.inQueue, 'waiting job')} is ready for ${duration(e.oldest * 1000)}.`, at + '/why', 'Why')
    if (w.throttled) add('THROTTLED', `${name}: there is no capacity for ${count(w.throttled, 'worker')}.`, at + '/why', 'Why')
    if (w.unhealthy) add('UNHEALTHY', `${name}: ${count(w.unhealthy, 'worker is', 'workers are')} not healthy.`, at + '/workers', 'Workers')
    if (e.failedHour) add('FAILED', `${name}: ${count(e.failedHour, 'job')} failed in the last hour.`, at + '/jobs?status=FAILED,TIMED_OUT', 'Failed jobs')
  }
  for (const p of podsOf(d)) if (p.status === 'ERROR') add('ERROR', `Pod ${p.name || p.id} has failed.`, 'pods/' + id(p.id), 'Pod')
  for (const h of d.state?.hosts || []) {
    if (h.state !== 'active') add('cordoned', `Host ${h.id} is ${h.state}.`, 'hosts', 'Hosts')
    for (const r of h.resources || []) if (r.total > 0 && r.reserved >= r.total) add('THROTTLED', `Host ${h.id} has no free ${r.kind === 'gpu' ? r.id : r.kind}.`, 'hosts', 'Hosts')
  }
  const order = ['bad', 'warn']
  return list.sort((a, b) => (order.indexOf(a.kind) - order.indexOf(b.kind)))
}
const podsOf = d => d.pods?.pods || []

const columns = [
  {title: 'Endpoint', cell: e => html`<${Link} to=${'e/' + id(e.id)}>${e.name || e.id}<//>${e.name && e.name !== e.id ? html` <small class="muted">${e.id}</small>` : null}`},
  {title: 'Waiting', num: true, cell: e => e.health ? e.health.jobs.inQueue ? html`<${Link} to=${`e/${id(e.id)}/why`}>${num(e.health.jobs.inQueue)}<//>` : '0' : '–'},
  {title: 'Oldest waits', num: true, cell: e => e.health?.jobs.inQueue && e.oldest ? duration(e.oldest * 1000) : '–'},
  {title: 'Running', num: true, cell: e => num(e.health?.jobs.inProgress)},
  {title: 'Workers', cell: e => e.health ? workers(e.health.workers) : '–'},
  {title: 'Failed in 1 h', num: true, cell: e => e.failedHour ? html`<${Link} to=${`e/${id(e.id)}/jobs?status=FAILED,TIMED_OUT`}>${num(e.failedHour)}<//>` : e.health ? '0' : '–'},
  {title: 'Waiting, last hour', cell: e => html`<${Spark} values=${e.queued} label=${'Jobs that wait at ' + (e.name || e.id)} />`},
]
export function workers(w) {
  const parts = [[w.running, 'busy'], [w.idle, 'idle'], [w.initializing, 'starting'], [w.throttled, 'without capacity'], [w.unhealthy, 'not healthy']].filter(p => p[0])
  return parts.length ? parts.map(p => p.join(' ')).join(', ') : 'none'
}

export function Overview() {
  const of = useData('data/overview'), s = useSignal(session), [filter, setFilter] = useState('')
  useEffect(() => { document.title = 'Endpoints · podyard' }, [])
  const owner = {title: 'Owner', cell: e => e.owner || html`<span class="muted">shared</span>`}
  return html`<${Loaded} of=${of}>${d => {
    const list = concerns(d), pods = podsOf(d), by = {}
    for (const p of pods) by[p.status] = (by[p.status] || 0) + 1
    const shown = d.endpoints.filter(e => !filter || (e.id + ' ' + e.name + ' ' + (e.owner || '')).toLowerCase().includes(filter.toLowerCase()))
    return html`<h1>Overview</h1>
      <section class="attention" aria-labelledby="attention"><h2 id="attention">Needs attention</h2>
      ${list.length ? html`<ul>${list.slice(0, 20).map(x => html`<li><${Status} of=${x.kind} text=${x.text} /> <${Link} to=${x.to}>${x.link}<//></li>`)}</ul>${list.length > 20 ? html`<p class="muted">and ${num(list.length - 20)} more</p>` : null}` : html`<p><${Status} of="COMPLETED" text="Nothing. No job waits without a worker, and nothing has failed lately." /></p>`}</section>
      <section aria-labelledby="endpoints"><div class="bar"><h2 id="endpoints">Endpoints</h2>${d.endpoints.length > 8 ? html`<label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label>` : null}</div>
      ${d.listed ? null : html`<p class="muted">This key may not list endpoints, so these are the ones that its scopes name. Find others by their id.</p>`}
      ${d.more ? html`<p class="muted">These are the first ${num(d.endpoints.length)}. Find others by their id.</p>` : null}
      <${Table} caption="Endpoints" rows=${shown} rowKey=${e => e.id} columns=${s.operator ? [columns[0], owner, ...columns.slice(1)] : columns} empty=${filter ? html`<${Empty} title="No endpoint matches." />` : html`<${Empty} title="There are no endpoints yet.">Make one with <code>POST /v2/serverless</code>, or in the configuration of the server.<//>`} /></section>
      ${d.pods ? html`<section aria-labelledby="pods"><h2 id="pods">Pods</h2>${pods.length ? html`<p class="counts">${Object.entries(by).map(([status, n]) => html`<${Link} to=${'pods?status=' + status}><${Status} of=${status} text=${`${n} ${status.toLowerCase()}`} /><//>`)}${d.pods.more ? html` <${Link} to="pods">and more<//>` : null}</p>` : html`<p class="muted">There are no pods.</p>`}</section>` : null}`
  }}<//>`
}
