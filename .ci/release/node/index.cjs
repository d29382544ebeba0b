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
