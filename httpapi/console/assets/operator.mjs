// What operators see: hosts, users, and the audit log.
import {html, useState, useEffect, useSignal, session, useData, api, id, change, get, num, count, base} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Act, Sure, Failure} from './ui.mjs'

export function Hosts() {
  const s = useSignal(session), of = useData(api('admin/state'), {every: 5000})
  useEffect(() => { document.title = 'Hosts · podyard' }, [])
  const act = (verb, body, name) => async () => { const r = await change('POST', api('admin/' + verb), body); of.reload(); return `${name} is ${(r.host || r.endpoint || r.server).state}${verb === 'drain' ? ': its workers end after their jobs' : ''}.` }
  const buttons = (what, name, state) => s.readOnly ? '–' : html`<span class="acts">${state === 'active' || state === undefined ? html`<${Sure} kind="" title=${`Cordon ${name}?`} text="Nothing new is started there. What runs goes on." yes="Cordon" run=${act('cordon', {[what]: name}, name)}>Cordon…<//>` : html`<${Act} run=${act('uncordon', {[what]: name}, name)} aria-label=${'Open ' + name}>Open again<//>`}<${Sure} title=${`Drain ${name}?`} text="Nothing new is started there, and its workers end, each after its job." yes="Drain" run=${act('drain', {[what]: name}, name)}>Drain…<//></span>`
  return html`<h1>Hosts and users</h1><${Loaded} of=${of}>${d => html`
    <section aria-labelledby="server"><h2 id="server">Server</h2><${Facts} of=${[['Name', d.server.name], ['Takes new work', d.server.ready ? html`<${Status} of="RUNNING" text="yes" />` : html`<${Status} of="ERROR" text=${'no: ' + d.server.reason} />`], ['Since', html`<${Ago} at=${d.server.since} />`], ['Version', d.server.version]]} /></section>
    <section aria-labelledby="hosts"><h2 id="hosts">Hosts</h2><${Table} caption="Hosts" rows=${d.hosts} rowKey=${h => h.id} columns=${[{title: 'Host', cell: h => h.id}, {title: 'State', cell: h => html`<${Status} of=${h.state} />`}, {title: 'Do', cell: h => buttons('host', h.id, h.state)}, {title: 'Data center', cell: h => h.dataCenterId || '–'}, {title: 'Pods', num: true, cell: h => num(h.pods)}, {title: 'Workers', num: true, cell: h => num(h.workers)}, {title: 'In use', cell: h => html`<span class="uses">${(h.resources || []).map(r => html`<span><meter min="0" max=${Math.max(r.total, 1)} value=${r.reserved} aria-label=${`${r.kind} ${r.id || ''}`}></meter> ${num(r.reserved)} of ${num(r.total)} ${r.kind === 'memory' ? 'GB' : r.kind === 'gpu' ? r.id : 'vCPUs'}</span>`)}</span>`}]} empty=${html`<${Empty} title="There are no hosts.">Workers and pods run elsewhere.<//>`} /></section>
    <section aria-labelledby="eps"><h2 id="eps">Endpoints</h2><${Table} caption="Endpoints" rows=${d.endpoints} rowKey=${e => e.id} columns=${[{title: 'Endpoint', cell: e => e.id}, {title: 'Owner', cell: e => e.owner || html`<span class="muted">shared</span>`}, {title: 'State', cell: e => html`<${Status} of=${e.state} />`}, {title: 'Waiting', num: true, cell: e => num(e.jobs.inQueue)}, {title: 'Running', num: true, cell: e => num(e.jobs.inProgress)}, {title: 'Do', cell: e => buttons('endpoint', e.id, e.state)}]} empty=${html`<${Empty} title="There are no endpoints." />`} /></section>
    <section aria-labelledby="users"><h2 id="users">Users</h2><${Table} caption="Users" rows=${d.users} rowKey=${u => u.name} columns=${[{title: 'User', cell: u => u.name}, {title: 'Pods', num: true, cell: u => num(u.pods)}, {title: 'Endpoints', num: true, cell: u => num(u.endpoints)}, {title: 'Volumes', num: true, cell: u => num(u.volumes)}, {title: 'Keys', num: true, cell: u => num(u.keys)}]} empty=${html`<${Empty} title="Nobody owns anything yet." />`} /></section>`}<//>`
}

export function Audit() {
  const [filter, setFilter] = useState({user: '', operation: ''}), [list, set] = useState(null), [error, fail] = useState(null), [more, setMore] = useState(false)
  useEffect(() => { document.title = 'Audit · podyard' }, [])
  const load = async before => {
    const q = new URLSearchParams({limit: 100})
    for (const k of ['user', 'operation']) if (filter[k]) q.set(k, filter[k])
    if (before) q.set('before', before)
    try { const r = await get(api('admin/audit?' + q)); set(l => before ? [...l, ...r.records] : r.records); setMore(r.records.length === 100); fail(null) } catch (e) { fail(e) }
  }
  useEffect(() => { load() }, [filter])
  const submit = e => { e.preventDefault(); const f = e.target.elements; setFilter({user: f.user.value.trim(), operation: f.operation.value.trim()}) }
  return html`<h1>Audit log</h1><p class="muted">What was changed, and what was refused. Newest first.</p><form class="bar" onSubmit=${submit}><label class="inline">User <input name="user" /></label><label class="inline">Operation <input name="operation" /></label><button>Show</button></form><${Failure} error=${error} retry=${() => load()} />
  ${list ? html`<${Table} tall caption="Audit log" rows=${list} rowKey=${r => r.time} columns=${[{title: 'When', cell: r => html`<${Ago} at=${r.time} />`}, {title: 'What', cell: r => r.kind === 'dropped' ? html`<${Status} of="refusal" text=${`${num(r.dropped)} records were not kept`} />` : html`<${Status} of=${r.kind === 'change' ? r.status >= 500 ? 'FAILED' : 'COMPLETED' : 'refusal'} text=${r.operation || r.kind} />`}, {title: 'User', cell: r => r.user || '–'}, {title: 'Key', cell: r => html`<code>${r.key || '–'}</code>`}, {title: 'Record', cell: r => html`${r.record ? html`<code>${r.record}</code>` : ''}${r.owner ? ` of ${r.owner}` : ''}`}, {title: 'Status', num: true, cell: r => r.status || '–'}, {title: 'From', cell: r => r.source || '–'}, {title: 'Path', cell: r => html`<span class="clip" title=${r.path}>${r.path}</span>`}]} empty=${html`<${Empty} title="No record matches." />`} />${more ? html`<div class="bar"><button type="button" onClick=${() => load(list.at(-1).time)}>Older ones</button></div>` : null}` : null}`
}
