// A terminal inside a pod. The page of a pod loads this module when somebody opens one.
import {Terminal} from './vendor/xterm.mjs'
import {FitAddon} from './vendor/addon-fit.mjs'
import {base, get, num, pause} from './lib.mjs'

const maxMessage = 32 << 10 // bytes of what is typed or pasted at once; the server takes 64 KB
const maxBehind = 32 << 20 // bytes that are not shown yet

// styled waits for the style of the terminal, which other pages do without.
let style
function styled() {
  return style ||= new Promise((done, failed) => {
    const link = document.createElement('link')
    Object.assign(link, {rel: 'stylesheet', nonce: document.querySelector('script').nonce, href: new URL('./vendor/xterm.css', import.meta.url).href, onload: done})
    link.onerror = () => { style = null; link.remove(); failed(new Error('The style of the terminal is not there.')) }
    document.head.append(link)
  })
}

// open shows a terminal in box until it has ended. on.state is called when it is there, on.end with the
// reason of its end, and on.leave when the user asks the focus to leave. It returns what closes it.
export async function open(box, path, on) {
  await styled()
  const css = getComputedStyle(box)
  const screen = new Terminal({fontFamily: css.fontFamily, fontSize: parseFloat(css.fontSize), cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches, minimumContrastRatio: 4.5, theme: {background: '#14181d', foreground: '#e8eaed'}})
  const fit = new FitAddon()
  screen.loadAddon(fit)
  screen.open(box)
  fit.fit()
  const url = new URL(base + path, location.href)
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:'
  url.search = new URLSearchParams({columns: screen.cols, rows: screen.rows})
  const socket = new WebSocket(url), encoder = new TextEncoder()
  let opened = false, over = false, behind = 0
  const end = text => {
    if (over) return
    over = true
    watch.disconnect()
    screen.options.disableStdin = true
    screen.options.cursorBlink = false
    socket.close()
    on.end(text)
  }
  const send = data => { if (socket.readyState === WebSocket.OPEN) socket.send(data) }
  const type = bytes => { for (let i = 0; i < bytes.length; i += maxMessage) send(bytes.subarray(i, i + maxMessage)) }
  const watch = new ResizeObserver(() => { if (box.clientWidth) fit.fit() })
  watch.observe(box)
  screen.onResize(size => send(JSON.stringify({columns: size.cols, rows: size.rows})))
  screen.onData(text => type(encoder.encode(text)))
  screen.onBinary(text => type(Uint8Array.from(text, c => c.charCodeAt(0))))
  screen.attachCustomKeyEventHandler(e => {
    if (e.key !== 'F6' || !e.ctrlKey) return true
    if (e.type === 'keydown') { e.preventDefault(); on.leave() }
    return false
  })
  socket.binaryType = 'arraybuffer'
  socket.onopen = () => { opened = true; send(JSON.stringify({columns: screen.cols, rows: screen.rows})); on.state('Connected.'); screen.focus() }
  socket.onmessage = e => {
    if (typeof e.data === 'string') { end(reason(e.data)); return }
    const n = e.data.byteLength
    behind += n
    if (behind > maxBehind) end('It ended: the program writes faster than the page can show it.')
    else screen.write(new Uint8Array(e.data), () => { behind -= n })
  }
  socket.onclose = () => { if (opened) end('It ended: the connection was lost.'); else refused(path).then(end) }
  return () => { over = true; watch.disconnect(); socket.close(); screen.dispose() }
}

function reason(text) {
  const last = JSON.parse(text)
  return last.error ? `It ended: ${last.error}.` : `It ended: the command returned ${num(last.exitCode)}.`
}

// refused asks why there is no terminal: a browser does not say it.
async function refused(path) {
  await pause(200) // what has just been counted for it is free again
  try { await get(path) } catch (e) { if (e.status && e.status !== 400) return `There is no terminal: ${e.message}` }
  return 'There is no terminal: the connection was not made. A proxy in front must pass WebSockets on.'
}
