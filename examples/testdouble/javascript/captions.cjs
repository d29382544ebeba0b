// Describes images with an endpoint of the service, by the official SDK.
const { pathToFileURL } = require("node:url")

async function connect(key, url) {
  const { default: sdk } = await import(pathToFileURL(require.resolve("runpod-sdk")))
  const endpoint = sdk(key, { baseUrl: url + "/v2" }).endpoint("captions")
  return {
    submit: (image) => endpoint.run({ input: { image } }),
    status: (id) => endpoint.status(id),
    async caption(image) {
      const job = await endpoint.runSync({ input: { image } })
      if (job.status !== "COMPLETED") throw new Error(`job ${job.status}: ${job.error}`)
      return job.output.text
    },
  }
}

module.exports = { connect }
