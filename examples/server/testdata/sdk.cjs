// Asks an endpoint of everything that the package runpod-sdk can, and prints what it got
// as one JSON object on the last line (the package logs to standard output itself).
//
//	node sdk.cjs URL KEY    with the package found by NODE_PATH
const { pathToFileURL } = require("node:url")

const [base, key] = process.argv.slice(2)

async function all() {
  const { default: sdk } = await import(pathToFileURL(require.resolve("runpod-sdk")))
  const echo = sdk(key, { baseUrl: base + "/v2" }).endpoint("echo")
  const got = {}

  got.health = await echo.health()
  got.runSync = await echo.runSync({ input: { hello: "world", n: [1, 2.5, null] } })
  got.runSyncFailed = await echo.runSync({ input: { fail: "why" } })
  got.runSyncSlow = await echo.runSync({ input: { sleep_ms: 1500 } }, 1000)

  got.run = await echo.run({ input: { sleep_ms: 600000 }, policy: { executionTimeout: 700000, ttl: 800000 } })
  got.statusBefore = (await echo.status(got.run.id)).completed
  got.cancel = await echo.cancel(got.run.id)
  got.statusAfter = await echo.status(got.run.id)

  const quick = await echo.run({ input: { sleep_ms: 300, done: true } })
  got.statusSync = await echo.statusSync(quick.id)

  const many = await echo.run({ input: { chunks: 5 } })
  got.stream = []
  for await (const item of echo.stream(many.id)) got.stream.push(item)
  got.streamed = await echo.status(many.id)

  got.purgeQueue = await echo.purgeQueue()
  got.unknown = await echo.status("no-such-job").then(
    () => "no error",
    (err) => err.response?.status,
  )
  return got
}

all().then(
  (got) => console.log(JSON.stringify(got)),
  (err) => {
    console.error(err)
    process.exit(1)
  },
)
