// Pods.
import {html, useState, useEffect, useRef, useSignal, session, place, useData, Link, id, api, can, has, change, ask, num, count, duration, usd, go, base, say} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Act, Sure, Log, Failure, Dialog, Spark, New} from './ui.mjs'

const compute = p => p.gpu ? `${p.gpu.count ?? 1} × ${p.gpu.id}` : p.cpu ? `${p.cpu.vcpuCount} vCPUs, ${p.cpu.memory ?? '?'} GB` : '–'

export function Pods() {
  const s = useSignal(session), {query} = useSignal(place), of = useData(api('pods' + (s.operator ? '?owner=*' : '')), {every: 5000}), [filter, setFilter] = useState('')
  const status = query.get('status')
  useEffect(() => { document.title = 'Pods · podyard' }, [])
  const fresh = can('pods:write') && has('createPod') ? html`<${New} title="New pod" operation="createPod" path=${api('pods')} main=${['name', 'image', 'cpu', 'gpu', 'ports', 'env', 'templateId']} yes="Create the pod" done=${p => go('pods/' + id(p.id))}>New pod…<//>` : null
  return html`<div class="bar"><h1>Pods</h1>${fresh}</div><${Loaded} of=${of}>${d => {
    const all = d.pods.map(p => p.item ? {...p.item, owner: p.owner} : p)
    const rows = all.filter(p => (!status || p.status === status) && (!filter || `${p.id} ${p.name} ${p.image} ${p.owner || ''}`.toLowerCase().includes(filter.toLowerCase())))
    const cost = all.reduce((sum, p) => sum + p.cost, 0)
    return html`<div class="bar">${all.length ? html`<label class="inline">Status <select value=${status || ''} onChange=${e => go('pods' + (e.target.value ? '?status=' + e.target.value : ''))}><option value="">all</option>${['PROVISIONING', 'STARTING', 'RUNNING', 'EXITED', 'ERROR'].map(x => html`<option>${x}</option>`)}</select></label><label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label><span class="muted">${usd(cost)} an hour now</span>` : null}</div>
    <${Table} tall caption="Pods" rows=${rows} rowKey=${p => p.id} columns=${[
      {title: 'Pod', sort: p => p.name || p.id, cell: p => html`<${Link} to=${'pods/' + id(p.id)}>${p.name || p.id}<//> <small class="muted">${p.id}</small>`}, s.operator ? {title: 'Owner', sort: p => p.owner, cell: p => p.owner} : null, {title: 'Status', sort: p => p.status, cell: p => html`<${Status} of=${p.status} />`}, {title: 'Image', sort: p => p.image, cell: p => html`<code>${p.image}</code>`}, {title: 'Compute', cell: compute}, {title: 'Where', sort: p => p.dataCenterId, cell: p => p.dataCenterId || '–'}, {title: 'USD an hour', num: true, sort: p => p.cost, cell: p => usd(p.cost)}, {title: 'Created', sort: p => p.createdAt, cell: p => html`<${Ago} at=${p.createdAt} />`},
    ].filter(Boolean)} empty=${all.length ? html`<${Empty} title="No pod matches." />` : html`<${Empty} title="There are no pods.">Make one with <code>POST /v2/pods</code>.<//>`} />`
  }}<//>`
}

const words = {start: 'Start', stop: 'Stop', restart: 'Restart', reset: 'Reset'}
const asks = {stop: 'Its compute is free then. The container and its disk are kept.', restart: 'The container is made anew on the same host, with an empty disk.', reset: 'The image is pulled again, and the container is made anew with an empty disk.'}

export function Pod({pod}) {
  const of = useData(api('pods/' + id(pod)), {every: 3000})
  useEffect(() => { document.title = `${of.data?.name || pod} · podyard` }, [of.data?.name])
  return html`<nav aria-label="Path" class="path"><${Link} to="pods">pods<//></nav><h1 class="wide">${of.data?.name || pod} <small class="muted">${pod}</small></h1>
  ${of.error?.status === 404 ? html`<${Empty} title=${of.data ? 'The pod was terminated.' : 'There is no such pod, or it is not yours.'}><${Link} to="pods">Go to the pods<//><//>` : html`<${Loaded} of=${of}>${p => html`<${Body} p=${p} reload=${of.reload} />${can('pods:write') && has('podTerminal') ? html`<${Shell} p=${p} />` : null}`}<//><${Log} title="Log" path=${api(`pods/${id(pod)}/logs`)} />`}`
}

function Body({p, reload}) {
  const write = can('pods:write'), r = p.runtime
  const act = verb => async () => {
    if (verb === 'reset') await ask(`api/v1/pods/${id(p.id)}/reset`, {method: 'POST'})
    else await change('POST', api(`pods/${id(p.id)}/action`), {action: verb})
    reload()
    return `${words[verb]} was accepted.`
  }
  // What a member of a cluster could do alone, the cluster does or nobody.
  const actions = p.cluster ? [] : [...p.actions.filter(a => a !== 'terminate'), ...(['RUNNING', 'STARTING', 'EXITED', 'ERROR'].includes(p.status) && !p.locked ? ['reset'] : [])]
  const percent = x => x?.util === null || x?.util === undefined ? '–' : `${num(Math.round(x.util))} %`
  return html`<div class="bar"><${Status} of=${p.status} />${p.locked ? html`<span class="badge">locked</span>` : null}${p.cluster ? html`<span>Rank ${num(p.cluster.rank)} of the cluster <${Link} to=${'clusters/' + id(p.cluster.id)}><code>${p.cluster.id}</code><//>, with which it is deleted.</span>` : null}
    ${write ? html`${actions.map(a => a === 'start' ? html`<${Act} run=${act(a)}>Start<//>` : html`<${Sure} kind="" title=${`${words[a]} this pod?`} text=${asks[a]} yes=${words[a]} run=${act(a)}>${words[a]}…<//>`)}
    ${p.actions.includes('terminate') ? html`<${Sure} word=${p.id} title="Terminate this pod?" text="The pod and its disk are deleted. Network volumes stay." yes="Terminate" run=${async () => { await change('DELETE', api('pods/' + id(p.id))); go('pods'); return 'The pod was terminated.' }}>Terminate…<//>` : null}` : null}</div>
  ${p.status !== 'RUNNING' && has('whyPod') ? html`<${Why} p=${p} />` : null}
  <div class="two"><section aria-labelledby="pod"><h2 id="pod">Pod</h2><${Facts} of=${[['Image', html`<code>${p.image}</code>`], p.args ? ['Arguments', html`<code>${p.args}</code>`] : null, ['Compute', compute(p)], ['Where', p.dataCenterId || 'not placed yet'], ['Disk', `${p.disk} GB`], ['Cost', `${usd(p.cost)} an hour`], ['Created', html`<${Ago} at=${p.createdAt} />`], ['Started', html`<${Ago} at=${p.startedAt} />`], p.template ? ['Template', p.template] : null, p.ssh?.direct ? ['SSH', html`<code>${p.ssh.direct.command}</code>`] : null]} /></section>
  <section aria-labelledby="runtime"><h2 id="runtime">Now</h2>${r ? html`<${Facts} of=${[['Up', duration(r.uptime * 1000)], ['CPU', percent(r.cpu)], ['Memory', percent(r.memory)], ...(r.gpus || []).map((g, i) => [`GPU ${i}`, `${percent(g)}${g.memoryUtil !== undefined ? `, memory ${num(Math.round(g.memoryUtil))} %` : ''}`]), ...(r.ports || []).map(x => [`Port ${x.private}`, !x.ip || !x.public ? 'not known yet' : x.type === 'http' ? html`<${Port} p=${p} x=${x} />` : `${x.ip}:${x.public}/${x.type}`])]} />` : html`<p class="muted">It does not run.</p>`}
  <${Load} r=${r} /><${Environment} p=${p} reload=${reload} /></section></div>`
}

// Port links an HTTP port: by its name where names lead to ports, else at its address.
function Port({p, x}) {
  const {podDomain} = session.value, address = `${x.ip.includes(':') ? `[${x.ip}]` : x.ip}:${x.public}`
  const at = podDomain ? `${location.protocol}//${p.id}-${x.private}.${podDomain}${location.port ? ':' + location.port : ''}/` : `http://${address}/`
  return html`<a href=${at} rel="noopener noreferrer" target="_blank">${podDomain ? new URL(at).host : address}</a>`
}

// Shell is a terminal inside the pod. Its module is large, so it comes when somebody opens one.
function Shell({p}) {
  const [round, set] = useState(0), [text, tell] = useState(''), [over, end] = useState(true), last = useRef(0), box = useRef(), close = useRef()
  useEffect(() => {
    if (!round) return
    let stop, left = false
    tell('Connecting…')
    end(false)
    const ended = text => { if (!left) { tell(text); end(true) } }
    const begin = async () => {
      const {open} = await import('./terminal.mjs')
      if (!left) stop = await open(box.current, api(`pods/${id(p.id)}/terminal`), {state: tell, end: ended, leave: () => close.current?.focus()})
      if (left) stop?.()
    }
    begin().catch(e => ended(e.message))
    return () => { left = true; stop?.() }
  }, [round])
  if (!round && p.status !== 'RUNNING') return null
  return html`<section aria-labelledby="terminal"><div class="bar"><h2 id="terminal">Terminal</h2>${round ? html`<span class="muted" role="status">${text}</span>` : null}
    ${!round || over ? html`<button type="button" disabled=${p.status !== 'RUNNING'} onClick=${() => set(++last.current)}>${round ? 'Open again' : 'Open a terminal'}</button>` : null}${round ? html`<button type="button" ref=${close} onClick=${() => set(0)}>Close</button>` : null}</div>
    ${round ? html`<div class="shell" key=${round} ref=${box}></div><p class="muted">All keys go to the program. Ctrl+F6 leaves the terminal.</p>` : html`<p class="muted">A login shell inside the pod, as its user. It ends when you leave this page.</p>`}</section>`
}

const titles = {ERROR: 'Why it failed', EXITED: 'Why it ended'}

// Why says what keeps a pod from running, and what was tried.
function Why({p}) {
  const of = useData(api(`pods/${id(p.id)}/why`), {every: 3000})
  return html`<section class="why ${p.status === 'ERROR' ? 'bad' : ''}" aria-labelledby="why"><h2 id="why">${titles[p.status] || 'Why it does not run yet'}</h2><${Loaded} of=${of}>${d => html`
    <p class="big">${d.why || 'It runs now.'}</p>
    ${d.since ? html`<p>Since <${Ago} at=${d.since} />${d.tries ? html`; tried ${count(d.tries, 'time')}${d.nextTry ? html`, the next try is <${Ago} at=${d.nextTry} />` : ''}` : ''}.</p>` : null}
    ${d.failure ? html`<h3>What its host answered</h3><pre class="wrap" tabindex="0">${d.failure}</pre>` : null}
    ${d.hosts?.length && !titles[p.status] ? html`<${Tried} hosts=${d.hosts} />` : null}`}<//></section>`
}

// Tried shows operators what each host lacks, and first those that could ever take the pod.
function Tried({hosts}) {
  const could = hosts.filter(h => h.kind !== 'unsuitable'), rest = hosts.filter(h => h.kind === 'unsuitable')
  const list = (caption, rows) => html`<${Table} caption=${caption} rows=${rows} rowKey=${h => h.host} columns=${[{title: 'Host', cell: h => h.host}, {title: 'Takes it', cell: h => html`<${Status} of=${h.kind === 'room' ? 'active' : h.kind === 'cordoned' ? 'cordoned' : 'refusal'} text=${h.kind === 'room' ? 'yes' : 'no'} />`}, {title: 'Why', cell: h => h.why}]} />`
  return html`<h3>Hosts that were tried</h3>${could.length ? list('Hosts that were tried', could) : null}
    ${rest.length ? html`<details open=${!could.length}><summary>${count(rest.length, 'host')} with other hardware, or elsewhere</summary>${list('Hosts that it may not use', rest)}</details>` : null}`
}

// Load is what the page has seen of the last ten minutes.
function Load({r}) {
  const seen = useRef({cpu: [], memory: [], gpu: []})
  useEffect(() => {
    const s = seen.current, add = (list, v) => { if (v !== null && v !== undefined) { list.push(Math.round(v)); if (list.length > 200) list.shift() } }
    if (!r) return
    add(s.cpu, r.cpu?.util)
    add(s.memory, r.memory?.util)
    const gpus = (r.gpus || []).map(g => g.util).filter(x => x !== null && x !== undefined)
    add(s.gpu, gpus.length ? Math.max(...gpus) : null)
  }, [r])
  const list = [['CPU', seen.current.cpu], ['Memory', seen.current.memory], ['GPU', seen.current.gpu]].filter(x => x[1].length > 1)
  return r && list.length ? html`<h3>Since the page was opened</h3><${Facts} of=${list.map(([name, values]) => [name, html`<${Spark} values=${values} label=${name} unit=" %" />`])} />` : null
}

function Environment({p, reload}) {
  const [shown, show] = useState(false), [open, set] = useState(false), names = Object.keys(p.env), write = can('pods:write') && !p.cluster
  return html`<h3 class="bar">Environment ${names.length ? html`<button type="button" aria-pressed=${shown} onClick=${() => show(!shown)}>${shown ? 'Hide values' : 'Show values'}</button>` : null}${write ? html`<button type="button" onClick=${() => set(true)}>Change variables…</button>` : null}</h3>
    ${names.length ? html`<${Facts} of=${Object.entries(p.env).map(([k, v]) => [html`<code>${k}</code>`, shown ? html`<code class="break">${v}</code>` : '••••••'])} />` : html`<p class="muted">It has no variables.</p>`}
    ${open ? html`<${Variables} p=${p} onClose=${changed => { set(false); if (changed) reload() }} />` : null}`
}

// Variables changes the environment. Values are hidden until asked for. One of several lines can only
// be changed while it is shown, because a hidden field has one line.
function Variables({p, onClose}) {
  const [rows, set] = useState(Object.entries(p.env).map(([name, value], k) => ({k, name, value}))), [shown, show] = useState(false), [error, fail] = useState(null), [busy, setBusy] = useState(false), next = useRef(rows.length)
  const edit = (k, by) => set(list => list.map(r => r.k === k ? {...r, ...by} : r))
  const submit = async e => {
    e.preventDefault()
    const names = rows.map(r => r.name), twice = names.find((n, i) => names.indexOf(n) !== i)
    if (twice !== undefined) { fail(new Error(`The variable ${twice} is there twice.`)); return }
    setBusy(true)
    try {
      await change('PATCH', api('pods/' + id(p.id)), {env: Object.fromEntries(rows.map(r => [r.name, r.value]))})
      onClose(true)
      say('The variables were changed. The pod gets them at its next start, restart or reset.')
    } catch (x) { fail(x); setBusy(false) }
  }
  return html`<${Dialog} title="Variables of the pod" onClose=${() => onClose(false)}><form onSubmit=${submit}><div class="bar"><button type="button" aria-pressed=${shown} onClick=${() => show(!shown)}>${shown ? 'Hide values' : 'Show values'}</button></div>
    ${rows.length ? html`<ul class="vars">${rows.map((r, i) => html`<li key=${r.k}><input aria-label=${`Name of variable ${i + 1}`} value=${r.name} required autocomplete="off" spellcheck=${false} onInput=${e => edit(r.k, {name: e.target.value})} />
      ${shown ? html`<textarea aria-label=${`Value of ${r.name || `variable ${i + 1}`}`} rows=${Math.min(6, r.value.split('\n').length)} spellcheck=${false} value=${r.value} onInput=${e => edit(r.k, {value: e.target.value})}></textarea>` : r.value.includes('\n') ? html`<span class="muted">several lines</span>` : html`<input type="password" aria-label=${`Value of ${r.name || `variable ${i + 1}`}`} autocomplete="off" value=${r.value} onInput=${e => edit(r.k, {value: e.target.value})} />`}
      <button type="button" class="danger-line" aria-label=${`Remove ${r.name || `variable ${i + 1}`}`} onClick=${() => set(list => list.filter(x => x.k !== r.k))}>Remove</button></li>`)}</ul>` : html`<p class="muted">There are no variables.</p>`}
    <button type="button" onClick=${() => set(list => [...list, {k: next.current++, name: '', value: ''}])}>Add a variable</button>
    <p class="muted">The pod gets them at its next start, restart or reset.</p><${Failure} error=${error} />
    <div class="bar end"><button type="button" onClick=${() => onClose(false)}>Keep</button><button class="primary" disabled=${busy}>Change</button></div></form><//>`
}
