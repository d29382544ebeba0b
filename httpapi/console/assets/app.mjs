// The frame around all pages: sign-in, navigation, keys, and the choice of the page.
import {html, render, useState, useEffect, useRef, useSignal, useData, session, online, notice, place, go, restore, Link, get, ask, base, live, setPaused, follow, can, has, id, api} from './lib.mjs'
import {Failure, Empty, Loading, Dialog, Loaded, Table} from './ui.mjs'
import {Overview} from './overview.mjs'
import {Endpoint} from './endpoint.mjs'
import {Job} from './job.mjs'
import {AllJobs} from './jobs.mjs'
import {Pods, Pod} from './pods.mjs'
import {Clusters, Cluster} from './clusters.mjs'
import {Account, Billing} from './account.mjs'
import {Hosts, Audit} from './operator.mjs'
import {Webhooks} from './webhooks.mjs'

const themes = ['system', 'light', 'dark']
function readTheme() { try { return localStorage.getItem('podyard-theme') || 'system' } catch { return 'system' } }
function useTheme() {
  const [theme, set] = useState(readTheme)
  useEffect(() => {
    if (theme === 'system') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = theme
    try { localStorage.setItem('podyard-theme', theme) } catch { /* it lasts as long as the page */ }
  }, [theme])
  return [theme, set]
}

function SignIn() {
  const [error, fail] = useState(null), [busy, set] = useState(false), input = useRef()
  useEffect(() => { document.title = 'Sign in · podyard'; input.current?.focus() }, [])
  const submit = async e => {
    e.preventDefault()
    const key = input.current.value
    set(true)
    fail(null)
    try {
      const s = await (await ask('session', {method: 'POST', body: {key}})).json()
      input.current.value = ''
      if (!await get('session').catch(() => null)) throw new Error('The browser did not keep the session. It keeps one with HTTPS, or on 127.0.0.1 and localhost.')
      session.set(s)
    } catch (x) { fail(x); set(false); input.current?.select() }
  }
  return html`<main class="signin" id="main"><h1>podyard</h1><form onSubmit=${submit}>
    <h2>Sign in with a key</h2>
    ${isSecureContext ? null : html`<p class="failure">The console needs HTTPS here: a browser keeps the session on no other address than 127.0.0.1 and localhost.</p>`}
    <label>Key<input type="password" ref=${input} autocomplete="off" spellcheck=${false} required aria-describedby="key-help" aria-invalid=${error ? 'true' : undefined} /></label>
    <p id="key-help" class="muted">A key of the API. What it may do decides what you see. It is sent once, and the page does not keep it.</p>
    ${error ? html`<div class="failure" role="alert"><p>${error.message}</p></div>` : null}
    <button class="primary" disabled=${busy}>${busy ? 'Signing in…' : 'Sign in'}</button></form></main>`
}

function Search() {
  const submit = e => {
    e.preventDefault()
    const text = e.target.elements.q.value.trim()
    if (!text) return
    e.target.reset()
    go('find?q=' + id(text))
  }
  return html`<form class="search" role="search" onSubmit=${submit}><label class="vh" for="q">Find by name or a part of the id</label><input id="q" name="q" type="search" placeholder="Find" autocomplete="off" spellcheck=${false} /></form>`
}

const kindsFound = {endpoint: ['Endpoint', f => 'e/' + id(f.id)], pod: ['Pod', f => 'pods/' + id(f.id)], cluster: ['Cluster', f => 'clusters/' + id(f.id)], job: ['Job', f => `e/${id(f.endpoint)}/jobs/${id(f.id)}`], worker: ['Worker', f => `e/${id(f.endpoint)}/workers/${id(f.id)}`]}
// Find is what a search has found. One record is opened at once.
function Find() {
  const {query} = useSignal(place), q = query.get('q') || '', of = useData('data/find?q=' + id(q), {steady: true}), list = of.data?.found
  useEffect(() => { document.title = 'Find · podyard' }, [])
  useEffect(() => { if (list?.length === 1) go(kindsFound[list[0].kind][1](list[0]), true) }, [list])
  return html`<h1>Find</h1><${Loaded} of=${of}>${d => html`<${Table} caption=${'Found: ' + q} rows=${d.found} rowKey=${f => f.kind + f.endpoint + f.id} columns=${[
    {title: 'Name', sort: f => f.name || f.id, cell: f => html`<span class="name" title=${f.name || f.id}><${Link} to=${kindsFound[f.kind][1](f)}>${f.name || html`<code>${f.id}</code>`}<//></span>`}, {title: 'What', sort: f => f.kind, cell: f => kindsFound[f.kind][0]}, {title: 'Id', sort: f => f.id, cell: f => html`<code>${f.id}</code>`}, {title: 'Owner', sort: f => f.owner, cell: f => f.owner || '–'},
  ]} empty=${html`<${Empty} title="Nothing that this key may see has this name, or this in its id.">Jobs and workers are found by the beginning of their id, endpoints, pods and clusters by any part of their name or id.<//>`} />${d.more ? html`<p class="muted">There may be more: a search looks at a part of what there is.</p>` : null}`}<//>`
}

const shortcuts = [['/', 'find by name or id'], ['g e', 'endpoints'], ['g p', 'pods'], ['g a', 'account'], ['j, k', 'next and previous row'], ['x', 'select the row'], ['Enter', 'open the row'], ['p', 'pause and go on with live updates'], ['?', 'this list']]
const Help = ({onClose}) => html`<${Dialog} title="Keys" onClose=${onClose}><dl class="facts">${shortcuts.map(([k, what]) => html`<div><dt><kbd>${k}</kbd></dt><dd>${what}</dd></div>`)}</dl><div class="bar end"><button type="button" onClick=${onClose}>Close</button></div><//>`

function useKeys(help) {
  useEffect(() => {
    let before = ''
    const key = e => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || e.target.closest('input:not([type=checkbox]), select, textarea, dialog')) return
      const k = before === 'g' ? 'g ' + e.key : e.key
      before = e.key
      const act = {'/': () => document.getElementById('q')?.focus(), '?': help, 'g e': () => go(''), 'g p': () => go('pods'), 'g a': () => go('account'), p: () => setPaused(live.value !== 'paused'), j: () => document.querySelector('.grid tr[data-i="0"] a')?.focus()}[k]
      if (act) { e.preventDefault(); act() }
    }
    addEventListener('keydown', key)
    return () => removeEventListener('keydown', key)
  }, [])
}

const storedPages = [['volumes', 'listNetworkVolumes', 'pods:read'], ['templates', 'listTemplates', 'pods:read'], ['secrets', 'listSecrets', 'secrets:read'], ['registries', 'listRegistries', 'registries:read']]
const liveWords = {on: 'Live', off: 'Connecting', paused: 'Paused', broken: 'Not live'}
function Head({theme, setTheme, help}) {
  const s = useSignal(session), state = useSignal(live), {parts} = useSignal(place)
  const stored = storedPages.find(([, operation, scope]) => has(operation) && can(scope))?.[0]
  const nav = (name, to, first) => html`<li><${Link} to=${to} aria-current=${(parts[0] || '') === first || first === stored && storedPages.some(p => p[0] === parts[0]) || first === '' && parts[0] === 'e' ? 'page' : undefined}>${name}<//></li>`
  const out = async () => { await ask('session', {method: 'DELETE'}).catch(() => {}); session.set(null); go('') }
  return html`<header class="head"><a class="skip" href="#main" onClick=${e => { e.preventDefault(); document.getElementById('main').focus() }}>To the content</a>
    <${Link} to="" class="brand">podyard<//>
    <nav aria-label="Main"><ul>${nav('Endpoints', '', '')}${s.details ? nav('Jobs', 'jobs', 'jobs') : null}${has('listPods') && can('pods:read') ? nav('Pods', 'pods', 'pods') : null}${has('listClusters') && can('pods:read') ? nav('Clusters', 'clusters', 'clusters') : null}${has('listWebhooks') && can('endpoints:read') ? nav('Webhooks', 'webhooks', 'webhooks') : null}${has('listBilling') && can('pods:read') ? nav('Billing', 'billing', 'billing') : null}${stored ? nav('Stored', stored, stored) : null}${s.operator ? nav('Hosts', 'hosts', 'hosts') : null}${s.operator ? nav('Users', 'users', 'users') : null}${s.operator ? nav('Audit', 'audit', 'audit') : null}${nav('Account', 'account', 'account')}</ul></nav>
    <${Search} />
    <div class="tools">${s.readOnly ? html`<span class="badge">read-only</span>` : null}<button type="button" class="live ${state}" aria-pressed=${state === 'paused'} onClick=${() => setPaused(state !== 'paused')} title="Pause or go on with live updates (p)">${liveWords[state]}</button>
    <label class="vh" for="theme">Colours</label><select id="theme" value=${theme} onChange=${e => setTheme(e.target.value)}>${themes.map(t => html`<option>${t}</option>`)}</select>
    <button type="button" onClick=${help} aria-label="Keys">?</button>
    ${s.signOut ? html`<button type="button" onClick=${out}>Sign out</button>` : null}</div></header>`
}

function Notice() {
  const n = useSignal(notice)
  useEffect(() => { if (n && !n.bad) { const t = setTimeout(() => notice.set(null), 6000); return () => clearTimeout(t) } }, [n])
  return html`<div class="notices" role="status" aria-live="polite">${n ? html`<p class="notice ${n.bad ? 'bad' : ''}">${n.text} <button type="button" aria-label="Close" onClick=${() => notice.set(null)}>✕</button></p>` : null}</div>`
}

// Later is a page whose module comes when somebody opens it.
function Later({page, ...rest}) {
  const [pages, set] = useState(null), [error, fail] = useState(null)
  useEffect(() => { import('./records.mjs').then(set, fail) }, [])
  return pages ? html`<${pages[page]} ...${rest} />` : error ? html`<${Failure} error=${error} />` : html`<${Loading} />`
}

function Page() {
  const {parts} = useSignal(place)
  const [a, b, c, d] = parts
  switch (a) {
    case undefined: return html`<${Overview} />`
    case 'e': return !b ? html`<${Overview} />` : c === 'jobs' && d ? html`<${Job} key=${b + d} endpoint=${b} job=${d} />` : html`<${Endpoint} key=${b} endpoint=${b} tab=${c || ''} rest=${parts.slice(3)} />`
    case 'find': return html`<${Find} />`
    case 'jobs': return html`<${AllJobs} />`
    case 'pods': return b ? html`<${Pod} key=${b} pod=${b} />` : html`<${Pods} />`
    case 'clusters': return b ? html`<${Cluster} key=${b} cluster=${b} />` : html`<${Clusters} />`
    case 'billing': return html`<${Billing} />`
    case 'webhooks': return html`<${Webhooks} />`
    case 'account': return html`<${Account} />`
    case 'volumes': case 'templates': case 'secrets': case 'registries': return html`<${Later} page="Records" kind=${a} key=${a} />`
    case 'users': return b ? html`<${Later} page="User" key=${b} user=${b} />` : html`<${Later} page="Users" />`
    case 'hosts': return html`<${Hosts} />`
    case 'audit': return html`<${Audit} />`
  }
  return html`<h1>Not found</h1><${Empty} title="The console has no such page."><${Link} to="">Go to the endpoints<//><//>`
}

function App() {
  const s = useSignal(session), up = useSignal(online), {parts, key, back} = useSignal(place)
  const [theme, setTheme] = useTheme(), [help, setHelp] = useState(false), [failed, fail] = useState(null)
  const watched = parts[0] === 'e' ? parts[1] : null
  useKeys(() => setHelp(true))
  const start = () => { fail(null); ask('session').then(r => r.status === 204 ? null : r.json()).then(v => session.set(v), fail) }
  useEffect(start, [])
  useEffect(() => { if (s) follow(watched) }, [s, watched])
  const main = useRef()
  useEffect(() => { if (main.current && key !== main.current.dataset.key) { if (back) restore(back, key); else if (main.current.dataset.key) scrollTo(0, 0); main.current.dataset.key = key } }, [key])
  const banner = up ? null : html`<p class="offline" role="alert">The server cannot be reached. What you see may be old. The page tries again.</p>`
  if (s === undefined) return failed ? html`${banner}<main class="signin" id="main"><h1>podyard</h1><${Failure} error=${failed} retry=${start} /></main>` : html`<main class="signin"><h1>podyard</h1><${Loading} /></main>`
  if (!s) return html`${banner}<${SignIn} />`
  return html`<${Head} theme=${theme} setTheme=${setTheme} help=${() => setHelp(true)} />${banner}<${Notice} /><main id="main" ref=${main} tabindex="-1"><${Page} /></main>${help ? html`<${Help} onClose=${() => setHelp(false)} />` : null}`
}

document.getElementById('app').replaceChildren()
render(html`<${App} />`, document.getElementById('app'))
