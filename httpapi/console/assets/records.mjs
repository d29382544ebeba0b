// Pages that are read seldom: volumes, templates, secrets and registries, and for operators the users.
import {html, useState, useEffect, useSignal, session, useData, Link, id, api, can, has, change, num, usd, go} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Table, Tabs, Sure, New} from './ui.mjs'
import {Limits} from './account.mjs'

const owned = list => list.map(x => x.item ? {...x.item, owner: x.owner} : x)
const named = {title: 'Name', sort: r => r.name, cell: r => html`<span class="name" title=${r.name}>${r.name || r.id}</span> <small class="muted">${r.id}</small>`}

// kinds are the lists. Each has its scope, its path, the member of the answer, and what is special about it.
const kinds = {
  volumes: {name: 'Volumes', one: 'volume', area: 'pods', list: 'listNetworkVolumes', path: 'network-volumes', member: 'networkVolumes', make: 'createNetworkVolume', drop: 'deleteNetworkVolume', main: ['name', 'size', 'dataCenter', 'type'], typed: true, warn: 'The volume and its data are deleted. A volume that a pod or an endpoint uses cannot be.',
    columns: [{title: 'Size', num: true, sort: r => r.size, cell: r => `${num(r.size)} GB`}, {title: 'Data center', sort: r => r.dataCenter, cell: r => r.dataCenter}, {title: 'Type', cell: r => r.type.toLowerCase().replace('_', ' ')}]},
  templates: {name: 'Templates', one: 'template', area: 'pods', list: 'listTemplates', path: 'templates', member: 'templates', make: 'createTemplate', drop: 'deleteTemplate', main: ['name', 'image', 'serverless', 'ports', 'env', 'disk'], warn: 'Pods and endpoints that were made with it stay as they are.',
    columns: [{title: 'Image', sort: r => r.image, cell: r => html`<code class="clip" title=${r.image}>${r.image}</code>`}, {title: 'For', cell: r => r.serverless ? 'endpoints' : 'pods'}, {title: 'Public', cell: r => r.public ? 'yes' : 'no'}]},
  secrets: {name: 'Secrets', one: 'secret', area: 'secrets', list: 'listSecrets', path: 'account/secrets', member: 'secrets', make: 'createSecret', drop: 'deleteSecret', main: ['name', 'value', 'description'], warn: 'Pods and endpoints that name it do not start any more.', note: 'Values are never shown. A variable takes one by its name.',
    columns: [{title: 'Description', cell: r => html`<span class="clip" title=${r.description}>${r.description || '–'}</span>`}, {title: 'Created', sort: r => r.createdAt, cell: r => html`<${Ago} at=${r.createdAt} />`}, {title: 'Value changed', sort: r => r.valueLastUpdatedAt, cell: r => html`<${Ago} at=${r.valueLastUpdatedAt} />`}]},
  registries: {name: 'Registries', one: 'credential', area: 'registries', list: 'listRegistries', path: 'registries', member: 'registries', make: 'createRegistry', drop: 'deleteRegistry', main: ['name', 'username', 'password'], warn: 'Images that need it cannot be pulled any more.', note: 'Credentials for registries of images. They are never shown.', columns: []},
}
const seen = k => has(k.list) && can(k.area + ':read')

export function Records({kind}) {
  const k = kinds[kind], s = useSignal(session), of = useData(seen(k) ? api(k.path + (s.operator ? '?owner=*' : '')) : null, {every: 10000}), [filter, setFilter] = useState(''), write = can(k.area + ':write')
  useEffect(() => { document.title = `${k.name} · podyard` }, [k])
  const remove = r => async () => { await change('DELETE', api(`${k.path}/${id(r.id)}`)); of.reload(); return `The ${k.one} was deleted.` }
  return html`<h1>Stored</h1><${Tabs} label="Stored" list=${Object.entries(kinds).filter(([, x]) => seen(x)).map(([key, x]) => ({name: x.name, to: key, here: key === kind}))} />
    ${!seen(k) ? html`<${Empty} title="The key that you signed in with does not allow this." />` : html`<section aria-labelledby="list"><div class="bar"><h2 id="list">${k.name}</h2>${write && has(k.make) ? html`<${New} title=${'New ' + k.one} operation=${k.make} path=${api(k.path)} main=${k.main} yes=${`Create the ${k.one}`} done=${of.reload}>New ${k.one}…<//>` : null}${of.data?.[k.member].length ? html`<label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label>` : null}</div>${k.note ? html`<p class="muted">${k.note}</p>` : null}<${Loaded} of=${of}>${d => html`
      <${Table} tall caption=${k.name} rows=${owned(d[k.member]).filter(r => `${r.id} ${r.name} ${r.owner || ''}`.toLowerCase().includes(filter.toLowerCase()))} rowKey=${r => r.id} columns=${[named, s.operator ? {title: 'Owner', sort: r => r.owner, cell: r => html`<${Link} to=${'users/' + id(r.owner)}>${r.owner}<//>`} : null, ...k.columns,
        write && has(k.drop) ? {title: 'Do', cell: r => html`<span class="acts"><${Sure} word=${k.typed ? r.id : undefined} title=${`Delete this ${k.one}?`} text=${k.warn} yes="Delete" run=${remove(r)}>Delete…<//></span>`} : null].filter(Boolean)} empty=${html`<${Empty} title=${filter ? `No ${k.one} matches.` : `There are no ${k.name.toLowerCase()}.`} />`} />`}<//></section>`}`
}

// Users are those who have something, or whose requests were counted.
export function Users() {
  const of = useData(api('admin/state'), {every: 10000}), held = useData(has('listLimits') ? api('account/limits?windows=true&owner=*') : null, {every: 10000}), [filter, setFilter] = useState('')
  useEffect(() => { document.title = 'Users · podyard' }, [])
  return html`<h1>Users</h1><${Loaded} of=${of}>${d => {
    const by = Object.fromEntries(d.users.map(u => [u.name, {...u}]))
    for (const u of held.data?.users || []) { const x = by[u.user] ||= {name: u.user, pods: 0, endpoints: 0, volumes: 0, keys: 0}; x.full = u.limits.filter(l => l.limit).sort((a, b) => b.used / b.limit - a.used / a.limit)[0]; x.cost = u.cost; x.jobs = u.limits.find(l => l.name === 'jobs')?.used }
    const rows = Object.values(by).filter(u => u.name.toLowerCase().includes(filter.toLowerCase()))
    return html`<div class="bar"><label class="inline">Filter <input type="search" value=${filter} onInput=${e => setFilter(e.target.value)} /></label><span class="muted">${rows.length === 1 ? 'One user has' : `${num(rows.length)} users have`} something.</span></div>
    <${Table} tall caption="Users" rows=${rows} rowKey=${u => u.name} columns=${[
      {title: 'User', sort: u => u.name, cell: u => html`<span class="name" title=${u.name}><${Link} to=${'users/' + id(u.name)}>${u.name}<//></span>`}, ...['pods', 'endpoints', 'volumes', 'keys'].map(n => ({title: n[0].toUpperCase() + n.slice(1), num: true, sort: u => u[n], cell: u => num(u[n])})),
      {title: 'Jobs', num: true, sort: u => u.jobs, cell: u => num(u.jobs)},
      {title: 'Nearest limit', sort: u => u.full ? u.full.used / u.full.limit : null, cell: u => u.full?.used ? html`<meter min="0" max=${u.full.limit} value=${Math.min(u.full.used, u.full.limit)} aria-label=${u.full.name}></meter> ${u.full.name}` : '–'}, {title: 'USD an hour', num: true, sort: u => u.cost?.hour, cell: u => u.cost ? usd(u.cost.hour) : '–'},
    ]} empty=${html`<${Empty} title=${filter ? 'No user matches.' : 'Nobody owns anything yet.'} />`} />`
  }}<//>`
}

// User is what an operator may know of one user, and may do.
export function User({user}) {
  const s = useSignal(session), q = '?owner=' + id(user), pods = useData(api('pods' + q), {every: 10000}), endpoints = useData(api('serverless' + q), {every: 10000}), keys = useData(has('listKeys') ? api('account/keys' + q) : null, {every: 10000})
  useEffect(() => { document.title = `${user} · podyard` }, [user])
  const table = (title, of, member, columns, none) => html`<section aria-labelledby=${member}><h2 id=${member}>${title}</h2><${Loaded} of=${of}>${d => html`<${Table} caption=${title} rows=${owned(d[member].filter(x => x.owner === user))} rowKey=${r => r.id} columns=${columns} empty=${html`<${Empty} title=${none} />`} />`}<//></section>`
  const erased = r => Object.entries(r).filter(([, n]) => n).map(([k, n]) => `${num(n)} ${k.replace(/([A-Z])/g, ' $1').toLowerCase()}`).join(', ') || 'nothing'
  return html`<nav aria-label="Path" class="path"><${Link} to="users">users<//></nav><h1 class="wide">${user}</h1>
    ${s.readOnly ? null : html`<div class="bar"><${Link} class="button" to=${'billing?owner=' + id(user)}>Billing<//><${Link} class="button" to=${'audit?user=' + id(user)}>Audit log<//><${Sure} title="Erase the jobs of this user?" word=${user} text="The jobs of the user on all endpoints are ended and deleted, with their results." yes="Erase the jobs" run=${async () => `Erased: ${erased(await change('DELETE', api(`admin/users/${id(user)}/jobs`)))}.`}>Erase jobs…<//>
      <${Sure} title="Delete this user?" word=${user} text="The pods, endpoints, volumes, keys and everything else of the user are ended and deleted." yes="Delete the user" run=${async () => { const r = await change('DELETE', api('admin/users/' + id(user))); if (!r.waiting) go('users'); return `Deleted: ${erased(r)}.${r.waiting ? ' What is waiting is about to end: delete the user again.' : ''}` }}>Delete the user…<//></div>`}
    ${has('listLimits') ? html`<${Limits} user=${user} />` : null}
    ${table('Pods', pods, 'pods', [{title: 'Pod', sort: p => p.name, cell: p => html`<${Link} to=${'pods/' + id(p.id)}>${p.name || p.id}<//>`}, {title: 'Status', sort: p => p.status, cell: p => html`<${Status} of=${p.status} />`}, {title: 'Image', cell: p => html`<code class="clip" title=${p.image}>${p.image}</code>`}, {title: 'USD an hour', num: true, sort: p => p.cost, cell: p => usd(p.cost)}], 'The user has no pods.')}
    ${table('Endpoints', endpoints, 'endpoints', [{title: 'Endpoint', sort: e => e.name, cell: e => html`<span class="name" title=${e.name}><${Link} to=${'e/' + id(e.id)}>${e.name || e.id}<//></span>`}, {title: 'Image', cell: e => html`<code class="clip" title=${e.image}>${e.image}</code>`}, {title: 'Workers', cell: e => `${num(e.workers.min)} to ${num(e.workers.max)}`}], 'The user has no endpoints.')}
    ${has('listKeys') ? table('Keys', keys, 'keys', [{title: 'Key', cell: k => html`<code>${k.id}</code>`}, {title: 'Scopes', cell: k => html`<span class="scopes">${k.scopes.map(x => html`<code>${x}</code> `)}</span>`}, {title: 'Ends', cell: k => k.expires ? html`<${Ago} at=${k.expires} />` : 'never'}, s.readOnly ? null : {title: 'Do', cell: k => html`<span class="acts"><${Sure} title="Delete this key?" text="It is refused at once." yes="Delete" run=${async () => { await change('DELETE', api('account/keys/' + id(k.id))); keys.reload(); return 'The key was deleted.' }}>Delete…<//></span>`}].filter(Boolean), 'The user has no keys that were made over the interface.') : null}`
}
