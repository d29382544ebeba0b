// What operators see: hosts, users, and the audit log.
import {html, useState, useEffect, useSignal, session, useData, api, id, Link, place, go, change, get, num} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Act, Sure, Failure} from './ui.mjs'

const unit = r => r.kind === 'memory' ? 'GB' : r.kind === 'gpu' ? r.id : 'vCPUs'

// mostUsed are the resources of a host, that with the least room first.
const mostUsed = h => (h.resources || []).map(r => ({...r, share: r.total ? r.reserved / r.total : 0})).sort((a, b) => b.share - a.share)
const used = r => `${num(r.reserved)} of ${num(r.total)} ${unit(r)}`
const Uses = ({of: list}) => list.length ? html`<span title=${list.map(used).join('\n')}><meter min="0" max=${Math.max(list[0].total, 1)} value=${list[0].reserved} aria-label=${`${list[0].kind} ${list[0].id || ''}`}></meter> ${used(list[0])}${list.length > 1 ? html` <small class="muted">and ${num(list.length - 1)} more</small>` : null}</span>` : '–'

export function Hosts() {
  const s = useSignal(session), [claims, showClaims] = useState(true), of = useData(api('admin/state' + (claims ? '?claims=true' : '')), {every: 5000})
  useEffect(() => { document.title = 'Hosts · podyard' }, [])
  const act = (verb, body, name) => async () => { const r = await change('POST', api('admin/' + verb), body); of.reload(); return `${name} is ${(r.host || r.endpoint || r.server).state}${verb === 'drain' ? ': its workers end after their jobs' : ''}.` }
  const buttons = (what, name, state) => s.readOnly ? '–' : html`<span class="acts">${state === 'active' || state === undefined ? html`<${Sure} kind="" title=${`Cordon ${name}?`} text="Nothing new is started there. What runs goes on." yes="Cordon" run=${act('cordon', {[what]: name}, name)}>Cordon…<//>` : html`<${Act} run=${act('uncordon', {[what]: name}, name)} aria-label=${'Open ' + name}>Open again<//>`}<${Sure} title=${`Drain ${name}?`} text="Nothing new is started there, and its workers end, each after its job." yes="Drain" run=${act('drain', {[what]: name}, name)}>Drain…<//></span>`
  return html`<h1>Hosts</h1><${Loaded} of=${of}>${d => html`
    <section aria-labelledby="server"><h2 id="server">Server</h2><${Facts} of=${[['Name', d.server.name], ['Takes new work', d.server.ready ? html`<${Status} of="RUNNING" text="yes" />` : html`<${Status} of="ERROR" text=${'no: ' + d.server.reason} />`], ['Since', html`<${Ago} at=${d.server.since} />`], ['Version', d.server.version]]} />${d.servers.length > 1 ? html`<h3>All servers</h3><${Table} caption="Servers" rows=${d.servers} rowKey=${x => x.name} columns=${[{title: 'Server', sort: x => x.name, cell: x => x.name}, {title: 'State', sort: x => x.state, cell: x => html`<${Status} of=${x.state === 'lost' ? 'ERROR' : x.state} text=${x.state} />`}, {title: 'Version', sort: x => x.version, cell: x => x.version || 'an earlier one'}]} />` : null}</section>
    <section aria-labelledby="hosts"><h2 id="hosts">Hosts</h2><${Table} caption="Hosts" rows=${d.hosts} rowKey=${h => h.id} columns=${[{title: 'Host', cell: h => h.id}, {title: 'State', cell: h => html`<${Status} of=${h.state} />`}, {title: 'Most in use', sort: h => mostUsed(h)[0]?.share, cell: h => html`<${Uses} of=${mostUsed(h)} />`}, {title: 'Do', cell: h => buttons('host', h.id, h.state)}, {title: 'Data center', cell: h => h.dataCenterId || '–'}, {title: 'Pods', num: true, cell: h => num(h.pods)}, {title: 'Workers', num: true, cell: h => num(h.workers)}, {title: 'Calls that failed', cell: h => h.runtime ? html`<${Status} of=${h.runtime.failed ? 'THROTTLED' : 'active'} text=${`${num(h.runtime.failed)} of ${num(h.runtime.calls)}`} />` : html`<span class="muted">of another server</span>`}, {title: 'Watch began again', num: true, cell: h => h.runtime ? num(h.runtime.watchRestarts) : '–'}]} empty=${html`<${Empty} title="There are no hosts.">Workers and pods run elsewhere.<//>`} />
      ${d.hosts.filter(h => h.runtime?.lastFailure).map(h => html`<h3>Last failure of ${h.id}</h3><p>The call “${h.runtime.lastFailure.call}” failed <${Ago} at=${h.runtime.lastFailure.at} />:</p><pre class="wrap" tabindex="0">${h.runtime.lastFailure.error}</pre>`)}</section>
    <section aria-labelledby="claims"><div class="bar"><h2 id="claims">Who has what</h2><label class="inline"><input type="checkbox" checked=${claims} onChange=${() => showClaims(!claims)} /> Show</label></div>${claims ? html`<${Table} tall caption="Who has what" rows=${d.hosts.flatMap(h => (h.claims || []).map(c => ({...c, host: h.id})))} rowKey=${c => c.kind + ' ' + c.id} columns=${[{title: 'Who', cell: c => c.kind === 'pod' ? html`<${Link} to=${'pods/' + id(c.id)}>${c.name || c.id}<//> <small class="muted">pod</small>` : c.endpoint ? html`<${Link} to=${`e/${id(c.endpoint)}/workers`}>${c.id}<//> <small class="muted">worker</small>` : html`${c.id} <small class="muted">worker</small>`}, {title: 'User', cell: c => c.owner || html`<span class="muted">shared</span>`}, {title: 'Host', cell: c => c.host}, {title: 'Has', cell: c => c.resources.map(r => `${num(r.reserved)} ${unit(r)}`).join(', ')}, {title: 'Image', cell: c => html`<code class="clip" title=${c.image}>${c.image}</code>`}]} empty=${html`<${Empty} title="No pod and no worker has anything of a host." />`} />` : null}</section>
    <section aria-labelledby="eps"><h2 id="eps">Endpoints</h2><${Table} caption="Endpoints" rows=${d.endpoints} rowKey=${e => e.id} columns=${[{title: 'Endpoint', sort: e => e.name || e.id, cell: e => html`<span class="name" title=${e.name || e.id}><${Link} to=${'e/' + id(e.id)}>${e.name || e.id}<//></span>${e.name && e.name !== e.id ? html` <small class="muted">${e.id}</small>` : null}`}, {title: 'Owner', sort: e => e.owner, cell: e => e.owner || html`<span class="muted">shared</span>`}, {title: 'State', cell: e => html`<${Status} of=${e.paused && e.state === 'active' ? 'cordoned' : e.state} text=${e.paused && e.state === 'active' ? 'paused' : e.state} />`}, {title: 'Waiting', num: true, sort: e => e.jobs.inQueue, cell: e => num(e.jobs.inQueue)}, {title: 'Running', num: true, sort: e => e.jobs.inProgress, cell: e => num(e.jobs.inProgress)}, {title: 'Do', cell: e => buttons('endpoint', e.id, e.state)}]} empty=${html`<${Empty} title="There are no endpoints." />`} /></section>`}<//>`
}

const auditFilters = ['user', 'operation', 'since', 'before', 'kind']

// local is an instant as a field of a form has it, in the zone of the browser.
const local = text => { const d = new Date(text); return text && !isNaN(d) ? new Date(d - d.getTimezoneOffset() * 60000).toISOString().slice(0, 19) : '' }

export function Audit() {
  const {query} = useSignal(place), of = Object.fromEntries(auditFilters.map(k => [k, query.get(k) || ''])), asked = JSON.stringify(of), [list, set] = useState(null), [error, fail] = useState(null), [more, setMore] = useState(false)
  useEffect(() => { document.title = 'Audit · podyard' }, [])
  const load = async before => {
    const q = new URLSearchParams({limit: 100})
    for (const k of auditFilters) if (of[k]) q.set(k, of[k])
    if (before) q.set('before', before)
    try { const r = await get(api('admin/audit?' + q)); set(l => before ? [...l, ...r.records] : r.records); setMore(r.records.length === 100); fail(null) } catch (e) { fail(e) }
  }
  useEffect(() => { load() }, [asked])
  const submit = e => {
    e.preventDefault()
    const f = e.target.elements, q = new URLSearchParams()
    for (const k of ['user', 'operation']) if (f[k].value.trim()) q.set(k, f[k].value.trim())
    for (const k of ['since', 'before']) if (f[k].value) q.set(k, new Date(f[k].value).toISOString())
    if (f.refused.checked) q.set('kind', 'refusal')
    go('audit' + (q.size ? '?' + q : ''))
  }
  return html`<h1>Audit log</h1><p class="muted">What was changed, and what was refused. Newest first.</p><form class="bar" key=${asked} onSubmit=${submit}><label class="inline">User <input name="user" defaultValue=${of.user} /></label><label class="inline">Operation <input name="operation" defaultValue=${of.operation} /></label><label class="inline">From <input type="datetime-local" step="1" name="since" defaultValue=${local(of.since)} /></label><label class="inline">to <input type="datetime-local" step="1" name="before" defaultValue=${local(of.before)} /></label><label class="inline"><input type="checkbox" name="refused" defaultChecked=${of.kind === 'refusal'} /> Only what was refused</label><button>Show</button></form><${Failure} error=${error} retry=${() => load()} />
  ${list ? html`<${Table} tall caption="Audit log" rows=${list} rowKey=${r => r.time} columns=${[{title: 'When', cell: r => html`<${Ago} at=${r.time} />`}, {title: 'What', cell: r => r.kind === 'dropped' ? html`<${Status} of="refusal" text=${`${num(r.dropped)} records were not kept`} />` : html`<${Status} of=${r.kind === 'change' ? r.status >= 500 ? 'FAILED' : 'COMPLETED' : 'refusal'} text=${r.operation || r.kind} />`}, {title: 'User', cell: r => r.user || '–'}, {title: 'Key', cell: r => html`<code>${r.key || '–'}</code>`}, {title: 'Record', cell: r => html`${r.record ? html`<code>${r.record}</code>` : ''}${r.owner ? ` of ${r.owner}` : ''}`}, {title: 'Status', num: true, cell: r => r.status || '–'}, {title: 'From', cell: r => r.source || '–'}, {title: 'Path', cell: r => html`<span class="clip" title=${r.path}>${r.path}</span>`}]} empty=${html`<${Empty} title="No record matches." />`} />${more ? html`<div class="bar"><button type="button" onClick=${() => load(list.at(-1).time)}>Older ones</button></div>` : null}` : null}`
}
