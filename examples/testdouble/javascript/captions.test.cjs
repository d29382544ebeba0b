const { test, before, beforeEach, after } = require("node:test")
const assert = require("node:assert")
const { connect } = require("./captions.cjs")
const { start } = require("./double.cjs")

let double, captions

before(async () => {
  double = await start()
  captions = await connect(double.key, double.url)
})
beforeEach(() => double.reset())
after(() => double?.close())

test("a caption is the text of the output", async () => {
  await double.script("captions", { reply: { text: "a cat" } })
  assert.equal(await captions.caption("cat.png"), "a cat")
  await double.require("jobs", { endpoint: "captions", input: { image: "cat.png" }, status: "COMPLETED" })
})

test("a failure says why", async () => {
  await double.script("captions", { fail: "no such image" })
  await assert.rejects(captions.caption("none.png"), /no such image/)
})

test("a job of five minutes takes no time", async () => {
  await double.script("captions", { afterMs: 300_000, reply: { text: "late" } })
  const { id } = await captions.submit("big.png")
  assert.equal((await captions.status(id)).status, "IN_PROGRESS")
  await double.advance(300)
  assert.deepEqual((await captions.status(id)).output, { text: "late" })
})

test("a server error reaches the caller", async () => {
  await double.script("captions", { reply: { text: "a cat" } })
  await double.fault("status", { status: 503, operation: "runSync" })
  await assert.rejects(captions.caption("cat.png"))
  await double.require("requests", { operation: "runSync", status: 503, fault: "status" })
})
