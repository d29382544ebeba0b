// A test double of the pod and serverless API: a server with a clock that tests move.
//
//	const { start } = require("podyard-double")
//	before(async () => { double = await start() })
//	beforeEach(() => double.reset())
//	after(() => double.close())
const { spawn } = require("node:child_process")
const { once } = require("node:events")
const { createInterface } = require("node:readline")

// Refused is an error with the double's own explanation.
class Refused extends Error {}

// program is the path of the program.
function program() {
  if (process.env.PODYARD_PROGRAM) return process.env.PODYARD_PROGRAM
  const name = `podyard-double-${process.platform}-${process.arch}`
  const file = process.platform === "win32" ? "podyard.exe" : "podyard"
  try {
    return require.resolve(`${name}/bin/${file}`)
  } catch {
    throw new Error(`podyard-double: the package ${name} is not installed: was npm run with --omit=optional?`)
  }
}

async function run() {
  const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("PODYARD_")))
  const child = spawn(program(), ["test", "-addr", "127.0.0.1:0", "-log-level", "warn"], { stdio: ["ignore", "pipe", "inherit"], env })
  const failed = once(child, "error").then(([error]) => { throw error })
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
  const word = async () => {
    const line = await Promise.race([lines.next(), failed])
    if (line.done) throw new Error("the test double did not start")
    return line.value.split(" ").pop()
  }
  const url = await word()
  const area = await word()
  failed.catch(() => {})
  child.unref()
  child.stdout.unref?.()
  process.once("exit", () => child.kill())
  return { child, url, area }
}

// variables are what clients of the service read.
function variables(url, key, webhookSecret) {
  return {
    RUNPOD_API_KEY: key,
    RUNPOD_ENDPOINT_BASE_URL: `${url}/v2`,
    RUNPOD_SERVERLESS_API_URL: `${url}/v2`,
    RUNPOD_API_BASE_URL: url,
    RUNPOD_REST_API_URL: `${url}/v2`,
    RUNPOD_URL_MIXED_OK: "1",
    PODYARD_URL: url,
    PODYARD_API_KEY: key,
    PODYARD_WEBHOOK_SECRET: webhookSecret,
  }
}

const shown = 20 // how many requests and jobs a report has

// short is one line, not too long.
function short(text) {
  const line = text.split(/\s+/).join(" ").trim()
  return line.length <= 300 ? line : line.slice(0, 300) + "..."
}

// told is what an answer says of an error.
function told(answer) {
  try {
    const doc = JSON.parse(answer)
    return short(String(doc?.detail ?? doc?.error ?? ""))
  } catch {
    return short(answer)
  }
}

// start starts a server on free ports, and sets the variables that clients read. With
// PODYARD_TEST_URL it uses the one that runs there.
async function start() {
  const area = process.env.PODYARD_TEST_URL
  const server = area ? { url: process.env.PODYARD_URL, area } : await run()
  async function ask(method, path, body) {
    const answer = await fetch(server.area + path, { method, body: body && JSON.stringify(body) })
    const text = await answer.text()
    let out = {}
    try {
      out = JSON.parse(text)
    } catch {
      out = { detail: text }
    }
    if (!answer.ok) throw new Refused(`${method} ${path}: ${answer.status} ${out.errors?.join("; ") ?? out.detail}`)
    return out
  }
  const about = await ask("GET", "")
  const env = variables(server.url, about.key, about.webhookSecret)
  const before = Object.fromEntries(Object.keys(env).map((name) => [name, process.env[name]]))
  Object.assign(process.env, env)
  return {
    url: server.url,
    key: about.key,
    env,
    ask,
    reset: () => ask("POST", "/reset", {}),
    script: (endpoint, ...outcomes) => ask("POST", `/endpoints/${endpoint}/script`, { outcomes }),
    advance: (seconds) => ask("POST", "/clock/advance", { ms: seconds * 1000 }),
    fault: (name, match) => ask("POST", "/faults", { name, ...match }),
    async require(kind, match) {
      const found = await ask("POST", `/${kind}/find`, match)
      if (!found.ok) throw new Refused(found.explanation)
      return found.matches
    },
    // report is what the service saw, without headers, inputs and secrets: for a test that has failed.
    async report() {
      const requests = (await ask("GET", "/requests")).requests ?? []
      const lines = requests.length
        ? [`the last ${Math.min(requests.length, shown)} of ${requests.length} requests:`]
        : [`no request came: do clients have the base URL ${server.url}/v2?`]
      for (const r of requests.slice(-shown)) {
        const why = r.status >= 400 ? " " + told(r.answer ?? "") : ""
        lines.push(`  ${r.method} ${r.path} -> ${r.status || (r.done ? "no answer" : "waits")}${why}${r.fault ? ` (fault ${r.fault})` : ""}`)
      }
      for (const j of ((await ask("GET", "/jobs")).jobs ?? []).slice(-shown)) {
        if (j.status !== "COMPLETED") lines.push(`  job ${j.id} of ${j.endpoint}: ${j.status} ${short(j.error ?? "")}`)
      }
      const clock = await ask("GET", "/clock")
      lines.push(`the clock is at ${clock.now}; next is due: ${clock.next ?? "nothing"}`)
      return lines.join("\n")
    },
    async close() {
      for (const [name, value] of Object.entries(before)) {
        if (value === undefined) delete process.env[name]
        else process.env[name] = value
      }
      if (server.child && server.child.exitCode === null) {
        server.child.ref()
        const ended = once(server.child, "exit")
        server.child.kill()
        await ended
      }
    },
  }
}

module.exports = { start, program, Refused }
