// The first page: what needs attention, and all endpoints.
import {html, useEffect, useState, useSignal, session, useData, Link, id, api, can, has, go, num, duration} from './lib.mjs'
import {Table, Status, Spark, Empty, Loaded, Ago, New} from './ui.mjs'

// What the causes of docs/trouble.md are called, and where more is to be seen.
const titles = {
  database: 'The database does not answer', store: 'The store has stopped', disk: 'The disk of the store', serverLost: 'A server has died', certificate: 'The certificate', clock: 'The clock has jumped',
  image: 'The image does not start', crashLoop: 'Workers crash', hostFull: 'No room', receiver: 'A receiver of webhooks', noWorker: 'No worker', slowQueue: 'A slow queue', costSpent: 'The budget of the month', podsFailed: 'Pods have failed',
}
function place(i) {
  switch (i.kind) {
    case 'endpoint': return [`e/${id(i.id)}/${i.cause === 'crashLoop' || i.cause === 'image' ? 'workers' : 'why'}`, i.cause === 'crashLoop' || i.cause === 'image' ? 'Workers' : 'Why']
    case 'host': case 'server': return ['hosts', 'Hosts']
    case 'receiver': return ['webhooks?state=pending', 'Webhooks']
    case 'user': return ['pods?status=ERROR', 'Pods']
  }
  return null
}
const affected = i => i.who.length ? ` · affects ${i.who.join(', ')}${i.more ? ` and ${num(i.more)} more` : ''}` : ''

function Incident({of: i}) {
  const to = place(i)
  return html`<li><${Status} of=${i.severity} text=${(titles[i.cause] || i.cause) + (i.name ? ': ' + i.name : '')} /> <small class="muted">since <${Ago} at=${i.since} />${affected(i)}</small>
    <p class="detail">${i.detail}</p><p>${i.act}${to ? html` <${Link} to=${to[0]}>${to[1]}<//>` : null}</p></li>`
}
const podsOf = d => d.pods?.pods || []

const columns = [
  {title: 'Endpoint', sort: e => e.name || e.id, cell: e => html`<span class="name" title=${e.name || e.id}><${Link} to=${'e/' + id(e.id)}>${e.name || e.id}<//></span>${e.name && e.name !== e.id ? html` <small class="muted">${e.id}</small>` : null}`},
  {title: 'Waiting', num: true, sort: e => e.health?.jobs.inQueue, cell: e => e.health ? e.health.jobs.inQueue ? html`<${Link} to=${`e/${id(e.id)}/why`}>${num(e.health.jobs.inQueue)}<//>` : '0' : '–'},
  {title: 'Oldest waits', num: true, sort: e => e.health?.jobs.inQueue ? e.oldest : 0, cell: e => e.health?.jobs.inQueue && e.oldest ? duration(e.oldest * 1000) : '–'},
  {title: 'Running', num: true, sort: e => e.health?.jobs.inProgress, cell: e => num(e.health?.jobs.inProgress)},
  {title: 'Workers', cell: e => e.health ? workers(e.health.workers) : '–'},
  {title: 'Failed in 1 h', num: true, sort: e => e.failedHour, cell: e => e.failedHour ? html`<${Link} to=${`e/${id(e.id)}/jobs?status=FAILED,TIMED_OUT`}>${num(e.failedHour)}<//>` : e.health ? '0' : '–'},
  {title: 'Waiting, last hour', cell: e => html`<${Spark} values=${e.queued} label=${'Jobs that wait at ' + (e.name || e.id)} />`},
]
export function workers(w) {
  const parts = [[w.running, 'busy'], [w.idle, 'idle'], [w.initializing, 'starting'], [w.throttled, 'without capacity'], [w.unhealthy, 'not healthy']].filter(p => p[0])
  return parts.length ? parts.map(p => p.join(' ')).join(', ') : 'none'
}

export function Overview() {
  const of = useData('data/overview'), s = useSignal(session), [filter, setFilter] = useState('')
  useEffect(() => { document.title = 'Endpoints · podyard' }, [])
  const owner = {title: 'Owner', sort: e => e.owner, cell: e => e.owner || html`<span class="muted">shared</span>`}
  return html`<${Loaded} of=${of}>${d => {
    const list = d.incidents, pods = podsOf(d), by = {}
    for (const p of pods) by[p.status] = (by[p.status] || 0) + 1
    const shown = d.endpoints.filter(e => !filter || (e.id + ' ' + e.name + ' ' + (e.owner || '')).toLowerCase().includes(filter.toLowerCase()))
    return html`<h1>Overview</h1>
      <section class="attention" aria-labelledby="attention"><h2 id="attention">Needs attention</h2>
      ${list.length ? html`<ul>${list.slice(0, 10).map(i => html`<${Incident} key=${i.cause + i.id} of=${i} />`)}</ul>${list.length > 10 ? html`<p class="muted">and ${num(list.length - 10)} more</p>` : null}` : html`<p><${Status} of="COMPLETED" text="Nothing is wrong." /></p>`}</section>
      <section aria-labelledby="endpoints"><div class="bar"><h2 id="endpoints">Endpoints</h2>${can('endpoints:write') && has('createEndpoint') ? html`<${New} title="New endpoint" operation="createEndpoint" path=${api('serverless')} main=${['name', 'image', 'cpu', 'gpu', 'workers', 'scaling', 'env']} start=${{type: 'QUEUE', 'scaling.type': 'QUEUE_DELAY', 'scaling.queueDelay': '4'}} yes="Create the endpoint" done=${e => go('e/' + id(e.id))}>New endpoint…<//>` : null}${d.endpoints.length > 8 ? html`<label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label>` : null}</div>
      ${d.listed ? null : html`<p class="muted">This key may not list endpoints, so these are the ones that its scopes name. Find others by their id.</p>`}
      ${d.more ? html`<p class="muted">These are the first ${num(d.endpoints.length)}. Find others by their id.</p>` : null}
      <${Table} caption="Endpoints" rows=${shown} rowKey=${e => e.id} columns=${s.operator ? [columns[0], owner, ...columns.slice(1)] : columns} empty=${filter ? html`<${Empty} title="No endpoint matches." />` : html`<${Empty} title="There are no endpoints yet.">Make one with <code>POST /v2/serverless</code>, or in the configuration of the server.<//>`} /></section>
      ${d.pods ? html`<section aria-labelledby="pods"><h2 id="pods">Pods</h2>${pods.length ? html`<p class="counts">${Object.entries(by).map(([status, n]) => html`<${Link} to=${'pods?status=' + status}><${Status} of=${status} text=${`${n} ${status.toLowerCase()}`} /><//>`)}${d.pods.more ? html` <${Link} to="pods">and more<//>` : null}</p>` : html`<p class="muted">There are no pods.</p>`}</section>` : null}`
  }}<//>`
}
