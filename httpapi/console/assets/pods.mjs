// Pods.
import {html, useState, useEffect, useSignal, session, place, useData, Link, id, api, can, change, ask, num, count, duration, usd, go, base} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Act, Sure, Log, Failure} from './ui.mjs'

const compute = p => p.gpu ? `${p.gpu.count ?? 1} × ${p.gpu.id}` : p.cpu ? `${p.cpu.vcpuCount} vCPUs, ${p.cpu.memory ?? '?'} GB` : '–'

export function Pods() {
  const s = useSignal(session), {query} = useSignal(place), of = useData(api('pods' + (s.operator ? '?owner=*' : '')), {every: 5000}), [filter, setFilter] = useState('')
  const status = query.get('status')
  useEffect(() => { document.title = 'Pods · podyard' }, [])
  return html`<h1>Pods</h1><${Loaded} of=${of}>${d => {
    const all = d.pods.map(p => p.item ? {...p.item, owner: p.owner} : p)
    const rows = all.filter(p => (!status || p.status === status) && (!filter || `${p.id} ${p.name} ${p.image} ${p.owner || ''}`.toLowerCase().includes(filter.toLowerCase())))
    const cost = all.reduce((sum, p) => sum + p.cost, 0)
    return html`<div class="bar">${all.length ? html`<label class="inline">Status <select value=${status || ''} onChange=${e => go('pods' + (e.target.value ? '?status=' + e.target.value : ''))}><option value="">all</option>${['PROVISIONING', 'STARTING', 'RUNNING', 'EXITED', 'ERROR'].map(x => html`<option>${x}</option>`)}</select></label><label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label><span class="muted">${usd(cost)} an hour now</span>` : null}</div>
    <${Table} tall caption="Pods" rows=${rows} rowKey=${p => p.id} columns=${[
      {title: 'Pod', cell: p => html`<${Link} to=${'pods/' + id(p.id)}>${p.name || p.id}<//> <small class="muted">${p.id}</small>`}, s.operator ? {title: 'Owner', cell: p => p.owner} : null, {title: 'Status', cell: p => html`<${Status} of=${p.status} />`}, {title: 'Image', cell: p => html`<code>${p.image}</code>`}, {title: 'Compute', cell: compute}, {title: 'Where', cell: p => p.dataCenterId || '–'}, {title: 'USD an hour', num: true, cell: p => usd(p.cost)}, {title: 'Created', cell: p => html`<${Ago} at=${p.createdAt} />`},
    ].filter(Boolean)} empty=${all.length ? html`<${Empty} title="No pod matches." />` : html`<${Empty} title="There are no pods.">Make one with <code>POST /v2/pods</code>.<//>`} />`
  }}<//>`
}

const words = {start: 'Start', stop: 'Stop', restart: 'Restart', reset: 'Reset'}
const asks = {stop: 'Its compute is free then. The container and its disk are kept.', restart: 'The container is made anew on the same host, with an empty disk.', reset: 'The image is pulled again, and the container is made anew with an empty disk.'}

export function Pod({pod}) {
  const of = useData(api('pods/' + id(pod)), {every: 3000})
  useEffect(() => { document.title = `${of.data?.name || pod} · podyard` }, [of.data?.name])
  return html`<nav aria-label="Path" class="path"><${Link} to="pods">pods<//></nav><h1 class="wide">${of.data?.name || pod} <small class="muted">${pod}</small></h1>
  ${of.error?.status === 404 ? html`<${Empty} title=${of.data ? 'The pod was terminated.' : 'There is no such pod, or it is not yours.'}><${Link} to="pods">Go to the pods<//><//>` : html`<${Loaded} of=${of}>${p => html`<${Body} p=${p} reload=${of.reload} />`}<//><${Log} title="Log" path=${api(`pods/${id(pod)}/logs`)} />`}`
}

function Body({p, reload}) {
  const write = can('pods:write'), [shown, show] = useState(false), r = p.runtime
  const act = verb => async () => {
    if (verb === 'reset') await ask(`api/v1/pods/${id(p.id)}/reset`, {method: 'POST'})
    else await change('POST', api(`pods/${id(p.id)}/action`), {action: verb})
    reload()
    return `${words[verb]} was accepted.`
  }
  const actions = [...p.actions.filter(a => a !== 'terminate'), ...(['RUNNING', 'STARTING', 'EXITED', 'ERROR'].includes(p.status) && !p.locked ? ['reset'] : [])]
  const percent = x => x?.util === null || x?.util === undefined ? '–' : `${num(Math.round(x.util))} %`
  return html`<div class="bar"><${Status} of=${p.status} />${p.locked ? html`<span class="badge">locked</span>` : null}
    ${write ? html`${actions.map(a => a === 'start' ? html`<${Act} run=${act(a)}>Start<//>` : html`<${Sure} kind="" title=${`${words[a]} this pod?`} text=${asks[a]} yes=${words[a]} run=${act(a)}>${words[a]}…<//>`)}
    ${p.actions.includes('terminate') ? html`<${Sure} word=${p.id} title="Terminate this pod?" text="The pod and its disk are deleted. Network volumes stay." yes="Terminate" run=${async () => { await change('DELETE', api('pods/' + id(p.id))); go('pods'); return 'The pod was terminated.' }}>Terminate…<//>` : null}` : null}</div>
  ${p.status === 'ERROR' ? html`<section class="why bad"><h2>Why it failed</h2><p>The lines of the source "system" in the log below say why.</p></section>` : null}
  <div class="two"><section aria-labelledby="pod"><h2 id="pod">Pod</h2><${Facts} of=${[['Image', html`<code>${p.image}</code>`], p.args ? ['Arguments', html`<code>${p.args}</code>`] : null, ['Compute', compute(p)], ['Where', p.dataCenterId || 'not placed yet'], ['Disk', `${p.disk} GB`], ['Cost', `${usd(p.cost)} an hour`], ['Created', html`<${Ago} at=${p.createdAt} />`], ['Started', html`<${Ago} at=${p.startedAt} />`], p.template ? ['Template', p.template] : null, p.ssh?.direct ? ['SSH', html`<code>${p.ssh.direct.command}</code>`] : null]} /></section>
  <section aria-labelledby="runtime"><h2 id="runtime">Now</h2>${r ? html`<${Facts} of=${[['Up', duration(r.uptime * 1000)], ['CPU', percent(r.cpu)], ['Memory', percent(r.memory)], ...(r.gpus || []).map((g, i) => [`GPU ${i}`, `${percent(g)}${g.memoryUtil !== undefined ? `, memory ${num(Math.round(g.memoryUtil))} %` : ''}`]), ...(r.ports || []).map(x => [`Port ${x.private}`, !x.ip || !x.public ? 'not known yet' : x.type === 'http' ? html`<a href=${`http://${x.ip.includes(':') ? `[${x.ip}]` : x.ip}:${x.public}/`} rel="noopener noreferrer" target="_blank">${x.ip}:${x.public}</a>` : `${x.ip}:${x.public}/${x.type}`])]} />` : html`<p class="muted">It does not run.</p>`}
  <h3>Environment ${Object.keys(p.env).length ? html`<button type="button" aria-pressed=${shown} onClick=${() => show(!shown)}>${shown ? 'Hide values' : 'Show values'}</button>` : null}</h3>${Object.keys(p.env).length ? html`<${Facts} of=${Object.entries(p.env).map(([k, v]) => [html`<code>${k}</code>`, shown ? html`<code class="break">${v}</code>` : '••••••'])} />` : html`<p class="muted">It has no variables.</p>`}</section></div>`
}
