// What all modules share: rendering, the requests of the page, and its address.
import {h, render, createContext} from './vendor/preact.mjs'
import {useState, useEffect, useRef, useMemo, useCallback, useContext, useLayoutEffect} from './vendor/hooks.mjs'
import htm from './vendor/htm.mjs'

export const html = htm.bind(h)
export {render, createContext, useState, useEffect, useRef, useMemo, useCallback, useContext, useLayoutEffect}

// base is the path of the console, with a slash at its end.
export const base = document.documentElement.dataset.base

// A Signal is a value that components follow.
class Signal {
  constructor(value) { this.value = value; this.followers = new Set() }
  set(value) { if (value !== this.value) { this.value = value; for (const f of [...this.followers]) f(value) } }
}
export const signal = value => new Signal(value)
export function useSignal(s) {
  const [, again] = useState(0), value = s.value
  useLayoutEffect(() => { const f = () => again(n => n + 1); s.followers.add(f); if (s.value !== value) f(); return () => s.followers.delete(f) }, [s])
  return value
}

// clock counts every 5 s: one timer for all times of a page.
export const clock = signal(0)
setInterval(() => { if (!document.hidden) clock.set(clock.value + 1) }, 5000)

export const session = signal(undefined) // undefined: not known yet; null: nobody
export const online = signal(true)
export const notice = signal(null) // {text, bad}: the last thing that was done
export const say = (text, bad) => notice.set({text, bad, at: Date.now()})

// An act of the user makes the session longer; a request that the page makes by itself does not.
let lastAct = Date.now()
for (const e of ['pointerdown', 'keydown', 'wheel', 'touchstart']) addEventListener(e, () => { lastAct = Date.now() }, {passive: true, capture: true})

export class Problem extends Error {
  constructor(status, doc, wait) {
    super(doc.detail || doc.error || doc.title || `The server answered ${status}.`)
    this.status = status
    this.errors = doc.errors || []
    this.wait = wait
  }
}

// ask makes a request below the console and returns the answer.
// A body is a value, or json, the text of one. A request with a key is not carried out twice.
export async function ask(path, {method = 'GET', body, json = body === undefined ? undefined : JSON.stringify(body), key, signal: abort} = {}) {
  const headers = {}
  if (method !== 'GET') headers['Podyard-Console'] = '1'
  if (Date.now() - lastAct > 60000) headers['Podyard-Auto'] = '1'
  if (json !== undefined) headers['Content-Type'] = 'application/json'
  if (key) headers['Idempotency-Key'] = key
  let r
  try {
    r = await fetch(base + path, {method, headers, body: json, signal: abort, credentials: 'same-origin', redirect: 'error'})
  } catch (e) {
    if (e.name === 'AbortError') throw e
    online.set(false)
    throw new Problem(0, {detail: 'The server cannot be reached.'})
  }
  online.set(true)
  if (r.ok) return r
  let doc = {}
  try { doc = await r.json() } catch { /* the status says enough */ }
  if (r.status === 401 && path !== 'session') session.set(null)
  throw new Problem(r.status, doc, Number(r.headers.get('Retry-After')) || 0)
}
export async function get(path, o) { return (await ask(path, o)).json() }
export const api = path => 'api/v2/' + path
export async function change(method, path, body) {
  const r = await ask(path, {method, body})
  return r.status === 204 ? null : r.json().catch(() => null)
}
export const id = encodeURIComponent
export const pause = ms => new Promise(done => setTimeout(done, ms))

// patiently repeats a request that came too soon.
export async function patiently(f) {
  for (;;) {
    try { return await f() } catch (e) {
      if (e.status !== 429) throw e
      await pause(1000 * Math.max(e.wait, 1))
    }
  }
}

// The address of the page below base.
export const place = signal(here())
function here() {
  const path = location.pathname.startsWith(base) ? location.pathname.slice(base.length) : ''
  return {parts: path.split('/').filter(Boolean).map(safeDecode), query: new URLSearchParams(location.search), key: location.href}
}
function safeDecode(s) { try { return decodeURIComponent(s) } catch { return s } }
// back is what was kept of a page that the user comes back to. The data of the page come later than the page,
// so the browser could not put it where it was.
history.scrollRestoration = 'manual'
addEventListener('popstate', e => place.set({...here(), back: e.state}))
export const keep = what => history.replaceState({...history.state, ...what}, '')
export function go(path, replace) {
  if (!replace) keep({y: scrollY, inner: document.querySelector('.grid.tall')?.scrollTop || 0})
  history[replace ? 'replaceState' : 'pushState'](null, '', base + path)
  place.set(here())
}
// restore scrolls to where a page was, as soon as it is long enough, unless the user is quicker.
export function restore({y = 0, inner = 0}, key) {
  const began = Date.now()
  const step = () => {
    if (place.value.key !== key || lastAct > began || Date.now() - began > 5000) return
    const grid = document.querySelector('.grid.tall')
    if (grid) grid.scrollTop = inner
    scrollTo(0, y)
    if (Math.abs(scrollY - y) > 2 || inner && Math.abs((grid?.scrollTop ?? 0) - inner) > 2) setTimeout(step, 50)
  }
  step()
}
export function Link({to, children, ...rest}) {
  const click = e => {
    if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
    e.preventDefault()
    go(to)
  }
  return html`<a href=${base + to} onClick=${click} ...${rest}>${children}</a>`
}

// What the key of the session may do.
const levels = ['read', 'run', 'write']
function covers(scope, need) {
  if (scope === '*') return need !== 'operator'
  if (scope === need) return true
  const s = scope.split(':'), n = need.split(':')
  if (s.length !== n.length || s[0] !== n[0]) return false
  if (s.length === 3 && s[1] !== '*' && s[1] !== n[1]) return false
  const has = levels.indexOf(s.at(-1)), wants = levels.indexOf(n.at(-1))
  return has >= 0 && wants >= 0 && has >= wants
}
export function can(need) {
  const s = session.value
  if (!s) return false
  const writes = /:(write|run)$/.test(need)
  return !(writes && s.readOnly) && s.scopes.some(x => covers(x, need))
}
export const has = operation => !!session.value && session.value.operations.includes(operation)

// The live stream: one for each tab. tick counts what has happened, and health is that of the
// endpoint of the page.
export const tick = signal(0)
export const health = signal(null)
export const live = signal('off') // on, off, paused, broken
let source, following, again
export function follow(endpoint) {
  following = endpoint
  health.set(null)
  connect()
}
export function setPaused(paused) { live.set(paused ? 'paused' : 'off'); connect() }
function connect() {
  clearTimeout(again)
  if (source) { source.close(); source = null }
  if (!session.value || live.value === 'paused' || document.hidden) return
  source = new EventSource(base + 'data/live' + (following ? '?endpoint=' + id(following) : ''))
  const next = () => tick.set(tick.value + 1)
  source.addEventListener('open', () => { online.set(true); live.set('on'); next() })
  source.addEventListener('health', e => { health.set({endpoint: following, ...JSON.parse(e.data)}); next() })
  source.addEventListener('look', next)
  source.addEventListener('out', () => { source.close(); session.set(null) })
  source.addEventListener('error', () => {
    live.set('broken')
    if (source.readyState === EventSource.CLOSED) {
      again = setTimeout(connect, 3000)
      get('session').catch(() => {})
    } else online.set(false)
  })
}
document.addEventListener('visibilitychange', connect)
session.followers.add(connect)

// useData reads path now, when it changes, and when something has happened, but at most every
// 2 s. Old data stay while new ones are read.
export function useData(path, {steady, every} = {}) {
  const [state, set] = useState({data: null, error: null, loading: true})
  const n = useSignal(tick)
  const last = useRef({at: 0, path: null, busy: false})
  const [asked, askAgain] = useState(0)
  useEffect(() => () => clearTimeout(last.current.again), [path])
  useEffect(() => {
    if (!path) { set({data: null, error: null, loading: false}); return }
    const l = last.current
    const load = async () => {
      l.at = Date.now()
      l.path = path
      l.busy = true
      try {
        const data = await get(path)
        if (l.path === path) set({data, error: null, loading: false})
      } catch (error) {
        if (l.path !== path) return
        set(s => ({data: s.data, error, loading: false}))
        // The server is busy, or the user has too much open at once: it says when to ask again.
        if (error.wait && (error.status === 429 || error.status === 503)) l.again = setTimeout(() => { l.asked = true; askAgain(x => x + 1) }, 1000 * error.wait)
      } finally { l.busy = false }
    }
    if (l.path !== path) { if (l.path) set({data: null, error: null, loading: true}); load(); return }
    if (steady && !l.asked) return
    l.asked = false
    const t = setTimeout(() => { if (!l.busy) load() }, Math.max(0, l.at + 2000 - Date.now()))
    return () => clearTimeout(t)
  }, [path, n, asked])
  useEffect(() => {
    if (!every) return
    const t = setInterval(() => { if (!document.hidden && live.value !== 'paused') askAgain(x => x + 1) }, every)
    return () => clearInterval(t)
  }, [every])
  const reload = useCallback(() => { last.current.asked = true; last.current.at = 0; askAgain(x => x + 1) }, [])
  return {...state, reload}
}

// useVisible reports whether somebody can see the page: streams end while nobody can.
export function useVisible() {
  const [seen, set] = useState(!document.hidden)
  useEffect(() => {
    const f = () => set(!document.hidden)
    document.addEventListener('visibilitychange', f)
    return () => document.removeEventListener('visibilitychange', f)
  }, [])
  return seen
}

// Words and numbers.
const number = new Intl.NumberFormat('en')
export const num = n => n === null || n === undefined ? '–' : number.format(n)
export const count = (n, one, many) => `${num(n)} ${n === 1 ? one : many || one + 's'}`
export function duration(ms) {
  if (ms === null || ms === undefined) return '–'
  if (ms < 1000) return `${Math.round(ms)} ms`
  const s = ms / 1000
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`
}
export function bytes(n) {
  if (n < 1024) return count(n, 'byte')
  for (const unit of ['KiB', 'MiB', 'GiB']) { n /= 1024; if (n < 1024 || unit === 'GiB') return `${n.toFixed(1)} ${unit}` }
}
// moment is the clock time of an instant, with its day if that is not today. The zone is the browser's.
export function moment(at) {
  const t = new Date(at), time = t.toLocaleTimeString('en-GB')
  return t.toDateString() === new Date().toDateString() ? time : `${t.toLocaleDateString('en-GB', {day: 'numeric', month: 'short'})} ${time}`
}
export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone

// errorParts takes the error of an SDK apart, which is the text of an object with the message and the traceback.
export function errorParts(text) {
  if (typeof text !== 'string' || !/^\s*\{/.test(text)) return {message: text || ''}
  let e
  try { e = JSON.parse(text) } catch { return {message: text} }
  if (typeof e.error_message !== 'string') return {message: text}
  const kind = typeof e.error_type === 'string' ? e.error_type.replace(/^<class '(.*)'>$/, '$1') : ''
  return {message: (kind ? kind + ': ' : '') + e.error_message, trace: typeof e.error_traceback === 'string' ? e.error_traceback : '', text}
}
export const usd = n => '$' + n.toFixed(Math.abs(n) < 1 && n !== 0 ? 4 : 2)

// decode returns the text of bytes. What is not UTF-8 is shown as \xNN.
export function decode(b) {
  const strict = () => new TextDecoder('utf-8', {fatal: true, ignoreBOM: true})
  try { return strict().decode(b) } catch { /* below */ }
  let out = ''
  for (let i = 0; i < b.length;) {
    const n = b[i] < 0x80 ? 1 : b[i] < 0xe0 ? 2 : b[i] < 0xf0 ? 3 : 4
    try { out += strict().decode(b.subarray(i, i + n)); i += n } catch { out += '\\x' + b[i].toString(16).padStart(2, '0'); i++ }
  }
  return out
}

// parts finds the members of the object or array that begins at i: where each begins and ends, in
// the text as it is. It returns null for what is neither, or has no end.
export function parts(text, i) {
  const close = {'{': '}', '[': ']'}[text[i]], list = []
  if (!close) return null
  let depth = 0, from = i + 1
  for (let at = i + 1; at < text.length; at++) {
    const c = text[at]
    if (c === '"') { for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === '\\') at++ }
    else if (c === '{' || c === '[') depth++
    else if (depth ? false : c === ',' || c === close) {
      if (c === ',' || text.slice(from, at).trim()) list.push([from, at])
      if (c === close) return {list, end: at + 1}
      from = at + 1
    } else if (c === '}' || c === ']') depth--
  }
  return null
}

// indent breaks JSON into lines. It changes blanks outside of strings and nothing else, so
// numbers stay as they are written.
export function indent(text) {
  let out = '', depth = 0, inString = false
  const line = () => '\n' + '  '.repeat(Math.min(depth, 40))
  const empty = /\s*([}\]])/y
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (inString) {
      out += c
      if (c === '\\') out += text[++i] ?? ''
      else if (c === '"') inString = false
    } else if (c === '"') { out += c; inString = true }
    else if (c === '{' || c === '[') {
      empty.lastIndex = i + 1
      const close = empty.exec(text)
      if (close) { out += c + close[1]; i += close[0].length } else { depth++; out += c + line() }
    } else if (c === '}' || c === ']') { depth = Math.max(0, depth - 1); out += line() + c }
    else if (c === ',') out += c + line()
    else if (c === ':') out += ': '
    else if (!/\s/.test(c)) out += c
  }
  return out
}
