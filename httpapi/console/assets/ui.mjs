// The parts that pages are made of.
import {html, useState, useEffect, useRef, useMemo, useLayoutEffect, parts, count, useSignal, useVisible, clock, ask, base, change, say, bytes, decode, indent, errorParts, num, duration, Link, session} from './lib.mjs'

const kinds = {
  COMPLETED: 'ok', RUNNING: 'ok', IDLE: 'ok', active: 'ok', IN_PROGRESS: 'run', INITIALIZING: 'run', STARTING: 'run', PROVISIONING: 'run', FINALIZED: 'run',
  IN_QUEUE: 'wait', DRAFT: 'wait', THROTTLED: 'warn', TIMED_OUT: 'bad', FAILED: 'bad', ERROR: 'bad', UNHEALTHY: 'bad', refusal: 'bad', cordoned: 'warn', drained: 'warn', missed: 'warn', refused: 'bad', disabled: 'warn', critical: 'bad', warning: 'warn', note: 'off',
}
const marks = {ok: '●', run: '◐', wait: '○', warn: '▲', bad: '✕', off: '–'}
export function Status({of, text}) {
  const kind = kinds[of] || 'off'
  return html`<span class="status ${kind}"><span aria-hidden="true">${marks[kind]}</span> ${text || String(of).toLowerCase().replaceAll('_', ' ')}</span>`
}

export function Ago({at}) {
  useSignal(clock)
  if (!at) return html`<span class="muted">–</span>`
  const ms = Date.now() - Date.parse(at)
  const text = ms < -1500 ? 'in ' + duration(-ms) : ms < 1500 ? 'now' : duration(ms) + ' ago'
  return html`<time datetime=${at} title=${new Date(at).toLocaleString()}>${text}</time>`
}
export const Id = ({of}) => html`<code class="id" title=${of}>${of}</code>`

export function Failure({error, retry}) {
  if (!error) return null
  return html`<div class="failure" role="alert"><p>${error.message}</p>
    ${error.errors?.length ? html`<ul>${error.errors.map(e => html`<li>${e}</li>`)}</ul>` : null}
    ${error.status === 403 ? html`<p class="muted">The key that you signed in with does not allow this.</p>` : null}
    ${retry ? html`<button type="button" onClick=${retry}>Try again</button>` : null}</div>`
}
// An Err is the error of a job in a row of a list.
export const Err = ({of}) => { const {message} = errorParts(of); return html`<span class="clip" title=${message}>${message}</span>` }
export const Empty = ({title, children}) => html`<div class="empty"><p><strong>${title}</strong></p>${children ? html`<p>${children}</p>` : null}</div>`
export const Loading = () => html`<p class="muted" role="status">Loading…</p>`

// Loaded shows what useData has read: the data, or why there are none.
export function Loaded({of, children}) {
  if (of.data) return html`${of.error ? html`<${Failure} error=${of.error} retry=${of.reload} />` : null}${children(of.data)}`
  return of.error ? html`<${Failure} error=${of.error} retry=${of.reload} />` : html`<${Loading} />`
}

export function Copy({text, label}) {
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); say('Copied.') } catch { say('The browser does not let the page copy.', true) }
  }
  return html`<button type="button" onClick=${copy}>${label}</button>`
}

// A Button does something, and shows what came of it.
export function Act({children, run, kind, disabled, ...rest}) {
  const [busy, set] = useState(false)
  const click = async () => {
    set(true)
    try { const text = await run(); if (text) say(text) } catch (e) { say([e.message, ...(e.errors || [])].join(' '), true) } finally { set(false) }
  }
  return html`<button type="button" class=${kind || ''} disabled=${busy || disabled} onClick=${click} ...${rest}>${children}</button>`
}

export function Dialog({title, children, onClose}) {
  const ref = useRef()
  useLayoutEffect(() => {
    const back = document.activeElement
    ref.current.showModal()
    return () => { if (back?.isConnected) back.focus() }
  }, [])
  return html`<dialog ref=${ref} aria-labelledby="dialog-title" onCancel=${e => { e.preventDefault(); onClose() }}><h2 id="dialog-title">${title}</h2>${children}</dialog>`
}

// Confirm asks before something is done. With word the user has to type it.
export function Confirm({title, text, word, yes, run, onClose}) {
  const [typed, type] = useState(''), [busy, set] = useState(false), [error, fail] = useState(null)
  const submit = async e => {
    e.preventDefault()
    set(true)
    try { const said = await run(); onClose(); if (said) say(said) } catch (x) { fail(x); set(false) }
  }
  return html`<${Dialog} title=${title} onClose=${onClose}><form onSubmit=${submit}><p>${text}</p>
    ${word ? html`<label>Type <code>${word}</code> to go on<input value=${typed} onInput=${e => type(e.target.value)} autocomplete="off" spellcheck=${false} /></label>` : null}
    <${Failure} error=${error} />
    <div class="bar end"><button type="button" onClick=${onClose}>Keep</button><button class="danger" disabled=${busy || !!word && typed !== word}>${yes}</button></div></form><//>`
}
export function Sure({children, title, text, word, yes, run, kind = 'danger-line', disabled}) {
  const [open, set] = useState(false)
  return html`<button type="button" class=${kind} disabled=${disabled} onClick=${() => set(true)}>${children}</button>${open ? html`<${Confirm} title=${title} text=${text} word=${word} yes=${yes || children} run=${run} onClose=${() => set(false)} />` : null}`
}

// A New is a button with the form that creates something. The module of forms comes when somebody opens one.
export function New({children, title, done, ...form}) {
  const [open, set] = useState(false), [Form, load] = useState(null)
  const show = () => { set(true); import('./forms.mjs').then(m => load(() => m.Create), e => { set(false); say(e.message, true) }) }
  const made = x => { set(false); done(x) }
  return html`<button type="button" onClick=${show}>${children}</button>${open ? html`<${Dialog} title=${title} onClose=${() => set(false)}>${Form ? html`<${Form} ...${form} onClose=${() => set(false)} onMade=${made} />` : html`<${Loading} />`}<//>` : null}`
}

const rowHeight = 37
// A Grid is a table of any number of rows, of which only those in sight are in the page. row(i)
// is a record, or undefined while it is not there; onRange says which rows are in sight.
export function Grid({caption, columns, total, row, rowKey, onRange, empty, chosen, onChoose, tall, order, onOrder}) {
  const ref = useRef(), frame = useRef(), [top, setTop] = useState(0), [height, setHeight] = useState(600)
  const windowed = total > 60
  const first = windowed ? Math.max(0, Math.floor(top / rowHeight) - 10) : 0
  const last = windowed ? Math.min(total, Math.ceil((top + height) / rowHeight) + 10) : total
  useLayoutEffect(() => {
    if (!ref.current) return
    const watch = new ResizeObserver(() => ref.current && setHeight(ref.current.clientHeight))
    watch.observe(ref.current)
    return () => watch.disconnect()
  }, [total > 0])
  useEffect(() => { onRange?.(first, last) }, [first, last, total])
  if (!total) return empty
  const scroll = e => { const y = e.currentTarget.scrollTop; cancelAnimationFrame(frame.current); frame.current = requestAnimationFrame(() => setTop(y)) }
  const key = e => {
    if (e.target.closest('input, select, textarea') && e.target.type !== 'checkbox' || e.ctrlKey || e.metaKey || e.altKey) return
    const step = {j: 1, ArrowDown: 1, k: -1, ArrowUp: -1}[e.key]
    const at = Number(e.target.closest('tr')?.dataset.i ?? -1)
    if (e.key === 'x' && onChoose && row(at)) { e.preventDefault(); onChoose(rowKey(row(at))); return }
    if (!step) return
    e.preventDefault()
    focusRow(ref.current, Math.min(total - 1, Math.max(0, at + step)))
  }
  const rows = []
  for (let i = first; i < last; i++) {
    const r = row(i), k = r === undefined ? 'row' + i : rowKey(r)
    rows.push(html`<tr key=${k} data-i=${i} aria-rowindex=${i + 2} class=${chosen?.has(k) ? 'chosen' : ''}>
      ${onChoose ? html`<td class="tick">${r === undefined ? null : html`<input type="checkbox" aria-label="Select ${k}" checked=${chosen.has(k)} onChange=${() => onChoose(k)} />`}</td>` : null}
      ${r === undefined ? html`<td colspan=${columns.length} class="muted">…</td>` : columns.map((c, n) => n === 0 ? html`<th scope="row">${c.cell(r)}</th>` : html`<td class=${c.num ? 'num' : ''}>${c.cell(r)}</td>`)}</tr>`)
  }
  const gap = n => n > 0 ? html`<tr aria-hidden="true" class="gap"><td colspan=${columns.length + 1} style=${{height: n * rowHeight + 'px'}}></td></tr>` : null
  return html`<div class="grid ${tall ? 'tall' : ''}" ref=${ref} tabindex="0" role="region" aria-label=${"Table: " + caption} onScroll=${scroll} onKeyDown=${key}>
    <table aria-rowcount=${total + 1}><caption class="vh">${caption}</caption>
    <thead><tr aria-rowindex="1">${onChoose ? html`<th scope="col" class="tick"><span class="vh">Selected</span></th>` : null}${columns.map(c => html`<th scope="col" class=${c.num ? 'num' : ''} aria-sort=${order?.title === c.title ? order.down ? 'descending' : 'ascending' : undefined}>${onOrder && c.sort ? html`<button type="button" class="sort" onClick=${() => onOrder(c)}>${c.title}<span aria-hidden="true">${order?.title === c.title ? order.down ? ' ▼' : ' ▲' : ''}</span></button>` : c.title}</th>`)}</tr></thead>
    <tbody>${gap(first)}${rows}${gap(total - last)}</tbody></table></div>`
}
function focusRow(grid, i, left = 3) {
  const tr = grid.querySelector(`tr[data-i="${i}"]`)
  if (tr) {
    tr.scrollIntoView({block: 'nearest'});
    (tr.querySelector('th a, th button, a, button, input') || grid).focus()
  } else if (left) {
    grid.scrollTop = i * rowHeight - grid.clientHeight / 2
    requestAnimationFrame(() => requestAnimationFrame(() => focusRow(grid, i, left - 1)))
  }
}

// A Table has all of its rows, so a click on the title of a column that has sort, a function of a row, sorts
// them: numbers from the largest, text from its beginning, then the other way round, then as they came.
export function Table({rows, columns, ...rest}) {
  const [order, set] = useState(null), by = order && columns.find(c => c.title === order.title)?.sort
  const onOrder = c => set(o => o?.title !== c.title ? {title: c.title, down: !!c.num} : o.down === !!c.num ? {...o, down: !o.down} : null)
  const list = by ? rows.map(r => [by(r), r]).sort((a, b) => compare(a[0], b[0], order.down)).map(x => x[1]) : rows
  return html`<${Grid} ...${rest} columns=${columns} total=${rows.length} row=${i => list[i]} order=${by ? order : null} onOrder=${rows.length > 1 ? onOrder : null} />`
}
// compare puts what is not known last, whichever way.
function compare(a, b, down) {
  const none = x => x === null || x === undefined || x === ''
  if (none(a) || none(b)) return none(a) - none(b)
  const n = typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b), 'en', {numeric: true})
  return down ? -n : n
}

// A Spark is a picture of a series, with a sentence that says the same.
export function Spark({values, label, unit = ''}) {
  if (!values?.length) return html`<span class="muted">no data yet</span>`
  const w = 120, hgt = 24, top = Math.max(1, ...values), n = values.length
  const step = Math.max(1, Math.ceil(n / 60)), points = []
  for (let i = 0; i < n; i += step) points.push(Math.max(...values.slice(i, i + step)))
  const x = i => i / (points.length - 1) * w, y = v => hgt - 2 - v / top * (hgt - 4)
  if (points.length < 2) points.push(points[0])
  const line = points.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(' ')
  const said = `${label}: now ${num(values.at(-1))}${unit}, at most ${num(Math.max(...values))}${unit}.`
  return html`<svg class="spark" viewBox="0 0 ${w} ${hgt}" preserveAspectRatio="none" role="img" aria-label=${said}>
    <polygon points="0,${hgt} ${line} ${w},${hgt}" /><polyline points=${line} /></svg>`
}

// ceiling is the next round number: 1, 2 or 5 with zeros.
function ceiling(v) {
  const ten = 10 ** Math.floor(Math.log10(Math.max(v, 1)))
  return [1, 2, 5, 10].map(x => x * ten).find(x => x >= v)
}
const clockTime = ms => new Date(ms).toLocaleTimeString('en-GB', {hour: '2-digit', minute: '2-digit'})

// A Chart has one or two series with axes, in which null is no value. Its values are every seconds apart, up to now, and the one below the
// pointer, or that the arrow keys have reached, is said above it.
export function Chart({title, unit = '', every, series}) {
  const [at, point] = useState(null), n = series[0].values.length, top = ceiling(Math.max(1, ...series.flatMap(s => s.values)))
  if (!n) return null
  const w = 600, high = 100, x = i => n < 2 ? 0 : i / (n - 1) * w, y = v => high - v / top * high
  const i = at === null ? n - 1 : Math.min(at, n - 1), when = k => Date.now() - (n - 1 - k) * every * 1000
  const step = Math.max(1, Math.ceil(n / 360)), path = values => {
    const list = []
    for (let k = 0; k < n; k += step) { const part = values.slice(k, k + step).filter(v => v !== null), v = Math.max(...part); if (part.length) list.push(`${x(k).toFixed(1)},${y(v).toFixed(1)}`) }
    if (list.length === 1) list.push(`${w},${list[0].split(',')[1]}`)
    return list.join(' ')
  }
  const value = (s, k) => `${s.name ? s.name + ' ' : ''}${s.values[k] === null ? '–' : num(s.values[k]) + unit}`
  const said = `${title}: ${series.map(s => `now ${value(s, n - 1)}, at most ${num(Math.max(...s.values))}${unit}`).join('; ')}.`
  const move = e => { const r = e.currentTarget.getBoundingClientRect(); point(Math.max(0, Math.min(n - 1, Math.round((e.clientX - r.left) / r.width * (n - 1))))) }
  const key = e => { const by = {ArrowLeft: -1, ArrowRight: 1, Home: -n, End: n}[e.key]; if (by) { e.preventDefault(); point(Math.max(0, Math.min(n - 1, i + by))) } }
  return html`<figure class="chart"><figcaption><strong>${title}</strong> <span class="muted">${at === null ? 'now' : new Date(when(i)).toLocaleTimeString('en-GB')}: ${series.map((s, k) => html`<span class=${'key ' + (s.kind || 'k' + k)}>${value(s, i)}</span> `)}</span></figcaption>
    <div class="plot"><div class="ys" aria-hidden="true">${[top, top / 2, 0].map(v => html`<span>${v % 1 ? '' : num(v)}</span>`)}</div>
    <svg viewBox="0 0 ${w} ${high}" preserveAspectRatio="none" role="img" tabindex="0" aria-label=${said} onPointerMove=${move} onPointerLeave=${() => point(null)} onBlur=${() => point(null)} onKeyDown=${key}>
      <line class="rule" x1="0" x2=${w} y1="0" y2="0" /><line class="rule" x1="0" x2=${w} y1=${high / 2} y2=${high / 2} />
      ${series.map((s, k) => html`<polyline class=${s.kind || 'k' + k} points=${path(s.values)} />`)}${at === null ? null : html`<line class="at" x1=${x(i)} x2=${x(i)} y1="0" y2=${high} />`}</svg>
    <div class="xs" aria-hidden="true">${[0, (n - 1) / 2, n - 1].map(k => html`<span>${clockTime(when(k))}</span>`)}</div></div></figure>`
}

export const Tile = ({name, value, note, bad, to}) => html`<div class="tile ${bad ? 'bad' : ''}"><dt>${name}</dt><dd>${to ? html`<${Link} to=${to}>${value}<//>` : value}${note ? html`<small>${note}</small>` : null}</dd></div>`
export const Facts = ({of}) => html`<dl class="facts">${of.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`

// A Tree shows JSON whose objects and arrays can be folded. Each piece of it is a piece of the text as
// it came: nothing is parsed. What is long is folded at first, and long lists grow on demand.
const folded = 2000, firstParts = 100
function Tree({text, from = 0, to = text.length, depth = 0, name}) {
  while (from < to && /\s/.test(text[from])) from++
  const own = useMemo(() => parts(text, from), [text, from])
  const [open, set] = useState(depth === 0 || to - from < folded && depth < 20), [shown, more] = useState(firstParts)
  const label = name === undefined ? null : html`<span class="name">${name}</span>${': '}`
  if (!own) return html`<div>${label}${text.slice(from, to).trimEnd()}</div>`
  const array = text[from] === '[', n = own.list.length
  if (!n) return html`<div>${label}${array ? '[]' : '{}'}</div>`
  const member = ([a, b], i) => {
    if (array) return html`<${Tree} key=${a} text=${text} from=${a} to=${b} depth=${depth + 1} name=${String(i)} />`
    const split = colon(text, a, b)
    return html`<${Tree} key=${a} text=${text} from=${split + 1} to=${b} depth=${depth + 1} name=${text.slice(a, split).trim()} />`
  }
  return html`<details open=${open} onToggle=${e => { e.stopPropagation(); set(e.currentTarget.open) }}><summary>${label}${array ? '[' : '{'} <small class="muted">${count(n, array ? 'item' : 'member')}, ${bytes(own.end - from)}</small></summary>
    ${open ? html`<div class="in">${own.list.slice(0, shown).map(member)}${n > shown ? html`<button type="button" onClick=${() => more(shown + 1000)}>${num(n - shown)} more</button>` : null}</div>` : null}</details>`
}
// colon returns where the name of a member ends.
function colon(text, a, b) {
  let at = text.indexOf('"', a) + 1
  for (; at < b && text[at] !== '"'; at++) if (text[at] === '\\') at++
  return text.indexOf(':', at)
}

// A Payload is shown as its bytes came. It is never parsed. A long one is folded at first.
export function Payload({path, title, size, version}) {
  const [text, set] = useState(null), [error, fail] = useState(null), [look, setLook] = useState(null), [wrap, setWrap] = useState(true)
  useEffect(() => {
    if (!size) return
    const stop = new AbortController()
    ask(path, {signal: stop.signal}).then(r => r.arrayBuffer()).then(b => { set(decode(new Uint8Array(b))); fail(null) }).catch(e => { if (e.name !== 'AbortError') fail(e) })
    return () => stop.abort()
  }, [path, size, version])
  const part = size > 256 * 1024, whole = useMemo(() => text !== null && !part && /^\s*[[{]/.test(text) && !!parts(text, text.search(/\S/)), [text, part])
  const as = look || (whole && size > folded ? 'tree' : 'lines')
  return html`<section class="payload"><div class="bar"><h3>${title} <small class="muted">${size ? bytes(size) : ''}</small></h3>
    ${text !== null ? html`<label class="inline">As <select value=${as} onChange=${e => setLook(e.target.value)}>${whole ? html`<option value="tree">tree</option>` : null}<option value="lines">lines</option><option value="came">it came</option></select></label><label class="inline"><input type="checkbox" checked=${wrap} onChange=${() => setWrap(!wrap)} /> Wrap</label><${Copy} text=${text} label="Copy" /><a class="button" href=${base + path + '?download=1'} download>Download</a>` : null}</div>
    <${Failure} error=${error} />
    ${!size ? html`<p class="muted">None.</p>` : text === null ? error ? null : html`<${Loading} />` : as === 'tree' ? html`<div class="tree" tabindex="0" role="region" aria-label=${title}><${Tree} text=${text} /></div>` : html`<pre tabindex="0" role="region" aria-label=${title} class=${wrap ? 'wrap' : ''}>${as === 'lines' ? indent(text) : text}</pre>`}
    ${part ? html`<p class="muted">These are the first 256 KiB. Download it to see all.</p>` : null}</section>`
}

// A Raw shows an answer of the API as it came.
export function Raw({path, title}) {
  const [text, set] = useState(null), [error, fail] = useState(null)
  useEffect(() => { ask(path).then(r => r.arrayBuffer()).then(b => set(decode(new Uint8Array(b)))).catch(fail) }, [path])
  return html`<${Failure} error=${error} />${text === null ? null : html`<pre tabindex="0" role="region" aria-label=${title} class="wrap">${indent(text)}</pre>`}`
}

const maxLines = 5000
// A Log follows a log of the API.
export function Log({path, title}) {
  const [lines, set] = useState([]), [state, setState] = useState('connecting'), [paused, setPaused] = useState(false)
  const [find, setFind] = useState(''), [source, setSource] = useState(''), [wrap, setWrap] = useState(true)
  const box = useRef(), held = useRef([]), visible = useVisible()
  useEffect(() => {
    if (paused || !visible) return
    const s = new EventSource(base + path + '?tail=500')
    held.current = []
    let t, seen = new Set()
    const flush = () => { t = null; set(held.current.slice()) }
    s.onopen = () => setState('following')
    s.onmessage = e => {
      if (seen.has(e.lastEventId)) return
      seen.add(e.lastEventId)
      if (seen.size > 2 * maxLines) seen = new Set()
      let l
      try { l = JSON.parse(e.data) } catch { return }
      held.current.push({...l, line: plain(l.line)})
      if (held.current.length > maxLines) held.current.splice(0, held.current.length - maxLines)
      t ||= setTimeout(flush, 250)
    }
    s.onerror = () => setState(s.readyState === EventSource.CLOSED ? 'ended' : 'reconnecting')
    return () => { s.close(); clearTimeout(t) }
  }, [path, paused, visible])
  useLayoutEffect(() => { const b = box.current; if (b && b.dataset.end !== 'no') b.scrollTop = b.scrollHeight }, [lines])
  const shown = lines.filter(l => (!source || l.source === source) && (!find || l.line.toLowerCase().includes(find.toLowerCase())))
  const text = () => shown.map(l => `${l.ts} ${l.source} ${l.line}`).join('\n') + '\n'
  const scroll = e => { const b = e.currentTarget; b.dataset.end = b.scrollHeight - b.scrollTop - b.clientHeight < 40 ? 'yes' : 'no' }
  return html`<section><div class="bar"><h3>${title}</h3><span class="muted" role="status">${paused ? 'paused' : state}, ${num(shown.length)} lines</span>
    <label class="inline">Source <select value=${source} onChange=${e => setSource(e.target.value)}><option value="">all</option><option>container</option><option>system</option></select></label>
    <label class="inline">Find <input type="search" value=${find} onInput=${e => setFind(e.target.value)} /></label>
    <label class="inline"><input type="checkbox" checked=${wrap} onChange=${() => setWrap(!wrap)} /> Wrap</label>
    <button type="button" onClick=${() => setPaused(!paused)}>${paused ? 'Go on' : 'Pause'}</button><${Save} name="log.txt" text=${text} type="text/plain" /></div>
    ${shown.length ? html`<pre class="log ${wrap ? 'wrap' : ''}" ref=${box} tabindex="0" role="region" aria-label=${title} onScroll=${scroll}>${shown.slice(-1000).map(l => html`<div key=${l.ts + l.line}><span class="muted">${l.ts.slice(11, 23)}</span> ${l.source === 'system' ? html`<span class="sys">system</span> ` : null}${l.line}</div>`)}</pre>` : html`<${Empty} title=${lines.length ? 'No line matches.' : 'No lines yet.'}>${lines.length ? '' : 'Lines appear here as they are written.'}<//>`}
    ${shown.length > 1000 ? html`<p class="muted">These are the last 1,000 lines. Save has all ${num(shown.length)}.</p>` : null}</section>`
}
const maxItems = 1000
// A Tail shows the chunks of a job as they come. It leaves them to the reader of the stream.
export function Tail({path}) {
  const [items, set] = useState([]), [state, setState] = useState('connecting'), [paused, setPaused] = useState(false), [wrap, setWrap] = useState(true), [chunks, setChunks] = useState(0)
  const box = useRef(), at = useRef({run: 0, next: 0, list: [], id: ''}), visible = useVisible()
  useEffect(() => {
    if (paused || !visible) return
    const s = new EventSource(base + path + (at.current.id ? '?after=' + at.current.id : '')), a = at.current
    s.onopen = () => setState('following')
    s.addEventListener('items', e => {
      const d = JSON.parse(e.data)
      if (d.run !== a.run) Object.assign(a, {run: d.run, next: 0, list: []})
      if (d.first > a.next) a.list.push({gap: true, from: a.next, to: d.first - 1})
      d.items.forEach((x, i) => a.list.push({n: d.first + i, text: decode(Uint8Array.from(atob(x), c => c.charCodeAt(0)))}))
      a.next = d.first + d.items.length
      a.id = e.lastEventId
      if (a.list.length > maxItems) a.list.splice(0, a.list.length - maxItems)
      setChunks(d.chunks)
      set(a.list.slice())
    })
    s.addEventListener('end', () => { setState('the job has ended'); s.close() })
    s.addEventListener('out', () => { setState('this key may not see it any more'); s.close() })
    s.onerror = () => setState(s.readyState === EventSource.CLOSED ? 'ended' : 'reconnecting')
    return () => s.close()
  }, [path, paused, visible])
  useLayoutEffect(() => { const b = box.current; if (b && b.dataset.end !== 'no') b.scrollTop = b.scrollHeight }, [items])
  const scroll = e => { const b = e.currentTarget; b.dataset.end = b.scrollHeight - b.scrollTop - b.clientHeight < 40 ? 'yes' : 'no' }
  const unseen = chunks - at.current.next
  return html`<section aria-labelledby="stream"><div class="bar"><h2 id="stream">Stream</h2><span class="muted" role="status">${paused ? 'paused' : state}, ${num(chunks)} chunks</span>
    <label class="inline"><input type="checkbox" checked=${wrap} onChange=${() => setWrap(!wrap)} /> Wrap</label><button type="button" onClick=${() => setPaused(!paused)}>${paused ? 'Go on' : 'Pause'}</button></div>
    ${items.length ? html`<pre class="log ${wrap ? 'wrap' : ''}" ref=${box} tabindex="0" role="region" aria-label="Chunks" onScroll=${scroll}>${items.map(x => x.gap ? html`<div key=${'gap' + x.from} class="muted">${x.from === x.to ? `Chunk ${num(x.from)} was` : `Chunks ${num(x.from)} to ${num(x.to)} were`} read by a client before this page could see ${x.from === x.to ? 'it' : 'them'}.</div>` : html`<div key=${x.n}><span class="muted">${num(x.n)}</span> ${x.text}</div>`)}</pre>` : html`<${Empty} title="No chunks yet.">They appear here as they come. The page does not take them from the reader of the stream.<//>`}
    ${unseen > 0 && !paused ? html`<p class="muted">${num(unseen)} more are kept. They are shown when a client has read those before them: the page looks at the first MiB.</p>` : null}</section>`
}

// plain takes the colours of a terminal out of a line.
const plain = s => String(s).replace(/\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)/g, '')

export function Save({name, text, type = 'text/csv', label = 'Save'}) {
  const save = () => {
    const url = URL.createObjectURL(new Blob([text()], {type})), a = document.createElement('a')
    a.href = url
    a.download = name
    a.click()
    setTimeout(() => URL.revokeObjectURL(url), 1000)
  }
  return html`<button type="button" onClick=${save}>${label}</button>`
}

export const Tabs = ({label, list}) => html`<nav class="tabs" aria-label=${label}><ul>${list.filter(Boolean).map(t => html`<li><${Link} to=${t.to} aria-current=${t.here ? 'page' : undefined}>${t.name}<//></li>`)}</ul></nav>`
export const writable = () => !session.value?.readOnly
