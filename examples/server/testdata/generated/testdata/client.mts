import createClient from "openapi-fetch";
import type { paths } from "./podyard.js";

declare const process: { argv: string[] };
const [, , baseUrl, key] = process.argv;
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${key}` } });
const path = { endpoint: "echo" };

let job = "";
for (let i = 0; i < 3; i++) {
  const body = { input: { chunks: 3 }, policy: { executionTimeout: 5000 } };
  const { data, error } = await client.POST("/v2/{endpoint}/run", { params: { path }, body });
  if (!data) throw new Error(error.detail);
  job = data.id;
}

let parts = 0;
let status = "";
while (!status) {
  const params = { path: { ...path, job }, query: { format: "envelope" } } as const;
  const { data, error } = await client.GET("/v2/{endpoint}/stream/{job}", { params });
  if (!data || Array.isArray(data)) throw new Error(error?.detail ?? "an array instead of an envelope");
  parts += data.stream.length;
  if (data.stream.length === 0 && data.status === "COMPLETED") status = data.status;
}

let jobs = 0;
let pages = 0;
let cursor: string | undefined;
do {
  const params = { path: { id: "echo" }, query: { limit: 2, cursor } };
  const { data, error } = await client.GET("/v2/serverless/{id}/jobs", { params });
  if (!data) throw new Error(error.detail);
  jobs += data.jobs.length;
  pages++;
  cursor = data.cursor ?? undefined;
} while (cursor);

const { error } = await client.GET("/v2/{endpoint}/status/{job}", { params: { path: { ...path, job: "none" } } });
console.log(JSON.stringify({ status, parts, jobs, pages, code: error?.status, detail: error?.detail }));
