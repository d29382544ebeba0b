// Cron expressions in words.
const days = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday']
const names = days.map(d => d.slice(0, 3).toUpperCase())

// number is the value of a field that is one number in its bounds; null for any other.
const number = (text, low, high) => /^\d{1,2}$/.test(text) && +text >= low && +text <= high ? +text : null
// step is n of a field */n that divides the whole evenly; 1 of *; null for any other.
const step = (text, whole) => {
  if (text === '*') return 1
  const n = /^\*\/\d{1,2}$/.test(text) ? +text.slice(2) : 0
  return n > 0 && n < whole && whole % n === 0 ? n : null
}
const every = (n, what) => n === 1 ? `every ${what}` : `every ${n} ${what}s`

// on is on which days of the week; null: not in words.
function on(text) {
  const t = text.toUpperCase()
  if (t === '*') return 'every day'
  if (t === 'MON-FRI' || t === '1-5') return 'Monday to Friday'
  const i = names.includes(t) ? names.indexOf(t) : number(t, 0, 7)
  return i === null ? null : `every ${days[i % 7]}`
}

// inWords says when a cron expression is due, as "every day at 03:00". It is null for one that is not
// as simple as that: the expression itself is clearer then.
export function inWords(expression) {
  const f = expression.trim().split(/\s+/)
  if (f.length !== 5) return null
  const [minute, hour, day, month, weekday] = f, m = number(minute, 0, 59), h = number(hour, 0, 23)
  if (month !== '*') return null
  const daily = day === '*' && weekday === '*'
  if (daily && hour === '*' && step(minute, 60)) return every(step(minute, 60), 'minute')
  if (m === null) return null
  if (daily && step(hour, 24)) return every(step(hour, 24), 'hour') + (m ? `, ${m} min past` : '')
  if (h === null) return null
  const at = `at ${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`
  if (day === '*') return on(weekday) && `${on(weekday)} ${at}`
  const d = number(day, 1, 31)
  return d !== null && weekday === '*' ? `on day ${d} of every month ${at}` : null
}
