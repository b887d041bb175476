/** Agents made with the official Python SDK, in one version of the protocol, given tasks by our binary. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { answers, call, listening, run } from "../mcp/rig.mjs";

const SERVER = fileURLToPath(new URL("server.py", import.meta.url));
const SECRET = "not-to-be-told";

/** Starts an agent and gives it these tasks, one after the other; returns what came of each, and what it noted. */
async function give(t, kind, tasks, more = {}) {
  const folder = await mkdtemp(join(tmpdir(), "convoke-a2a-"));
  t.after(() => rm(folder, { recursive: true }));
  const notes = join(folder, "notes");
  const command = [process.env.CONVOKE_A2A_PYTHON, SERVER, ...kind];
  const { url, stop } = await listening(command, { NOTES: notes, BEARER: SECRET });
  t.after(stop);
  const definition = [
    "---",
    "kind: remote",
    "name: far",
    `agent_card_url: ${url}`,
    "auth: {type: http, scheme: Bearer, token: $FAR_TOKEN}",
    "---",
    "",
  ].join("\n");
  const heard = [];
  const ran = await run(
    {},
    (n, request) => {
      if (n > 0) heard.push(JSON.parse(answers(request)[0]));
      return n < tasks.length ? [call("invoke_agent", { agent_name: "far", prompt: tasks[n] })] : [{ text: "done" }];
    },
    { files: { ".gemini/agents/far.md": definition }, env: { FAR_TOKEN: SECRET }, ...more },
  );
  const noted = (await readFile(notes, "utf8").catch(() => "")).split("\n").filter(Boolean);
  assert.ok(!JSON.stringify([ran.events, ran.requests, ran.stderr]).includes(SECRET), "a secret was told");
  assert.ok(!noted.includes("a stranger"));
  return { ...ran, heard, noted };
}

for (const version of [process.env.CONVOKE_A2A_VERSION]) {
  for (const way of ["stream", "poll"]) {
    describe(`${version}, ${way}`, { concurrency: 2 }, () => {
      const kind = [way, version];

      test("artifacts are put together, and the conversation goes on", async (t) => {
        const { heard, noted, events } = await give(t, kind, ["count", "where", "where"]);
        assert.match(heard[0].output, /Termination Reason: GOAL\nResult:\n<untrusted_context>\n1 2 3 \n\ncounted\n/);
        const [, first] = heard[1].output.match(/\nin (\S+)\n/);
        const [, second] = heard[2].output.match(/\nin (\S+)\n/);
        assert.equal(first, second);
        assert.deepEqual(noted, ["told count", "told where", "told where"]);
        const states = events.filter(({ type }) => type === "tool_result").map(({ status }) => status);
        assert.deepEqual(states, ["success", "success", "success"]);
      });

      test("a question is answered by the next call", async (t) => {
        const { heard, noted } = await give(t, kind, ["ask", "blue"]);
        assert.match(heard[0].output, /Termination Reason: INPUT_REQUIRED\n[^]*Which colour\?/);
        assert.match(heard[1].output, /Termination Reason: GOAL\n[^]*painted blue/);
        assert.deepEqual(noted, ["told ask", "told blue"]);
      });

      test("what failed is an error that says why", async (t) => {
        const { heard } = await give(t, kind, ["fail", "refuse", "raise", "still there"]);
        assert.match(heard[0].error, /It failed\. The task is not done\.\n[^]*no such row/);
        assert.match(heard[1].error, /It refused the task\.[^]*not my business/);
        assert.match(heard[2].error, /The task is not done\./);
        assert.match(heard[3].output, /echo: still there/);
      });

      test("what hangs is cancelled there", async (t) => {
        const overrides = { far: { runConfig: { maxTimeMinutes: 0.1 } } };
        const { heard, noted } = await give(t, kind, ["hang"], { more: { agents: { overrides } } });
        assert.match(heard[0].error, /Termination Reason: TIMEOUT/);
        assert.deepEqual(noted, ["told hang", "hanging", "cancelled"]);
      });
    });
  }
}
