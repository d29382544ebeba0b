// One job: what it waits for or how it ended, its times, payloads, attempts and webhooks.
import {html, useEffect, useSignal, useData, session, Link, id, api, can, change, base, num, count, duration, moment, zone, errorParts} from './lib.mjs'
import {Status, Ago, Failure, Loaded, Loading, Facts, Payload, Tail, Table, Empty, Act, Sure, Copy, Err} from './ui.mjs'

export function Job({endpoint, job}) {
  const s = useSignal(session), path = `${id(endpoint)}/status/${id(job)}`
  const of = useData(s.details ? `data/job/${id(endpoint)}/${id(job)}` : api(path), {every: 2000})
  useEffect(() => { document.title = `${job} · podyard` }, [job])
  return html`<nav aria-label="Path" class="path"><${Link} to=${'e/' + id(endpoint)}>${endpoint}<//> / <${Link} to=${`e/${id(endpoint)}/jobs`}>jobs<//></nav>
    <h1 class="wide"><code>${job}</code></h1>
    ${of.error?.status === 404 ? html`<${Gone} had=${of.data} />` : html`<${Loaded} of=${of}>${j => html`<${Body} j=${j} endpoint=${endpoint} reload=${of.reload} />`}<//>`}`
}
const Gone = ({had}) => html`<${Empty} title=${had ? 'The job is not kept any more.' : 'There is no such job, or it is not kept any more.'}>A result of <code>run</code> is kept for 30 minutes, one of <code>runsync</code> for 1 to 5 minutes, and no job longer than its ttl. You see your own jobs only.<//>`

const ended = j => ['COMPLETED', 'FAILED', 'CANCELLED', 'TIMED_OUT'].includes(j.status)

function Body({j, endpoint, reload}) {
  const s = useSignal(session), e = id(endpoint), run = can(`endpoint:${endpoint}:run`)
  const hooks = useData(can('endpoints:read') && j.webhook !== false ? api(`serverless/${e}/deliveries/${id(j.id)}`) : null)
  const act = (verb, done) => async () => { const r = await change('POST', api(`${e}/${verb}/${id(j.id)}`)); reload(); return done(r) }
  return html`<div class="bar"><${Status} of=${j.status} />
    ${run && !ended(j) ? html`<${Sure} title="Cancel this job?" text="A worker that has it is told to stop." yes="Cancel the job" run=${act('cancel', r => `The job is ${r.status.toLowerCase().replace('_', ' ')}.`)}>Cancel<//>` : null}
    ${run && (j.status === 'FAILED' || j.status === 'TIMED_OUT') ? html`<${Act} run=${act('retry', () => 'The job is queued again.')}>Retry<//>` : null}
    <${Copy} label="Copy as curl" text=${`curl -H "Authorization: Bearer $KEY" '${location.origin}/v2/${e}/status/${id(j.id)}'`} /></div>
    ${j.status === 'IN_QUEUE' && j.why ? html`<section class="why" aria-labelledby="why"><h2 id="why">Why it waits</h2><p>${sentence(j.why)}</p>${j.attempt ? html`<p>It was ${tries(j)}.</p>` : null}<p><${Link} to=${`e/${e}/why`}>What would change it<//></p></section>` : null}
    ${j.error ? html`<section class="why bad" aria-labelledby="error"><h2 id="error">Why it ${j.status === 'TIMED_OUT' ? 'was ended' : 'failed'}</h2><${Failed} of=${j.error} /></section>` : null}
    ${s.details ? html`<${Times} j=${j} sent=${hooks.data?.deliveries || []} />` : html`<${Facts} of=${[['Waited', duration(j.delayTime)], ['Ran', duration(j.executionTime)], ['Worker', j.workerId || '–']]} />`}
    ${s.details && !j.hidePayloads ? html`<div class="two"><${Payload} title="Input" path=${`data/job/${e}/${id(j.id)}/input`} size=${j.inputBytes} version="" /><${Payload} title=${j.status === 'IN_PROGRESS' ? 'Progress' : 'Output'} path=${`data/job/${e}/${id(j.id)}/output`} size=${j.outputShown ? j.outputBytes : 0} version=${j.status + j.finished + j.retries} /></div>` : s.hidePayloads ? html`<p class="muted">This console does not show payloads.</p>` : null}
    ${s.details && !j.hidePayloads && (j.chunks > 0 || j.status === 'IN_PROGRESS') ? html`<${Tail} key=${j.id} path=${`data/tail/${e}/${id(j.id)}`} />` : null}
    ${j.hidePayloads || s.hidePayloads ? null : html`<${Lines} e=${e} j=${j} />`}
    <${Attempts} e=${e} j=${j} /><${Deliveries} e=${e} j=${j} of=${hooks} />`
}

// Failed shows an error, that of an SDK with its traceback.
function Failed({of}) {
  const {message, trace, text} = errorParts(of)
  return html`<pre class="wrap" tabindex="0">${message}</pre>${trace ? html`<details open><summary>Traceback</summary><pre class="wrap" tabindex="0">${trace}</pre></details>` : null}${text ? html`<details><summary>As the worker has sent it</summary><pre class="wrap" tabindex="0">${text}</pre></details>` : null}`
}

// tries says how often a job was tried that may be tried again.
export function tries(j) {
  if (!(j.attempts > 1)) return null
  if (j.status === 'IN_QUEUE') return j.attempt ? html`<span class="muted">tried ${count(j.attempt, 'time')} of ${j.attempts}, next ${j.delayed ? html`<${Ago} at=${j.queued} />` : 'when a worker is free'}</span>` : null
  return html`<span class="muted">attempt ${Math.min(j.attempt + 1, j.attempts)} of ${j.attempts}</span>`
}
export const sentence = t => t ? t[0].toUpperCase() + t.slice(1) + (/[.!?]$/.test(t) ? '' : '.') : ''

// ends are how a lease ended after which the job was queued again.
const ends = {lost: 'lost by its worker', released: 'handed back', failed: 'attempt failed', timed_out: 'took too long', restarted: 'lost with its server'}

// timeline is what has happened to a job and what will, as [when, what, note].
function timeline(j, sent) {
  const ready = new Set(j.leases.map(l => l.ready)), past = j.leases.flatMap(l => [
    [l.started, 'taken by a worker', l.worker],
    [l.firstChunk, 'first chunk', ''],
    [l.finished, ends[l.end] || l.end, l.worker],
    [l.ready, l.ready > l.finished ? 'ready again' : 'queued again', ''],
  ])
  const hooks = sent.flatMap(d => [
    [d.at, d.status >= 200 && d.status < 300 && !d.error ? 'webhook delivered' : 'webhook not taken', d.error || (d.status ? String(d.status) : 'no answer')],
    d.next && Date.parse(d.next) > Date.now() ? [d.next, 'webhook is sent again', ''] : [],
  ])
  return [
    [j.submitted, 'submitted', j.owner ? `by ${j.owner}` : ''],
    j.queued !== j.submitted && !ready.has(j.queued) ? [j.queued, j.delayed ? 'may start' : 'queued', j.retries ? `retried ${num(j.retries)}×` : ''] : [],
    ...past,
    j.lost && !j.leases.length ? [null, 'lost by a worker', j.lost] : [],
    [j.started, 'taken by a worker', j.worker],
    [j.firstChunk, 'first chunk', j.firstChunk ? `after ${duration(Date.parse(j.firstChunk) - Date.parse(j.started))}` : ''],
    [j.renewed, 'lease renewed', ''],
    [j.leaseUntil, 'lease ends unless the worker pings', ''],
    [j.runUntil, 'execution timeout', ''],
    [j.finished, j.status.toLowerCase().replace('_', ' '), j.status === 'COMPLETED' ? `ran ${duration(j.executionTime)}` : ''],
    ...hooks,
    [ended(j) ? j.keptUntil : j.expires, ended(j) ? 'result is deleted' : 'deleted by its ttl', ''],
  ].filter(([at, what]) => at || what === 'lost by a worker').sort((a, b) => !a[0] || !b[0] ? 0 : Date.parse(a[0]) - Date.parse(b[0]))
}

function Times({j, sent}) {
  const events = timeline(j, sent), forgotten = j.leaseCount - j.leases.length
  return html`<div class="two"><section aria-labelledby="times"><h2 id="times">Timeline</h2><ol class="timeline">${events.map(([at, what, note]) => html`<li class=${at && Date.parse(at) > Date.now() ? 'future' : ''}><strong>${what}</strong> ${note ? html`<span class="note">${note}</span>` : null} <span class="when">${at ? html`<${Ago} at=${at} /> <small class="muted">${moment(at)}</small>` : ''}</span></li>`)}</ol><p class="muted">The clock is that of ${zone}.</p>${forgotten > 0 ? html`<p class="muted">It was queued again ${j.leaseCount > 240 ? 'more than 240 times' : count(j.leaseCount, 'time')}. The last ${num(j.leases.length)} are shown.</p>` : null}</section>
    <section aria-labelledby="facts"><h2 id="facts">Details</h2><${Facts} of=${[['Waited', j.started || j.finished ? duration(j.delayTime) : j.delayed ? 'not due yet' : `${duration(Math.max(0, Date.now() - Date.parse(j.queued)))} so far`], ['Ran', duration(j.finished ? j.executionTime : null)], ['Worker', j.worker || '–'], ['Priority', j.priority + (j.lowPriority ? ', low: no worker is started for it' : '')], j.key ? ['Key', j.key] : null, ['Deliveries', `${j.deliveries} of 3`], j.attempts > 1 ? ['Attempts', tries(j) || `none of ${j.attempts} yet`] : null, j.restarts ? ['Server restarts while it ran', j.restarts] : null, ['Execution timeout', duration(j.executionTimeout)], j.chunks ? ['Stream', `${num(j.chunks)} chunks, ${num(j.chunksRead)} read`] : null, ['Webhook', j.webhook ? 'yes' : 'none']]} /></section></div>`
}

function Attempts({e, j}) {
  const of = useData(api(`${e}/attempts/${id(j.id)}`))
  if (!of.data || of.data.attempts.length < 2 && typeof of.data.attempts[0]?.delay !== 'number') return null
  return html`<section aria-labelledby="attempts"><h2 id="attempts">Attempts</h2><${Table} caption="Attempts" rows=${of.data.attempts} rowKey=${a => a.number} columns=${[
    {title: 'No.', cell: a => a.number}, {title: 'Status', cell: a => html`<${Status} of=${a.status} />`}, {title: 'Worker', cell: a => a.worker}, {title: 'Started', cell: a => html`<${Ago} at=${a.startedAt} />`}, {title: 'Next after', num: true, cell: a => duration(a.delay)}, {title: 'Error', cell: a => html`<${Err} of=${a.error} />`},
  ]} /></section>`
}

// Lines are what the job has printed.
function Lines({e, j}) {
  const of = useData(api(`${e}/log/${id(j.id)}`), {every: j.status === 'IN_PROGRESS' ? 2000 : 0})
  if (!of.data?.lines.length) return null
  const {lines, dropped} = of.data
  return html`<section aria-labelledby="lines"><h2 id="lines">Log</h2>${dropped ? html`<p class="muted">${count(dropped, 'older line')} no longer kept.</p>` : null}<pre class="wrap" tabindex="0">${lines.map(l => `${new Date(l.time).toLocaleTimeString('en-GB')} ${l.level ? l.level + ' ' : ''}${l.message}\n`)}</pre></section>`
}

function Deliveries({e, j, of}) {
  if (!of.data || !j.webhook && !of.data.deliveries.length) return null
  const again = async () => { await change('POST', api(`serverless/${e}/deliveries/${id(j.id)}/redeliver`)); of.reload(); return 'The webhook is sent again.' }
  return html`<section aria-labelledby="webhook"><div class="bar"><h2 id="webhook">Webhook</h2>${ended(j) && can('endpoints:write') ? html`<${Act} run=${again}>Send again<//>` : null}</div>
    ${j.receiver ? html`<p>It goes to <code class="wrap">${j.receiver}</code></p>` : null}
    ${of.data.deliveries.length ? html`<p>${sent(of.data.deliveries.length, of.data.deliveries.at(-1))}</p>` : null}
    <${Table} caption="Attempts to send the webhook" rows=${of.data.deliveries} rowKey=${d => d.id + d.at} columns=${[
      {title: 'At', cell: d => html`<${Ago} at=${d.at} />`}, {title: 'Answer', cell: d => d.status ? html`<${Status} of=${d.status < 300 ? 'COMPLETED' : 'FAILED'} text=${String(d.status)} />` : html`<${Status} of="FAILED" text="none" />`}, {title: 'Error', cell: d => d.error || ''}, {title: 'Next try', cell: d => d.next ? html`<${Ago} at=${d.next} />` : '–'},
    ]} empty=${html`<${Empty} title=${ended(j) ? 'The webhook is on its way.' : 'The webhook is sent when the job has ended.'} />`} /></section>`
}

// sent says what became of a webhook after n attempts, of which last is the last one.
export const sent = (n, last) => html`Tried ${count(n, 'time')}, ${last.next ? Date.parse(last.next) > Date.now() ? html`next <${Ago} at=${last.next} />` : html`due since <${Ago} at=${last.next} />: others to its receiver go first` : last.status >= 200 && last.status < 300 && !last.error ? 'and delivered' : 'and given up'}.`
