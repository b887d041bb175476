/** One run of our binary, without a terminal: its model is here, and its servers are programs that others made. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = (file) => fileURLToPath(new URL(file, import.meta.url));

/** How each kind of server is started, by the transport that it is to speak. */
export const programs =
  process.env.CONVOKE_MCP_PYTHON === undefined
    ? {
        2024: (transport) => [process.execPath, here("server.mjs"), "2024", transport],
        2025: (transport) => [process.execPath, here("server.mjs"), "2025", transport],
        2026: (transport) => [process.execPath, here("server.mjs"), "2026", transport],
      }
    : { python: (transport) => [process.env.CONVOKE_MCP_PYTHON, here("server.py"), transport] };

export const call = (name, args = {}) => ({ functionCall: { name, args } });

/** A model that answers what `decide` returns for each request, and keeps the requests. */
async function model(decide) {
  const requests = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request) body += piece;
    if (!request.url.includes(":streamGenerateContent")) return void response.writeHead(404).end("{}");
    requests.push(JSON.parse(body));
    const parts = await decide(requests.length - 1, requests.at(-1));
    const candidate = { content: { role: "model", parts }, finishReason: "STOP", index: 0 };
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.end(`data: ${JSON.stringify({ candidates: [candidate] })}\r\n\r\n`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { url: `http://127.0.0.1:${server.address().port}`, requests, close: () => server.close() };
}

export const declared = (request) =>
  (request.tools ?? []).flatMap((tool) => tool.functionDeclarations ?? []).map(({ name }) => name);

/** The answers to the last calls, as the model sees them. */
export const answers = (request) =>
  request.contents
    .at(-1)
    .parts.filter((part) => part.functionResponse)
    .map(({ functionResponse }) => JSON.stringify(functionResponse.response));

/**
 * Runs the binary with these servers. `decide` is the model: parts for each request by its number. `files` are in its
 * home, `more` in its settings and `env` in its environment.
 */
export async function run(mcpServers, decide, { files = {}, more = {}, env = {} } = {}) {
  const home = await mkdtemp(join(tmpdir(), "convoke-mcp-"));
  const workspace = join(home, "workspace");
  await mkdir(join(home, ".gemini"));
  await mkdir(workspace);
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(home, path)), { recursive: true });
    await writeFile(join(home, path), text);
  }
  const settings = { mcpServers, mcp: { startupTimeout: 60_000 }, ...more };
  await writeFile(join(home, ".gemini/settings.json"), JSON.stringify(settings));
  const answering = await model(decide);
  const args = ["-p", "go", "-m", "gemini-2.5-flash", "-o", "stream-json", "-y", "--skip-trust"];
  const running = spawn(process.env.CONVOKE_PROGRAM, args, {
    cwd: workspace,
    env: {
      PATH: process.env.PATH,
      HOME: home,
      CONVOKE_HOME: home,
      GEMINI_CLI_HOME: home,
      GEMINI_API_KEY: "not-a-key",
      GOOGLE_GEMINI_BASE_URL: answering.url,
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  running.stdout.on("data", (piece) => (stdout += piece));
  running.stderr.on("data", (piece) => (stderr += piece));
  const [code] = await once(running, "close");
  answering.close();
  await rm(home, { recursive: true, force: true });
  assert.equal(code, 0, `${stdout}\n${stderr}`);
  const events = stdout.trim().split("\n").map((line) => JSON.parse(line));
  return { events, stderr, requests: answering.requests };
}

/** Runs the binary with one turn of calls, and returns what came of each: its name, its state, its answer. */
export async function calls(mcpServers, wanted) {
  const ran = await run(mcpServers, (n) => (n === 0 ? wanted : [{ text: "done" }]));
  const results = ran.events.filter(({ type }) => type === "tool_result");
  const seen = ran.requests[1] ? answers(ran.requests[1]) : [];
  return { ...ran, declared: declared(ran.requests[0]), results, answers: seen };
}

/** A server that the test starts, since it is reached by its address. */
export async function listening([program, ...args], env = {}) {
  const server = spawn(program, args, { env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] });
  const exited = once(server, "exit");
  const gone = exited.then(([code]) => Promise.reject(new Error(`the server ended with ${code}`)));
  gone.catch(() => {});
  const [line] = await Promise.race([once(createInterface(server.stdout), "line"), gone]);
  const stop = async () => {
    server.kill("SIGKILL");
    await exited;
  };
  return { url: `http://127.0.0.1:${line.split(" ")[1]}/`, stop };
}
