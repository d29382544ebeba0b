// Forms that create a record, made of what the server's own description of its operations says of each field.
import {html, useState, useEffect, useRef, ask, get, api} from './lib.mjs'
import {Failure, Loading} from './ui.mjs'

let description // is read once

const kindOf = s => Array.isArray(s.type) ? s.type.find(t => t !== 'null') : s.type
const titles = {cpu: 'CPU', gpu: 'GPU', env: 'Environment', id: 'Id of the type', vcpuCount: 'vCPUs', dataCenterIds: 'Data centers', templateId: 'Template', podyard: 'Of this service alone', s3Config: 'S3'}
const words = name => { if (Object.hasOwn(titles, name)) return titles[name]; const t = name.replace(/([a-z])([A-Z])/g, '$1 $2').toLowerCase(); return t[0].toUpperCase() + t.slice(1) }
const isText = s => kindOf(s) === 'string'

// fieldOf says how a field is filled in: a group of fields, or one control whose text becomes JSON.
function fieldOf(doc, s) {
  while (s.$ref) s = {...doc.components.schemas[s.$ref.split('/').at(-1)], ...s, $ref: undefined}
  const kind = kindOf(s)
  if (kind === 'object' && s.properties) return {s, group: true}
  if (kind === 'object' && s.additionalProperties && isText(s.additionalProperties)) return {s, lines: true, hint: 'one NAME=value a line', json: pairs}
  if (kind === 'array' && isText(s.items || {})) return {s, lines: true, hint: 'one a line', json: text => JSON.stringify(text.split('\n').map(l => l.trim()).filter(Boolean))}
  if (kind === 'object' || kind === 'array' || !kind) return {s, lines: true, hint: kind === 'array' ? 'a JSON list' : 'a JSON object', json: checked}
  if (kind === 'boolean') return {s, choices: ['true', 'false'], json: text => text}
  if (s.enum) return {s, choices: s.enum.filter(x => x !== null), json: text => JSON.stringify(text)}
  return kind === 'string' ? {s, json: text => JSON.stringify(text)} : {s, number: true, json: text => text}
}
function pairs(text) {
  const list = text.split('\n').filter(l => l.trim()).map(l => [l.slice(0, l.indexOf('=')).trim(), l.slice(l.indexOf('=') + 1), l.includes('=')])
  const bad = list.find(l => !l[2])
  if (bad) throw new Error('A line has no "=".')
  return JSON.stringify(Object.fromEntries(list))
}
// checked returns the text itself, so that numbers stay as they were written.
function checked(text) {
  JSON.parse(text)
  return text
}

// bodyOf returns the JSON of an object of which something is filled in, or null.
function bodyOf(doc, s, values, at) {
  const members = []
  for (const [name, property] of Object.entries(s.properties)) {
    const f = fieldOf(doc, property), path = at + name, text = values[path]
    let json = null
    try { json = f.group ? bodyOf(doc, f.s, values, path + '.') : text?.trim() ? f.json(text) : null } catch (e) { throw new Error(`${path}: ${e.message}`) }
    if (json !== null) members.push(`${JSON.stringify(name)}:${json}`)
  }
  return members.length ? `{${members.join(',')}}` : null
}

function Field({doc, name, property, path, required, values, set}) {
  const f = fieldOf(doc, property), about = /^The (id|name)\.$/.test(f.s.description) ? '' : f.s.description || '', at = 'f-' + path
  if (f.group) return html`<${Group} doc=${doc} name=${words(name)} about=${about} s=${f.s} path=${path + '.'} values=${values} set=${set} needed=${required} />`
  const bounds = f.number && f.s.minimum !== undefined ? f.s.maximum < 2 ** 31 - 1 ? `${f.s.minimum} to ${f.s.maximum}` : `at least ${f.s.minimum}` : '', note = [about, bounds, f.hint].filter(Boolean).join(' · ')
  const given = {id: at, name: path, required, value: values[path] ?? '', onInput: e => set(path, e.target.value), 'aria-describedby': note ? at + '-note' : undefined}
  return html`<div class="field"><label for=${at}>${words(name)}${required ? '' : html` <small class="muted">(optional)</small>`}</label>${f.choices ? html`<select ...${given}><option value="">${required ? '' : 'default'}</option>${f.choices.map(x => html`<option>${x}</option>`)}</select>` : f.lines ? html`<textarea ...${given} rows="3" spellcheck=${false}></textarea>` : html`<input ...${given} type=${f.number ? 'number' : /^(value|password)$/.test(name) ? 'password' : 'text'} step="any" min=${f.s.minimum} max=${f.s.maximum} autocomplete="off" spellcheck=${false} />`}${note ? html`<small class="muted" id=${at + '-note'}>${note}</small>` : null}</div>`
}

// A Group may be left out as a whole: its members are required only if one of them is there.
function Group({doc, name, about, s, path, values, set, needed}) {
  const used = needed || Object.keys(values).some(k => k.startsWith(path) && values[k].trim())
  return html`<details class="group" open=${needed || undefined}><summary>${name}${about ? html` <small class="muted">${about}</small>` : null}</summary>${Object.entries(s.properties).map(([k, p]) => html`<${Field} key=${k} doc=${doc} name=${k} property=${p} path=${path + k} required=${used && (s.required || []).includes(k)} values=${values} set=${set} />`)}</details>`
}

// Create is the form of an operation. main names the fields that are always in sight; all others are folded.
export function Create({operation, path, main, start = {}, yes, onClose, onMade}) {
  const [doc, setDoc] = useState(null), [values, setValues] = useState(start), [error, fail] = useState(null), [busy, set] = useState(false), form = useRef(), key = useRef(crypto.randomUUID())
  const put = (name, text) => setValues(v => ({...v, [name]: text}))
  useEffect(() => { description ||= get(api('openapi.json')); description.then(setDoc, e => { description = null; fail(e) }) }, [])
  useEffect(() => { if (doc) form.current.elements[0]?.focus() }, [doc])
  if (!doc) return error ? html`<${Failure} error=${error} />` : html`<${Loading} />`
  const of = Object.values(doc.paths).flatMap(p => Object.values(p)).find(o => o.operationId === operation), {s} = fieldOf(doc, of.requestBody.content['application/json'].schema)
  const submit = async e => {
    e.preventDefault()
    set(true)
    fail(null)
    try { onMade(await (await ask(path, {method: 'POST', json: bodyOf(doc, s, values, '') || '{}', key: key.current})).json()) } catch (x) { fail(x); set(false) }
  }
  const field = k => html`<${Field} key=${k} doc=${doc} name=${k} property=${s.properties[k]} path=${k} required=${(s.required || []).includes(k)} values=${values} set=${put} />`
  const shown = main.filter(k => s.properties[k]), rest = Object.keys(s.properties).filter(k => !shown.includes(k))
  return html`<form class="made" ref=${form} onSubmit=${submit}>${shown.map(field)}${rest.length ? html`<details class="group"><summary>More settings</summary>${rest.map(field)}</details>` : null}
    <${Failure} error=${error} /><div class="bar end"><button type="button" onClick=${onClose}>Close</button><button class="primary" disabled=${busy}>${yes}</button></div></form>`
}
