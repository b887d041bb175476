/** Servers made with the official SDKs, over each transport that these publish, under our binary. */

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { eventually } from "../page/expect.mjs";
import { answers, call, calls, declared, listening, programs, run } from "./rig.mjs";

const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** What each kind of server agrees on with us, by transport. */
const VERSIONS = {
  2024: { stdio: "2024-11-05", sse: "2024-11-05" },
  2025: { stdio: "2025-11-25", http: "2025-11-25", sse: "2025-11-25" },
  2026: { stdio: "2026-07-28", http: "2026-07-28" },
  python: { stdio: "2026-07-28", http: "2026-07-28", sse: "2025-11-25" },
};

/** A server as settings name it. One with an address runs until `stop`. */
async function server(kind, transport, { env = {}, ...more } = {}) {
  const started = programs[kind](transport);
  if (transport === "stdio") {
    const [command, ...args] = started;
    return { config: { command, args, env, ...more }, stop: () => {} };
  }
  const { url, stop } = await listening(started, env);
  return { config: { url, type: transport, ...more }, stop };
}

async function notes() {
  const folder = await mkdtemp(join(tmpdir(), "convoke-mcp-notes-"));
  const file = join(folder, "notes");
  const read = async () => (await readFile(file, "utf8").catch(() => "")).split("\n").filter(Boolean);
  return { file, read, remove: () => rm(folder, { recursive: true }) };
}

// Side by side: most of a test is waiting for a program to start, or for time to pass.
for (const kind of Object.keys(programs)) {
  describe(kind, { concurrency: 3 }, () => {
    for (const [transport, version] of Object.entries(VERSIONS[kind])) {
      test(`${transport}: tools and resources`, async (t) => {
        const { config, stop } = await server(kind, transport);
        t.after(stop);
        const ran = await calls({ peer: config }, [
          call("mcp_peer_echo", { text: "hello" }),
          call("mcp_peer_odd_name_"),
          call("mcp_peer_speaks"),
          call("mcp_peer_picture"),
          call("mcp_peer_refuse"),
          call("mcp_peer_count", { to: 2, everyMs: 10 }),
          call("list_mcp_resources"),
          call("read_mcp_resource", { uri: "peer:note://one" }),
          call("read_mcp_resource", { uri: "note://two" }),
        ]);
        for (const name of ["mcp_peer_echo", "mcp_peer_odd_name_", "mcp_peer_grow", "read_mcp_resource"]) {
          assert.ok(ran.declared.includes(name), `${name} is not in ${ran.declared}`);
        }
        const states = ran.results.map(({ status }) => status);
        const [echo, odd, speaks, , refuse, count, list, read] = ran.answers;
        assert.match(echo, /<untrusted_context>\\necho: hello\\n/);
        assert.match(odd, /odd indeed/);
        assert.match(speaks, new RegExp(`speaks ${version}\\b`));
        assert.match(refuse, /no such row/);
        assert.match(count, /counted to 2\\n/);
        assert.match(list, /peer:note:\/\/one/);
        assert.match(read, /written down/);
        assert.ok(JSON.stringify(ran.requests[1]).includes(PIXEL), "the model does not see the image");
        const good = "success";
        const bad = "error";
        assert.deepEqual(states, [good, good, good, good, bad, good, good, good, bad]);
      });
    }

    const reached = VERSIONS[kind].http ? "http" : "sse";

    test(`an address alone is enough`, async (t) => {
      const { config, stop } = await server(kind, reached);
      t.after(stop);
      const { answers } = await calls({ peer: { url: config.url } }, [call("mcp_peer_echo", { text: "found" })]);
      assert.match(answers[0], /echo: found/);
    });

    test(`progress is patience, a hang is cancelled`, async (t) => {
      const noted = await notes();
      t.after(noted.remove);
      const { config, stop } = await server(kind, reached, { env: { NOTES: noted.file }, timeout: 3_000 });
      t.after(stop);
      const ran = await calls({ peer: config }, [
        call("mcp_peer_count", { to: 9, everyMs: 400 }),
        call("mcp_peer_hang"),
        call("mcp_peer_echo", { text: "still here" }),
      ]);
      assert.match(ran.answers[0], /counted to 9/);
      assert.match(ran.answers[1], /no answer within 3 seconds/);
      assert.match(ran.answers[2], /still here/);
      await eventually(async () => assert.ok((await noted.read()).includes("cancelled"), "it was not cancelled"));
    });

    test(`one that crashes in a call comes back`, async () => {
      const { config } = await server(kind, "stdio");
      let last;
      await run({ peer: config }, (n, request) => {
        last = request.contents.at(-1).parts.some((part) => part.functionResponse) ? answers(request)[0] : "";
        if (n === 0) return [call("mcp_peer_crash")];
        if (n === 1) assert.match(last, /ended while the call ran/);
        if (last.includes("echo: again") || n > 60) return [{ text: "done" }];
        // It is started again after a second; the model is not to be taken for one that is caught in a loop.
        const next = n % 2 ? call("run_shell_command", { command: `sleep 0.5; echo ${n}` }) : undefined;
        return [next ?? call("mcp_peer_echo", { text: `again ${n}` })];
      });
      assert.match(last, /echo: again/);
    });

    test(`a tool that is announced in the middle is offered`, async () => {
      const { config } = await server(kind, "stdio");
      let last;
      await run({ peer: config }, (n, request) => {
        last = declared(request);
        if (n === 0) return [call("mcp_peer_grow")];
        if (last.includes("mcp_peer_late") || n > 20) return [{ text: "done" }];
        return [call("run_shell_command", { command: `sleep 0.3; echo ${n}` })];
      });
      assert.ok(last.includes("mcp_peer_late"), `${last}`);
    });

    test(`of a list without end a part is offered`, async () => {
      const { config } = await server(kind, "stdio", { env: { MANY: "600" } });
      const ran = await calls({ peer: config }, [call("mcp_peer_echo", { text: "among many" })]);
      const offered = ran.declared.filter((name) => name.startsWith("mcp_peer_"));
      assert.equal(offered.length, 512);
      assert.equal(new Set(offered).size, 512);
      assert.match(ran.answers[0], /among many/);
    });
  });
}
