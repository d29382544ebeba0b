// The user's keys, limits and bill.
import {html, useState, useEffect, useSignal, session, useData, id, api, can, has, change, num, count, duration, usd, place, go, say} from './lib.mjs'
import {Status, Ago, Empty, Loaded, Facts, Table, Act, Sure, Failure, Copy, Save, Dialog} from './ui.mjs'

export function Account() {
  const s = useSignal(session)
  useEffect(() => { document.title = 'Account · podyard' }, [])
  return html`<h1>Account</h1><section aria-labelledby="me"><h2 id="me">Signed in</h2><${Facts} of=${[['User', s.user], ['Scopes', s.scopes.length ? html`<span class="scopes">${s.scopes.map(x => html`<code>${x}</code> `)}</span>` : 'none: the catalog and the health of endpoints'], s.keyExpires ? ['The key ends', html`<${Ago} at=${s.keyExpires} />`] : ['The key ends', 'never'], s.ends ? ['The session ends', html`<${Ago} at=${s.ends} />, or after 30 minutes without an act of yours`] : null]} /></section>
    ${has('listLimits') ? html`<${Limits} />` : null}
    ${has('listKeys') && (can('*') || s.scopes.includes('*') || s.operator) ? html`<${Keys} />` : null}`
}

// Limits shows the budgets of the user, or for an operator those of all users who hold something.
export function Limits({user}) {
  const s = useSignal(session), [all, setAll] = useState(false), of = useData(api('account/limits?windows=true' + (user ? '&owner=' + id(user) : all ? '&owner=*' : '')), {every: 10000})
  return html`<section aria-labelledby="limits"><div class="bar"><h2 id="limits">Limits</h2>${s.operator && !user ? html`<label class="inline"><input type="checkbox" checked=${all} onChange=${() => setAll(!all)} /> Of all users</label>` : null}</div><${Loaded} of=${of}>${d => html`<${Table} tall caption="Limits" rows=${d.users.flatMap(u => u.limits.map(l => ({...l, user: u.user})))} rowKey=${l => l.user + ' ' + l.name} columns=${[
    {title: 'Budget', cell: l => l.name}, all ? {title: 'User', cell: l => l.user} : null, {title: 'In use', cell: l => l.limit ? html`<meter min="0" max=${l.limit} value=${Math.min(l.used, l.limit)} aria-label=${l.name}></meter>` : ''}, {title: 'Used', num: true, cell: l => num(l.used)}, {title: 'Limit', num: true, cell: l => l.limit === null ? 'none' : num(l.limit)}, {title: 'Unit', cell: l => l.unit},
  ].filter(Boolean)} empty=${html`<${Empty} title="Nobody holds anything." />`} />
  ${d.users.some(u => u.cost) ? html`<h3>Costs</h3><p class="muted">USD, of pods, clusters and workers of own endpoints. The month is that of UTC.</p><${Table} tall caption="Costs" rows=${d.users.filter(u => u.cost).map(u => ({...u.cost, user: u.user})).sort((a, b) => b.hour - a.hour || b.month - a.month)} rowKey=${c => c.user} columns=${[
    all ? {title: 'User', cell: c => c.user} : null, {title: 'An hour, now', num: true, cell: c => usd(c.hour)}, {title: 'Limit of an hour', num: true, cell: c => c.costPerHour === null ? 'none' : usd(c.costPerHour)}, {title: 'This month', num: true, cell: c => usd(c.month)}, {title: 'Limit of a month', num: true, cell: c => c.costPerMonth === null ? 'none' : usd(c.costPerMonth)}, {title: 'Used up at this rate', cell: c => c.ends ? html`<${Ago} at=${c.ends} />` : c.costPerMonth !== null && c.month >= c.costPerMonth ? 'used up' : 'not this month'},
  ].filter(Boolean)} empty=${html`<${Empty} title="Nobody spends anything." />`} />` : null}
  <h3>Requests</h3><p class="muted">Requests to the control API are counted by user.</p><${Table} tall caption="Requests" rows=${d.users.flatMap(u => (u.windows || []).map(w => ({...w, user: u.user})))} rowKey=${w => w.user + ' ' + w.name} columns=${[
    {title: 'Window', cell: w => w.name}, all ? {title: 'User', cell: w => w.user} : null, {title: 'In use', cell: w => html`<meter min="0" max=${w.limit} value=${w.limit - w.remaining} aria-label=${'Requests of the ' + w.name}></meter>`}, {title: 'Left', num: true, cell: w => num(w.remaining)}, {title: 'Limit', num: true, cell: w => num(w.limit)}, {title: 'Begins anew', cell: w => w.remaining < w.limit ? 'in ' + duration(w.resets * 1000) : 'with the next request'},
  ].filter(Boolean)} empty=${html`<${Empty} title="Nobody holds anything." />`} />`}<//></section>`
}

function Keys() {
  const s = useSignal(session), of = useData(api('account/keys' + (s.operator ? '?owner=*' : ''))), [fresh, setFresh] = useState(null), [making, make] = useState(false)
  const path = k => api('account/keys/' + id(k.id))
  return html`<section aria-labelledby="keys"><div class="bar"><h2 id="keys">Keys</h2>${s.readOnly ? null : html`<button type="button" onClick=${() => make(true)}>New key…</button>`}</div><p class="muted">Keys that were made over the interface. Those of the configuration are not in the list.</p>
    <${Loaded} of=${of}>${d => html`<${Table} caption="Keys" rows=${d.keys.map(k => k.item ? {...k.item, owner: k.owner} : k)} rowKey=${k => k.id} columns=${[
      {title: 'Key', cell: k => html`<code>${k.id}</code>`}, s.operator ? {title: 'User', cell: k => k.user} : null, {title: 'Scopes', cell: k => html`<span class="scopes">${k.scopes.map(x => html`<code>${x}</code> `)}</span>`}, {title: 'Ends', cell: k => k.expires ? html`<${Ago} at=${k.expires} />` : 'never'}, {title: 'Made', cell: k => html`<${Ago} at=${k.createdAt} />`},
      s.readOnly ? null : {title: 'Do', cell: k => html`<span class="acts"><${Sure} kind="" title="Rotate this key?" text="It gets a new secret. The old one is refused at once." yes="Rotate" run=${async () => { setFresh(await change('POST', path(k) + '/rotate', {})); of.reload() }}>Rotate…<//><${Sure} title="Delete this key?" text="It is refused at once." yes="Delete" run=${async () => { await change('DELETE', path(k)); of.reload(); return 'The key was deleted.' }}>Delete…<//></span>`},
    ].filter(Boolean)} empty=${html`<${Empty} title="There are no keys that were made over the interface." />`} />`}<//>
    ${making ? html`<${NewKey} onClose=${() => make(false)} onMade=${k => { make(false); setFresh(k); of.reload() }} />` : null}
    ${fresh ? html`<${Dialog} title="The secret of the key" onClose=${() => setFresh(null)}><p>It is shown once. Keep it now.</p><pre class="wrap" tabindex="0">${fresh.key}</pre><div class="bar end"><${Copy} text=${fresh.key} label="Copy" /><button type="button" onClick=${() => setFresh(null)}>I have it</button></div><//>` : null}</section>`
}

function NewKey({onClose, onMade}) {
  const s = useSignal(session), [error, fail] = useState(null)
  const submit = async e => {
    e.preventDefault()
    const f = e.target.elements, body = {scopes: f.scopes.value.split(/[\s,]+/).filter(Boolean)}
    if (f.expires.value) body.expires = new Date(f.expires.value).toISOString()
    if (f.user?.value) body.user = f.user.value
    try { onMade(await change('POST', api('account/keys'), body)) } catch (x) { fail(x) }
  }
  return html`<${Dialog} title="New key" onClose=${onClose}><form class="form" onSubmit=${submit}><label>Scopes<input name="scopes" required placeholder="pods:read endpoint:echo:run" autocomplete="off" spellcheck=${false} /></label><label>Ends <small class="muted">(empty: never)</small><input type="datetime-local" name="expires" /></label>${s.operator ? html`<label>User <small class="muted">(empty: yourself)</small><input name="user" autocomplete="off" /></label>` : null}<${Failure} error=${error} /><div class="bar end"><button type="button" onClick=${onClose}>Close</button><button class="primary">Make the key</button></div></form><//>`
}

const reports = {'': 'all', pods: 'pods', serverless: 'endpoints', 'network-volumes': 'network volumes'}
export function Billing() {
  const s = useSignal(session), {query} = useSignal(place), owner = s.operator ? query.get('owner') || '' : '', kind = Object.hasOwn(reports, query.get('of') || '') ? query.get('of') || '' : '', bucket = query.get('by') || 'day'
  const of = useData(api(`billing${kind ? '/' + kind : ''}?bucketSize=${id(bucket)}${owner ? '&owner=' + id(owner) : ''}`), {steady: true})
  const show = (k, b, o = owner) => go(`billing?of=${k}&by=${b}${o ? '&owner=' + id(o) : ''}`)
  useEffect(() => { document.title = 'Billing · podyard' }, [])
  return html`<h1>Billing</h1><div class="bar"><label class="inline">Of <select value=${kind} onChange=${e => show(e.target.value, bucket)}>${Object.entries(reports).map(([k, v]) => html`<option value=${k}>${v}</option>`)}</select></label><label class="inline">By <select value=${bucket} onChange=${e => show(kind, e.target.value)}>${['hour', 'day', 'week', 'month'].map(x => html`<option>${x}</option>`)}</select></label>${s.operator ? html`<form onSubmit=${e => { e.preventDefault(); show(kind, bucket, e.target.elements.owner.value.trim()) }}><label class="inline">User <input name="owner" key=${owner} defaultValue=${owner} placeholder=${s.user} autocomplete="off" spellcheck=${false} onChange=${e => e.target.form.requestSubmit()} /></label></form>` : null}</div>
  <${Loaded} of=${of}>${d => {
    const rows = d.records.slice().reverse(), names = [...new Set(rows.flatMap(r => Object.keys(r)))].filter(n => n === 'totalAmount' || rows.some(r => r[n] !== 0))
    const cell = v => v === null || v === undefined ? '–' : typeof v === 'object' ? JSON.stringify(v) : typeof v === 'number' ? num(v) : String(v)
    const csv = () => [names, ...rows.map(r => names.map(n => r[n]))].map(l => l.map(v => `"${String(typeof v === 'object' && v ? JSON.stringify(v) : v ?? '').replaceAll('"', '""').replace(/^(?=[=+@\t\r-])(?!-?[\d.]+(?:e[+-]?\d+)?$)/, "'")}"`).join(',')).join('\r\n') + '\r\n'
    const totals = Object.entries(d.metadata?.totals || {}).filter(([k, v]) => v !== 0 || k === 'totalAmount')
    return html`${totals.length ? html`<dl class="tiles">${totals.map(([k, v]) => html`<div class="tile"><dt>${words(k)}</dt><dd>${typeof v === 'number' ? /amount|cost|usd/i.test(k) ? usd(v) : num(v) : cell(v)}</dd></div>`)}</dl>` : null}
    ${rows.length ? html`<div class="bar"><${Save} name="billing.csv" text=${csv} label="Save as CSV" /></div>` : null}
    <${Table} tall caption="Billing" rows=${rows} rowKey=${r => JSON.stringify(r)} columns=${names.map(n => ({title: words(n), num: rows.some(r => typeof r[n] === 'number'), cell: r => /Time$/.test(n) ? html`<time datetime=${r[n]}>${String(r[n]).slice(0, 16).replace('T', ' ')}</time>` : /amount|cost/i.test(n) && typeof r[n] === 'number' ? usd(r[n]) : cell(r[n])}))} empty=${html`<${Empty} title="Nothing was used in the last 30 days." />`} />`
  }}<//>`
}
const words = s => { const t = s.replace(/([A-Z])/g, ' $1').toLowerCase(); return t[0].toUpperCase() + t.slice(1) }
