// An endpoint: what it does now, why its jobs wait, and its settings.
import {html, useState, useEffect, useSignal, useData, session, health, place, go, Link, id, api, can, has, change, get, num, count, duration, say} from './lib.mjs'
import {Status, Ago, Empty, Failure, Loaded, Facts, Tile, Chart, Table, Tabs, Act, Sure, Copy, Log, Raw} from './ui.mjs'
import {Jobs} from './jobs.mjs'
import {sentence} from './job.mjs'
import {Dead, Schedules, Batches} from './queue.mjs'
import {EndpointWebhooks} from './webhooks.mjs'
import {workers as inWords} from './overview.mjs'

export function Endpoint({endpoint, tab, rest}) {
  const s = useSignal(session), e = id(endpoint), here = 'e/' + e
  const of = useData(can('endpoints:read') ? api('serverless/' + e) : null, {steady: true})
  const known = of.data, name = known?.name || endpoint, balances = known?.type === 'LOAD_BALANCER'
  const reads = can(`endpoint:${endpoint}:read`) || s.operator, lists = can('endpoints:read'), managed = !!useData('data/endpoint/' + e, {steady: true}).data?.managed
  useEffect(() => { document.title = `${name} · podyard` }, [name])
  const tabs = [
    {key: '', name: 'Now', show: true}, {key: 'why', name: 'Why jobs wait', show: reads && !balances}, {key: 'jobs', name: 'Jobs', show: reads && !balances},
    {key: 'dead', name: 'Dead letters', show: reads && !balances && has('listDeadLetters')}, {key: 'schedules', name: 'Schedules', show: reads && !balances && has('listSchedules')}, {key: 'webhooks', name: 'Webhooks', show: lists && !balances && has('listWebhooks')}, {key: 'batches', name: 'Batches', show: reads && !balances && has('listBatches')},
    {key: 'workers', name: 'Workers', show: managed}, {key: 'scaling', name: 'Scaling', show: managed}, {key: 'queue', name: 'Queue', show: managed && !balances && has('getEndpointQueue')},
  ].filter(t => t.show).map(t => ({...t, to: here + (t.key ? '/' + t.key : ''), here: t.key === tab}))
  const pages = {
    '': () => html`<${Now} endpoint=${endpoint} known=${known} managed=${managed} reload=${of.reload} />`, why: () => html`<${Why} endpoint=${endpoint} />`, jobs: () => html`<${Jobs} endpoint=${endpoint} />`,
    dead: () => html`<${Dead} endpoint=${endpoint} open=${rest[0]} />`, schedules: () => html`<${Schedules} endpoint=${endpoint} open=${rest[0]} />`, batches: () => html`<${Batches} endpoint=${endpoint} open=${rest[0]} />`, webhooks: () => html`<${EndpointWebhooks} endpoint=${endpoint} />`,
    workers: () => html`<${Workers} endpoint=${endpoint} open=${rest[0]} />`, scaling: () => html`<${Scaling} endpoint=${endpoint} />`, queue: () => html`<${Queue} endpoint=${endpoint} />`,
  }
  return html`<nav aria-label="Path" class="path"><${Link} to="">endpoints<//></nav><h1 class="wide">${name} ${name === endpoint ? null : html`<small class="muted">${endpoint}</small>`}</h1>
    ${of.error?.status === 404 ? html`<${Empty} title="There is no such endpoint, or it is not yours."><${Link} to="">Go to the endpoints<//><//>` : html`<${Tabs} label="Of the endpoint" list=${tabs} />${(pages[tab] || pages[''])()}`}`
}

function Now({endpoint, known, managed, reload}) {
  const h = useSignal(health), e = id(endpoint), here = 'e/' + e, run = can(`endpoint:${endpoint}:run`)
  const past = useData('data/history/' + e, {every: 10000}), d = past.data
  const now = h?.endpoint === endpoint ? h : null, last = d?.queued.length ? d : null
  const waits = now?.jobs.inQueue > 0, balances = known?.type === 'LOAD_BALANCER'
  return html`${waits && can(`endpoint:${endpoint}:read`) ? html`<${Reason} endpoint=${endpoint} />` : null}
    <dl class="tiles">${balances ? html`<${Tile} name="Requests in progress" value=${num(now?.jobs.inProgress)} />` : html`<${Tile} name="Waiting" value=${num(now?.jobs.inQueue)} to=${here + '/jobs?status=IN_QUEUE'} /><${Tile} name="Running" value=${num(now?.jobs.inProgress)} to=${here + '/jobs?status=IN_PROGRESS'} />
    <${Tile} name="Completed" value=${num(now?.jobs.completed)} to=${here + '/jobs?status=COMPLETED'} /><${Tile} name="Failed" value=${num(now?.jobs.failed)} bad=${now?.jobs.failed > 0} to=${here + '/jobs?status=FAILED,TIMED_OUT'} /><${Tile} name="Queued again" value=${num(now?.jobs.retried)} note="lost with a worker" />`}
    <${Tile} name="Workers" value=${now ? num(now.workers.running + now.workers.idle + now.workers.initializing) : '–'} note=${now ? inWords(now.workers) : ''} /></dl>
    ${last ? html`<div class="two">${[...charts(d).slice(balances ? 3 : 0), ...d.latency && !balances ? latencies(d.latency) : []].map(([title, unit, series, every = d.every]) => html`<${Chart} title=${title} unit=${unit} every=${every} series=${series} />`)}</div>` : html`<p class="muted">${past.error ? past.error.message : 'There is no history yet: the server records it from its start on.'}</p>`}
    <div class="two">${can(`endpoint:${endpoint}:read`) && (known || !can('endpoints:read')) && !balances ? html`<${Speed} endpoint=${endpoint} cold=${d?.coldStarts} />` : null}${known ? html`<${Settings} known=${known} />` : null}</div>
    <div class="two">${known?.image && managed && can('endpoints:write') ? html`<${Scale} known=${known} reload=${reload} />` : null}
    ${run && !balances ? html`<section aria-labelledby="purge"><h2 id="purge">Empty the queue</h2><p class="muted">Cancels the jobs that wait: all of your own endpoint, your own jobs on a shared one.</p><${Sure} title="Empty the queue?" word=${endpoint} text="The jobs that wait are cancelled. Jobs that run go on." yes="Cancel the waiting jobs" run=${async () => `${count((await change('POST', api(e + '/purge-queue'))).removed, 'job was', 'jobs were')} cancelled.`}>Empty the queue…<//></section>` : null}</div>
    ${known ? html`<${Releases} e=${e} />` : null}`
}

// charts are what is drawn of the last hour, as [title, unit, series].
const charts = d => [
  ['Jobs that ended in a minute', '', [{name: 'completed', values: perMinute(d.completed, d.every)}, {name: 'failed', kind: 'bad', values: perMinute(d.failed, d.every)}]],
  ['Jobs that wait', '', [{values: d.queued}]], ['Oldest job waits', ' s', [{values: d.oldest}]], ['Jobs that run, and workers', '', [{name: 'jobs', values: d.running}, {name: 'workers', values: d.workers}]],
]
// latencies are the percentiles of each minute, in milliseconds or, where they are long, in seconds.
const latencies = ({every, waited, ran}) => [['How long jobs waited', waited], ['How long jobs ran', ran]].map(([title, of]) => {
  const long = Math.max(...of.p90) >= 20000, values = list => list.map(v => v === null || !long ? v : Math.round(v / 1000))
  return [title, long ? ' s' : ' ms', [{name: 'P50', values: values(of.p50)}, {name: 'P90', values: values(of.p90)}], every]
})
// perMinute is how many were counted in the minute before each sample, of totals.
const perMinute = (totals, every) => totals.map((n, i) => Math.max(0, n - totals[Math.max(0, i - Math.round(60 / every))]))

function Reason({endpoint}) {
  const of = useData('data/waiting/' + id(endpoint), {every: 3000})
  if (!of.data?.oldest) return null
  const j = of.data.oldest
  return html`<section class="why" aria-labelledby="why"><h2 id="why">Why the oldest job waits</h2><p>${sentence(of.data.why)}</p><p><${Link} to=${`e/${id(endpoint)}/why`}>More<//> · <${Link} to=${`e/${id(endpoint)}/jobs/${id(j.id)}`}>The job<//></p></section>`
}

function Speed({endpoint, cold}) {
  const of = useData(api(`${id(endpoint)}/requests?status=COMPLETED&limit=100`))
  const list = of.data?.requests || []
  const at = (name, p) => { const v = list.map(j => j[name]).sort((a, b) => a - b); return v.length ? duration(v[Math.min(v.length - 1, Math.floor(v.length * p))]) : '–' }
  return html`<section aria-labelledby="speed"><h2 id="speed">How long jobs take</h2><div class="grid"><table><caption class="vh">Percentiles of the last jobs that completed</caption><thead><tr><th scope="col">Time</th><th scope="col" class="num">P50</th><th scope="col" class="num">P90</th><th scope="col" class="num">P98</th></tr></thead><tbody>
    ${[['Waited', 'delayTime'], ['Ran', 'executionTime']].map(([name, of]) => html`<tr><th scope="row">${name}</th>${[.5, .9, .98].map(p => html`<td class="num">${at(of, p)}</td>`)}</tr>`)}</tbody></table></div><p class="muted">${list.length ? `Of the last ${count(list.length, 'job')} that completed and are still kept.` : 'No completed job is kept at this moment.'}</p>${cold ? html`<${ColdStarts} of=${cold} />` : null}</section>`
}

// ColdStarts says how long workers take from the decision to start one to its first request for a job.
const ColdStarts = ({of: c}) => html`<h3>Cold starts</h3><${Facts} of=${[['In the last hour', c.lastHour === c.most ? `${num(c.most)} or more` : num(c.lastHour)], ['P50', duration(c.p50)], ['P90', duration(c.p90)], ['Last', html`<${Ago} at=${c.last} />`]]} /><p class="muted">From the decision to start a worker to its first request for a job, of the last ${count(c.known, 'start')}.</p>`

const Settings = ({known: k}) => html`<section aria-labelledby="settings"><h2 id="settings">Settings</h2><${Facts} of=${[
  ['Type', k.type === 'LOAD_BALANCER' ? 'load balancer' : 'queue'], ['Image', html`<code>${k.image || 'a function of the server'}</code>`], k.image ? ['Workers', `${k.workers.min} to ${k.workers.max}${k.workers.idleTimeout ? `, end after ${k.workers.idleTimeout} s without a job` : ''}`] : ['Workers', 'started by others'],
  !k.image ? null : ['Scaling', k.scaling.type === 'QUEUE_DELAY' ? `when a job waits ${k.scaling.queueDelay} s` : `one for ${count(k.scaling.requestCount, 'request')}`], ['Execution timeout', duration(k.timeout)], k.gpu ? ['GPU', `${k.gpu.count} × ${k.gpu.pools.join(', ')}`] : null, k.cpu?.length ? ['CPU', k.cpu.map(c => `${c.id}, ${c.vcpuCount} vCPUs`).join('; ')] : null, ['Created', html`<${Ago} at=${k.createdAt} />`]]} /><${Copy} label="Copy a request as curl" text=${`curl -H "Authorization: Bearer $KEY" -d '{"input":{}}' '${k.requestUrls.run || k.requestUrls.base}'`} /></section>`

function Scale({known: k, reload}) {
  const [min, setMin] = useState(k.workers.min), [max, setMax] = useState(k.workers.max), [error, fail] = useState(null)
  const submit = async e => {
    e.preventDefault()
    fail(null)
    try { await change('PATCH', api('serverless/' + id(k.id)), {workers: {...k.workers, min: Number(min), max: Number(max)}}); reload(); say('The workers were changed.') } catch (x) { fail(x) }
  }
  return html`<section aria-labelledby="scale"><h2 id="scale">Workers</h2><form class="bar" onSubmit=${submit}><label>At least<input type="number" min="0" max="1000" value=${min} onInput=${e => setMin(e.target.value)} /></label><label>At most<input type="number" min="0" max="1000" value=${max} onInput=${e => setMax(e.target.value)} /></label><button>Change</button></form><${Failure} error=${error} /><p class="muted">At most 0 pauses the endpoint: no worker is started.</p></section>`
}

function Releases({e}) {
  const of = useData(api(`serverless/${e}/releases`), {steady: true})
  const list = of.data?.releases || []
  if (!list.length) return null
  return html`<section aria-labelledby="releases"><h2 id="releases">Releases</h2>${of.data.rollout?.inProgress ? html`<p><${Status} of="IN_PROGRESS" text=${`${of.data.rollout.workersOnLatest} of ${of.data.rollout.workersTotal} workers have the newest release`} /></p>` : null}<${Table} caption="Releases" rows=${list} rowKey=${r => r.id} columns=${[{title: 'Version', cell: r => r.version}, {title: 'Made', cell: r => html`<${Ago} at=${r.createdAt} />`}, {title: 'By', cell: r => r.createdByUserId || '–'}, {title: 'Workers', num: true, cell: r => num(r.workerCount)}, {title: 'Changed', cell: r => r.diff.map(d => d.field).join(', ') || '–'}]} /></section>`
}

// Why is the page that says what jobs wait for.
function Why({endpoint}) {
  const s = useSignal(session), e = id(endpoint), here = 'e/' + e
  const of = useData(`data/waiting/${e}${s.operator ? '?owner=*' : ''}`, {every: 2000})
  return html`<${Loaded} of=${of}>${d => {
    const j = d.oldest?.item || d.oldest, h = d.health, q = d.queue, k = d.endpoint
    const list = changes(d, here)
    return html`<section class="why" aria-labelledby="why"><h2 id="why">${j ? 'Why the oldest job waits' : 'No job waits'}</h2>
      ${j ? html`<p class="big">${sentence(d.why) || 'The server does not say.'}</p><p><${Link} to=${`${here}/jobs/${id(j.id)}`}><code>${j.id}</code><//>${d.oldest.owner ? ` of ${d.oldest.owner}` : ''}, the ${d.waiting === 1 ? 'only job that waits' : `oldest of ${num(d.waiting)} jobs that wait`}${s.operator ? '' : ' and ' + (d.waiting === 1 ? 'is' : 'are') + ' yours'}.</p>` : html`<p>${s.operator ? 'The queue is empty.' : h.jobs.inQueue ? `None of your jobs wait. ${count(h.jobs.inQueue, 'job')} of others ${h.jobs.inQueue === 1 ? 'does' : 'do'}.` : 'The queue is empty.'}</p>`}</section>
      ${j && list.length ? html`<section aria-labelledby="change"><h2 id="change">What would change it</h2><ul>${list.map(x => html`<li>${x.text}${x.to ? html` <${Link} to=${x.to}>${x.link}<//>` : null}</li>`)}</ul></section>` : null}
      <div class="two"><section aria-labelledby="wq"><h2 id="wq">Queue</h2><${Facts} of=${[['Waiting', num(h.jobs.inQueue)], q ? ['Could start now', num(q.ready)] : null, q ? ['Held by the settings of the queue', num(q.blocked)] : null, q ? ['Not due yet', num(q.delayed)] : null, ['Running', num(h.jobs.inProgress)], q ? ['Queue', q.paused ? html`<${Status} of="cordoned" text="paused" />` : html`<${Status} of="RUNNING" text="open" />`] : null]} /></section>
      <section aria-labelledby="ww"><h2 id="ww">Workers</h2><${Facts} of=${[['Now', inWords(h.workers)], k?.image ? ['Allowed', `${k.workers.min} to ${k.workers.max}`] : null, d.decisions?.decisions.length ? ['Last decision', html`${sentence(d.decisions.decisions[0].reason)} <small class="muted"><${Ago} at=${d.decisions.decisions[0].at} /></small>`] : null, d.decisions?.decisions[0]?.next ? ['Next look', html`<${Ago} at=${d.decisions.decisions[0].next} />`] : null]} />
      ${d.workers?.workers.length ? html`<ul class="short">${d.workers.workers.slice(0, 10).map(w => html`<li><code>${w.id}</code> <${Status} of=${w.status} />${d.workers.more[w.id]?.reason ? html` <span class="muted">${d.workers.more[w.id].reason}</span>` : null}</li>`)}</ul>` : null}</section></div>
      ${s.operator && d.waiting ? html`<${Waiters} endpoint=${endpoint} />` : null}`
  }}<//>`
}

// changes are what the user, or somebody, can do about it.
function changes(d, here) {
  const list = [], w = d.health.workers, present = w.running + w.idle + w.initializing, max = d.endpoint?.workers.max
  const add = (text, to, link) => list.push({text, to, link})
  if (d.queue?.paused) add('The queue is paused. Open it again.', here + '/queue', 'Queue settings')
  const by = d.queue ? holders(d.queue) : []
  if (d.queue?.blocked && !d.queue.paused && by.length) add(`${count(d.queue.blocked, 'job is', 'jobs are')} held by the limits and rates of the queue (${by.join('; ')}). Raise one, or wait: a limit lets a job go when another ends, and a rate as time goes by.`, here + '/queue', 'Queue settings')
  if (d.queue?.delayed) add(`${count(d.queue.delayed, 'job is', 'jobs are')} not due yet. "Start now" makes delayed jobs ready.`, here + '/jobs?status=IN_QUEUE', 'Jobs')
  if (max === 0 && d.endpoint.image) add('The endpoint may have no workers. Allow one.', here, 'Workers')
  else if (max && present >= max) add(`All ${count(max, 'worker')} that the endpoint may have are there. Allow more, or wait until one is free.`, here, 'Workers')
  if (w.throttled) add('No host has room for another worker. Free compute, or wait until something ends.', session.value.operator ? 'hosts' : can('pods:read') ? 'pods' : null, session.value.operator ? 'Who has what' : 'Pods')
  if (w.unhealthy) add('A worker is not healthy. Its log says more.', here + '/workers', 'Workers')
  if (w.initializing) add(`${count(w.initializing, 'worker starts', 'workers start')}. Nothing has to be done.`)
  if (!present && !w.throttled && d.endpoint && !d.endpoint.image) add('The service starts no workers for this endpoint. Start one: a function of a Go program, or a process with the SDK.')
  return list
}

function Waiters({endpoint}) {
  const of = useData(api(`${id(endpoint)}/requests?status=IN_QUEUE&limit=100&owner=*`), {every: 10000})
  const by = {}
  for (const j of of.data?.requests || []) by[j.owner] = (by[j.owner] || 0) + 1
  const rows = Object.entries(by).sort((a, b) => b[1] - a[1])
  return rows.length ? html`<section aria-labelledby="who"><h2 id="who">Who waits</h2><${Table} caption="Who waits" rows=${rows} rowKey=${r => r[0]} columns=${[{title: 'User', cell: r => r[0]}, {title: 'Of the newest 100 that wait', num: true, cell: r => num(r[1])}]} /></section>` : null
}

function Workers({endpoint, open}) {
  const e = id(endpoint), of = useData('data/workers/' + e, {every: 3000}), stops = can('endpoints:write') && has('stopWorker')
  const stop = w => async () => { await change('DELETE', api(`serverless/${e}/workers/${id(w.id)}`)); of.reload(); return `${w.id} ends when it has no job.` }
  return html`<section aria-labelledby="workers"><h2 id="workers">Workers</h2><${Loaded} of=${of}>${d => html`<${Table} caption="Workers" rows=${d.workers} rowKey=${w => w.id} columns=${[
    {title: 'Worker', cell: w => html`<${Link} to=${`e/${e}/workers/${id(w.id)}`}><code>${w.id}</code><//>`}, {title: 'Status', cell: w => html`<${Status} of=${w.status} />`}, {title: 'Reason', cell: w => html`<span class="clip" title=${d.more[w.id]?.reason}>${d.more[w.id]?.reason || ''}</span>`},
    {title: 'Jobs', cell: w => { const jobs = d.more[w.id]?.jobs || []; return jobs.length === 1 ? html`<${Link} to=${`e/${e}/jobs/${id(jobs[0])}`}><code>${jobs[0]}</code><//>` : num(jobs.length) }},
    stops ? {title: 'Do', cell: w => w.image ? html`<${Sure} title="Stop this worker?" text="It gets no more jobs, and ends when it has none. Another one is started if one is needed. To end a job now, cancel the job." yes="Stop the worker" run=${stop(w)}>Stop…<//>` : '–'} : null,
    {title: 'Release', cell: w => w.version === null ? '–' : `${w.version}${w.isStale ? ', older' : ''}`},
    {title: 'GPU', cell: w => w.gpuCount ? `${w.gpuCount} × ${w.gpuTypeId}` : '–'}, {title: 'Data center', cell: w => w.dataCenterId || '–'}, {title: 'Up', num: true, cell: w => w.uptimeSeconds === null ? '–' : duration(w.uptimeSeconds * 1000)}, {title: 'Image', cell: w => w.image ? html`<code>${w.image}</code>` : 'in the server, or started by others'},
  ].filter(Boolean)} empty=${html`<${Empty} title="There are no workers.">A worker is started when a job waits, if the endpoint has an image.<//>`} />`}<//></section>
  ${open ? html`<${Log} title=${'Log of ' + open} path=${api(`serverless/${e}/workers/${id(open)}/logs`)} />` : null}`
}

// Scaling has the decisions of the scaler; those that follow each other with one reason are one
// row.
function Scaling({endpoint}) {
  const of = useData(api(`serverless/${id(endpoint)}/decisions`), {every: 3000})
  return html`<section aria-labelledby="scaling"><h2 id="scaling">Decisions of the scaler</h2><${Loaded} of=${of}>${d => {
    const rows = []
    for (const x of d.decisions) { const l = rows.at(-1); if (l && l.reason === x.reason && l.want === x.want) { l.times++; l.start += x.start; l.stop = l.stop.concat(x.stop); l.drain = l.drain.concat(x.drain); l.first = x.at } else rows.push({...x, times: 1, first: x.at}) }
    return html`<${Table} caption="Decisions" rows=${rows} rowKey=${r => r.at + r.reason} columns=${[
      {title: 'When', cell: r => html`<${Ago} at=${r.at} />${r.times > 1 ? html` <span class="badge">${r.times}×</span>` : null}`}, {title: 'Wanted', num: true, cell: r => num(r.want)}, {title: 'Started', num: true, cell: r => num(r.start)}, {title: 'Stopped', num: true, cell: r => num(r.stop.length)}, {title: 'Draining', num: true, cell: r => num(r.drain.length)}, {title: 'Reason', cell: r => html`<span class="long">${r.reason}</span>`}, {title: 'Next look', cell: r => r.next ? html`<${Ago} at=${r.next} />` : '–'},
    ]} empty=${html`<${Empty} title="The scaler has decided nothing yet.">It manages endpoints that have an image.<//>`} />`
  }}<//></section>`
}

const limits = [['total', 'Jobs that run at once, of all users'], ['perUser', 'Jobs that run at once, of one user'], ['perKey', 'Jobs that run at once, of one key']]
const rates = [['rate', 'Jobs that start, of all users'], ['perUserRate', 'Jobs that start, of one user'], ['perKeyRate', 'Jobs that start, of one key']]
const rateText = r => `${count(r.limit, 'start')} in ${duration(r.per).replace(/ 0 (s|min|h)$/, '')}`

// holders are the settings of a queue that can hold jobs, in words.
function holders(q) {
  const own = Object.keys(q.keys).length
  return [...limits.filter(([name]) => q[name] !== null).map(([name]) => `${name}: ${num(q[name])} at once`), ...rates.filter(([name]) => q[name]).map(([name]) => `${name}: ${rateText(q[name])}`), own ? `keys: ${count(own, 'key has', 'keys have')} limits of ${own === 1 ? 'its' : 'their'} own` : null].filter(Boolean)
}

const Rate = ({name, label, of: r, write}) => html`<fieldset><legend>${label} <small class="muted">(${name}; empty: no rate)</small></legend><label class="inline">At most <input type="number" name=${name + '.limit'} min="1" max="1000000" defaultValue=${r?.limit ?? ''} disabled=${!write} /></label><label class="inline">in seconds <input type="number" name=${name + '.per'} min="1" max="2592000" step="any" defaultValue=${r ? r.per / 1000 : 60} disabled=${!write} /></label></fieldset>`
const rateOf = (f, name) => f[name + '.limit'].value === '' ? null : {limit: Number(f[name + '.limit'].value), per: Math.round(Number(f[name + '.per'].value) * 1000)}

// Keys are the limits of single keys.
function Keys({q, put, write}) {
  const [error, fail] = useState(null), rows = Object.entries(q.keys).map(([name, rule]) => ({name, ...rule}))
  const submit = async e => {
    e.preventDefault()
    fail(null)
    const form = e.target, f = form.elements, name = f.key.value, rule = {perKey: f.perKey.value === '' ? null : Number(f.perKey.value), rate: rateOf(f, 'keys')}
    if (rule.perKey === null && !rule.rate) { fail(new Error('Give the key a limit, a rate or both.')); return }
    try { await put({keys: {[name]: rule}}); form.reset(); say(`The limits of the key ${name} were set.`) } catch (x) { fail(x) }
  }
  return html`<h3>Limits of single keys</h3><${Table} caption="Limits of single keys" rows=${rows} rowKey=${r => r.name} columns=${[
    {title: 'Key', cell: r => html`<code>${r.name}</code>`}, {title: 'At once', num: true, cell: r => num(r.perKey)}, {title: 'Rate', cell: r => r.rate ? rateText(r.rate) : '–'},
    write ? {title: 'Do', cell: r => html`<span class="acts"><${Sure} title="Remove these limits?" text=${`The key ${r.name} then has those of all keys.`} yes="Remove" run=${async () => { await put({keys: {[r.name]: null}}); return 'The limits were removed.' }}>Remove…<//></span>`} : null,
  ].filter(Boolean)} empty=${html`<p class="muted">All keys have the limits above.</p>`} />
  ${write ? html`<form class="form" onSubmit=${submit}><label>Key <small class="muted">(of each user; its limits replace those of all keys)</small><input name="key" required autocomplete="off" spellcheck=${false} /></label><label>Jobs of it that run at once <small class="muted">(empty: no limit)</small><input type="number" name="perKey" min="1" /></label><${Rate} name="keys" label="Jobs of it that start" write /><${Failure} error=${error} /><button>Set</button></form>` : null}`
}

function Queue({endpoint}) {
  const path = api(`serverless/${id(endpoint)}/queue`), of = useData(path, {every: 5000}), [error, fail] = useState(null)
  const put = async body => { await change('PATCH', path, body); of.reload() }
  const submit = async e => {
    e.preventDefault()
    fail(null)
    const f = e.target.elements, body = {}
    for (const [name] of limits) body[name] = f[name].value === '' ? null : Number(f[name].value)
    for (const [name] of rates) body[name] = rateOf(f, name)
    body.ageing = Math.round(Number(f.ageing.value) * 1000)
    body.deadLetter = f.deadLetter.value === '' ? null : Math.round(Number(f.deadLetter.value) * 3600000)
    try { await put(body); say('The queue was changed.') } catch (x) { fail(x) }
  }
  const write = can('endpoints:write')
  return html`<section aria-labelledby="queue"><h2 id="queue">Settings of the queue</h2><${Loaded} of=${of}>${q => html`<dl class="tiles"><${Tile} name="Could start now" value=${num(q.ready)} /><${Tile} name="Not due yet" value=${num(q.delayed)} /><${Tile} name="Held by the settings" value=${num(q.blocked)} note=${holders(q).join('; ')} bad=${q.blocked > 0} /></dl>
    <div class="bar">${q.paused ? html`<${Status} of="cordoned" text="The queue is paused: jobs are taken in and none is started." />` : html`<${Status} of="RUNNING" text="The queue is open." />`}
    ${write ? q.paused ? html`<${Act} run=${async () => { await put({paused: false}); return 'The queue is open.' }}>Open the queue<//>` : html`<${Sure} title="Pause the queue?" text="Jobs are still taken in, and none is started. Jobs that run go on." yes="Pause the queue" run=${async () => { await put({paused: true}); return 'The queue is paused.' }}>Pause the queue…<//>` : null}</div>
    <form class="form" onSubmit=${submit} key=${JSON.stringify([q.total, q.perUser, q.perKey, q.ageing, q.deadLetter, q.rate, q.perUserRate, q.perKeyRate])}>${limits.map(([name, label]) => html`<label>${label} <small class="muted">(${name}; empty: no limit)</small><input type="number" name=${name} min="1" defaultValue=${q[name] ?? ''} disabled=${!write} /></label>`)}
    ${rates.map(([name, label]) => html`<${Rate} name=${name} label=${label} of=${q[name]} write=${write} />`)}
    <label>Ageing in seconds <small class="muted">(a job that waits so long rises by one priority)</small><input type="number" name="ageing" min="0" step="any" defaultValue=${q.ageing / 1000} disabled=${!write} /></label>
    <label>Dead letters are kept for hours <small class="muted">(empty: none are kept)</small><input type="number" name="deadLetter" min="0" step="any" defaultValue=${q.deadLetter ? q.deadLetter / 3600000 : ''} disabled=${!write} /></label>
    <${Failure} error=${error} />${write ? html`<button class="primary">Change</button>` : null}</form>
    <${Keys} q=${q} put=${put} write=${write} />
    ${q.retry ? html`<h3>Retries</h3><${Facts} of=${[['Attempts', q.retry.attempts], ['First delay', duration(q.retry.delay)], ['Factor', q.retry.factor], ['Longest delay', duration(q.retry.maxDelay)], ['Of timeouts too', q.retry.timeouts ? 'yes' : 'no']]} />` : html`<p class="muted">Jobs that fail are not retried unless they ask for it.</p>`}`}<//></section>`
}
