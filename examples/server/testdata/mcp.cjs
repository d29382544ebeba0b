// Starts @runpod/mcp-server over stdio and calls its tools for whoever writes to it.
//
//	node mcp.cjs    with the packages found by NODE_PATH, and the environment of the server
//
// The first line on standard output lists the tools. Then each line {"tool","args"} on
// standard input is answered by a line {"error","payload"}.
const path = require("node:path")
const readline = require("node:readline")
const { Client } = require("@modelcontextprotocol/sdk/client/index.js")
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js")

async function serve() {
  const program = path.join(process.env.NODE_PATH, "@runpod/mcp-server/dist/stdio.mjs")
  const client = new Client({ name: "tests", version: "1" })
  await client.connect(new StdioClientTransport({ command: process.execPath, args: [program], env: process.env, stderr: "ignore" }))
  const say = (v) => console.log(JSON.stringify(v))
  say((await client.listTools()).tools.map((t) => t.name))
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { tool, args } = JSON.parse(line)
    try {
      const got = await client.callTool({ name: tool, arguments: args }, undefined, { timeout: 120000 })
      say({ error: got.isError === true, payload: JSON.parse(got.content[0].text) })
    } catch (err) {
      say({ error: true, payload: { thrown: String(err) } })
    }
  }
  await client.close()
}

serve().catch((err) => {
  console.error(err)
  process.exit(1)
})
