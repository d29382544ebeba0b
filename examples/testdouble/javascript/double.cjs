// The test double for node:test. Copy this file.
const { execFileSync, spawn } = require("node:child_process")
const { mkdtempSync } = require("node:fs")
const { tmpdir } = require("node:os")
const { join } = require("node:path")
const { createInterface } = require("node:readline")
const assert = require("node:assert")

// start finds a server that runs, or starts one on free ports.
async function start() {
  let child
  let url = process.env.PODYARD_URL
  let area = process.env.PODYARD_TEST_URL
  if (!area) {
    // Built and not run by go run, which would end without it.
    const program = join(mkdtempSync(join(tmpdir(), "double-")), "server.exe")
    const source = process.env.PODYARD_SOURCE ?? "."
    execFileSync("go", ["build", "-C", source, "-o", program, "github.com/podyard/podyard/examples/server"], { stdio: "inherit" })
    child = spawn(program, ["-addr", "127.0.0.1:0", "-test", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "inherit"] })
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]()
    url = (await lines.next()).value.split(" ").pop()
    area = (await lines.next()).value.split(" ").pop()
  }
  async function ask(method, path, body) {
    const answer = await fetch(area + path, { method, body: body && JSON.stringify(body) })
    const out = await answer.json()
    assert.ok(answer.ok, out.detail)
    return out
  }
  return {
    url,
    key: (await ask("GET", "")).key,
    reset: () => ask("POST", "/reset", {}),
    script: (endpoint, ...outcomes) => ask("POST", `/endpoints/${endpoint}/script`, { outcomes }),
    advance: (seconds) => ask("POST", "/clock/advance", { ms: seconds * 1000 }),
    fault: (name, match) => ask("POST", "/faults", { name, ...match }),
    async require(kind, match) {
      const found = await ask("POST", `/${kind}/find`, match)
      assert.ok(found.ok, found.explanation)
      return found.matches
    },
    close: () => child?.kill(),
  }
}

module.exports = { start }
