// Webhooks: what became of them, over all endpoints or of one.
import {html, useState, useEffect, useRef, useSignal, session, place, go, useData, Link, id, api, can, get, change, patiently, num, count, say} from './lib.mjs'
import {Status, Ago, Empty, Failure, Loaded, Loading, Table, Tile, Act, Dialog} from './ui.mjs'
import {sent} from './job.mjs'

const states = ['pending', 'delivered', 'failed'], kinds = {pending: 'IN_QUEUE', delivered: 'COMPLETED', failed: 'FAILED'}
const sends = () => can('endpoints:write')
const again = h => patiently(() => change('POST', api(`serverless/${id(h.endpoint)}/deliveries/${id(h.job)}/redeliver`)))

export function Webhooks() {
  const {query} = useSignal(place), state = states.includes(query.get('state')) ? query.get('state') : ''
  const of = useData('data/webhooks' + (state ? '?state=' + state : ''), {steady: true, every: 15000})
  useEffect(() => { document.title = 'Webhooks · podyard' }, [])
  return html`<h1>Webhooks</h1><${Loaded} of=${of}>${d => html`
    ${d.outbox ? html`<dl class="tiles"><${Tile} name="Waiting to be sent" value=${num(d.outbox.pending)} /><${Tile} name="The oldest is due" value=${html`<${Ago} at=${d.outbox.oldest} />`} bad=${d.outbox.oldest && Date.now() - Date.parse(d.outbox.oldest) > 900000} /></dl>` : null}
    <${List} rows=${d.webhooks} state=${state} to="webhooks" everywhere more=${d.more ? html`<p class="muted">There are more, or older ones. The page of an endpoint has all of its own.</p>` : null} reload=${of.reload} />`}<//>`
}

export function EndpointWebhooks({endpoint}) {
  const {query} = useSignal(place), s = useSignal(session), state = states.includes(query.get('state')) ? query.get('state') : ''
  const [list, set] = useState(null), [cursor, setCursor] = useState(null), [error, fail] = useState(null)
  const load = async from => {
    const q = new URLSearchParams({limit: 200})
    if (state) q.set('state', state)
    if (s.operator) q.set('owner', '*')
    if (from) q.set('cursor', from)
    try {
      const r = await get(api(`serverless/${id(endpoint)}/deliveries?${q}`)), rows = r.webhooks.map(h => ({...(h.item || h), owner: h.owner, endpoint}))
      set(l => from ? [...l, ...rows] : rows)
      setCursor(r.cursor)
      fail(null)
    } catch (e) { fail(e) }
  }
  useEffect(() => { set(null); load() }, [endpoint, state])
  return html`<section aria-labelledby="hooks"><div class="bar"><h2 id="hooks">Webhooks</h2><button type="button" onClick=${() => load()}>Look again</button></div><${Failure} error=${error} retry=${() => load()} />
    ${list ? html`<${List} rows=${list} state=${state} to=${`e/${id(endpoint)}/webhooks`} more=${cursor ? html`<div class="bar"><button type="button" onClick=${() => load(cursor)}>Older ones</button></div>` : null} reload=${() => load()} />` : error ? null : html`<${Loading} />`}</section>`
}

function List({rows, state, to, everywhere, more, reload}) {
  const s = useSignal(session), [chosen, choose] = useState(new Set()), [open, set] = useState(false)
  const key = h => h.endpoint + '/' + h.job, toggle = k => choose(c => { const n = new Set(c); if (!n.delete(k)) n.add(k); return n })
  const one = h => async () => { await again(h); reload(); return 'The webhook is sent again.' }
  const picked = chosen.size ? rows.filter(h => chosen.has(key(h))) : rows.filter(h => h.state === 'failed')
  const which = chosen.size ? count(picked.length, 'selected webhook') : `all ${num(picked.length)} that failed`
  return html`<div class="bar"><label class="inline">State <select value=${state} onChange=${e => go(to + (e.target.value ? '?state=' + e.target.value : ''))}><option value="">all</option>${states.map(x => html`<option>${x}</option>`)}</select></label>
    ${sends() ? html`<button type="button" disabled=${!picked.length} onClick=${() => set(true)}>Send again ${which}…</button>` : null}</div>
    <${Table} tall caption="Webhooks" rows=${rows} rowKey=${key} chosen=${chosen} onChoose=${sends() ? toggle : undefined} columns=${[
      {title: 'Job', cell: h => html`<${Link} to=${`e/${id(h.endpoint)}/jobs/${id(h.job)}`}><code>${h.job}</code><//>`}, everywhere ? {title: 'Endpoint', cell: h => html`<${Link} to=${`e/${id(h.endpoint)}/webhooks`}>${h.endpoint}<//>`} : null, s.operator ? {title: 'Owner', cell: h => h.owner} : null,
      {title: 'State', cell: h => html`<${Status} of=${kinds[h.state]} text=${h.state} />`},
      sends() ? {title: 'Do', cell: h => h.state === 'pending' ? '–' : html`<span class="acts"><${Act} run=${one(h)} aria-label=${'Send again: ' + h.job}>Send again<//></span>`} : null,
      {title: 'Attempts', cell: h => h.last ? sent(h.attempts, h.last) : 'None yet.'}, {title: 'Last answer', cell: h => h.last ? h.last.status || 'none' : '–'}, {title: 'Error', cell: h => html`<span class="clip" title=${h.last?.error}>${h.last?.error || ''}</span>`},
      {title: 'Last try', cell: h => html`<${Ago} at=${h.last?.at} />`}, {title: 'Job ended', cell: h => html`<${Ago} at=${h.finishedAt} />`},
    ].filter(Boolean)} empty=${html`<${Empty} title=${state ? 'No webhook has this state.' : 'There are no webhooks.'}>A job that is submitted with <code>webhook</code> has one when it has ended, as long as it is kept.<//>`} />${more}
    ${open ? html`<${Resend} list=${picked} which=${which} onClose=${done => { set(false); if (done) { choose(new Set()); reload() } }} />` : null}`
}

// Resend sends many webhooks again: those of jobs that ended since a time.
function Resend({list, which, onClose}) {
  const [since, setSince] = useState(''), [done, set] = useState(null), [failed, fail] = useState([]), stop = useRef(false)
  const picked = since ? list.filter(h => Date.parse(h.finishedAt) >= Date.parse(since)) : list
  const run = async e => {
    e.preventDefault()
    const bad = []
    for (let i = 0; i < picked.length && !stop.current; i++) {
      set({n: i, of: picked.length})
      try { await again(picked[i]) } catch (x) { bad.push(`${picked[i].job}: ${x.message}`); fail(bad.slice()) }
    }
    set({n: picked.length, of: picked.length, over: true})
  }
  const close = () => { stop.current = true; onClose(!!done) }
  return html`<${Dialog} title=${`Send again ${which}?`} onClose=${close}><form onSubmit=${run}>
    ${done ? html`<p role="status">${done.over ? `${count(picked.length - failed.length, 'webhook is', 'webhooks are')} sent again.` : html`<progress max=${done.of} value=${done.n} aria-label="Progress"></progress> ${num(done.n)} of ${num(done.of)}`}</p>${failed.length ? html`<ul class="short">${failed.slice(0, 20).map(x => html`<li>${x}</li>`)}</ul>` : null}` : html`<label>Of jobs that ended since <small class="muted">(empty: all of them)</small><input type="datetime-local" step="1" value=${since} onInput=${e => setSince(e.target.value)} /></label><p><strong>${count(picked.length, 'webhook')}</strong> will be sent, each with all its attempts.</p>`}
    <div class="bar end">${done ? html`<button type="button" onClick=${done.over ? close : () => { stop.current = true }}>${done.over ? 'Close' : 'Stop'}</button>` : html`<button type="button" onClick=${close}>Keep</button><button class="danger" disabled=${!picked.length}>Send ${count(picked.length, 'webhook')}</button>`}</div></form><//>`
}
