/** A test double of the pod and serverless API: a server with a clock that tests move. */
export interface Double {
  /** Where the server is, without /v2. */
  readonly url: string
  readonly key: string
  /** What clients read; start has set it. */
  readonly env: Readonly<Record<string, string>>
  /** Makes a request to the admin area, which describes itself at /openapi.json. */
  ask(method: string, path: string, body?: unknown): Promise<any>
  /** Everything as it was at the start. */
  reset(): Promise<unknown>
  /** Says what the jobs of an endpoint come to, in their order. */
  script(endpoint: string, ...outcomes: Outcome[]): Promise<unknown>
  /** Moves the clock. */
  advance(seconds: number): Promise<unknown>
  /** Makes something go wrong: GET /fault-names lists what can. */
  fault(name: string, match?: Record<string, unknown>): Promise<unknown>
  /** Wants requests, jobs or webhooks like the pattern, and returns them. */
  require(kind: "requests" | "jobs" | "webhooks", match: Record<string, unknown>): Promise<Record<string, any>[]>
  /** What the service saw, without headers, inputs and secrets: for a test that has failed. */
  report(): Promise<string>
  /** Ends the server, and sets the environment as it was. */
  close(): Promise<void>
}

/** One of reply, fail, hang and stream; the admin area has all members. */
export interface Outcome {
  reply?: unknown
  fail?: unknown
  hang?: boolean
  stream?: unknown[]
  afterMs?: number
  when?: Record<string, unknown>
  [member: string]: unknown
}

/** Starts a server on free ports, or uses the one of PODYARD_TEST_URL. */
export function start(): Promise<Double>
/** The path of the program. */
export function program(): string
/** The double refuses a request, or did not see what was required: the text is its own. */
export class Refused extends Error {}
