// Asks an endpoint through the package openai, as its documentation shows, and prints
// what it got as one JSON object on the last line.
//
//	node openai.cjs URL KEY    with the package found by NODE_PATH
const OpenAI = require("openai")

const [base, key] = process.argv.slice(2)
const at = (endpoint, apiKey = key) =>
  new OpenAI({ apiKey, baseURL: `${base}/v2/${endpoint}/openai/v1`, maxRetries: 0 })
const say = (content) => ({ model: "tiny", messages: [{ role: "user", content }] })

// refused is the error that a promise ends with, as a program looks at it.
const refused = (promise) =>
  promise.then(
    () => "no error",
    (e) => ({ api: e instanceof OpenAI.APIError, class: e.constructor.name, status: e.status, type: e.type, message: e.message }),
  )

async function read(stream) {
  const words = []
  for await (const part of stream) {
    const { delta, finish_reason } = part.choices[0]
    words.push(finish_reason ?? delta.content)
  }
  return words
}

async function all() {
  const chat = at("chat")
  const got = {}

  const whole = await chat.chat.completions.create(say("hello"))
  got.completion = { object: whole.object, model: whole.model, choices: whole.choices }

  got.streamed = await read(await chat.chat.completions.create({ ...say("one two three four five"), stream: true }))

  const runner = chat.chat.completions.stream(say("six seven eight"))
  got.runner = (await runner.finalMessage()).content

  got.models = []
  for await (const model of chat.models.list()) got.models.push(model.id)

  const together = await Promise.all([1, 2, 3].map((n) => chat.chat.completions.create(say("number " + n))))
  got.together = together.map((c) => c.choices[0].message.content)

  got.failing = await refused(chat.chat.completions.create(say("please fail")))
  got.failingStream = await refused(chat.chat.completions.create({ ...say("please fail"), stream: true }).then(read))
  const broken = []
  const breaking = await chat.chat.completions.create({ ...say("two words break here"), stream: true })
  got.breaking = await refused((async () => {
    for await (const part of breaking) broken.push(part.choices[0].delta.content)
  })())
  got.broken = broken
  got.unknown = await refused(at("no-such-endpoint").chat.completions.create(say("hello")))
  got.badKey = await refused(at("chat", "not-a-key").models.list())
  return got
}

all().then(
  (got) => console.log(JSON.stringify(got)),
  (err) => {
    console.error(err)
    process.exit(1)
  },
)
